# shellcheck shell=sh
# What a skill in POSIX shell needs: its input, and JSON out of text. Only awk is used. Put a copy beside your program:
#
#     . "${0%/*}/shelly_skill.sh"
#     printf '{"answer": %s}\n' "$(json_get name | json_text)"

# The whole of standard input, which is one JSON object.
input=$(cat)

# json_get NAME: prints the member NAME of the input. A text is printed as it is, all else as JSON. Fails if there is none.
json_get() {
    printf '%s\n' "$input" | LC_ALL=C awk -v wanted="$1" '
        function here() { return substr(s, p, 1) }
        function blank() { while (here() != "" && index(" \t\r\n", here()) > 0) p++ }
        function utf8(n) {
            if (n < 128) return sprintf("%c", n)
            if (n < 2048) return sprintf("%c%c", 192 + int(n / 64), 128 + n % 64)
            if (n < 65536) return sprintf("%c%c%c", 224 + int(n / 4096), 128 + int(n / 64) % 64, 128 + n % 64)
            return sprintf("%c%c%c%c", 240 + int(n / 262144), 128 + int(n / 4096) % 64, 128 + int(n / 64) % 64, 128 + n % 64)
        }
        function hex(  n, i) {
            for (i = 0; i < 4; i++) { n = n * 16 + index("0123456789abcdef", tolower(here())) - 1; p++ }
            return n
        }
        function escaped(  c, n) {
            c = here(); p++
            if (c != "u") return c in escapes ? escapes[c] : c
            n = hex()
            # A character beyond 65535 is two of these.
            if (n >= 55296 && n < 56320 && substr(s, p, 2) == "\\u") { p += 2; n = 65536 + (n - 55296) * 1024 + hex() - 56320 }
            return utf8(n)
        }
        # The text at p. A long one is printed piece by piece: putting it together would take long.
        function text(what,  out, c) {
            p++
            while ((c = here()) != "\"" && c != "") {
                p++
                if (c == "\\") c = escaped()
                if (what == "print") printf "%s", c
                if (what == "keep") out = out c
            }
            p++
            return out
        }
        function value(what,  start, depth, c) {
            if (here() == "\"") { text(what); return }
            start = p
            while ((c = here()) != "") {
                if (c == "\"") { text(""); continue }
                if (depth == 0 && index(",]} \t\r\n", c) > 0) break
                if (c == "[" || c == "{") depth++
                if (c == "]" || c == "}") depth--
                p++
            }
            if (what == "print") printf "%s", substr(s, start, p - start)
        }
        BEGIN { escapes["n"] = "\n"; escapes["t"] = "\t"; escapes["r"] = "\r"; escapes["b"] = "\b"; escapes["f"] = "\f" }
        { s = s $0 "\n" }
        END {
            p = 1; blank()
            while (here() == "{" || here() == ",") {
                p++; blank()
                name = text("keep"); blank()
                p++; blank()
                if (name == wanted) { value("print"); exit 0 }
                value(""); blank()
            }
            exit 1
        }'
}

# json_text: makes a JSON text of standard input, without the end of its last line.
json_text() {
    LC_ALL=C awk '
        BEGIN {
            for (i = 1; i < 32; i++) escape[sprintf("%c", i)] = sprintf("\\u%04x", i)
            escape["\""] = "\\\""; escape["\\"] = "\\\\"; escape["\t"] = "\\t"
            printf "\""
        }
        NR > 1 { printf "\\n" }
        { for (i = 1; i <= length($0); i++) { c = substr($0, i, 1); printf "%s", (c in escape) ? escape[c] : c } }
        END { printf "\"" }'
}

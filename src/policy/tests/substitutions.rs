//! Commands in substitutions. The parser of words knows neither here-documents nor comments: what stands there ends a
//! substitution for it, or keeps it open.

use super::*;

const NONE: [(&str, Verdict); 0] = [];

/// Those of `scripts` of which this holds, where `marker` is denied.
fn where_it<'s>(holds: fn(Verdict) -> bool, scripts: &[&'s str]) -> Vec<(&'s str, Verdict)> {
    let policy = policy("default = \"allow\"\ndeny = [\"bash(command:marker *)\"]");
    let judged = scripts
        .iter()
        .map(|script| (*script, bash(&policy, script)));
    judged.filter(|(_, verdict)| holds(*verdict)).collect()
}

#[test]
fn documents_comments_and_subshells_hide_no_command() {
    let hidden = [
        "x=$(cat <<E\n:(\nE\nmarker x\n)",
        "x=$(cat <<'E'\n:(\nE\nmarker x\n)",
        "x=$(cat <<-E\n\t:(\n\tE\nmarker x\n)",
        "echo \"$(cat <<E\n:(\nE\nmarker x\n)\"",
        "a=($(cat <<E\n:(\nE\nmarker x\n))",
        "for i in $(cat <<E\n:(\nE\nmarker x\n); do :; done",
        "case $(cat <<E\n:(\nE\nmarker x\n) in *) ;; esac",
        "cat <<F\n$(cat <<E\n:(\nE\nmarker x\n)\nF",
        "cat <<E\n$(echo a # :)\nmarker x)\nE",
        "cat <<E\n$(echo a # :(\nmarker x)\nE",
        "cat <<E\n$(\n# it is 1) of 2\nmarker x\n)\nE",
        "cat <<E\n$(echo a # \"\nmarker x)\nE",
        "cat <<F\n$(cat <<E\n\"\nE\nmarker x\n)\nF",
        "echo $(echo $((cd /; pwd); marker x))",
        "n=$(( $((:); marker x >&2; echo 1) + 1 ))",
        "x=$(echo $((:)\nmarker x))",
        "\"$(echo $((:)\nmarker x))\"",
        "echo $((\"(\" ); marker x; (: ))",
        // What is marked and no document's body.
        "\"$(echo '<<'E'\n' ) $(marker x)\nE\n')\"",
        "\"<<E\n$(marker x)\nE\n$(:)\"",
        "\"$(cat <<E\"x\"\nEx\n) $(marker x)\nE\n)\"",
        "x=$(bash <<'E'\nmarker x # (\nE\n)",
        "env -S $'\\rmarker x'",
        "env -S $'\\vmarker x'",
        "e${x}nv -S'marker x'",
        "while bas$!h; do break; done <<<'marker x'",
        "f() { bas$!h; }; f <<<'marker x'",
        "echo ${x-\\}<<E\n$(marker x)\nE\n}",
        "x=a; echo \"${x/a/\"}\"<<E\n$(marker x)\nE\n}\"",
        "echo <<<'<<E\n'$(marker x)'\nE\n'",
        "case '<<E\n'$(marker x)'\nE\n' in *) ;; esac",
        "x=$(\n  # cat <<EOF\n)\nmarker x\n(:\nEOF\n)",
        "x=$(ls  # like <<E\n)\nmarker x\ny=$(cat f\nE\n)",
        "x=$(ls; # it's\n)\nmarker x\ny=$(ls; # it's\n)",
        "echo \"$( # <<E\n)$(marker x\nE\n)\"",
        "echo $((marker x ${x#)}${x#(}))",
        "x=; e${x}nv -Smarker",
        "x=; e${x}nv -iS/path/marker",
        "s${x}u root -cmarker",
        "x='a[$(case x in x) marker x;; esac)]'; ((x))",
        "x='a[$(for i in a;{ marker x;})]'; ((x))",
        "cat <<\rE\n\rE\nmarker x\nE",
        "x=$(cat <<'' # marker x",
        "cat <<E\n$(cat <<'' #)\nE\nmarker x",
        ": ${x#*(}\n{ cat <<\\G\n)\nG\nmarker x\n}",
    ];
    assert_eq!(where_it(|verdict| verdict == Verdict::Allow, &hidden), NONE);
}

#[test]
fn nor_are_others_taken_for_one() {
    let harmless = [
        "git commit -m \"$(cat <<'EOF'\nFix (a) and b)\n\n- it's `c`: ${d} :(\nEOF\n)\"",
        "x=$(cat <<'E'\n1) foo\nE\n)",
        "echo \"$(cat <<-E\n\t:(\n\tE\n)\"",
        "x=$(( $(wc -l < \"f\") + 1 )); echo $(((1 + 2) * 3)) \"$((x << 2))\"",
        "cat <<E\n$(date '+%s # x') # y (z\nE",
        "x=$(grep '^# x' f)",
        "grep -n '$(' Makefile; sed -i 's/$(CC/gcc/' Makefile; git commit -m \"fix \\$( handling\"",
        "echo $(( (\"$a\" + 1) * 2 ))",
        "x=$(ls) # it's (a\n  # it's\necho $x",
        "x=$(\n  # all of them\n  ls\n)",
        "cat > f <<'E'\nx=$(ls)\n  # it's (a\nE",
        "declare -A m; m[\"$k\"]=1; m[\"${a}_${b}\"]=1; m[\"${#l[@]}\"]=x; ((m[\"$k\"]++)); echo \"${m[\"$k\"]}\"",
        "s[$(md5sum \"$f\" | cut -d' ' -f1)]=\"$f\"; m[`date +%s`]=1; m[$'a\\tb']=1; unset m[\"$i\"]",
        "cat > m.rs <<'E'\nfn main() {\n    println!(\"{}\", add(1, 2));\n    assert_eq!(f(1), Some(\"a\"));\n}\nE",
        "git commit -m \"Use assert!(foo(\\\"x\\\")) here\"",
        "cat > a.txt <<A; cat > b.txt <<B\na\nA\nb\nB",
        "cat <<E | awk '\n{ print $1 }\n'\na b\nE",
        "python3 - <<'E' \"a\nb\"\nprint(1)\nE",
        "[[ $out =~ (error|\"not found\"|fail) ]] && [[ $v =~ ^(>=|<=|==)?([0-9.]+)$ ]]",
        "[[ $v =~ ^a && (\"$w\" == \"x\" || \"$w\" == \"y\") ]]; [[ ($v =~ ^a) && (\"$w\" == \"x\") ]]",
        "[[ -f x ]] || exit 1\nperl -e 'if ($s =~ /x/) { print(\"a\"); }'",
        "cat <<E > f # don't forget (it\nx\nE",
        "cat <<  E\nx\nE",
        "cat <<'' # marker x",
        "git commit -m \"$(cat <<'EOF'\nMatch names (case insensitive), just in case\n\n- a\\\\\ncase closed\nEOF\n)\"",
        "x=$(grep -i case f | sort); y=$(case $x in a) echo b;; esac)",
        "cat <<\r # marker x",
        "cat <<\x0c''\nmarker x",
        "[[ $l =~ ^(#|//) ]] && echo 'a comment'",
        "x=$(cat <<EOF # all of it\nx\nEOF\n)",
        "cat <<EOF > \"$(date +%F).txt\"\nx\nEOF",
        "arr[(i+1)%3]=x; echo ${arr[(i+1)%3]}",
        "perl -e '((\")\" x 3)) # it'",
        "coproc ./worker\nread -r x <&\"${COPROC[0]}\"",
        "std() { echo 'cout << \"a\" << (b);'; }\ncat > a.cpp <<'E'\nstd::cout << f(a,\n  b) << (c);\nE",
    ];
    assert_eq!(
        where_it(|verdict| verdict != Verdict::Allow, &harmless),
        NONE
    );
}

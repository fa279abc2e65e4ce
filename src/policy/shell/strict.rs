//! The reader that may allow. It knows plain words, quotes, escapes and comments, joined by `&&`, `||`,
//! `;`, `|` and newlines, with redirects to `/dev/null` and between descriptors 0 to 2. There
//! every shell agrees what is run. All else is opaque: no guess is ever made. One pass, no
//! recursion, linear time.

use super::super::glob::INNER_BLANK;

/// One command of a script that was read completely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The words as the program gets them, its name first.
    pub words: Vec<String>,
}

/// Why a script cannot be allowed by a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opaque {
    /// Where, in bytes.
    pub at: usize,
    /// What stands there.
    pub what: &'static str,
}

/// Words that begin something other than a simple command.
const RESERVED: [&str; 24] = [
    "!",
    "[[",
    "]]",
    "case",
    "coproc",
    "do",
    "done",
    "elif",
    "else",
    "esac",
    "fi",
    "for",
    "function",
    "if",
    "in",
    "namespace",
    "select",
    "then",
    "time",
    "until",
    "while",
    "{",
    "}",
    "((",
];

/// Whether a command never begins with this word, quoted or not, as far as is known here.
pub fn is_grammar(word: &str) -> bool {
    RESERVED.contains(&word)
}

/// Reads all commands of `script`.
///
/// # Errors
/// The first thing that is not in the subset.
pub fn read(script: &str) -> Result<Vec<Segment>, Opaque> {
    let mut reader = Reader {
        text: script.as_bytes(),
        at: 0,
        segments: Vec::new(),
        words: Vec::new(),
        begin: 0,
        operator: Operator::Start,
    };
    reader.script()?;
    Ok(reader.segments)
}

/// `words` joined by single blanks, in the form that patterns are held against.
pub(in super::super) fn join<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let mut text = String::new();
    for (index, word) in words.into_iter().enumerate() {
        if index > 0 {
            text.push(' ');
        }
        text.extend(word.chars().map(|c| if c == ' ' { INNER_BLANK } else { c }));
    }
    text
}

/// What stood before the place where a command may begin.
#[derive(Clone, Copy, PartialEq)]
enum Operator {
    Start,
    /// `;` or a newline: a command may follow.
    Sequence,
    /// `&&`, `||`, `|`: one must.
    Joint,
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    segments: Vec<Segment>,
    words: Vec<String>,
    /// Where the first of them begins.
    begin: usize,
    operator: Operator,
}

impl Reader<'_> {
    /// The next byte, after backslash-newlines, which the shell takes out first of all.
    fn peek(&mut self) -> Option<u8> {
        while self.text[self.at..].starts_with(b"\\\n") {
            self.at += 2;
        }
        self.text.get(self.at).copied()
    }

    fn opaque<T>(&self, what: &'static str) -> Result<T, Opaque> {
        Err(Opaque { at: self.at, what })
    }

    fn script(&mut self) -> Result<(), Opaque> {
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' => self.at += 1,
                b'\n' => {
                    self.at += 1;
                    if self.operator != Operator::Joint || !self.words.is_empty() {
                        self.end(Operator::Sequence)?;
                    }
                }
                b';' => self.separator(Operator::Sequence)?,
                b'|' | b'&' => self.joint(byte)?,
                b'<' | b'>' => self.redirect()?,
                b'#' => self.comment()?,
                _ => self.word()?,
            }
        }
        if self.operator == Operator::Joint && self.words.is_empty() {
            return self.opaque("the end after an operator");
        }
        self.end(Operator::Sequence)
    }

    fn separator(&mut self, operator: Operator) -> Result<(), Opaque> {
        if self.words.is_empty() {
            return self.opaque("an operator without a command before it");
        }
        self.at += 1;
        self.end(operator)
    }

    fn joint(&mut self, byte: u8) -> Result<(), Opaque> {
        let at = self.at;
        self.at += 1;
        let second = self.peek();
        match (byte, second) {
            (b'&', Some(b'&')) | (b'|', Some(b'|')) => {}
            (b'|', Some(b'&')) => return Err(Opaque { at, what: "`|&`" }),
            (b'|', _) => self.at = at,
            // `&>` as well: to a plain sh it is `&` and a redirect of the next command.
            _ => return Err(Opaque { at, what: "`&`" }),
        }
        self.separator(Operator::Joint)
    }

    /// Closes the command, if there is one.
    fn end(&mut self, operator: Operator) -> Result<(), Opaque> {
        self.operator = operator;
        let words = std::mem::take(&mut self.words);
        let Some(program) = words.first() else {
            return Ok(());
        };
        let what = match program.as_str() {
            "" => "a command without a name",
            program if program.contains('=') => "an assignment",
            program if is_grammar(program) => "a word of the shell's grammar",
            _ => {
                self.segments.push(Segment { words });
                return Ok(());
            }
        };
        let at = self.begin;
        Err(Opaque { at, what })
    }

    /// At `<` or `>`; a descriptor's number is already gone.
    fn redirect(&mut self) -> Result<(), Opaque> {
        let input = self.peek() == Some(b'<');
        self.at += 1;
        let next = self.peek();
        if next == Some(b'&') {
            self.at += 1;
            return match self.peek() {
                Some(b'0'..=b'2') => {
                    self.at += 1;
                    self.word_ends()
                }
                _ => self.opaque("a redirect to something other than a descriptor"),
            };
        }
        if next == Some(b'>') && !input {
            self.at += 1;
        }
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
        for expected in *b"/dev/null" {
            if self.peek() != Some(expected) {
                return self.opaque("a redirect to a file");
            }
            self.at += 1;
        }
        self.word_ends()
    }

    fn word_ends(&mut self) -> Result<(), Opaque> {
        match self.peek() {
            None | Some(b' ' | b'\t' | b'\n' | b';' | b'|' | b'&') => Ok(()),
            Some(_) => self.opaque("a redirect to something longer"),
        }
    }

    /// Whether a word ends behind the next byte.
    fn stands_alone(&self) -> bool {
        let next = self.text.get(self.at + 1);
        next.is_none_or(|byte| b" \t\n;|&".contains(byte))
    }

    fn word(&mut self) -> Result<(), Opaque> {
        let mut word = Vec::new();
        let start = self.at;
        if self.words.is_empty() {
            self.begin = start;
        }
        let mut plain = true;
        let mut before = None;
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\n' | b';' | b'|' | b'&' => break,
                b'<' | b'>' => {
                    if plain && word.iter().all(u8::is_ascii_digit) {
                        return match word.as_slice() {
                            [b'0'..=b'2'] => self.redirect(),
                            _ => self.opaque("a redirect of another descriptor"),
                        };
                    }
                    break;
                }
                b'\'' => {
                    plain = false;
                    self.quoted(b'\'', &mut word)?;
                }
                b'"' => {
                    plain = false;
                    self.quoted(b'"', &mut word)?;
                }
                b'\\' => {
                    plain = false;
                    self.at += 1;
                    match self.text.get(self.at) {
                        Some(byte @ b' '..=b'~') => word.push(*byte),
                        _ => {
                            return self
                                .opaque("an escape of something that is no plain character");
                        }
                    }
                    self.at += 1;
                }
                // Only after a letter or digit is it no home directory: HEAD~1.
                b'~' if !before.is_some_and(|b: u8| b.is_ascii_alphanumeric() || b == b'^') => {
                    return self.opaque("`~`");
                }
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => self.plain(byte, &mut word),
                // Alone, one is the name of a command, and the other its last word.
                b'[' | b']' if plain && word.is_empty() && self.stands_alone() => {
                    self.plain(byte, &mut word);
                }
                // Elsewhere it is one of the grammar's.
                b'!' if before.is_some() || !self.words.is_empty() && self.stands_alone() => {
                    self.plain(byte, &mut word);
                }
                b'#' if before.is_some() => self.plain(byte, &mut word),
                b'_' | b'-' | b'.' | b'/' | b':' | b',' | b'+' | b'@' | b'%' | b'=' | b'^'
                | b'~' => {
                    self.plain(byte, &mut word);
                }
                _ => return self.opaque(special(byte)),
            }
            before = Some(byte);
        }
        match String::from_utf8(word) {
            Ok(word) => self.words.push(word),
            Err(_) => {
                return Err(Opaque {
                    at: start,
                    what: "no text",
                });
            }
        }
        Ok(())
    }

    fn plain(&mut self, byte: u8, word: &mut Vec<u8>) {
        word.push(byte);
        self.at += 1;
    }

    /// At the opening quote. Between double quotes nothing may stand that is expanded there.
    fn quoted(&mut self, quote: u8, word: &mut Vec<u8>) -> Result<(), Opaque> {
        let open = self.at;
        self.at += 1;
        while let Some(&byte) = self.text.get(self.at) {
            match (byte, quote) {
                _ if byte == quote => {
                    self.at += 1;
                    return Ok(());
                }
                (b'$' | b'`', b'"') => return self.opaque(special(byte)),
                (b'\\', b'"') => match self.text.get(self.at + 1) {
                    Some(next @ (b'$' | b'`' | b'"' | b'\\')) => {
                        word.push(*next);
                        self.at += 2;
                    }
                    Some(b'\n') | None => {
                        return self.opaque("a line that goes on between double quotes");
                    }
                    // It stands for itself (POSIX.1-2024, 2.2.3).
                    Some(_) => self.plain(byte, word),
                },
                _ if byte.is_ascii_control() && !matches!(byte, b'\n' | b'\t') => {
                    return self.opaque("a control character");
                }
                _ => self.plain(byte, word),
            }
        }
        self.at = open;
        self.opaque("a quote that is not closed")
    }

    /// At a `#` that begins a word: up to the end of the line it is read by nobody.
    fn comment(&mut self) -> Result<(), Opaque> {
        let rest = &self.text[self.at..];
        let length = rest.iter().position(|byte| *byte == b'\n');
        let comment = &rest[..length.unwrap_or(rest.len())];
        // Whether those go on in the next line, shells need not agree.
        if self.text[..self.at].ends_with(b"\\\n") || comment.ends_with(b"\\") {
            return self.opaque("a comment beside a line that goes on");
        }
        self.at += comment.len();
        Ok(())
    }
}

fn special(byte: u8) -> &'static str {
    match byte {
        b'$' => "`$`",
        b'`' => "a backtick",
        b'(' | b')' => "a parenthesis",
        b'{' | b'}' => "a brace",
        b'*' | b'?' | b'[' | b']' => "a file name pattern",
        b'#' => "`#`",
        b'!' => "`!`",
        0..=31 | 127 => "a control character",
        128.. => "a character outside ASCII that is not quoted",
        _ => "a character with a meaning",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(script: &str) -> Option<Vec<String>> {
        let segments = read(script).ok()?;
        Some(
            segments
                .iter()
                .map(|segment| segment.words.join("·"))
                .collect(),
        )
    }

    #[test]
    fn plain_scripts_are_read() {
        for (script, expected) in [
            ("git status", &["git·status"][..]),
            ("  git\tstatus  -s\n", &["git·status·-s"]),
            ("[ -d a ]&&b", &["[·-d·a·]", "b"]),
            ("a&&b||c;d|e\nf", &["a", "b", "c", "d", "e", "f"]),
            ("a &&\n\n b", &["a", "b"]),
            ("a 'b c' \"d 'e\" f\\ g", &["a·b c·d 'e·f g"]),
            ("g\\i't' \"sta\"tus", &["git·status"]),
            ("gi\\\nt status", &["git·status"]),
            ("a >/dev/null 2>&1", &["a"]),
            ("a 2\\\n>/dev/nu\\\nll", &["a"]),
            ("a >>/dev/null; b </dev/null", &["a", "b"]),
            (">/dev/null a", &["a"]),
            (
                "git show HEAD~1 HEAD^ --format='%H $x'",
                &["git·show·HEAD~1·HEAD^·--format=%H $x"],
            ),
            ("a 2\\>x", &["a·2>x"]),
            ("a '' b", &["a··b"]),
            ("echo 'ä\nö'", &["echo·ä\nö"]),
            ("a \"b! \\$c \\n \\\\ \\\" d\"", &["a·b! $c \\n \\ \" d"]),
            ("[ ! -f a ] && b hi! c#d", &["[·!·-f·a·]", "b·hi!·c#d"]),
            ("# a; b\nc # d 'e\nf;# $(g)", &["c", "f"]),
            ("a && # b\nc", &["a", "c"]),
            ("", &[]),
            ("\n\n", &[]),
        ] {
            assert_eq!(
                words(script).as_deref(),
                Some(&expected.iter().map(|&s| s.to_owned()).collect::<Vec<_>>()[..]),
                "{script:?}"
            );
        }
    }

    #[test]
    fn everything_else_is_opaque() {
        for script in [
            "a $b",
            "a `b`",
            "a $(b)",
            "a &",
            "a & b",
            "a |& b",
            "(a)",
            "{ a; }",
            "a *",
            "a ?",
            "a [b]",
            "a [b",
            "a b]",
            "a []",
            "a [\\\n]",
            "a ''[",
            "a {b,c}",
            "~/a",
            "a ~",
            "a=~",
            "a x=~/b",
            "a #b\\\n",
            "a \\\n#b\nc",
            "!a",
            "a !b",
            "a && ! b",
            "! a",
            "time a",
            "if a",
            "A=b a",
            "A=b",
            "'A=b' c",
            "a > b",
            "a >> b",
            "a < b",
            "a <<E\nE",
            "a <<<b",
            "a >(b)",
            "a 3>/dev/null",
            "a &>/dev/null",
            "a &>/dev/null b",
            "a >/dev/nullx",
            "a >/dev/null'x'",
            "a >&3",
            "a >&1x",
            "a 2>&-",
            "a &>>b",
            "a >| b",
            "a\rb",
            "a \u{a0}b",
            "ä",
            "a 'b",
            "a \"b",
            "a \"$b\"",
            "a \"b\\\nc\"",
            "a \"b\\\"",
            "a \\",
            "a \\\u{e4}",
            ";",
            "; a",
            "a ;; b",
            "a && ",
            "| a",
            "a | | b",
            "&& a",
            "a '\u{1}'",
            "a \u{0}",
            "\"\" a",
            "if",
            "\"if\" a",
            "[[ a ]]",
            "a\u{b}b",
            "a 'x\ry'",
            "a &&& b",
            "a ||| b",
            "a >",
            "a >&",
            "a <>/dev/null",
        ] {
            assert_eq!(words(script), None, "{script:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_where_it_begins() {
        for (script, at, what) in [
            ("FOO=1 git status", 0, "an assignment"),
            ("git status; FOO=1 ls", 12, "an assignment"),
            (
                "for i in a; do ls; done",
                0,
                "a word of the shell's grammar",
            ),
            ("git status &", 11, "`&`"),
            ("a |& b", 2, "`|&`"),
            ("a; '' b", 3, "a command without a name"),
        ] {
            assert_eq!(read(script), Err(Opaque { at, what }), "{script}");
        }
    }
}

//! Secrets in a stream of bytes, masked before anything else sees them: the shapes of well-known
//! tokens, given values, and given patterns. A secret may be cut anywhere between two pieces.

mod shapes;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use aho_corasick::AhoCorasick;
use memchr::memmem::Finder;
use regex::bytes::Regex;
use serde_json::{Map, Value};

use shapes::{Class, PREFIXES, Run, SHAPES, Shape};

/// What stands in for a secret.
const MASK: &[u8] = b"***";

/// The shortest match of a pattern that is masked, in bytes: what stands in for it is never longer.
pub const SHORTEST_MASKED: usize = MASK.len();

/// The shortest value that is masked, in bytes: of shorter ones every output is full.
const SHORTEST_VALUE: usize = 4;

/// The shortest line that is masked of a value that has several, in bytes: of braces and the like every output is full.
const SHORTEST_LINE: usize = 8;

/// How many lines of one value are masked by themselves: a private key has fifty, and each is looked for by itself.
const MOST_LINES: usize = 256;

/// The longest that is held back for the end of a secret to come, in bytes. Tokens are shorter, and
/// a line that is longer is looked at in pieces.
const LONGEST_HELD: usize = 8 * 1024;

/// The longest line that patterns are not looked for in before it is there as a whole, in bytes. Of a longer one the last
/// [`LONGEST_HELD`] are held back: each byte is looked at twice at the most, but for those of a match.
const LONGEST_SEARCHED: usize = 2 * LONGEST_HELD;

/// How much of what stands before something tells whether a word begins there, in bytes.
pub const CONTEXT: usize = 32;

/// What is masked in one execution's output.
#[derive(Clone, Default)]
pub struct Secrets {
    shapes: bool,
    values: Vec<Given>,
    patterns: Arc<[Regex]>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets")
            .field("shapes", &self.shapes)
            .field("values", &self.values.len())
            .field("patterns", &self.patterns)
            .finish()
    }
}

impl Secrets {
    /// Masks well-known tokens if `shapes` is set, what `patterns` match within a line, and nothing
    /// else yet.
    pub fn new(shapes: bool, patterns: Arc<[Regex]>) -> Self {
        Self {
            shapes,
            values: Vec::new(),
            patterns,
        }
    }

    /// Masks `value` too, as it is and as JSON has it, unless it is shorter than four bytes. Of one with several lines
    /// each of the first 256 is masked by itself as well that has eight bytes without the blanks around it.
    pub fn add(&mut self, value: &str) {
        if value.len() < SHORTEST_VALUE {
            return;
        }
        self.add_forms(value);
        // Such a value is printed in part, indented, or with other line ends, without any intent to hide it.
        if value.contains('\n') {
            let lines = value.lines().take(MOST_LINES).map(str::trim);
            let lines: BTreeSet<_> = lines.filter(|line| line.len() >= SHORTEST_LINE).collect();
            lines.into_iter().for_each(|line| self.add_forms(line));
        }
    }

    fn add_forms(&mut self, value: &str) {
        let mut forms = vec![value.to_owned()];
        for escaped in json_forms(value) {
            if !forms.contains(&escaped) {
                forms.push(escaped);
            }
        }
        let given = forms.iter().map(|form| Given::new(form.as_bytes()));
        self.values.extend(given);
    }

    /// Masks a whole text.
    pub fn mask_text(&self, text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        self.mask(&mut bytes, 0, true);
        // What is masked begins and ends where characters do, given patterns apart.
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    /// Masks every text in a value, the names of members among them, and says whether there was anything to mask.
    pub fn mask_value(&self, value: &mut Value) -> bool {
        match value {
            Value::String(text) => {
                let masked = self.mask_text(text);
                let differs = masked != *text;
                *text = masked;
                differs
            }
            Value::Array(items) => items
                .iter_mut()
                .fold(false, |differs, item| self.mask_value(item) | differs),
            Value::Object(members) => self.mask_members(members),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }

    /// The same of all members of an object.
    pub fn mask_members(&self, members: &mut Map<String, Value>) -> bool {
        let mut differs = false;
        for member in members.values_mut() {
            differs |= self.mask_value(member);
        }
        let masks = |name: &String| {
            let masked = self.mask_text(name);
            (masked != *name).then(|| (name.clone(), masked))
        };
        let secret: Vec<(String, String)> = members.keys().filter_map(masks).collect();
        differs |= !secret.is_empty();
        // Of several that look the same none is lost.
        let mut alike: HashMap<String, usize> = HashMap::new();
        for (name, masked) in secret {
            let member = members.remove(&name).unwrap_or_default();
            let count = alike.entry(masked.clone()).or_insert(0);
            let free = loop {
                *count += 1;
                let free = match *count {
                    1 => masked.clone(),
                    count => format!("{masked}{count}"),
                };
                if !members.contains_key(&free) {
                    break free;
                }
            };
            members.insert(free, member);
        }
        differs
    }

    /// Masks in `buffer` from `from` on, where it has been left off. Returns how far it is done:
    /// what follows may be the beginning of a secret, of which there is never any once the stream
    /// `ended`. The buffer only ever gets shorter.
    pub fn mask(&self, buffer: &mut Vec<u8>, from: usize, ended: bool) -> usize {
        let mut search = Search {
            text: buffer,
            from,
            hold: buffer.len(),
            ended,
            found: Vec::new(),
        };
        if self.shapes
            && let Some(prefixes) = PREFIXES.as_ref()
        {
            search.shapes(prefixes);
        }
        for value in &self.values {
            search.value(value);
        }
        if !self.patterns.is_empty() {
            search.patterns(&self.patterns);
        }
        let Search { hold, found, .. } = search;
        let longest = self.values.iter().map(|value| value.bytes().len()).max();
        // One value may lie across where another has begun, and both are this long.
        let longest = LONGEST_SEARCHED + 2 * longest.unwrap_or(0);
        let floor = buffer.len().saturating_sub(longest);
        replace(buffer, found, hold, floor)
    }
}

/// A text as it stands in JSON (RFC 8259, section 7), between its quotes: with the escapes that it needs, as
/// encoders write it that keep to ASCII, and with those that some have for slashes.
fn json_forms(text: &str) -> Vec<String> {
    let quoted = Value::from(text).to_string();
    let escaped = &quoted[1..quoted.len() - 1];
    let mut ascii = String::with_capacity(escaped.len());
    for character in escaped.chars() {
        if character.is_ascii() {
            ascii.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                ascii.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    [escaped, &ascii]
        .into_iter()
        .flat_map(|form| [form.to_owned(), form.replace('/', "\\/")])
        .collect()
}

/// A value that is to be masked.
#[derive(Clone)]
struct Given {
    /// The value, ready to be looked for.
    finder: Finder<'static>,
    /// For each beginning of it, how long the longest shorter beginning is that it ends with
    /// (Knuth, Morris and Pratt): hostile values must not cost more than others.
    borders: Vec<usize>,
}

impl Given {
    fn new(bytes: &[u8]) -> Self {
        let mut given = Self {
            finder: Finder::new(bytes).into_owned(),
            borders: vec![0],
        };
        for (at, byte) in bytes.iter().enumerate().skip(1) {
            let border = given.step(given.borders[at - 1], *byte);
            given.borders.push(border);
        }
        given
    }

    fn bytes(&self) -> &[u8] {
        self.finder.needle()
    }

    /// With so much of the value standing at the end of a text, how much does after `next`.
    fn step(&self, mut matched: usize, next: u8) -> usize {
        while matched > 0 && self.bytes()[matched] != next {
            matched = self.borders[matched - 1];
        }
        matched + usize::from(self.bytes()[matched] == next)
    }

    /// How much of the value, short of all of it, `text` ends with.
    fn begun_in(&self, text: &[u8]) -> usize {
        let last = &text[text.len().saturating_sub(self.bytes().len() - 1)..];
        last.iter()
            .fold(0, |matched, byte| self.step(matched, *byte))
    }
}

/// One look through a piece of a stream.
struct Search<'a> {
    /// All that is there of it.
    text: &'a [u8],
    /// Where what is new begins.
    from: usize,
    /// Where something begins that may become a secret.
    hold: usize,
    /// Whether nothing follows.
    ended: bool,
    found: Vec<Range<usize>>,
}

impl Search<'_> {
    fn shapes(&mut self, prefixes: &AhoCorasick) {
        let mut at = self.from;
        // The last run that was measured, so that none is measured twice.
        let mut run = Run::default();
        while let Some(found) = prefixes.find(&self.text[at..]) {
            let (begin, after) = (at + found.start(), at + found.end());
            at = begin + 1;
            if !self.begins_word(begin) {
                continue;
            }
            let shape = &SHAPES[found.pattern().as_usize()];
            if run.class != Some(shape.class) || after >= run.end {
                run = Run::measure(self.text, after, shape.class);
            }
            if run.end == self.text.len() && !self.ended && run.end - begin <= LONGEST_HELD {
                self.hold(begin);
                return;
            }
            if run.end - after >= shape.least && run.is_complete_from(after) {
                self.found.push(begin..run.end);
                at = run.end;
            }
        }
        self.hold_prefix();
    }

    /// Holds back the beginning of a prefix.
    fn hold_prefix(&mut self) {
        if self.ended {
            return;
        }
        let longest = SHAPES.iter().map(|shape| shape.prefix.len()).max();
        let first = self.text.len().saturating_sub(longest.unwrap_or(0));
        let may_begin = |at: &usize| {
            let rest = &self.text[*at..];
            let begins = |shape: &Shape| shape.prefix.as_bytes().starts_with(rest);
            self.begins_word(*at) && SHAPES.iter().any(begins)
        };
        if let Some(at) = (first.max(self.from)..self.text.len()).find(may_begin) {
            self.hold(at);
        }
    }

    /// Whether a word begins there: after what belongs to none, or after what only looks so, the
    /// end of an escape (`\x1b[31m`, `\\n`, `%3D`).
    fn begins_word(&self, at: usize) -> bool {
        let before = &self.text[at.saturating_sub(CONTEXT)..at];
        match before {
            [] => true,
            [.., last] if !Class::Word.has(*last) => true,
            [.., b'\\', _] => true,
            [.., b'%', a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => true,
            [others @ .., last] => {
                let parameters = |byte: &u8| byte.is_ascii_digit() || *byte == b';';
                let begin = others.iter().rposition(|byte| !parameters(byte));
                last.is_ascii_alphabetic()
                    && begin.is_some_and(|begin| others[..=begin].ends_with(b"\x1b["))
            }
        }
    }

    fn value(&mut self, value: &Given) {
        let new = &self.text[self.from..];
        let found = value.finder.find_iter(new);
        let found = found.map(|at| self.from + at..self.from + at + value.bytes().len());
        self.found.extend(found);
        if !self.ended {
            self.hold(self.text.len() - value.begun_in(new));
        }
    }

    /// Within lines, the last of which may not be there as a whole.
    fn patterns(&mut self, patterns: &[Regex]) {
        let last = line_begin(self.text, self.from);
        let unfinished = self.text.len() - last;
        let is_long = unfinished > LONGEST_SEARCHED;
        let end = match self.ended || is_long {
            true => self.text.len(),
            false => last,
        };
        let others = self.found.len();
        let mut begin = self.from;
        for line in self.text[self.from..end].split_inclusive(|byte| *byte == b'\n') {
            let text = line.strip_suffix(b"\n").unwrap_or(line);
            // What stands before tells a pattern that no line begins here, nor a word maybe.
            let before = line_begin(&self.text[..begin], begin.saturating_sub(CONTEXT));
            let line_text = &self.text[before..begin + text.len()];
            for found in patterns
                .iter()
                .flat_map(|pattern| matches(pattern, line_text, begin - before))
            {
                if found.len() >= SHORTEST_MASKED {
                    self.found.push(before + found.start..before + found.end);
                }
            }
            begin += line.len();
        }
        match is_long {
            false => self.hold(last),
            true => self.hold_end_of_line(others),
        }
    }

    /// Holds back the end of a long line, in which a match may begin; and as a whole what lies across, which may go on.
    /// Behind so many `others`, what was found are matches.
    fn hold_end_of_line(&mut self, others: usize) {
        if self.ended {
            return;
        }
        let cut = self.text.len() - LONGEST_HELD;
        let longest = self.text.len() - LONGEST_SEARCHED;
        for found in &mut self.found[others..] {
            // The rest of one that is still longer is taken for what it looks like.
            if found.start < longest && found.end > cut {
                found.end = cut;
            }
        }
        self.hold(cut);
    }

    fn hold(&mut self, at: usize) {
        if !self.ended {
            self.hold = self.hold.min(at);
        }
    }
}

/// Where the last line of `text` begins, or `from` if that is behind.
fn line_begin(text: &[u8], from: usize) -> usize {
    let end = memchr::memrchr(b'\n', &text[from..]);
    end.map_or(from, |at| from + at + 1)
}

/// What `pattern` matches in `text` from `at` on, each behind the one before.
fn matches<'t>(
    pattern: &'t Regex,
    text: &'t [u8],
    mut at: usize,
) -> impl Iterator<Item = Range<usize>> + 't {
    std::iter::from_fn(move || {
        let found = (at <= text.len()).then(|| pattern.find_at(text, at))??;
        at = found.end() + usize::from(found.is_empty());
        Some(found.range())
    })
}

/// Puts the mask in the place of everything found before `hold`. What lies across it is held back
/// as a whole, where it begins behind `floor`: of others, as far as something else begins.
fn replace(
    buffer: &mut Vec<u8>,
    mut found: Vec<Range<usize>>,
    mut hold: usize,
    floor: usize,
) -> usize {
    found.sort_by_key(|range| (range.start, range.end));
    for range in found.iter().rev() {
        if range.end > hold && range.start >= floor {
            hold = hold.min(range.start);
        }
    }
    found.retain(|range| range.start < hold);
    found
        .iter_mut()
        .for_each(|range| range.end = range.end.min(hold));
    let Some(first) = found.first().map(|range| range.start) else {
        return hold;
    };
    let mut out = Vec::with_capacity(buffer.len() - first);
    let mut done = first;
    for Range { start, end } in found {
        // One that overlaps the one before goes on with its mask.
        if start >= done {
            out.extend_from_slice(&buffer[done..start]);
            out.extend_from_slice(MASK);
        }
        done = done.max(end);
    }
    out.extend_from_slice(&buffer[done..hold]);
    let masked = first + out.len();
    out.extend_from_slice(&buffer[hold..]);
    buffer.truncate(first);
    buffer.extend_from_slice(&out);
    masked
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn secrets(values: &[&str], patterns: &[&str]) -> Secrets {
        let compile = |pattern: &&str| Regex::new(pattern).expect("a pattern");
        let mut secrets = Secrets::new(true, patterns.iter().map(compile).collect());
        for value in values {
            secrets.add(value);
        }
        secrets
    }

    /// Masks a stream that comes in these pieces, as captures do.
    fn in_pieces<'a>(secrets: &Secrets, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
        let (mut buffer, mut masked) = (Vec::new(), 0);
        for piece in pieces {
            buffer.extend_from_slice(piece);
            let before = buffer[..masked].to_vec();
            masked = secrets.mask(&mut buffer, masked, false);
            assert!(
                buffer.starts_with(&before),
                "what was handed out has changed"
            );
        }
        secrets.mask(&mut buffer, masked, true);
        buffer
    }

    #[test]
    fn names_of_members_are_masked_too_and_none_is_lost() {
        let secrets = secrets(&["hunter2", "hunter3"], &[]);
        let mut value = json!({"a": ["hunter2"], "hunter2": 1, "hunter3": {"is hunter2": 2}});
        assert!(secrets.mask_value(&mut value));
        assert_eq!(
            value,
            json!({"a": ["***"], "***": 1, "***2": {"is ***": 2}})
        );
        assert!(!secrets.mask_value(&mut value));

        let names = (0..20_000).map(|n| (format!("ghp_{n:036}"), json!(n)));
        let mut many = Value::Object(names.collect());
        secrets.mask_value(&mut many);
        assert_eq!(many.as_object().map(Map::len), Some(20_000));
    }

    #[test]
    fn tokens_values_and_patterns_are_masked_and_nothing_else() {
        let secrets = secrets(&["hunter2", "two\nlines", "abc"], &["pin: [0-9]+"]);
        for (text, expected) in [
            ("", ""),
            ("nothing to hide", "nothing to hide"),
            ("a ghp_0123456789abcdefghijABCDEFGHIJ012345 b", "a *** b"),
            ("ghp_short", "ghp_short"),
            ("sk-ant-api03-abcdefghijklmnop\n", "***\n"),
            // Within a word it is something else.
            (
                "task-force-of-nineteen-people",
                "task-force-of-nineteen-people",
            ),
            ("AKIAIOSFODNN7EXAMPLE=AKIAIOSFODNN7EXAMPLE", "***=***"),
            (
                "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijk.",
                "***",
            ),
            // JSON in base64 is no token for that.
            (
                "eyJhIjogImJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoifQ",
                "eyJhIjogImJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoifQ",
            ),
            // After an escape one begins.
            (
                "\x1b[1;31mAKIAIOSFODNN7EXAMPLE\x1b[0m \\nAKIAIOSFODNN7EXAMPLE %3dAKIAIOSFODNN7EXAMPLE",
                "\x1b[1;31m***\x1b[0m \\n*** %3d***",
            ),
            ("31mAKIAIOSFODNN7EXAMPLE", "31mAKIAIOSFODNN7EXAMPLE"),
            ("xhunter2hunter2x", "x******x"),
            ("of two\nlines", "of ***"),
            // Too short to be one.
            ("abc", "abc"),
            ("my pin: 12345\npin: 1", "my ***\n***"),
            ("é hunter2 \u{fffd}", "é *** \u{fffd}"),
        ] {
            assert_eq!(secrets.mask_text(text), expected, "{text}");
        }
    }

    #[test]
    fn values_are_masked_as_json_has_them_too() {
        let secrets = secrets(&["pa\"ss\\wörd\n🔑", "aa/bb"], &[]);
        for text in [
            "pa\"ss\\wörd\n🔑",
            r#"pa\"ss\\wörd\n🔑"#,
            r#"pa\"ss\\w\u00f6rd\n\ud83d\udd11"#,
            r"aa\/bb",
        ] {
            assert_eq!(secrets.mask_text(&format!("<{text}>")), "<***>", "{text}");
        }
    }

    #[test]
    fn lines_of_a_value_are_masked_by_themselves() {
        let key = "-----BEGIN KEY-----\nb3BlbnNzaC1rZXk\n  indented = \"yes\"\n}\nshort\n-----END KEY-----\n";
        let secrets = secrets(&[key, "only one line"], &[]);
        for (text, expected) in [
            (key.to_owned(), "***"),
            (
                key.replace('\n', "\r\n"),
                "***\r\n***\r\n  ***\r\n}\r\nshort\r\n***\r\n",
            ),
            ("key: b3BlbnNzaC1rZXk".to_owned(), "key: ***"),
            (r#"["indented = \"yes\""]"#.to_owned(), r#"["***"]"#),
            // What is in every text says nothing.
            ("} short, only one".to_owned(), "} short, only one"),
        ] {
            assert_eq!(secrets.mask_text(&text), expected, "{text}");
        }
    }

    #[test]
    fn what_may_become_a_secret_is_held_back_and_no_more() {
        let secrets = secrets(&["hunter2"], &[]);
        for (text, done) in [
            ("done", 4),
            ("a line\n", 7),
            ("a hunt", 2),
            ("a gh", 2),
            ("a ghp_0123", 2),
            ("a light", 7),
            ("Password: ", 10),
            ("......", 6),
        ] {
            let mut buffer = text.as_bytes().to_vec();
            assert_eq!(secrets.mask(&mut buffer, 0, false), done, "{text}");
        }
    }

    #[test]
    fn hostile_text_takes_linear_time() {
        let values = [
            "a".repeat(60_000) + "b" + &"a".repeat(60_000),
            "aaaaaaab".to_owned(),
        ];
        let secrets = secrets(&values.each_ref().map(String::as_str), &[]);
        for unit in ["eyJ-", "eyJ-hf_", "eyJ.", "AKIA", "sk-", "a", "eyJ", "gh"] {
            let mut buffer = unit.repeat((1 << 20) / unit.len()).into_bytes();
            let begun = std::time::Instant::now();
            secrets.mask(&mut buffer, 0, false);
            // Quadratic, it would be minutes.
            assert!(
                begun.elapsed().as_secs() < 5,
                "{unit}: {:?}",
                begun.elapsed()
            );
        }
    }

    #[test]
    fn patterns_are_found_in_long_lines_wherever_they_are_cut() {
        let secrets = secrets(
            &[],
            &[r#""password":"[^"]*""#, r"\bpin=[0-9]+", "^top: [a-z]+"],
        );
        let record = r#"{"user":"me","password":"hunter2secret","pin=":"pin=1234 xpin=1234"},"#;
        let mut text = String::from("top: secret ");
        while text.len() < 40_000 {
            text.push_str(record);
        }
        text.push_str("top: open\ntop: secret\n");
        let whole = secrets.mask_text(&text);
        assert_eq!(
            whole.matches("***").count(),
            2 + 2 * text.matches("user").count()
        );
        for size in [1, 7, 61, 4096, 9000, 16_385, 20_000, 39_999] {
            let cut = in_pieces(&secrets, text.as_bytes().chunks(size));
            assert!(cut == whole.as_bytes(), "{size}");
        }
    }

    #[test]
    fn a_long_value_is_masked_in_a_long_line_whatever_patterns_there_are() {
        let value = "v".repeat(50_000);
        let secrets = secrets(&[&value], &["pin: [0-9]+"]);
        let text = format!("{}{value}, {}", "-".repeat(20_000), "-".repeat(4000));
        for size in [1000, 65_536, 100_000] {
            let cut = in_pieces(&secrets, text.as_bytes().chunks(size));
            assert!(cut.len() == 24_005, "{size}: {}", cut.len());
        }
    }

    #[test]
    fn secrets_that_overlap_without_end_are_not_held_without_end() {
        let words = secrets(&[], &["pw=.*", "[a-z]{20,}"]);
        let values = secrets(&["abcd", "cdab"], &[]);
        let word = "a".repeat(2000) + " ";
        for (secrets, begin, unit) in [(words, "pw=", word.as_str()), (values, "", "abcd")] {
            let (mut buffer, mut done) = (begin.as_bytes().to_vec(), 0);
            for _ in 0..200 {
                buffer.extend(unit.repeat(4096 / unit.len()).into_bytes());
                let before = done;
                done = secrets.mask(&mut buffer, done, false);
                assert!(buffer.len() - done <= LONGEST_SEARCHED + 8, "{unit}");
                let handed_on = &buffer[before..done];
                assert!(!handed_on.windows(4).any(|piece| piece == b"abcd"));
                let context = done.saturating_sub(CONTEXT);
                buffer.drain(..context);
                done -= context;
            }
        }
    }

    #[test]
    fn a_long_value_is_masked_whatever_else_begins_in_it() {
        let [a, b, c] = [("a", 40_000), ("b", 20_000), ("c", 40_000)].map(|(of, n)| of.repeat(n));
        let secrets = secrets(&[&(a.clone() + &b), &(b.clone() + &c)], &[]);
        let text = a + &b + &c[1..] + "e";
        for size in [1000, 65_536] {
            let cut = in_pieces(&secrets, text.as_bytes().chunks(size));
            assert!(
                cut == ("***".to_owned() + &c[1..] + "e").into_bytes(),
                "{size}"
            );
        }
    }

    #[test]
    fn a_match_in_a_long_line_is_masked_as_far_as_it_is_held() {
        let secrets = secrets(&[], &["pw=[a-h]+"]);
        let text = format!(
            "{}pw={} x",
            "-".repeat(20_000),
            "a".repeat(LONGEST_HELD - 3)
        );
        for size in [1, 1000, 4096, 65_536] {
            let cut = in_pieces(&secrets, text.as_bytes().chunks(size));
            assert!(cut.ends_with(b"-*** x"), "{size}");
        }
    }

    proptest! {
        #[test]
        fn it_does_not_matter_where_a_stream_is_cut(
            parts in proptest::collection::vec(
                prop_oneof![
                    Just("ghp_0123456789abcdefghijABCDEFGHIJ012345".to_owned()),
                    Just("hunter2".to_owned()),
                    Just("hunter".to_owned()),
                    Just("AKIAIOSFODNN7EXAMPLE".to_owned()),
                    Just("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc".to_owned()),
                    Just("pin: 1234".to_owned()),
                    Just("\n".to_owned()),
                    "[ a-z._-]{0,4}",
                ],
                0..12,
            ),
            cuts in proptest::collection::vec(1usize..9, 1..40),
        ) {
            let lines = "hunter2hunter\nghp_0123456789\n2hunter2";
            let secrets = secrets(&["hunter2", "ter2\nh", "2hun", lines], &["pin: [0-9]+"]);
            let text = parts.concat();
            let whole = secrets.mask_text(&text);
            let mut rest = text.as_bytes();
            let mut cuts = cuts.iter().cycle();
            let pieces = std::iter::from_fn(|| {
                let (piece, others) = rest.split_at((*cuts.next()?).min(rest.len()));
                rest = others;
                (!piece.is_empty()).then_some(piece)
            });
            let cut = in_pieces(&secrets, pieces);
            prop_assert_eq!(String::from_utf8_lossy(&cut), whole);
        }
    }
}

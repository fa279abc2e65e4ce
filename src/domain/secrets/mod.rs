//! Secrets in a stream of bytes, masked before anything else sees them: the shapes of well-known
//! tokens, given values, and given patterns. A secret may be cut anywhere between two pieces.

mod shapes;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use aho_corasick::AhoCorasick;
use memchr::memmem::Finder;
use regex::bytes::Regex;
use serde_json::{Map, Value};

use super::summary::summarize;
use shapes::{Class, PREFIXES, Run};
pub(in crate::domain) use shapes::{SHAPES, Shape};

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

/// How much of a text is looked at for its summary, in bytes, and a value that begins there as a whole: more than goes
/// into one.
const SUMMARIZED: usize = 8 * 1024;

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

/// What the numbers in a value are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbers {
    /// What somebody has counted, and a schema wants to be numbers.
    Counted,
    /// What somebody has said.
    Said,
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

    /// A text in a line, for logs and errors: masked before it is cut, for nobody would recognise what is left of a secret.
    pub fn summarize(&self, text: &str) -> String {
        summarize(&self.mask_text(&text[..text.floor_char_boundary(self.reach())]))
    }

    /// How far a secret may reach that is recognised where only a part of a text is looked at, in bytes.
    pub fn reach(&self) -> usize {
        SUMMARIZED + self.longest_value()
    }

    /// The same as [`Secrets::mask_text`] for what is to be cut to its first bytes, so many at the most: more need not
    /// be looked at.
    pub fn mask_start(&self, text: &str, most: usize) -> String {
        let end = text.floor_char_boundary(most + 2 * self.reach());
        let mut masked = self.mask_text(&text[..end]);
        if end < text.len() {
            // What the end goes through may not have been recognised.
            let whole = masked.len().saturating_sub(self.reach());
            masked.truncate(masked.floor_char_boundary(whole));
        }
        masked
    }

    /// The same for what is to be cut to its last bytes.
    pub fn mask_end(&self, text: &str, most: usize) -> String {
        let start = text.len().saturating_sub(most + 2 * self.reach());
        let start = text.ceil_char_boundary(start);
        let mut masked = self.mask_text(&text[start..]);
        if start > 0 {
            let whole = masked.ceil_char_boundary(self.reach().min(masked.len()));
            masked.drain(..whole);
        }
        masked
    }

    /// Masks every text in a value, the names of members among them, and says whether there was anything to mask.
    pub fn mask_value(&self, value: &mut Value) -> bool {
        self.mask_in(value, Numbers::Counted)
    }

    /// The same of what somebody has said, where a number may be a PIN: numbers as they are written, too.
    pub fn mask_said(&self, value: &mut Value) -> bool {
        self.mask_in(value, Numbers::Said)
    }

    /// The same of all members of an object.
    pub fn mask_members(&self, members: &mut Map<String, Value>) -> bool {
        self.mask_members_in(members, Numbers::Said)
    }

    fn mask_in(&self, value: &mut Value, numbers: Numbers) -> bool {
        match (value, numbers) {
            (Value::String(text), _) => {
                let masked = self.mask_text(text);
                let differs = masked != *text;
                *text = masked;
                differs
            }
            (value @ Value::Number(_), Numbers::Said) => {
                let text = value.to_string();
                let masked = self.mask_text(&text);
                let differs = masked != text;
                if differs {
                    *value = Value::String(masked);
                }
                differs
            }
            (Value::Array(items), _) => items
                .iter_mut()
                .fold(false, |differs, item| self.mask_in(item, numbers) | differs),
            (Value::Object(members), _) => self.mask_members_in(members, numbers),
            (Value::Null | Value::Bool(_) | Value::Number(_), _) => false,
        }
    }

    fn mask_members_in(&self, members: &mut Map<String, Value>, numbers: Numbers) -> bool {
        let mut differs = false;
        for member in members.values_mut() {
            differs |= self.mask_in(member, numbers);
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
        // One value may lie across where another has begun, and both are this long.
        let longest = LONGEST_SEARCHED + 2 * self.longest_value();
        let floor = buffer.len().saturating_sub(longest);
        replace(buffer, found, hold, floor)
    }

    /// The length of the longest value, in bytes.
    fn longest_value(&self) -> usize {
        let lengths = self.values.iter().map(|value| value.bytes().len());
        lengths.max().unwrap_or(0)
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
        // The last run of each class that was measured, so that none is measured twice.
        let mut runs: [Option<Run>; Class::COUNT] = Default::default();
        while let Some(found) = prefixes.find(&self.text[at..]) {
            let (begin, after) = (at + found.start(), at + found.end());
            at = begin + 1;
            if !self.begins_word(begin) {
                continue;
            }
            let shape = &SHAPES[found.pattern().as_usize()];
            let measured = &mut runs[shape.class as usize];
            let run = match measured.take() {
                Some(run) if after < run.end => measured.insert(run),
                Some(_) | None => measured.insert(Run::measure(self.text, after, shape.class)),
            };
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
    /// end of an escape (`\x1b[31m`, `\\n`, `\\u00e9`, `%3D`), written out or not.
    fn begins_word(&self, at: usize) -> bool {
        let before = &self.text[at.saturating_sub(CONTEXT)..at];
        match before {
            [] => true,
            [.., last] if !Class::Word.has(*last) => true,
            [.., b'\\', _] => true,
            [.., b'\\', b'x', a, b] if is_hex(&[*a, *b]) => true,
            [.., b'\\', b'u', a, b, c, d] if is_hex(&[*a, *b, *c, *d]) => true,
            [.., b'%', a, b] if is_hex(&[*a, *b]) => true,
            [others @ .., last] => {
                let parameters = |byte: &u8| byte.is_ascii_digit() || *byte == b';';
                let begin = others.iter().rposition(|byte| !parameters(byte));
                last.is_ascii_alphabetic()
                    && begin.is_some_and(|begin| ends_with_csi(&others[..=begin]))
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

fn is_hex(digits: &[u8]) -> bool {
    digits.iter().all(u8::is_ascii_hexdigit)
}

/// Whether a control sequence begins at the end of `text` (ECMA-48), raw or as printf, Python and JSON write it.
fn ends_with_csi(text: &[u8]) -> bool {
    const ESCAPES: [&str; 5] = ["\x1b", "\\e", "\\033", "\\x1b", "\\u001b"];
    let before = text.strip_suffix(b"[").unwrap_or_default();
    ESCAPES.iter().any(|escape| {
        let begin = before.len().saturating_sub(escape.len());
        before[begin..].eq_ignore_ascii_case(escape.as_bytes())
    })
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

use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::nearest::nearest;
use super::replacement::Replacement;

use super::{Answer, FileError, Work, access, answer, check_pattern, diff, lines, whole};
use crate::domain::Digest;

/// What an expression may take compiled, in bytes: ten times what a long one does.
const REGEX_SIZE: usize = 1 << 20;

/// How many matches are counted where there should be one.
const MOST_PLACES: usize = 1000;

/// How many places are told of more than there should be.
const PLACES: usize = 10;

/// What it takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The file: absolute, from `~/`, or relative to the working directory.
    pub(crate) file_path: String,
    /// What to look for: text as it is in the file, or a regular expression. In a file all of whose lines end with CR LF,
    /// line feeds in it and in the replacement stand for these, unless it names carriage returns (\r) by themselves.
    pub(crate) search_pattern: String,
    /// What to put in its place. With `regex`, $1 and ${name} stand for groups (${1}_x before text), $$ for $.
    pub(crate) replacement: String,
    /// Whether the pattern is a regular expression (Rust's, in which ^ and $ match at lines).
    #[serde(default)]
    pub(crate) regex: bool,
    /// Whether to replace all matches. Otherwise there must be exactly one.
    #[serde(default)]
    pub(crate) replace_all: bool,
    /// The file's encoding, such as "utf-8" or "latin1". Detected when absent.
    pub(crate) encoding: Option<String>,
    /// Whether only to answer what would change.
    #[serde(default)]
    pub(crate) dry_run: bool,
    /// The digest that read_file answered: the file is left alone if it is not that any more.
    pub(crate) expected_digest: Option<String>,
}

/// What it answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Output {
    file_path: String,
    /// How many matches were replaced.
    replacements: u64,
    /// Whether the file is another now; it is not when the replacements equal what they replace.
    changed: bool,
    /// Whether nothing was done but this answer.
    dry_run: bool,
    encoding: String,
    /// The size of the file.
    size_bytes: u64,
    /// SHA-256 of the file.
    digest: String,
    /// What changed, as `diff -u` says it.
    diff: String,
    /// Attributes of the file that only the kernel may set, and flags (chattr) that the new file cannot have.
    not_kept: Vec<String>,
}

/// Replaces what matches in a file.
pub(crate) fn edit_file(work: &Work<'_>, input: &Input) -> Result<Answer, FileError> {
    let asked = &input.file_path;
    let _turn = match input.dry_run {
        true => None,
        false => Some(work.turn(asked)?),
    };
    let target = work.target(asked)?;
    let Some(existing) = &target.existing else {
        return Err(FileError::refused(
            asked,
            "does not exist: use write_file to create it",
        ));
    };
    let old = whole::read(work, &existing.found)?;
    whole::check_digest(asked, input.expected_digest.as_deref(), Some(&old))?;
    let named = input.encoding.as_deref();
    let encoding = whole::encoding(work, &existing.found, (named, &old))?;
    let encoding = encoding.ok_or_else(|| whole::binary(asked))?;
    let text = whole::text(asked, encoding, &old)?;
    let edited = edited(work, input, &text)?;
    let new = encoding.encode(&edited.text)?;
    let (size, most) = (new.len() as u64, work.access.max_file_size);
    if size > most {
        return Err(too_large(asked, most));
    }
    let changed = new != old;
    let mut output = Output {
        file_path: asked.clone(),
        replacements: edited.replacements,
        changed,
        dry_run: input.dry_run,
        encoding: encoding.name(),
        size_bytes: size,
        digest: Digest::of(&new).to_string(),
        diff: diff::unified(asked, (Some(&text), &edited.text), work.secrets),
        not_kept: Vec::new(),
    };
    if changed && !input.dry_run {
        let new = access::New {
            bytes: &new,
            permissions: None,
            old: Some(&old),
        };
        output.not_kept = target.replace(&new, work.should_stop)?;
    }
    Ok(answer(content(&output), &output))
}

fn content(output: &Output) -> String {
    let (path, count) = (&output.file_path, output.replacements);
    let matches = if count == 1 { "match" } else { "matches" };
    let mut content = match (output.changed, output.dry_run) {
        (false, _) => {
            format!("`{path}` is as it was: {count} {matches} equal to what would replace them\n")
        }
        (true, true) => {
            format!(
                "dry run, nothing is changed; would have replaced {count} {matches} in `{path}`\n"
            )
        }
        (true, false) => format!("replaced {count} {matches} in `{path}`\n"),
    };
    content.push_str(&output.diff);
    for name in &output.not_kept {
        content.push_str(&format!("the attribute {name} could not be kept\n"));
    }
    content
}

fn too_large(asked: &str, most: u64) -> FileError {
    let why = format!(
        "would have more than {most} bytes then, which is what [files] max_file_size_mb allows"
    );
    FileError::refused(asked, why)
}

/// A text after its edit.
struct Edited {
    text: String,
    replacements: u64,
}

/// The edit itself. In a text all of whose lines end with CR LF, these count as the line feeds
/// that a pattern and its replacement are written with, and stay, unless the pattern is about them.
fn edited(work: &Work<'_>, input: &Input, text: &str) -> Result<Edited, FileError> {
    if input.search_pattern.is_empty() {
        let why = "is empty, which matches everywhere: use write_file to write or add text";
        return Err(FileError::input("search_pattern", why));
    }
    if !has_only_crlf(text) || names_cr(&input.search_pattern, input.regex) {
        return Edit::new(
            work,
            input,
            input.search_pattern.clone(),
            input.replacement.clone(),
        )?
        .apply(text);
    }
    let lf = |text: &str| text.replace("\r\n", "\n");
    let edit = Edit::new(
        work,
        input,
        lf(&input.search_pattern),
        lf(&input.replacement),
    )?;
    let edited = edit.apply(&lf(text))?;
    Ok(Edited {
        text: edited.text.replace('\n', "\r\n"),
        ..edited
    })
}

fn has_only_crlf(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut ends = memchr::memchr_iter(b'\n', bytes).peekable();
    ends.peek().is_some() && ends.all(|at| at > 0 && bytes[at - 1] == b'\r')
}

/// Whether a pattern names carriage returns otherwise than in the ends of lines that it is written with.
fn names_cr(pattern: &str, is_regex: bool) -> bool {
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        let names = match c {
            '\r' => !rest.as_str().starts_with('\n'),
            '\\' if is_regex => rest.next() == Some('r'),
            _ => false,
        };
        if names {
            return true;
        }
    }
    false
}

struct Edit<'a> {
    work: &'a Work<'a>,
    input: &'a Input,
    pattern: Pattern,
}

/// What is looked for, and what stands in for it.
enum Pattern {
    Literal(String, String),
    Regex(Regex, Replacement),
}

impl<'a> Edit<'a> {
    fn new(
        work: &'a Work<'a>,
        input: &'a Input,
        pattern: String,
        replacement: String,
    ) -> Result<Self, FileError> {
        let pattern = match input.regex {
            false => Pattern::Literal(pattern, replacement),
            true => {
                let regex = compile(&pattern)?;
                let replacement = Replacement::parse(&regex, replacement, work.secrets)?;
                Pattern::Regex(regex, replacement)
            }
        };
        Ok(Self {
            work,
            input,
            pattern,
        })
    }

    fn apply(&self, text: &str) -> Result<Edited, FileError> {
        let edited = match self.input.replace_all {
            true => self.all(text)?,
            false => self.one(text)?,
        };
        match edited.replacements {
            0 => Err(self.missing(text)),
            _ => Ok(edited),
        }
    }

    fn all(&self, text: &str) -> Result<Edited, FileError> {
        let mut to = Edited {
            text: String::new(),
            replacements: 0,
        };
        let mut end = 0;
        match &self.pattern {
            Pattern::Literal(pattern, replacement) => {
                for (at, matched) in text.match_indices(pattern.as_str()) {
                    let between = &text[end..at];
                    self.check_room(to.text.len() + between.len(), replacement.len())?;
                    to.text.push_str(between);
                    to.text.push_str(replacement);
                    to.replacements += 1;
                    end = at + matched.len();
                }
            }
            Pattern::Regex(regex, replacement) => {
                for captures in regex.captures_iter(text) {
                    let matched = captures.get_match();
                    let between = &text[end..matched.start()];
                    let bytes = replacement.bytes(&captures);
                    self.check_room(to.text.len() + between.len(), bytes)?;
                    to.text.push_str(between);
                    replacement.expand(&captures, &mut to.text);
                    to.replacements += 1;
                    end = matched.end();
                }
            }
        }
        to.text.push_str(&text[end..]);
        Ok(to)
    }

    /// Whether the text may become so long by one more replacement, which must be known before it is made: a short
    /// pattern and a long replacement could fill all memory.
    fn check_room(&self, so_far: usize, more: usize) -> Result<(), FileError> {
        // No encoding takes less than half of what UTF-8 does.
        let most = self.work.access.max_file_size;
        if so_far.saturating_add(more) as u64 > most.saturating_mul(2) {
            return Err(too_large(&self.input.file_path, most));
        }
        // To find the next one may take as long as the text is.
        self.work.check_stop()
    }

    /// Matches that overlap are more than one, too: nobody can tell which is meant.
    fn one(&self, text: &str) -> Result<Edited, FileError> {
        let found = self.places(text)?;
        let (start, end) = match found.as_slice() {
            [] => {
                return Ok(Edited {
                    text: String::new(),
                    replacements: 0,
                });
            }
            [one] => *one,
            _ => return Err(self.ambiguous(text, &found)),
        };
        let replacement = match &self.pattern {
            Pattern::Literal(_, replacement) => replacement.clone(),
            Pattern::Regex(regex, replacement) => {
                let mut expanded = String::new();
                if let Some(captures) = regex.captures_at(text, start) {
                    self.check_room(text.len() - (end - start), replacement.bytes(&captures))?;
                    replacement.expand(&captures, &mut expanded);
                }
                expanded
            }
        };
        Ok(Edited {
            text: [&text[..start], &replacement, &text[end..]].concat(),
            replacements: 1,
        })
    }

    /// Where the pattern matches, as far as anybody would read on.
    fn places(&self, text: &str) -> Result<Vec<(usize, usize)>, FileError> {
        let mut found = Vec::new();
        let mut from = 0;
        while found.len() < MOST_PLACES {
            // Looking for one may take as long as the text is.
            self.work.check_stop()?;
            let next = match &self.pattern {
                Pattern::Regex(regex, _) => regex.find_at(text, from).map(|m| (m.start(), m.end())),
                Pattern::Literal(pattern, _) => text[from..]
                    .find(pattern.as_str())
                    .map(|at| (from + at, from + at + pattern.len())),
            };
            let Some((start, end)) = next else { break };
            found.push((start, end));
            // Of a literal those that overlap are more than one, too.
            let behind = match &self.pattern {
                Pattern::Regex(..) if end > start => end,
                Pattern::Regex(..) | Pattern::Literal(..) => {
                    start + text[start..].chars().next().map_or(1, char::len_utf8)
                }
            };
            if behind > text.len() {
                break;
            }
            from = behind;
        }
        Ok(found)
    }

    fn ambiguous(&self, text: &str, found: &[(usize, usize)]) -> FileError {
        let first = found.iter().take(PLACES);
        let places = first.map(|(start, _)| lines::number_at(text, *start).to_string());
        let places = places.collect::<Vec<_>>().join(", ");
        let most = if found.len() == MOST_PLACES {
            " or more"
        } else {
            ""
        };
        let more = if found.len() > PLACES { ", ..." } else { "" };
        let why = format!(
            "has {} matches{most}, in lines {places}{more}: make the pattern longer until it matches one place, or set replace_all",
            found.len()
        );
        FileError::refused(&self.input.file_path, why)
    }

    fn missing(&self, text: &str) -> FileError {
        let asked = &self.input.file_path;
        let Pattern::Literal(pattern, _) = &self.pattern else {
            return FileError::refused(asked, "has no match of this regular expression");
        };
        let near = nearest(pattern, text, self.work);
        let mut why = "does not hold this text".to_owned();
        match near.is_empty() {
            true => why.push_str(", nor a line like it: read the file first"),
            false => why.push_str("; the lines that are most like it:"),
        }
        for (number, line) in near {
            why.push_str(&format!("\n{number}: {line}"));
        }
        FileError::refused(asked, why)
    }
}

fn compile(pattern: &str) -> Result<Regex, FileError> {
    check_pattern("search_pattern", pattern)?;
    let built = RegexBuilder::new(pattern)
        .multi_line(true)
        .size_limit(REGEX_SIZE)
        .dfa_size_limit(REGEX_SIZE)
        .build();
    built.map_err(|error| {
        let error = error.to_string();
        let why = error.lines().last().unwrap_or_default();
        let why = why.strip_prefix("error: ").unwrap_or(why);
        FileError::input("search_pattern", format!("is no regular expression: {why}"))
    })
}

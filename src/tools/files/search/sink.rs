use std::io;
use std::path::Path;

use grep_matcher::Matcher as _;
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink, SinkContext, SinkFinish, SinkMatch};

use super::{Input, Line, LineKind, Output};
use crate::domain::{Secrets, counted};
use crate::tools::files::lines::around;
use crate::tools::files::shown;

/// The most of a line that is shown, in characters: what is longer was not written by people.
const LONGEST: usize = 500;

/// The most that is shown in all, in bytes.
const MOST_BYTES: usize = 512 * 1024;

/// What was found so far.
pub(super) struct Collected {
    pub(super) output: Output,
    max_matches: u64,
    files_only: bool,
    bytes: usize,
    /// Where is searched, as asked.
    dir: String,
}

impl Collected {
    pub(super) fn new(input: &Input) -> Self {
        Self {
            output: Output {
                dir_path: input.dir_path.clone(),
                ..Output::default()
            },
            max_matches: input.max_matches,
            files_only: input.files_only,
            bytes: 0,
            dir: input.dir_path.clone(),
        }
    }

    pub(super) fn is_enough(&self) -> bool {
        self.output.truncated
    }

    /// Takes in what is found in the file at `path` of the searched directory; the path that is
    /// shown is one that the next call may use.
    pub(super) fn file<'a>(
        &'a mut self,
        path: &Path,
        matcher: &'a RegexMatcher,
        secrets: &'a Secrets,
    ) -> FileSink<'a> {
        let path = match (self.dir.as_str(), path.components().next()) {
            (".", Some(_)) => path.to_owned(),
            (dir, None) => Path::new(dir).to_owned(),
            (dir, Some(_)) => Path::new(dir).join(path),
        };
        FileSink {
            first: (self.output.lines.len(), self.output.matches, self.bytes),
            collected: self,
            path: path.display().to_string(),
            matcher,
            secrets,
            is_binary: false,
        }
    }

    pub(super) fn into_output(self) -> Output {
        self.output
    }
}

/// Takes in what is found in one file.
pub(super) struct FileSink<'a> {
    collected: &'a mut Collected,
    path: String,
    matcher: &'a RegexMatcher,
    /// What is masked in lines that are cut.
    secrets: &'a Secrets,
    /// How much there was before it.
    first: (usize, u64, usize),
    pub(super) is_binary: bool,
}

impl FileSink<'_> {
    fn add(&mut self, number: Option<u64>, bytes: &[u8], kind: LineKind) {
        let is_text = |byte: &u8| !matches!(byte, b'\n' | b'\r');
        let line = &bytes[..bytes.iter().rposition(is_text).map_or(0, |last| last + 1)];
        // What it is shown for may be anywhere in it, which matters where not all of it is shown.
        let found = match kind {
            LineKind::Match if line.len() > LONGEST => self.matcher.find(line).ok().flatten(),
            LineKind::Match | LineKind::Context => None,
        };
        let mut start = found.map_or(0, |found| found.start());
        // A match may begin within a character.
        while start > 0 && line.get(start).is_some_and(|byte| byte & 0xc0 == 0x80) {
            start -= 1;
        }
        let (before, after) = line.split_at(start);
        let [before, after] = [before, after].map(String::from_utf8_lossy);
        let shown = around((&before, &after), LONGEST, self.secrets);
        self.collected.bytes += self.path.len() + shown.len();
        self.collected.output.lines.push(Line {
            path: self.path.clone(),
            line: number.unwrap_or(0),
            text: shown,
            kind,
        });
    }
}

impl Sink for FileSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        let has_room = self.collected.bytes < MOST_BYTES
            && self.collected.output.matches < self.collected.max_matches;
        if !has_room {
            self.collected.output.truncated = true;
            return Ok(false);
        }
        self.collected.output.matches += 1;
        if self.collected.output.files.last() != Some(&self.path) {
            self.collected.output.files.push(self.path.clone());
        }
        if self.collected.files_only {
            return Ok(false);
        }
        self.add(found.line_number(), found.bytes(), LineKind::Match);
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, found: &SinkContext<'_>) -> Result<bool, io::Error> {
        if !self.collected.files_only {
            self.add(found.line_number(), found.bytes(), LineKind::Context);
        }
        Ok(true)
    }

    /// What was found in a file before it turned out to be binary was found by chance.
    fn finish(&mut self, _: &Searcher, end: &SinkFinish) -> Result<(), io::Error> {
        self.is_binary = end.binary_byte_offset().is_some();
        if self.is_binary {
            let (lines, matches, bytes) = self.first;
            self.collected.output.lines.truncate(lines);
            self.collected.output.matches = matches;
            self.collected.bytes = bytes;
            if self.collected.output.files.last() == Some(&self.path) {
                self.collected.output.files.pop();
            }
        }
        Ok(())
    }
}

/// As ripgrep shows it.
pub(super) fn content(output: &Output, input: &Input) -> String {
    let mut content = String::new();
    if input.files_only {
        for file in &output.files {
            content.push_str(&format!("{}\n", shown(file)));
        }
    }
    let mut last: Option<&Line> = None;
    for line in &output.lines {
        let follows = |last: &Line| last.path == line.path && last.line + 1 == line.line;
        if input.context_lines > 0 && last.is_some_and(|last| !follows(last)) {
            content.push_str("--\n");
        }
        let Line {
            path,
            line: number,
            text,
            ..
        } = line;
        let path = shown(path);
        content.push_str(&match line.kind {
            LineKind::Match => format!("{path}:{number}:{text}\n"),
            LineKind::Context => format!("{path}-{number}-{text}\n"),
        });
        last = Some(line);
    }
    if output.matches == 0 {
        let searched = counted(output.files_searched, "file", "files");
        content.push_str(&format!("no match in {searched}\n"));
    }
    content
}

/// What was not found, and why.
pub(super) fn note(output: &Output) -> String {
    let mut note = String::new();
    if output.truncated {
        note.push_str("... (there is more: narrow the search, or raise max_matches)\n");
    }
    let skipped = &output.skipped;
    for (count, why) in [
        (skipped.binary, "binary"),
        (skipped.too_large, "larger than [files] max_file_size_mb"),
        (skipped.denied, "denied"),
        (skipped.unreadable, "unreadable"),
    ] {
        if count > 0 {
            note.push_str(&format!("not searched: {count}, {why}\n"));
        }
    }
    note
}

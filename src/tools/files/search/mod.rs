//! Lines that match, with ripgrep's libraries. Only its walk is not theirs, which goes by paths:
//! this one goes from descriptor to descriptor, so that nothing can be put in its way.

mod ignored;
mod sink;

use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use grep_matcher::LineTerminator;
use grep_regex::{ErrorKind, RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder};
use ignore::overrides::{Override, OverrideBuilder};
use rustix::fs::OFlags;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::ignored::Ignored;
use self::sink::Collected;
use super::access::{Found, Kind};
use super::list::here;
use super::{Answer, FileError, ShouldStop, Work, answer, check_pattern};

/// What an expression may take compiled, in bytes: ten times what a long one does.
const REGEX_SIZE: usize = 1 << 20;

/// How deep directories are gone into; each level holds a descriptor.
const DEEPEST: usize = 64;

/// The most matches and lines around them that may be asked for.
const MOST_MATCHES: u64 = 10_000;
const MOST_CONTEXT: u64 = 20;

/// What it takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// A regular expression (Rust's), looked for in each line.
    #[schemars(length(max = 4096))]
    pub(crate) pattern: String,
    /// Whether the pattern is text rather than a regular expression.
    #[serde(default)]
    pub(crate) fixed_strings: bool,
    /// Where to search, a directory or a file: absolute, from `~/`, or relative to the working
    /// directory.
    #[serde(default = "here")]
    pub(crate) dir_path: String,
    /// Which files to search, such as "*.rs" or "src/**/*.{c,h}"; with ! before it, which not to.
    #[schemars(length(max = 4096))]
    pub(crate) glob: Option<String>,
    /// Whether upper and lower case are the same.
    #[serde(default)]
    pub(crate) case_insensitive: bool,
    /// How many lines to show before and after each match.
    #[serde(default)]
    #[schemars(range(max = 20))]
    pub(crate) context_lines: u64,
    /// How many matching lines to show at most.
    #[serde(default = "two_hundred")]
    #[schemars(range(min = 1, max = 10_000))]
    pub(crate) max_matches: u64,
    /// Whether to leave out what .gitignore and .ignore files name.
    #[serde(default = "yes")]
    pub(crate) respect_gitignore: bool,
    /// Whether to search files and directories whose names begin with a dot.
    #[serde(default)]
    pub(crate) show_hidden: bool,
    /// Whether to answer only which files have a match.
    #[serde(default)]
    pub(crate) files_only: bool,
}

fn two_hundred() -> u64 {
    200
}

fn yes() -> bool {
    true
}

/// What it answers.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Output {
    dir_path: String,
    /// The lines, in order; empty with files_only.
    lines: Vec<Line>,
    /// The files with a match.
    files: Vec<String>,
    /// How many lines match, of those that were looked at.
    matches: u64,
    files_searched: u64,
    /// Whether the search ended before the end, because there is enough to show.
    truncated: bool,
    skipped: Skipped,
}

/// A line that matches, or one near it.
#[derive(Debug, Serialize, JsonSchema)]
struct Line {
    path: String,
    /// Its number, counted from 1.
    line: u64,
    text: String,
    kind: LineKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum LineKind {
    Match,
    Context,
}

/// How many files were not searched, by the reason.
#[derive(Debug, Default, Serialize, JsonSchema)]
struct Skipped {
    /// They have NUL bytes.
    binary: u64,
    /// They are larger than `max_file_size_mb` allows.
    too_large: u64,
    /// They, or the directories they are in, are forbidden by configuration or policy.
    denied: u64,
    /// They, or the directories they are in, could not be read.
    unreadable: u64,
}

/// Looks for lines that match.
pub(crate) fn search_files(work: &Work<'_>, input: &Input) -> Result<Answer, FileError> {
    check(input)?;
    let matcher = matcher(input)?;
    let root = work.access.find(&input.dir_path)?;
    let context = usize::try_from(input.context_lines).unwrap_or(0);
    let searcher = SearcherBuilder::new()
        .line_number(true)
        // Lines may end with CR LF, too; then $ is before both.
        .line_terminator(LineTerminator::crlf())
        .before_context(context)
        .after_context(context)
        .binary_detection(BinaryDetection::quit(0))
        // A file that is cut short while it is mapped kills the process.
        .memory_map(MmapChoice::never())
        .build();
    let mut search = Search {
        work,
        input,
        matcher,
        searcher,
        only: only(input, &root)?,
        collected: Collected::new(input),
        is_cut: false,
    };
    if root.kind() == Kind::Directory {
        work.check_permitted(&root.real)?;
        let mut ignored = Ignored::new(work, input.respect_gitignore);
        ignored.enter_above(&root);
        search.dir(&root, Path::new(""), &mut ignored, 0)?;
    } else {
        let file = root.regular(work.access)?;
        work.check_permitted(&file.real)?;
        search.file(&file, Path::new(""))?;
    }
    let is_cut = search.is_cut;
    let mut output = search.collected.into_output();
    output.truncated |= is_cut;
    Ok(Answer {
        note: sink::note(&output),
        ..answer(sink::content(&output, input), &output)
    })
}

fn check(input: &Input) -> Result<(), FileError> {
    if input.context_lines > MOST_CONTEXT {
        let why = format!("expected at most {MOST_CONTEXT}");
        return Err(FileError::input("context_lines", why));
    }
    if !(1..=MOST_MATCHES).contains(&input.max_matches) {
        let why = format!("expected a number from 1 to {MOST_MATCHES}");
        return Err(FileError::input("max_matches", why));
    }
    check_pattern("pattern", &input.pattern)?;
    check_pattern("glob", input.glob.as_deref().unwrap_or_default())
}

fn matcher(input: &Input) -> Result<RegexMatcher, FileError> {
    let built = RegexMatcherBuilder::new()
        .case_insensitive(input.case_insensitive)
        .fixed_strings(input.fixed_strings)
        .multi_line(true)
        .crlf(true)
        .size_limit(REGEX_SIZE)
        .dfa_size_limit(REGEX_SIZE)
        .build(&input.pattern);
    built.map_err(|error| {
        let (kind, error) = (error.kind(), error.to_string());
        let why = error.lines().last().unwrap_or_default();
        let why = why.strip_prefix("error: ").unwrap_or(why);
        let is_line_end = matches!(kind, ErrorKind::NotAllowed(_) | ErrorKind::Banned(_));
        let hint = match input.fixed_strings || is_line_end {
            // Where it is text, what is left is a line end, or its length.
            true => "lines are searched one by one: expected a part of one",
            false => "set fixed_strings for text",
        };
        FileError::input("pattern", format!("cannot be searched for: {why}; {hint}"))
    })
}

/// What the glob leaves.
fn only(input: &Input, root: &Found) -> Result<Override, FileError> {
    let Some(glob) = &input.glob else {
        return Ok(Override::empty());
    };
    let mut only = OverrideBuilder::new(&root.real);
    let built = only.add(glob).and_then(|only| only.build());
    built.map_err(|error| FileError::input("glob", error.to_string()))
}

struct Search<'a> {
    work: &'a Work<'a>,
    input: &'a Input,
    matcher: RegexMatcher,
    searcher: Searcher,
    only: Override,
    collected: Collected,
    /// Whether there was a directory with more in it than is looked at.
    is_cut: bool,
}

impl Search<'_> {
    /// Searches what is in `dir`, which is at `path` in the searched one.
    fn dir(
        &mut self,
        dir: &Found,
        path: &Path,
        ignored: &mut Ignored<'_>,
        depth: usize,
    ) -> Result<(), FileError> {
        let names = match dir.entries(self.work.should_stop) {
            Ok(names) => names,
            Err(FileError::Stopped) => return Err(FileError::Stopped),
            Err(error) if depth == 0 => return Err(error),
            Err(_) => {
                self.collected.output.skipped.unreadable += 1;
                return Ok(());
            }
        };
        // The others are searched all the same, and what is beside it.
        self.is_cut |= names.is_cut;
        ignored.enter(dir);
        for name in names.names {
            self.work.check_stop()?;
            if self.collected.is_enough() {
                break;
            }
            if !self.input.show_hidden && name.as_bytes().starts_with(b".") {
                continue;
            }
            match dir.child(Path::new(&name)) {
                Ok(child) => self.child(&child, &path.join(&name), ignored, depth)?,
                Err(error) if error.is_missing() => {}
                Err(_) => self.collected.output.skipped.unreadable += 1,
            }
        }
        ignored.leave();
        Ok(())
    }

    fn child(
        &mut self,
        child: &Found,
        path: &Path,
        ignored: &mut Ignored<'_>,
        depth: usize,
    ) -> Result<(), FileError> {
        let is_dir = match child.kind() {
            Kind::Directory => true,
            Kind::File => false,
            Kind::Symlink | Kind::Fifo | Kind::Socket | Kind::Device | Kind::Unknown => {
                return Ok(());
            }
        };
        let is_left_out = match self.only.matched(&child.real, is_dir) {
            ignore::Match::Ignore(_) => true,
            // Named by the glob, whatever else is said.
            ignore::Match::Whitelist(_) => false,
            ignore::Match::None => ignored.is_ignored(&child.real, is_dir),
        };
        let access = self.work.access;
        if is_left_out || !is_dir && !access.has_allowed_extension(&child.real) {
            return Ok(());
        }
        let skipped = &mut self.collected.output.skipped;
        if access.hold_found(child).is_err() || !(self.work.permits)(&child.real) {
            skipped.denied += 1;
        } else if !is_dir {
            self.file(child, path)?;
        } else if depth >= DEEPEST {
            skipped.unreadable += 1;
        } else {
            self.dir(child, path, ignored, depth + 1)?;
        }
        Ok(())
    }

    fn file(&mut self, file: &Found, path: &Path) -> Result<(), FileError> {
        let most = self.work.access.max_file_size;
        if file.size() > most {
            self.collected.output.skipped.too_large += 1;
            return Ok(());
        }
        let Ok(opened) = file.open(OFlags::RDONLY) else {
            self.collected.output.skipped.unreadable += 1;
            return Ok(());
        };
        let stop = self.work.should_stop;
        let reader = Watched {
            from: opened.take(most),
            stop,
        };
        let secrets = self.work.secrets;
        let mut sink = self.collected.file(path, &self.matcher, secrets);
        let searched = self
            .searcher
            .search_reader(&self.matcher, reader, &mut sink);
        let is_binary = sink.is_binary;
        if stop() {
            return Err(FileError::Stopped);
        }
        let skipped = &mut self.collected.output.skipped;
        match searched {
            Ok(()) if is_binary => skipped.binary += 1,
            Ok(()) => self.collected.output.files_searched += 1,
            Err(_) => skipped.unreadable += 1,
        }
        Ok(())
    }
}

/// A reader that ends when it is to.
struct Watched<'a, R> {
    from: R,
    stop: ShouldStop<'a>,
}

impl<R: Read> Read for Watched<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match (self.stop)() {
            true => Err(io::Error::other("stopped")),
            false => self.from.read(buffer),
        }
    }
}

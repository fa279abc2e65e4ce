use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::access::{Found, Kind};
use super::{Answer, FileError, Work, answer, in_line, shown};
use crate::domain::timestamp;

/// Deeper than this nobody reads a listing.
const DEEPEST: u32 = 10;

/// The most entries that may be asked for: some megabytes of answer.
const MOST: u64 = 10_000;

/// What it takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The directory: absolute, from `~/`, or relative to the working directory.
    #[serde(default = "here")]
    pub(crate) dir_path: String,
    /// How many levels of directories to list; 1 lists only the directory's own entries.
    #[serde(default = "one_level")]
    #[schemars(range(min = 1, max = 10))]
    pub(crate) depth: u32,
    /// Whether to list names that begin with a dot.
    #[serde(default)]
    pub(crate) show_hidden: bool,
    /// How many entries to list at most.
    #[serde(default = "thousand")]
    #[schemars(range(min = 1, max = 10_000))]
    pub(crate) max_entries: u64,
}

pub(super) fn here() -> String {
    ".".to_owned()
}

fn one_level() -> u32 {
    1
}

fn thousand() -> u64 {
    1000
}

/// What it answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Output {
    dir_path: String,
    entries: Vec<Entry>,
    /// Whether there are more than are listed.
    truncated: bool,
    /// Directories in it that could not be listed, and why.
    unlisted: Vec<Unlisted>,
}

/// What is in a directory.
#[derive(Debug, Serialize, JsonSchema)]
struct Entry {
    /// From the directory that is listed.
    path: String,
    #[serde(rename = "type")]
    kind: EntryKind,
    /// Null for all but files.
    size_bytes: Option<u64>,
    /// When it was last changed, by RFC 3339.
    modified: Option<String>,
    /// As octal digits.
    permissions: String,
    /// Where a symbolic link leads; it is not followed.
    link_target: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum EntryKind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    Device,
    Unknown,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Unlisted {
    path: String,
    why: String,
}

/// Lists a directory.
pub(crate) fn list_dir(work: &Work<'_>, input: &Input) -> Result<Answer, FileError> {
    // The schema says so, too; a library need not have asked it.
    if !(1..=DEEPEST).contains(&input.depth) {
        let why = format!("expected a number from 1 to {DEEPEST}");
        return Err(FileError::input("depth", why));
    }
    if !(1..=MOST).contains(&input.max_entries) {
        let why = format!("expected a number from 1 to {MOST}");
        return Err(FileError::input("max_entries", why));
    }
    let dir = work.access.find(&input.dir_path)?.directory()?;
    work.check_permitted(&dir.real)?;
    let mut listing = Listing {
        work,
        input,
        output: Output {
            dir_path: input.dir_path.clone(),
            entries: Vec::new(),
            truncated: false,
            unlisted: Vec::new(),
        },
    };
    listing.add(&dir, Path::new(""), input.depth)?;
    let output = &listing.output;
    Ok(Answer {
        note: note(output),
        ..answer(content(output), output)
    })
}

struct Listing<'a> {
    work: &'a Work<'a>,
    input: &'a Input,
    output: Output,
}

impl Listing<'_> {
    /// Adds what is in `dir`, which is at `path` in the listed one.
    fn add(&mut self, dir: &Found, path: &Path, levels: u32) -> Result<(), FileError> {
        let names = dir.entries(self.work.should_stop)?;
        self.output.truncated |= names.is_cut;
        for name in names.names {
            self.work.check_stop()?;
            if !self.input.show_hidden && name.as_bytes().starts_with(b".") {
                continue;
            }
            if self.output.entries.len() as u64 >= self.input.max_entries {
                self.output.truncated = true;
                return Ok(());
            }
            let path = path.join(&name);
            let child = match dir.child(Path::new(&name)) {
                Ok(child) => child,
                // Removed since its name was read.
                Err(error) if error.is_missing() => continue,
                Err(error) => {
                    self.leave_out(&path, &error);
                    continue;
                }
            };
            self.output.entries.push(Entry::of(&child, &path));
            if child.kind() == Kind::Directory && levels > 1 {
                let listed = self.enter(&child, &path, levels - 1);
                match listed {
                    Ok(()) => {}
                    Err(FileError::Stopped) => return Err(FileError::Stopped),
                    Err(error) => self.leave_out(&path, &error),
                }
            }
        }
        Ok(())
    }

    fn enter(&mut self, dir: &Found, path: &Path, levels: u32) -> Result<(), FileError> {
        self.work.access.hold_found(dir)?;
        self.work.check_permitted(&dir.real)?;
        self.add(dir, path, levels)
    }

    fn leave_out(&mut self, path: &Path, why: &FileError) {
        self.output.unlisted.push(Unlisted {
            path: path.display().to_string(),
            why: why.to_string(),
        });
    }
}

impl Entry {
    fn of(found: &Found, path: &Path) -> Self {
        let kind = match found.kind() {
            Kind::File => EntryKind::File,
            Kind::Directory => EntryKind::Directory,
            Kind::Symlink => EntryKind::Symlink,
            Kind::Fifo => EntryKind::Fifo,
            Kind::Socket => EntryKind::Socket,
            Kind::Device => EntryKind::Device,
            Kind::Unknown => EntryKind::Unknown,
        };
        Self {
            path: path.display().to_string(),
            kind,
            size_bytes: (kind == EntryKind::File).then(|| found.size()),
            modified: time(found.stat.st_mtime, found.stat.st_mtime_nsec),
            permissions: format!("{:04o}", found.stat.st_mode & 0o7777),
            link_target: found
                .link_target()
                .map(|target| target.display().to_string()),
        }
    }
}

/// A file can have any time, and RFC 3339 has only those of four-digit years.
fn time(seconds: i64, nanos: u64) -> Option<String> {
    let seconds = u64::try_from(seconds).ok()?;
    let is_writable = seconds < 253_402_300_800;
    let behind = Duration::from_nanos(nanos);
    let since = Duration::from_secs(is_writable.then_some(seconds)?) + behind;
    Some(timestamp(SystemTime::UNIX_EPOCH + since))
}

fn content(output: &Output) -> String {
    let mut content = String::new();
    for entry in &output.entries {
        let size = entry
            .size_bytes
            .map_or("-".to_owned(), |size| size.to_string());
        let (path, mode) = (shown(&entry.path), &entry.permissions);
        let modified = entry.modified.as_deref().unwrap_or("-");
        let end = match (entry.kind, &entry.link_target) {
            (EntryKind::Directory, _) => "/".to_owned(),
            (_, Some(target)) => format!(" -> {}", shown(target)),
            (EntryKind::Fifo, _) => " (FIFO)".to_owned(),
            (EntryKind::Socket, _) => " (socket)".to_owned(),
            (EntryKind::Device, _) => " (device)".to_owned(),
            (EntryKind::File | EntryKind::Symlink | EntryKind::Unknown, _) => String::new(),
        };
        content.push_str(&format!("{mode} {size:>10} {modified:24} {path}{end}\n"));
    }
    if output.entries.is_empty() {
        let dir = shown(&output.dir_path);
        content.push_str(&format!("`{dir}` has no entries to list\n"));
    }
    for Unlisted { path, why } in &output.unlisted {
        content.push_str(&format!("not listed: {}: {}\n", shown(path), in_line(why)));
    }
    content
}

/// What the text does not say.
fn note(output: &Output) -> String {
    match output.truncated {
        true => "... (there are more: list a directory in it, or raise max_entries)\n".to_owned(),
        false => String::new(),
    }
}

//! What the first process inside tells the daemon: lines of JSON in a file that both see. Whatever runs inside
//! may write to that file as well, and so may lie about its own ending and what it left behind, but about nothing
//! else: output, connections and kills are counted outside. Nor can it deny that it ran, once it has written or
//! connected.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::domain::{Exit, LeftBehind};
use crate::runner::RunError;

/// More than this is not read, in bytes, from the end: a report is some hundred, and some hundred more
/// for each process that is left. The last line is that of the first process.
const MAX_BYTES: u64 = 1 << 20;

/// How many processes are told of that were left.
const MAX_LEFT: usize = 1000;

/// How much is told of what could not be done, in characters: the first process names a path in it.
const STEP_CHARS: usize = 5000;

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Line {
    /// The first process runs.
    Started,
    /// The program could not be started.
    Failed(Failed),
    /// Somebody has asked for the end, when there were so many processes.
    Signalled(u32),
    /// The program has ended, and left these behind.
    Ended { exit: Exit, left: Vec<LeftBehind> },
}

/// Why the program could not be started.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Failed {
    pub(super) step: String,
    pub(super) errno: i32,
}

impl Failed {
    /// Whoever runs inside may have made it up: a line of text, and no more.
    pub(super) fn into_error(self) -> RunError {
        let text = self
            .step
            .chars()
            .filter(|character| !character.is_control());
        RunError {
            step: text.take(STEP_CHARS).collect(),
            source: io::Error::from_raw_os_error(self.errno),
        }
    }
}

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) started: bool,
    /// Whether anybody has ever written to it, whatever is in it now: the first process does before it
    /// starts anything, and what it starts may take it out again.
    pub(super) touched: bool,
    pub(super) failed: Option<Failed>,
    pub(super) signalled: Option<u32>,
    pub(super) exit: Option<Exit>,
    pub(super) left: Vec<LeftBehind>,
}

impl Report {
    /// Reads what there is of it: the first process may have been killed at any moment.
    pub(super) fn read(path: &Path, made: Made) -> Self {
        // What cannot be read was not said.
        let text = contents(path).unwrap_or_default();
        let mut report = Self {
            touched: Made::of(path).is_ok_and(|now| now != made),
            ..Self::default()
        };
        let lines = text.split(|byte| *byte == b'\n');
        for line in lines.filter_map(|line| serde_json::from_slice(line).ok()) {
            match line {
                Line::Started => report.started = true,
                Line::Failed(failed) => report.failed = Some(failed),
                Line::Signalled(count) => {
                    report.signalled = Some(count.min(MAX_LEFT as u32));
                }
                Line::Ended { exit, mut left } if is_possible(exit) => {
                    // Said last, by the first process: what ended was started, whoever says otherwise.
                    report.started = true;
                    report.failed = None;
                    report.exit = Some(exit);
                    left.truncate(MAX_LEFT);
                    left.iter_mut().for_each(|left| left.held.dedup());
                    report.left = left;
                }
                Line::Ended { .. } => {}
            }
        }
        report
    }
}

/// When a report was made. The kernel says when a file was last changed in any way, and nobody can have
/// it say otherwise (inode(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Made(i64, i64);

impl Made {
    /// # Errors
    /// When there is no such file.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let found = fs::symlink_metadata(path)?;
        Ok(Self(found.ctime(), found.ctime_nsec()))
    }
}

/// What a report has in it. Nothing inside can put something else in its place; should the runtime
/// be broken, neither a link is followed nor a FIFO waited for.
fn contents(path: &Path) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
        .open(path)?;
    let mut text = Vec::new();
    let found = file.metadata()?;
    if found.is_file() {
        let end = found.len().saturating_sub(MAX_BYTES);
        let mut file = file;
        file.seek(SeekFrom::Start(end))?;
        file.take(MAX_BYTES).read_to_end(&mut text)?;
    }
    Ok(text)
}

/// Whether a process can end so (wait(2), signal(7)).
fn is_possible(exit: Exit) -> bool {
    match exit {
        Exit::Code(code) => (0..=255).contains(&code),
        Exit::Signal(signal) => (1..=64).contains(&signal.0),
    }
}

/// The end of a report that is written to. Held from the beginning, for what runs may close the file to
/// whoever opens it later.
pub(super) struct Reporter(File);

impl Reporter {
    /// # Errors
    /// When the file cannot be written to.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().append(true).open(path).map(Self)
    }

    /// Adds a line, on one of its own whatever is there.
    pub(super) fn add(&self, line: &Line) -> io::Result<()> {
        let mut text = vec![b'\n'];
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
        (&self.0).write_all(&text)
    }

    /// Adds the last line. Where there is no room for it, because what ran has filled the file, that goes.
    pub(super) fn end(&self, line: &Line) -> io::Result<()> {
        self.add(line).or_else(|_| {
            self.0.set_len(0)?;
            self.add(line)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path) -> Report {
        Report::read(path, Made::of(path).unwrap_or(Made(0, 0)))
    }

    #[test]
    fn the_last_word_counts_whatever_is_put_before_it_or_said_after() {
        let path = std::env::temp_dir().join(format!("report-{}-last", std::process::id()));
        let file = File::create(&path).expect("made");
        let reporter = Reporter::open(&path).expect("opened");
        file.set_len(3 << 20).expect("a hole");
        let ended = |exit| Line::Ended {
            exit,
            left: Vec::new(),
        };
        reporter.add(&ended(Exit::Code(7))).expect("added");
        for exit in [
            Exit::Code(256),
            Exit::Code(-1),
            Exit::Signal(crate::domain::Signal(i32::MIN)),
            Exit::Signal(crate::domain::Signal(65)),
        ] {
            reporter.add(&ended(exit)).expect("added");
        }
        let report = read(&path);
        assert!(report.started);
        assert_eq!(report.exit, Some(Exit::Code(7)));
        std::fs::remove_file(&path).expect("there");
    }

    #[test]
    fn what_is_no_file_says_nothing() {
        let path = std::env::temp_dir().join(format!("report-{}-fifo", std::process::id()));
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("made");
        assert!(!read(&path).started);
        std::fs::remove_file(&path).expect("there");
        let real = path.with_extension("real");
        std::fs::write(&real, "\"started\"\n").expect("written");
        assert!(read(&real).started);
        std::os::unix::fs::symlink(&real, &path).expect("made");
        assert!(!read(&path).started);
        for path in [path, real] {
            std::fs::remove_file(path).expect("there");
        }
    }

    #[test]
    fn a_report_is_read_as_far_as_it_goes() {
        let path = std::env::temp_dir().join(format!("report-{}", std::process::id()));
        std::fs::write(&path, "").expect("written");
        let reporter = Reporter::open(&path).expect("opened");
        reporter.add(&Line::Started).expect("added");
        reporter.add(&Line::Signalled(3)).expect("added");
        let forged = Failed {
            step: "cannot do anything".to_owned(),
            errno: 1,
        };
        reporter.add(&Line::Failed(forged)).expect("added");
        let ended = Line::Ended {
            exit: Exit::Code(7),
            left: Vec::new(),
        };
        reporter.add(&ended).expect("added");
        let mut file = OpenOptions::new().append(true).open(&path).expect("opened");
        file.write_all(b"rubbish\n{\"ended\": {\"exit\"")
            .expect("written");
        let report = read(&path);
        assert!(report.started && report.failed.is_none());
        assert_eq!(
            (report.signalled, report.exit),
            (Some(3), Some(Exit::Code(7)))
        );
        std::fs::remove_file(&path).expect("removed");
        assert!(!read(&path).started);
    }

    #[test]
    fn there_is_room_for_the_last_word_and_no_taking_back_the_first() {
        let path = std::env::temp_dir().join(format!("report-{}-room", std::process::id()));
        let file = File::create(&path).expect("made");
        let made = Made::of(&path).expect("there");
        assert!(!Report::read(&path, made).touched);
        let reporter = Reporter::open(&path).expect("opened");
        // The kernel's clock for files has ticks.
        while !Report::read(&path, made).touched {
            reporter.add(&Line::Started).expect("written");
            file.set_len(0).expect("emptied");
        }
        let report = Report::read(&path, made);
        assert!(report.touched && !report.started);
        fs::remove_file(path).expect("ours");
    }
}

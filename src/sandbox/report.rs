//! What the first process inside tells the daemon: lines of JSON in a file that both see. Whatever runs inside
//! may write to that file as well, and so may lie about its own ending and what it left behind, but about nothing
//! else: output, connections and kills are counted outside. Nor can it deny that it ran, once it has written or
//! connected.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::domain::{Exit, LeftBehind, SUMMARY_CHARS, StreamName};
use crate::runner::RunError;

/// More than this is not read, in bytes, from the end: a report is some hundred, and at most 900 more for each of
/// [`MAX_LEFT`] processes. The last line is that of the first process, unless others go on writing after it.
const MAX_BYTES: u64 = 1 << 20;

/// How many processes are told of that were left: as many as a line has room for that is sure to be read.
pub(super) const MAX_LEFT: usize = 1000;

/// The largest process id (`PID_MAX_LIMIT`, proc_sys_kernel(5)) and error number (`MAX_ERRNO` of the kernel's).
const MAX_PID: u32 = 1 << 22;
const MAX_ERRNO: i32 = 4095;

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
        RunError {
            step: line(&self.step, STEP_CHARS),
            source: io::Error::from_raw_os_error(match self.errno {
                errno @ 1..=MAX_ERRNO => errno,
                _ => nix::libc::EIO,
            }),
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
    /// Whether what the first process has said of the end may be lost: somebody has written so much behind it that
    /// it is not read, or has taken out what was there.
    pub(super) spoiled: bool,
    pub(super) failed: Option<Failed>,
    pub(super) signalled: Option<u32>,
    pub(super) exit: Option<Exit>,
    pub(super) left: Vec<LeftBehind>,
}

impl Report {
    /// Reads what there is of it: the first process may have been killed at any moment.
    pub(super) fn read(path: &Path, made: Made) -> Self {
        // What cannot be read was not said.
        let (text, is_cut) = contents(path).unwrap_or_default();
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
                Line::Ended { exit, left } if is_possible(exit) => {
                    // Said last, by the first process: what ended was started, whoever says otherwise.
                    report.started = true;
                    report.failed = None;
                    report.exit = Some(exit);
                    report.left = left
                        .into_iter()
                        .filter_map(plausible)
                        .take(MAX_LEFT)
                        .collect();
                }
                Line::Ended { .. } => {}
            }
        }
        report.spoiled = report.exit.is_none() && (is_cut || report.touched && !report.started);
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
///
/// Says as well whether there was more before it.
fn contents(path: &Path) -> io::Result<(Vec<u8>, bool)> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
        .open(path)?;
    let mut text = Vec::new();
    let found = file.metadata()?;
    let before = found.len().saturating_sub(MAX_BYTES);
    if found.is_file() {
        let mut file = file;
        file.seek(SeekFrom::Start(before))?;
        file.take(MAX_BYTES).read_to_end(&mut text)?;
    }
    Ok((text, before > 0))
}

/// A process as there can be one, whoever says so: with an id, one line of text, each stream at most once. None of
/// them outlives the first process.
fn plausible(told: LeftBehind) -> Option<LeftBehind> {
    let held = [StreamName::Stdout, StreamName::Stderr];
    (1..=MAX_PID).contains(&told.pid).then(|| LeftBehind {
        pid: told.pid,
        command: line(&told.command, SUMMARY_CHARS),
        held: held
            .into_iter()
            .filter(|name| told.held.contains(name))
            .collect(),
        killed: true,
    })
}

/// A text as one line, cut to so many characters.
fn line(text: &str, most: usize) -> String {
    let plain = text.chars().filter(|character| !character.is_control());
    plain.take(most).collect()
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

    /// Adds the last line. Where there is no room for it, because what ran has filled the file, that goes, and then
    /// the list of who is left: how it ended is said in any case.
    pub(super) fn end(&self, exit: Exit, left: Vec<LeftBehind>) -> io::Result<()> {
        let line = Line::Ended { exit, left };
        self.add(&line)
            .or_else(|_| {
                self.0.set_len(0)?;
                self.add(&line)
            })
            .or_else(|_| {
                self.0.set_len(0)?;
                let left = Vec::new();
                self.add(&Line::Ended { exit, left })
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

    #[test]
    fn what_drowns_or_takes_out_the_last_word_is_noticed() {
        let path = std::env::temp_dir().join(format!("report-{}-spoiled", std::process::id()));
        let file = File::create(&path).expect("made");
        let reporter = Reporter::open(&path).expect("opened");
        reporter.add(&Line::Started).expect("added");
        // Ended by something, before it could say more.
        assert!(!Report::read(&path, Made(0, 0)).spoiled);
        reporter.end(Exit::Code(7), Vec::new()).expect("added");
        let report = Report::read(&path, Made(0, 0));
        assert_eq!((report.exit, report.spoiled), (Some(Exit::Code(7)), false));
        let rubbish = vec![b'x'; MAX_BYTES as usize];
        (&reporter.0).write_all(&rubbish).expect("added");
        let report = Report::read(&path, Made(0, 0));
        assert_eq!((report.exit, report.spoiled), (None, true));
        file.set_len(0).expect("emptied");
        assert!(Report::read(&path, Made(0, 0)).spoiled);
        // What nobody has written to says nothing of that kind.
        assert!(!read(&path).spoiled);
        fs::remove_file(path).expect("ours");
    }

    #[test]
    fn what_is_said_of_processes_is_held_to_what_there_can_be() {
        let path = std::env::temp_dir().join(format!("report-{}-left", std::process::id()));
        fs::write(&path, "").expect("written");
        let (out, err) = (StreamName::Stdout, StreamName::Stderr);
        let left = |pid| LeftBehind {
            pid,
            command: "a\nb ".repeat(1000),
            held: vec![err, out, err, out],
            killed: false,
        };
        let exit = Exit::Code(0);
        let reporter = Reporter::open(&path).expect("opened");
        let forged = [0, 1, MAX_PID, MAX_PID + 1, u32::MAX].map(left);
        reporter.end(exit, forged.into()).expect("added");
        let report = read(&path);
        assert_eq!(
            report.left.iter().map(|left| left.pid).collect::<Vec<_>>(),
            [1, MAX_PID]
        );
        for told in &report.left {
            assert_eq!(told.held, [out, err]);
            assert!(told.killed && told.command.len() < 1000);
            assert!(!told.command.contains(char::is_control));
        }
        let many = (1..=1010).map(|pid| LeftBehind {
            command: String::new(),
            ..left(pid)
        });
        reporter.end(exit, many.collect()).expect("added");
        assert_eq!(read(&path).left.len(), MAX_LEFT);
        for (errno, meant) in [(2, 2), (0, 5), (-1, 5), (i32::MAX, 5)] {
            let step = String::new();
            let error = Failed { step, errno }.into_error();
            assert_eq!(error.source.raw_os_error(), Some(meant));
        }
        fs::remove_file(path).expect("ours");
    }

    #[test]
    fn the_longest_list_is_read_whole() {
        let path = std::env::temp_dir().join(format!("report-{}-longest", std::process::id()));
        fs::write(&path, "").expect("written");
        // Four bytes a character; what JSON makes longer than that is no part of a summary.
        let left = |pid| LeftBehind {
            pid,
            command: "\u{10ffff}".repeat(SUMMARY_CHARS),
            held: vec![StreamName::Stdout, StreamName::Stderr],
            killed: true,
        };
        let reporter = Reporter::open(&path).expect("opened");
        let all = (0..MAX_LEFT as u32).map(|at| left(MAX_PID - at));
        reporter.end(Exit::Code(7), all.collect()).expect("added");
        let report = read(&path);
        assert_eq!(
            (report.exit, report.left.len()),
            (Some(Exit::Code(7)), MAX_LEFT)
        );
        fs::remove_file(path).expect("ours");
    }
}

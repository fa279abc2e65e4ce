use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::beside::LONG;
use crate::config::Truncate;
use crate::domain::{
    Digests, Display, ExecutorError, Failure, FailureKind, RunReport, Stage, Status, StreamName,
    ToolOutput, Verbatim, is_for_want,
};
use crate::runner::{Captured, Kept, SpoolFile};
use crate::tools::{Closing, Streams, content};

/// How an execution ended.
#[derive(Debug)]
pub struct Finished {
    /// In one word.
    pub status: Status,
    /// When.
    pub ended_at: SystemTime,
    /// What kept the executor from doing it, if something did.
    pub failure: Option<Failure>,
    /// What came of the run, when a process ran.
    pub ran: Option<Ran>,
    text: Mutex<Text>,
    verbatim: Verbatim,
}

/// What came of a run, without its text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ran {
    /// Whether the model is to be told of a failure.
    pub is_error: bool,
    /// What a program reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The facts.
    #[serde(flatten)]
    pub report: RunReport,
    /// What a person is shown.
    pub display: Display,
}

/// The text of an answer, which is nearly all of its size.
#[derive(Clone, Debug)]
pub(super) enum Text {
    Memory(Arc<String>),
    Spooled(Arc<SpoolFile>),
    /// In the spool, and open: it is there whatever becomes of the file.
    Held(Arc<SpoolFile>, Arc<File>),
    /// To be made of what a command had written when its daemon died.
    Remains(Remains),
    /// What is said in its place.
    Lost(&'static str),
}

/// What a process has left in the spool whose daemon died, and how much of it an answer holds.
#[derive(Clone, Debug)]
pub(super) struct Remains {
    pub(super) stdout: Option<Arc<SpoolFile>>,
    pub(super) stderr: Option<Arc<SpoolFile>>,
    pub(super) cap: usize,
    pub(super) truncate: Truncate,
}

impl Remains {
    /// The sections of it, and that nobody saw its end. A stream that cannot be read any more is left out. What
    /// the spool had no room for is marked where it is missing, at the end.
    fn text(&self) -> String {
        let read = |file: &Option<Arc<SpoolFile>>| {
            let read = file.as_ref().map(|file| read_ends(file, self.cap as u64));
            read.and_then(Result::ok).unwrap_or_default()
        };
        let (stdout, stderr) = (read(&self.stdout), read(&self.stderr));
        let streams = Streams {
            stdout: &stdout,
            stderr: &stderr,
        };
        let truncate = match self.is_cut() {
            true => Truncate::Tail,
            false => self.truncate,
        };
        content(streams, self.cap, truncate, Closing::Lost).text
    }

    /// Whether its text lacks something that is known to have been written.
    fn lacks_output(&self) -> bool {
        let length = |file: &Option<Arc<SpoolFile>>| file.as_ref().map_or(0, |file| file.len());
        let kept = length(&self.stdout).saturating_add(length(&self.stderr));
        self.is_cut() || kept > self.cap as u64
    }

    /// Whether the spool had no room for all of it.
    fn is_cut(&self) -> bool {
        let mut files = self.stdout.iter().chain(&self.stderr);
        files.any(|file| file.is_cut())
    }
}

fn read_from_start(mut file: &File) -> io::Result<String> {
    file.rewind()?;
    io::read_to_string(file)
}

/// The first and the last bytes of a stream, so many of each at the most. One that was cut is longer than what is
/// there, nobody knows by how much.
fn read_ends(file: &SpoolFile, most: u64) -> io::Result<Captured> {
    let (total, is_cut) = (file.len(), file.is_cut());
    let mut file = file.open()?;
    let mut read = |from, to| {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(from))?;
        Read::by_ref(&mut file)
            .take(to - from)
            .read_to_end(&mut bytes)?;
        io::Result::Ok(Bytes::from(bytes))
    };
    let head_end = total.min(most);
    Ok(Captured {
        head: read(0, head_end)?,
        tail: read(head_end.max(total.saturating_sub(most)), total)?,
        total: total + u64::from(is_cut),
        digest: None,
    })
}

/// Why a text is lost that neither memory nor disk could hold.
pub(super) const NO_ROOM: &str = "there was no room for it";

/// A text as the bytes that others may share.
struct TextBytes(Arc<String>);

impl AsRef<[u8]> for TextBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// What the model reads of a command that ended by itself and yet failed: nothing in its output says why.
fn with_reason(content: String, failure: Option<&Failure>) -> String {
    match failure {
        Some(failure) if failure.kind == FailureKind::OutputInvalid => {
            format!("{content}\n\n[error]\n{}", failure.detail)
        }
        Some(_) | None => content,
    }
}

/// An ending as it is kept.
pub(super) struct Archived {
    pub(super) status: Status,
    pub(super) ended_at: SystemTime,
    pub(super) failure: Option<Failure>,
    pub(super) ran: Option<Ran>,
    pub(super) text: Text,
    pub(super) verbatim: Verbatim,
}

impl Finished {
    /// What a result comes to, of an execution whose last stage is given; and the digests of its
    /// streams.
    pub(super) fn new(
        result: Result<ToolOutput, ExecutorError>,
        stage: Option<Stage>,
    ) -> (Self, Digests) {
        let failure = result.as_ref().err().map(|error| Failure::of(error, stage));
        let output = match result {
            Ok(output) => Some(output),
            Err(error) => error.into_partial(),
        };
        let status = status(failure.as_ref(), output.as_ref());
        let (text, ran, verbatim, digests) = match output {
            Some(output) => (
                with_reason(output.content, failure.as_ref()),
                Some(Ran {
                    is_error: output.is_error,
                    output: output.output,
                    report: output.run,
                    display: output.display,
                }),
                output.verbatim,
                output.digests,
            ),
            None => (
                failure
                    .as_ref()
                    .map(|failure| failure.detail.clone())
                    .unwrap_or_default(),
                None,
                Verbatim::default(),
                Digests::default(),
            ),
        };
        let finished = Self::from(Archived {
            status,
            ended_at: SystemTime::now(),
            failure,
            ran,
            text: Text::Memory(Arc::new(text)),
            verbatim,
        });
        (finished, digests)
    }

    /// Lets go of the text in memory, which `file` has.
    pub(super) fn move_text_to(&self, file: Arc<SpoolFile>) {
        *self.lock_text() = Text::Spooled(file);
    }

    /// Holds on to the text until an answer is made of it, and says whether it is there. May read from disk.
    ///
    /// # Errors
    /// When it cannot be opened for want of descriptors or memory.
    pub(super) fn hold_text(&self) -> io::Result<bool> {
        let mut text = self.lock_text();
        let file = match &*text {
            Text::Memory(_) | Text::Remains(_) | Text::Held(..) => return Ok(true),
            Text::Lost(_) => return Ok(false),
            Text::Spooled(file) => Arc::clone(file),
        };
        match file.open() {
            Ok(open) => {
                *text = Text::Held(file, Arc::new(open));
                Ok(true)
            }
            Err(error) if is_for_want(&error) => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// Lets go of the text in memory, which nothing else has.
    pub(super) fn lose_text(&self) {
        *self.lock_text() = Text::Lost(NO_ROOM);
    }

    /// Which streams the text holds as they were written.
    pub(super) fn verbatim(&self) -> Verbatim {
        self.verbatim
    }

    /// A stream that the text holds as it was written.
    pub(super) fn stream(&self, name: StreamName) -> Option<Kept> {
        let begin = self.verbatim.of(name)?;
        let length = self.ran.as_ref()?.report.bytes_of(name);
        match &*self.lock_text() {
            Text::Memory(text) => {
                let end = begin + usize::try_from(length).ok()?;
                let bytes = Bytes::from_owner(TextBytes(Arc::clone(text)));
                (end <= bytes.len()).then(|| Kept::Memory(bytes.slice(begin..end)))
            }
            Text::Spooled(file) | Text::Held(file, _) => Some(Kept::File {
                file: Arc::clone(file),
                offset: begin as u64,
                length,
            }),
            Text::Remains(_) | Text::Lost(_) => None,
        }
    }

    /// Whether the model is to be told of a failure.
    pub fn is_error(&self) -> bool {
        self.failure.is_some() || self.ran.as_ref().is_some_and(|ran| ran.is_error)
    }

    /// The report of the run, when a process ran.
    pub fn run(&self) -> Option<&RunReport> {
        self.ran.as_ref().map(|ran| &ran.report)
    }

    /// Whether it is a matter of the disk, or of more than some milliseconds, to make an answer of the text.
    pub fn takes_long(&self) -> bool {
        match &*self.lock_text() {
            Text::Memory(text) => text.len() >= LONG,
            Text::Spooled(_) | Text::Held(..) | Text::Remains(_) => true,
            Text::Lost(_) => false,
        }
    }

    /// The text for the model: the output of the process, else the failure in words. May read
    /// from disk.
    pub fn text(&self) -> Arc<String> {
        // Not held while the disk is read.
        let text = self.lock_text().clone();
        let text = match text {
            Text::Memory(text) => return text,
            Text::Lost(why) => {
                return Arc::new(format!("[the text of this answer is lost: {why}]"));
            }
            Text::Spooled(file) => file.open().and_then(io::read_to_string),
            Text::Held(_, open) => read_from_start(&open),
            Text::Remains(remains) => Ok(remains.text()),
        };
        Arc::new(text.unwrap_or_else(|error| {
            format!("[the text of this answer is lost: it cannot be read from the spool: {error}]")
        }))
    }

    /// Of an execution that was lost: that the text lacks a part of the output; `None` where nobody knows.
    pub fn lacks_output(&self) -> Option<bool> {
        match &*self.lock_text() {
            Text::Remains(remains) => remains.lacks_output().then_some(true),
            Text::Memory(_) | Text::Spooled(_) | Text::Held(..) | Text::Lost(_) => None,
        }
    }

    fn lock_text(&self) -> MutexGuard<'_, Text> {
        self.text.lock()
    }
}

impl From<Archived> for Finished {
    fn from(archived: Archived) -> Self {
        let Archived {
            status,
            ended_at,
            failure,
            ran,
            text,
            verbatim,
        } = archived;
        Self {
            status,
            ended_at,
            failure,
            ran,
            text: Mutex::new(text),
            verbatim,
        }
    }
}

/// What an ending comes to in one word.
pub(super) fn status(failure: Option<&Failure>, output: Option<&ToolOutput>) -> Status {
    match (failure, output) {
        (Some(failure), _) => failure.kind.status(),
        (None, Some(output)) if output.is_error => Status::Error,
        (None, _) => Status::Success,
    }
}

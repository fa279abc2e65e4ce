//! What is not in the file yet: a line for each beginning, written before anything is run, and for
//! each end, written before it is told. The death of the daemon loses neither (the next start
//! reads them), and where a commit takes a hundred microseconds a line takes some: a short execution
//! comes into the file at its end, as a whole and in company.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::Json;
use super::event::{Events, Happened};
use super::file::beside;
pub(super) use super::part::Logged;
use super::part::Part;
use super::record::{Change, CloseRecord, OpenRecord, Place};
use crate::domain::{ExecutionId, JsonSink};

/// What the names of the two end in, after the ledger's own.
pub(super) const LOGS: [&str; 2] = ["-log-1", "-log-2"];

/// The longest line of an end, its texts only, in bytes: beyond it one commit costs less than
/// writing all of it twice.
const LINE: usize = 64 << 10;

/// What most lines take, in bytes.
const ROOM: usize = 4 << 10;

/// How long a line's checksum is, with the blank behind it.
const CHECKSUM: usize = 9;

/// Separates the JSON texts that follow what serde writes of a line (call, ending, and so on), copied verbatim. None
/// contains it or the end of a line, which [`one_line`] sees to.
const BEHIND: u8 = b'\t';

/// The logs, and what of them is not even queued for the file.
#[derive(Debug)]
pub(super) struct Log {
    turns: Mutex<Turns>,
    /// The openings of those under way that the file may not have.
    openings: Mutex<HashMap<ExecutionId, Opening>>,
}

/// Where the opening of an execution is that is under way. Of one of which nothing is known, it is in the
/// log or in the file, as far as anybody can tell.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are here, and a box for each takes time"
)]
pub(super) enum Opening {
    /// In the log and nowhere else.
    Here(Begun),
    /// In the log and on its way into the file, with all that has happened to it by now.
    Handed(Option<Events>),
    /// In the queue only: when the daemon dies it may be nowhere.
    Unsafe,
}

/// How safe an opening is that is on its way into the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queued {
    /// The next start finds it in the log until it is there.
    Safe,
    /// It may be given up.
    Unsafe,
}

/// An execution that is in the log and nowhere else.
#[derive(Debug)]
pub(super) struct Begun {
    pub record: OpenRecord,
    /// Whether that is more than was known at first.
    is_changed: bool,
    /// What has happened to it.
    pub events: Option<Events>,
    pub logged: Logged,
}

/// What the logs of a daemon that has died had in them.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub opened: Vec<OpenRecord>,
    pub ended: Vec<Told>,
}

/// An end that was told.
#[derive(Debug)]
pub(super) struct Told {
    pub record: CloseRecord,
    /// Whether the digests of its streams were still being computed.
    pub is_late: bool,
    pub events: Option<Events>,
    pub extent: Extent,
}

/// Which events the line of an end has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Extent {
    /// Those that come with the end: the others are in the file.
    #[default]
    Last,
    /// All there are, the first of which may be in the file.
    All,
}

impl Extent {
    fn is_last(&self) -> bool {
        *self == Self::Last
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
enum Line<'a> {
    Opened(Cow<'a, OpenRecord>),
    /// The same one as more is known of it.
    Changed(Cow<'a, OpenRecord>),
    Ended(Ended<'a>),
}

#[derive(Serialize, Deserialize)]
struct Ended<'a> {
    record: Cow<'a, CloseRecord>,
    /// Whether the digests of its streams are still being computed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_late: bool,
    /// What of its content, standard output and standard error is kept with it.
    texts: [Option<Cow<'a, str>>; 3],
    events: Option<Cow<'a, Events>>,
    #[serde(default, skip_serializing_if = "Extent::is_last")]
    extent: Extent,
}

/// Two logs in turns: what the other one holds is in the ledger by the time this one is full.
#[derive(Debug)]
struct Turns {
    current: Part,
    other: Part,
    /// Whether the next start reads what is here: what is not in the file by now will not come there.
    is_left: bool,
    /// Where a line is put together: empty between two, with room for most.
    text: Vec<u8>,
}

impl Log {
    /// Opens the logs beside a ledger's file, and reads what is in them.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn open(file: &Path) -> io::Result<(Self, Found)> {
        let mut found = Found::default();
        let mut changed = Vec::new();
        let mut part = |suffix: &str| {
            let (part, text) = Part::open(&beside(file, suffix))?;
            for line in text.split(|byte| *byte == b'\n').filter_map(whole) {
                let mut parts = line.split(|byte| *byte == BEHIND);
                let line = parts.next().unwrap_or_default();
                match serde_json::from_slice(line) {
                    Ok(Line::Opened(record)) => found.opened.push(opened(record, parts)),
                    Ok(Line::Changed(record)) => changed.push(opened(record, parts)),
                    Ok(Line::Ended(ended)) => found.ended.push(ended.into_told(parts)),
                    Err(_) => {}
                }
            }
            Ok::<_, io::Error>(part)
        };
        let turns = Turns {
            current: part(LOGS[0])?,
            other: part(LOGS[1])?,
            is_left: false,
            text: Vec::new(),
        };
        let ids: HashSet<_> = changed.iter().map(|record| record.id).collect();
        found.opened.retain(|record| !ids.contains(&record.id));
        found.opened.append(&mut changed);
        let log = Self {
            turns: Mutex::new(turns),
            openings: Mutex::default(),
        };
        Ok((log, found))
    }

    /// Forgets what is in the logs: it is in the ledger's file. They are empty then.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn clear(&self) -> io::Result<()> {
        let turns = &mut *self.turns.lock();
        turns.current.clear()?;
        turns.other.clear()
    }

    /// Maps them, empty as they are.
    pub(super) fn map(&self) {
        let turns = &mut *self.turns.lock();
        turns.current.map();
        turns.other.map();
    }

    /// Lets go of what of them is resident. For a while in which nothing happens.
    pub(super) fn rest(&self) {
        let turns = self.turns.lock();
        turns.current.rest();
        turns.other.rest();
    }

    /// Leaves their files to whoever opens them next. What is entered all the same is written.
    pub(super) fn unmap(&self) {
        let turns = &mut *self.turns.lock();
        turns.current.unmap();
        turns.other.unmap();
        turns.is_left = true;
    }

    /// Enters an opening, or gives it back when that cannot be.
    pub(super) fn begin(
        &self,
        record: OpenRecord,
        events: Option<Events>,
    ) -> Option<(OpenRecord, Option<Events>)> {
        let line = Line::Opened(Cow::Borrowed(&record));
        let Ok(logged) = self.append(&line, None, [Some(&record.call)]) else {
            return Some((record, events));
        };
        let begun = Begun {
            record,
            is_changed: false,
            events,
            logged,
        };
        let id = begun.record.id;
        self.openings.lock().insert(id, Opening::Here(begun));
        None
    }

    /// Enters what became known of one that is about to run, or gives it back: when it is not one that
    /// has [begun](Self::begin) here and has not changed since, or when that cannot be.
    pub(super) fn change(
        &self,
        id: ExecutionId,
        change: Change,
        events: Option<Events>,
    ) -> Option<(Change, Option<Events>)> {
        let mut all = self.openings.lock();
        let begun = match all.get_mut(&id) {
            Some(Opening::Here(begun)) if !begun.is_changed => begun,
            Some(Opening::Here(_) | Opening::Handed(_) | Opening::Unsafe) | None => {
                return Some((change, events));
            }
        };
        let record = begun.record.clone().with(&change);
        let line = Line::Changed(Cow::Borrowed(&record));
        let Ok(logged) = self.append(&line, None, [Some(&record.call)]) else {
            return Some((change, events));
        };
        *begun = Begun {
            record,
            is_changed: true,
            events: Events::joined(begun.events.take(), events),
            logged,
        };
        None
    }

    /// Says that an opening is in the queue only.
    pub(super) fn doubt(&self, id: ExecutionId) {
        self.openings.lock().insert(id, Opening::Unsafe);
    }

    /// Hands over the opening of an execution that ends.
    pub(super) fn take(&self, id: ExecutionId) -> Option<Opening> {
        self.openings.lock().remove(&id)
    }

    /// Hands over one that is nowhere else, if it is one, to be queued. Nobody queues its end before it.
    pub(super) fn hand_over(&self, id: ExecutionId, queue: impl FnOnce(Begun) -> Queued) {
        let mut all = self.openings.lock();
        let opening = match all.remove(&id) {
            Some(Opening::Here(begun)) => {
                let told = begun.events.clone();
                match queue(begun) {
                    Queued::Safe => Opening::Handed(told),
                    Queued::Unsafe => Opening::Unsafe,
                }
            }
            Some(opening) => opening,
            None => return,
        };
        all.insert(id, opening);
    }

    /// Notes what has happened to one that was handed over, and is on its way behind it.
    pub(super) fn note(&self, id: ExecutionId, events: &Events) {
        if let Some(Opening::Handed(told)) = self.openings.lock().get_mut(&id) {
            *told = Events::joined(told.take(), Some(events.clone()));
        }
    }

    /// Those that are nowhere else, in the order in which they came.
    pub(super) fn begun(&self) -> Vec<ExecutionId> {
        let all = self.openings.lock();
        let here = all.iter().filter_map(|(id, opening)| match opening {
            Opening::Here(_) => Some(*id),
            Opening::Handed(_) | Opening::Unsafe => None,
        });
        let mut ids: Vec<_> = here.collect();
        ids.sort();
        ids
    }

    /// Enters the end of an execution whose opening is here or in the file, and whose digests may be late;
    /// `None` when it has to be in the ledger's file instead.
    pub(super) fn end(
        &self,
        record: &CloseRecord,
        is_late: bool,
        (events, extent): (Option<&Events>, Extent),
    ) -> Option<Logged> {
        let line = Line::Ended(Ended {
            record: Cow::Borrowed(record),
            is_late,
            texts: texts(record)?,
            events: events.map(Cow::Borrowed),
            extent,
        });
        let nothing = Happened::default();
        let happened = events.map_or(&nothing, |events| &events.happened);
        let (problem, usage) = (record.problem.as_ref(), record.usage.as_ref());
        let texts = [Some(&record.ending), problem, usage, Some(&record.stages)];
        self.append(&line, Some(happened), texts).ok()
    }

    fn append<const N: usize>(
        &self,
        line: &Line<'_>,
        happened: Option<&Happened>,
        texts: [Option<&Json>; N],
    ) -> io::Result<Logged> {
        let turns = &mut *self.turns.lock();
        let mut text = std::mem::take(&mut turns.text);
        let written = write(&mut text, line, happened, texts);
        let logged = written.and_then(|()| turns.append(&text));
        // A long one goes at once: the next may be long in coming.
        text.clear();
        text.shrink_to(ROOM);
        turns.text = text;
        logged
    }
}

impl Turns {
    fn append(&mut self, text: &[u8]) -> io::Result<Logged> {
        if !self.current.has_room(text.len()) && self.other.is_done() && !self.is_left {
            self.other.clear()?;
            std::mem::swap(&mut self.current, &mut self.other);
        }
        self.current.append(text)
    }
}

/// Writes a line: what serde makes of it, and behind that what has happened, in a line that tells it, and the texts.
fn write<const N: usize>(
    text: &mut Vec<u8>,
    line: &Line<'_>,
    happened: Option<&Happened>,
    texts: [Option<&Json>; N],
) -> io::Result<()> {
    text.resize(CHECKSUM, b' ');
    serde_json::to_writer(JsonSink(text), line)?;
    if let Some(happened) = happened {
        text.push(BEHIND);
        happened.write_json(text);
    }
    for json in texts {
        text.push(BEHIND);
        if let Some(json) = json {
            text.extend_from_slice(one_line(json)?.as_bytes());
        }
    }
    let checksum = checksum(&text[CHECKSUM..]);
    text[..CHECKSUM].copy_from_slice(&checksum);
    text.push(b'\n');
    Ok(())
}

/// A text that may stand in a line.
fn one_line(json: &Json) -> io::Result<&str> {
    let text = json.as_str();
    match memchr::memchr2(BEHIND, b'\n', text.as_bytes()) {
        None => Ok(text),
        // Somebody else has written it, who has not put it into one.
        Some(_) => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// The record of a line with the text of its call, which before version 8 of the ledger stood in it.
fn opened<'a>(
    record: Cow<'_, OpenRecord>,
    mut texts: impl Iterator<Item = &'a [u8]>,
) -> OpenRecord {
    let mut record = record.into_owned();
    if let Some(call) = texts.next().and_then(json) {
        record.call = call;
    }
    record
}

/// What has stood behind a line; `None` for nothing.
fn json(text: &[u8]) -> Option<Json> {
    Json::from_text(str::from_utf8(text).ok()?)
}

/// What stands before a line: its CRC-32 in hexadecimal, and a blank.
fn checksum(line: &[u8]) -> [u8; CHECKSUM] {
    let mut text = [b' '; CHECKSUM];
    let mut sum = crc32fast::hash(line);
    for digit in text[..CHECKSUM - 1].iter_mut().rev() {
        *digit = b"0123456789abcdef"[sum as usize % 16];
        sum /= 16;
    }
    text
}

/// The line without its checksum; `None` if it is not all there. The last one may have been cut off: nothing
/// of it was run, nobody was told. And where the machine has lost power, one may begin as it was last written
/// and go on as what was there before.
fn whole(line: &[u8]) -> Option<&[u8]> {
    // Before version 7 of the ledger they had none.
    if line.starts_with(b"{") {
        return Some(line);
    }
    let (sum, line) = line.split_at_checked(CHECKSUM)?;
    (sum == checksum(line)).then_some(line)
}

impl Ended<'_> {
    fn into_told<'b>(self, mut texts: impl Iterator<Item = &'b [u8]>) -> Told {
        let mut record = self.record.into_owned();
        let happened = texts.next().unwrap_or_default();
        // Before version 8 of the ledger these stood in it.
        let mut next = || texts.next().and_then(json);
        record.ending = next().unwrap_or(record.ending);
        record.problem = next().or(record.problem);
        record.usage = next().or(record.usage);
        record.stages = next().unwrap_or(record.stages);
        let outputs = [&mut record.content, &mut record.stdout, &mut record.stderr];
        for (output, text) in outputs.into_iter().zip(self.texts) {
            if let Some(text) = text {
                output.place = Place::Inline(text.into_owned().into_bytes());
            }
        }
        let events = self.events.map(|events| Events {
            happened: Happened::from_json(happened),
            ..events.into_owned()
        });
        Told {
            record,
            is_late: self.is_late,
            extent: self.extent,
            events: events.filter(|events| !events.happened.is_empty()),
        }
    }
}

/// The texts that are kept with an end, if a line of the log can hold them.
fn texts(record: &CloseRecord) -> Option<[Option<Cow<'_, str>>; 3]> {
    let mut texts = [None, None, None];
    let mut bytes = 0;
    let outputs = [&record.content, &record.stdout, &record.stderr];
    for (text, output) in texts.iter_mut().zip(outputs) {
        if let Place::Inline(inline) = &output.place {
            bytes += inline.len();
            *text = Some(Cow::Borrowed(str::from_utf8(inline).ok()?));
        }
    }
    (bytes <= LINE).then_some(texts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::{Scratch, at, opening};

    #[test]
    fn a_long_line_takes_no_memory_once_it_is_written() {
        let scratch = Scratch::new();
        let (log, _) = Log::open(&scratch.0.join("ledger.db")).expect("logs");
        let long = format!("\"{}\"", "x".repeat(1 << 20));
        let in_two = format!("[{long},\n0]");
        for (call, is_taken) in [(long, true), (in_two, false)] {
            let record = OpenRecord {
                call: Json::from_text(&call).expect("JSON"),
                ..opening("bash", 7, at(2))
            };
            assert_eq!(log.begin(record, None).is_none(), is_taken);
            let kept = log.turns.lock().text.capacity();
            assert!(kept <= ROOM, "{kept} bytes");
        }
    }
}

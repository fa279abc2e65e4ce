use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::sync::Arc;
use std::time::SystemTime;

use super::beside::LONG;
use super::finished::{Archived, NO_ROOM, Remains, Text};
use super::{CallRecord, Finished, Ran};
use crate::config::ExecutorConfig;
use crate::domain::{
    ApprovalId, Digest, ExecutionId, Failure, Hasher, Lineage, Ruling, StageTimes, Status,
    StreamName, TraceId, Verbatim,
};
use crate::ledger::{CloseRecord, ExecutionRecord, Output, Place, StreamDigests};
use crate::runner::{Kept, Spool, SpoolFile};

/// All there is to tell of an execution, whether it runs or is long over.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its name.
    pub id: ExecutionId,
    /// The tool that was called.
    pub tool: String,
    /// Who called it.
    pub caller_uid: u32,
    /// The id the model gave its call.
    pub tool_use_id: Option<String>,
    /// Where it stands.
    pub status: Status,
    /// When the call came in.
    pub created_at: SystemTime,
    /// When its process was started, if one was.
    pub started_at: Option<SystemTime>,
    /// Whether its stages were timed.
    pub timed: bool,
    /// The stages it has been in, in their order.
    pub stages: Vec<StageTimes>,
    /// The call, secrets masked.
    pub call: Arc<CallRecord>,
    /// What the policy said, once it has.
    pub ruling: Option<Ruling>,
    /// The approval it ran under, and who gave it.
    pub approved: Option<(ApprovalId, u32)>,
    /// The execution that it repeats.
    pub replay_of: Option<ExecutionId>,
    /// The execution whose call it is, when a tool made it.
    pub lineage: Option<Lineage>,
    /// The trace it belongs to.
    pub trace_id: Option<TraceId>,
    /// How it ended, if it has.
    pub finished: Option<Arc<Finished>>,
}

impl Record {
    /// Whether it is a matter of the disk, or of more than some milliseconds, to make an answer of it.
    pub fn takes_long(&self) -> bool {
        let finished = self.finished.as_ref();
        finished.is_some_and(|finished| finished.takes_long()) || self.call.bytes() >= LONG
    }

    /// Whether nothing ran and the caller was told to call again. An ending that cannot be read says nothing of a run, so
    /// that the start is asked as well.
    pub(super) fn is_good_for_another_try(&self) -> bool {
        let asks = |finished: &Arc<Finished>| {
            let failure = finished.failure.as_ref();
            finished.ran.is_none() && failure.is_some_and(Failure::asks_for_another_try)
        };
        self.started_at.is_none() && self.finished.as_ref().is_some_and(asks)
    }

    /// What the ledger knows; the spool may have the long texts.
    pub(super) fn from_ledger(
        record: ExecutionRecord,
        spool: Option<&Arc<Spool>>,
        config: &ExecutorConfig,
    ) -> Self {
        let status = record.status();
        let ExecutionRecord {
            open,
            started_at,
            close,
            ..
        } = record;
        let (timed, stages) = close
            .as_ref()
            .and_then(|close| close.stages.read())
            .unwrap_or((true, Vec::new()));
        let approved = close.as_ref().and_then(|close| close.approved);
        Self {
            id: open.id,
            tool: open.tool,
            caller_uid: open.caller_uid,
            tool_use_id: open.tool_use_id,
            status,
            created_at: open.created_at,
            started_at,
            timed,
            stages,
            call: Arc::new(open.call.read().unwrap_or_default()),
            ruling: open.ruling,
            approved,
            replay_of: open.replay_of,
            lineage: open.lineage,
            trace_id: open.trace_id,
            finished: close.map(|close| {
                let remains = remains(&close, spool, config);
                Arc::new(finished(close, spool, remains))
            }),
        }
    }
}

/// What there is of the streams of an execution that is lost, if there is something.
fn remains(
    close: &CloseRecord,
    spool: Option<&Arc<Spool>>,
    config: &ExecutorConfig,
) -> Option<Remains> {
    let spool = spool.filter(|_| close.status == Status::Lost)?;
    let stream = |name| {
        spool
            .stream(close.id, name)
            .filter(|file| !file.is_empty() || file.is_cut())
    };
    let (stdout, stderr) = (stream(StreamName::Stdout), stream(StreamName::Stderr));
    let has_written = stdout.is_some() || stderr.is_some();
    has_written.then_some(Remains {
        stdout,
        stderr,
        cap: config.max_output_bytes,
        truncate: config.truncate,
    })
}

/// An ending out of the ledger, and what remains of one that nobody saw.
fn finished(close: CloseRecord, spool: Option<&Arc<Spool>>, remains: Option<Remains>) -> Finished {
    let in_content = |output: &Output| match output.place {
        Place::InContent { offset } => usize::try_from(offset).ok(),
        Place::Nowhere | Place::Inline(_) | Place::Spool { .. } => None,
    };
    let verbatim = Verbatim {
        stdout: in_content(&close.stdout),
        stderr: in_content(&close.stderr),
    };
    let ran: Option<Ran> = close.ending.read().unwrap_or_default();
    let last_stage = || {
        let (_, stages) = close.stages.read::<(bool, Vec<StageTimes>)>()?;
        stages.last().map(|times| times.stage)
    };
    let failure = match (close.status, &close.problem) {
        (_, Some(problem)) => problem.read(),
        (Status::Lost, None) => Some(Failure::lost(last_stage())),
        (_, None) => None,
    };
    let text = match (close.content.place, &failure) {
        (Place::Inline(bytes), _) => {
            Text::Memory(Arc::new(String::from_utf8_lossy(&bytes).into_owned()))
        }
        (Place::Spool { .. }, _) => match spool.and_then(|spool| spool.content(close.id)) {
            Some(file) => Text::Spooled(file),
            None => Text::Lost("it has gone from the spool"),
        },
        (Place::Nowhere | Place::InContent { .. }, Some(failure)) if ran.is_none() => {
            let detail = || Text::Memory(Arc::new(failure.detail.clone()));
            remains.map_or_else(detail, Text::Remains)
        }
        (Place::Nowhere | Place::InContent { .. }, _) => Text::Lost(NO_ROOM),
    };
    Finished::from(Archived {
        status: close.status,
        ended_at: close.ended_at,
        failure,
        ran,
        text,
        verbatim,
    })
}

/// A stream of an execution that is over, as far as it is kept.
pub(super) fn kept(record: ExecutionRecord, spool: Option<&Arc<Spool>>, name: StreamName) -> Kept {
    match record.close {
        Some(close) => kept_at_end(close, spool, name),
        None => spooled(record.open.id, spool, name),
    }
}

fn spooled(id: ExecutionId, spool: Option<&Arc<Spool>>, name: StreamName) -> Kept {
    match spool.and_then(|spool| spool.stream(id, name)) {
        Some(file) => Kept::File {
            length: file.len(),
            file,
            offset: 0,
        },
        None => Kept::Nowhere,
    }
}

fn kept_at_end(close: CloseRecord, spool: Option<&Arc<Spool>>, name: StreamName) -> Kept {
    let output = output(&close, name);
    match &output.place {
        Place::Inline(bytes) => Kept::Memory(bytes.clone().into()),
        // Of an empty one a new daemon removes the file.
        Place::Spool { bytes: 0 }
            if spool.is_none_or(|spool| spool.stream(close.id, name).is_none()) =>
        {
            Kept::Memory(Default::default())
        }
        Place::Spool { .. } => spooled(close.id, spool, name),
        Place::InContent { .. } => finished(close, spool, None)
            .stream(name)
            .unwrap_or(Kept::Nowhere),
        // Of a lost one the spool may have what it wrote.
        Place::Nowhere if close.status == Status::Lost => spooled(close.id, spool, name),
        Place::Nowhere if output.bytes == 0 => Kept::Memory(Default::default()),
        Place::Nowhere => Kept::Nowhere,
    }
}

fn output(close: &CloseRecord, name: StreamName) -> &Output {
    match name {
        StreamName::Stdout => &close.stdout,
        StreamName::Stderr => &close.stderr,
    }
}

/// The digests of the streams of an execution that is over, computed of what is kept of them; `None` of one
/// that is not there as a whole.
pub(super) fn digests(close: &CloseRecord, spool: Option<&Arc<Spool>>) -> StreamDigests {
    let ran: Option<Ran> = close.ending.read().unwrap_or_default();
    [StreamName::Stdout, StreamName::Stderr].map(|name| {
        // Of all that says so what the trail has, too.
        let bytes = match &ran {
            Some(ran) => ran.report.bytes_of(name),
            None => output(close, name).bytes,
        };
        match kept_at_end(close.clone(), spool, name) {
            Kept::Memory(kept) => (kept.len() as u64 == bytes).then(|| Digest::of(&kept)),
            Kept::File {
                file,
                offset,
                length,
                // Who was left alive and wrote more to it may have made a secret of what there was.
            } if length == bytes => digest_of_file(&file, offset, bytes).ok(),
            Kept::File { .. } | Kept::Nowhere => None,
        }
    })
}

fn digest_of_file(file: &SpoolFile, offset: u64, length: u64) -> io::Result<Digest> {
    let mut file = file.open()?;
    file.seek(SeekFrom::Start(offset))?;
    let mut hasher = Hasher::default();
    let read = io::copy(&mut file.take(length), &mut hasher)?;
    if read < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(hasher.digest())
}

//! What goes into the ledger and what comes out of it, as plain values. How serde writes them is how they stand in
//! the log, to which each execution adds two lines: what there is not is left out, and what is [`Json`] already stands
//! behind the rest.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Digest, Json};
use crate::domain::{ApprovalId, ExecutionId, Lineage, RiskLevel, Ruling, Status, TraceId, words};

/// What is known of an execution when its call comes in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenRecord {
    /// Its id.
    pub id: ExecutionId,
    /// The tool that was called, whether there is one of that name or not.
    pub tool: String,
    /// The user who called.
    pub caller_uid: u32,
    /// Their primary group.
    pub caller_gid: u32,
    /// The call as the pipeline writes it: its input, and what it asks for besides, values of variables included; secrets
    /// masked.
    #[serde(default, skip_serializing)]
    pub call: Json,
    /// The directory to run in, if already known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<PathBuf>,
    /// Whether nobody waits for the answer, so that it may outlast a restart while it waits for
    /// an approval.
    pub asynchronous: bool,
    /// [`Status::Queued`], [`Status::Waiting`] or [`Status::Running`].
    pub status: Status,
    /// When the call came in.
    #[serde(with = "super::time")]
    pub created_at: SystemTime,
    /// The execution that this one repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_of: Option<ExecutionId>,
    /// The execution whose call it is, when a tool made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<Lineage>,
    /// The trace the call belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    /// The id the model gave its call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<String>,
    /// The caller's key for the call, see [`Ledger::claim`](super::Ledger::claim).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency: Option<Idempotency>,
    /// What the policy said, if it has; goes into the audit trail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ruling: Option<Ruling>,
}

impl OpenRecord {
    /// What of it may be long, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        let dir = self
            .working_dir
            .as_ref()
            .map_or(0, |dir| dir.as_os_str().len());
        let tool_use_id = self.tool_use_id.as_ref().map_or(0, String::len);
        self.call.as_str().len() + self.tool.len() + dir + tool_use_id
    }

    /// The same with what became known since, but for when its process was started.
    pub(super) fn with(mut self, change: &Change) -> Self {
        let Change {
            call,
            working_dir,
            status,
            started_at: _,
            ruling,
        } = change;
        self.call = call.clone().unwrap_or(self.call);
        self.working_dir = working_dir.clone().or(self.working_dir);
        self.status = status.unwrap_or(self.status);
        self.ruling = ruling.clone().or(self.ruling);
        self
    }
}

/// A caller's own name for a call, which is never to run twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idempotency {
    /// The name; each caller has their own.
    pub key: String,
    /// Of the call as it came in.
    pub body_digest: Digest,
}

/// What became of a claim to an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The key was free and is now this execution's, which is open.
    New,
    /// The same call is under way.
    InProgress(ExecutionId),
    /// The same call has ended.
    Finished(ExecutionId),
    /// The key belongs to another call.
    Conflict(ExecutionId),
}

/// What became known of an execution on its way. What is `None` stays as it is.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// The call with its defaults filled in.
    pub call: Option<Json>,
    /// The directory it will run in.
    pub working_dir: Option<PathBuf>,
    /// Where it stands.
    pub status: Option<Status>,
    /// When its process was started.
    pub started_at: Option<SystemTime>,
    /// What the policy said; goes into the audit trail.
    pub ruling: Option<Ruling>,
}

impl Change {
    /// What of it may be long, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.call.as_ref().map_or(0, |call| call.as_str().len())
    }
}

/// How an execution ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CloseRecord {
    /// Its id.
    pub id: ExecutionId,
    /// How, in one word; a final one.
    pub status: Status,
    /// What was called, in brief, secrets masked: what the audit trail tells of it for good.
    pub summary: String,
    /// The facts of the ending: exit, signal, kill, what was left behind. No status of HTTP.
    #[serde(default, skip_serializing)]
    pub ending: Json,
    /// What went wrong, when something did.
    #[serde(default, skip_serializing)]
    pub problem: Option<Json>,
    /// What it used up.
    #[serde(default, skip_serializing)]
    pub usage: Option<Json>,
    /// When each stage began and ended.
    #[serde(default, skip_serializing)]
    pub stages: Json,
    /// When its process was started, if one was.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "super::time::optional"
    )]
    pub started_at: Option<SystemTime>,
    /// When it ended.
    #[serde(with = "super::time")]
    pub ended_at: SystemTime,
    /// The approval it ran under and the user who gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<(ApprovalId, u32)>,
    /// The text for the model.
    pub content: Output,
    /// Standard output.
    pub stdout: Output,
    /// Standard error.
    pub stderr: Output,
}

/// The digests of standard output and standard error, as far as there are any.
pub type StreamDigests = [Option<Digest>; 2];

/// The same where they are still being computed.
pub type LateDigests = Box<dyn FnOnce() -> StreamDigests + Send>;

/// Computes them of what is kept of an execution's streams: none of one that is not there as a whole.
pub type HashKept<'a> = &'a dyn Fn(&CloseRecord) -> StreamDigests;

impl CloseRecord {
    /// What of it may be long, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        let texts = [&self.content, &self.stdout, &self.stderr];
        let texts = texts.map(|output| match &output.place {
            Place::Inline(bytes) => bytes.len(),
            Place::Nowhere | Place::InContent { .. } | Place::Spool { .. } => 0,
        });
        let facts = [
            Some(&self.ending),
            self.problem.as_ref(),
            Some(&self.stages),
        ];
        let facts = facts.into_iter().flatten().map(|fact| fact.as_str().len());
        texts.into_iter().chain(facts).sum()
    }

    /// Lets go of the texts that nothing else holds, and of what they come to for a program: what became of the
    /// execution counts for more.
    pub(super) fn lighten(&mut self) {
        if let Some(Value::Object(mut ending)) = self.ending.read()
            && ending.remove("output").is_some()
        {
            self.ending = Json::of(&ending);
        }
        for output in [&mut self.content, &mut self.stdout, &mut self.stderr] {
            if let Place::Inline(_) = output.place {
                output.place = Place::Nowhere;
            }
        }
    }

    /// Takes what was late of it, and computes the digest of a text that has none.
    pub(super) fn complete(&mut self, late: Option<StreamDigests>) {
        if let Some(late) = late {
            [self.stdout.digest, self.stderr.digest] = late;
        }
        let content = &mut self.content;
        if let (None, Place::Inline(text)) = (content.digest, &content.place) {
            content.digest = Some(Digest::of(text));
        }
    }
}

/// One text of an execution: the answer's, or a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// How long it was as a whole, in bytes, kept or not.
    pub bytes: u64,
    /// Its digest; `None` when nobody computed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Where it is kept.
    pub place: Place,
}

/// Where a text is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Nowhere.
    #[default]
    Nowhere,
    /// In the ledger.
    Inline(#[serde(skip)] Vec<u8>),
    /// In the text for the model, from this byte on.
    InContent {
        /// Where it begins.
        offset: u64,
    },
    /// In the spool's file for it.
    Spool {
        /// How much of it, in bytes.
        bytes: u64,
    },
}

/// All that the ledger knows of an execution.
#[derive(Clone, Debug)]
pub struct ExecutionRecord {
    /// What was known at first, with the changes.
    pub open: OpenRecord,
    /// When its process was started, if one was.
    pub started_at: Option<SystemTime>,
    /// How it ended, when it has. A lost one has an ending without facts.
    pub close: Option<CloseRecord>,
    /// Its place in history, for a [`Page`] that goes on after it.
    pub cursor: Cursor,
}

impl ExecutionRecord {
    /// Where it stands.
    pub fn status(&self) -> Status {
        self.close
            .as_ref()
            .map_or(self.open.status, |close| close.status)
    }
}

/// A question to those who may approve, and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Approval {
    /// Its id.
    pub id: ApprovalId,
    /// The execution that waits for it.
    pub execution_id: ExecutionId,
    /// The tool.
    pub tool: String,
    /// Its version; empty of one that has none, and where an earlier daemon asked.
    pub tool_version: String,
    /// The tools that led to the call, the outermost first; empty when it came from outside.
    pub chain: Vec<String>,
    /// The tool's input, filled.
    pub input: Value,
    /// The directory it would run in.
    pub working_dir: Option<PathBuf>,
    /// The names of the variables the call sets.
    pub env_names: Vec<String>,
    /// Its standard input.
    pub stdin: Option<String>,
    /// The time limit it asks for.
    pub timeout: Option<Duration>,
    /// Whether what it leaves behind is kept.
    pub keeps_background: bool,
    /// How far it is trusted.
    pub risk_level: RiskLevel,
    /// The directory of the host's that it could use in a sandbox.
    pub workspace: Option<PathBuf>,
    /// The values that it would find, by scope; none of a tool that reads none.
    pub context: Value,
    /// Who asks.
    pub caller_uid: u32,
    /// Of all that would run.
    pub digest: Digest,
    /// When it was asked.
    pub created_at: SystemTime,
    /// When the question lapses.
    pub expires_at: SystemTime,
    /// What became of it.
    pub status: ApprovalStatus,
    /// Who decided, when and why.
    pub decided: Option<Decided>,
    /// How long the decision is to be remembered: `once`, `session` or `always`.
    pub remember: Option<String>,
    /// The rules that remembering would add.
    pub remember_rules: Vec<String>,
}

impl Approval {
    /// Whether its time is over, be it on record or not: nothing is run under it any more.
    pub fn has_lapsed(&self) -> bool {
        self.status == ApprovalStatus::Expired || self.expires_at <= SystemTime::now()
    }
}

/// Who decided on an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The user; `None` when the ledger or the clock did.
    pub by: Option<u32>,
    /// When.
    pub at: SystemTime,
    /// Why, in their words.
    pub reason: Option<String>,
}

words! {
    /// What became of an approval.
    pub enum ApprovalStatus {
        /// Nobody has decided yet.
        Pending = "pending",
        /// It may run, once.
        Approved = "approved",
        /// It may not.
        Denied = "denied",
        /// Nobody decided in time.
        Expired = "expired",
        /// Nobody waits for it any more.
        Withdrawn = "withdrawn",
        /// It was approved and has run.
        Used = "used",
    }
}

/// A decision on an approval.
#[derive(Clone, Debug)]
pub struct Decision {
    /// On which.
    pub id: ApprovalId,
    /// [`ApprovalStatus::Approved`] or [`ApprovalStatus::Denied`] from a person;
    /// [`ApprovalStatus::Withdrawn`] or [`ApprovalStatus::Expired`] from the pipeline.
    pub status: ApprovalStatus,
    /// The user who decides.
    pub by: Option<u32>,
    /// Why.
    pub reason: Option<String>,
    /// For how long.
    pub remember: Option<String>,
    /// When.
    pub at: SystemTime,
}

impl Decision {
    /// Whether it is nobody's, but says that nobody asks any more.
    pub(super) fn is_of_the_pipeline(&self) -> bool {
        matches!(
            self.status,
            ApprovalStatus::Expired | ApprovalStatus::Withdrawn
        )
    }
}

/// What became of a decision.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdicted {
    /// It holds.
    Done(Box<Approval>),
    /// It came too late: this is how it stands.
    TooLate(Box<Approval>),
    /// There is no such approval.
    Unknown,
}

/// Something for the audit trail that is neither an execution's decision nor its ending.
#[derive(Clone, Debug)]
pub struct AuditEntry {
    /// In one word, such as `policy_loaded`.
    pub kind: String,
    /// The execution it is about.
    pub execution_id: Option<ExecutionId>,
    /// When.
    pub time: SystemTime,
    /// The rest.
    pub body: Value,
}

/// Which executions to list, newest first.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Created at this time or later.
    pub since: Option<SystemTime>,
    /// Created before this time.
    pub until: Option<SystemTime>,
    /// Of this tool.
    pub tool: Option<String>,
    /// In this status.
    pub status: Option<Status>,
    /// Called by this user.
    pub caller_uid: Option<u32>,
    /// Of this trace.
    pub trace_id: Option<TraceId>,
    /// With all of these words in its call or answer, ended ones only. `word*` stands for what
    /// begins so.
    pub text: Option<String>,
    /// After this place.
    pub cursor: Option<Cursor>,
    /// At most so many.
    pub limit: usize,
}

/// A place in history. Its text is opaque to callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(pub(super) i64);

/// A text that is no cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no cursor; take one from the page before")]
pub struct InvalidCursor;

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for Cursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = u64::from_str_radix(text, 16).ok();
        let number = number.filter(|_| text.len() == 16 && !text.starts_with('+'));
        number
            .map(|number| Self(number.cast_signed()))
            .ok_or(InvalidCursor)
    }
}

/// An execution as a list tells of it, while it is read: what may be long is copied by nobody who does not want it.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// Its id.
    pub id: ExecutionId,
    /// The tool that was called.
    pub tool: &'a str,
    /// Where it stands.
    pub status: Status,
    /// The user who called.
    pub caller_uid: u32,
    /// The execution that this one repeats.
    pub replay_of: Option<ExecutionId>,
    /// When the call came in.
    pub created_at: SystemTime,
    /// When its process was started, if one was.
    pub started_at: Option<SystemTime>,
    /// When it ended, when it has.
    pub ended_at: Option<SystemTime>,
    /// The call, as JSON.
    pub call: &'a [u8],
    /// The facts of its ending, as JSON; nothing until then.
    pub ending: &'a [u8],
}

/// One page of history.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// Newest first.
    pub records: Vec<T>,
    /// Where the next page begins, if there is one.
    pub next: Option<Cursor>,
}

/// How much history is kept. Executions that have not ended are always kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// At most so many ended executions.
    pub max_count: Option<u64>,
    /// None that was created before this.
    pub not_before: Option<SystemTime>,
    /// At most so many bytes in all, the spool's included.
    pub max_total_bytes: Option<u64>,
}

/// The end of the audit chain, worth writing down elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The number of the last record; 0 when there is none.
    pub number: u64,
    /// Its hash.
    pub hash: Digest,
}

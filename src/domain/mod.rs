//! The words of the house: call, caller, tool definition, ending, outcome, output, error.
//! Plain values without IO; every other room may name them and they name nobody.

mod approval;
pub(crate) mod backoff;
mod brief;
mod call;
mod caller;
mod calls;
mod correlation;
mod counted;
mod digest;
mod ending;
mod error;
mod event;
mod failure;
mod id;
mod json;
mod judgement;
mod lineage;
mod meant;
mod micros;
mod millis;
mod output;
mod scope;
mod secrets;
mod span;
mod stage;
mod summary;
mod thread_time;
mod timestamp;
mod tool;
pub(crate) mod unique;
mod want;
mod weight;
mod words;

pub use approval::Remember;
pub(crate) use brief::brief;
pub(crate) use call::does_as;
pub use call::{Background, Call, CallOptions, DEPTH_LIMIT, InvalidCall};
pub use caller::{Caller, Principal};
pub use calls::Doorkeeper;
pub(crate) use calls::{Admission, Called, Calls, Door, Process};
pub(crate) use correlation::LONGEST_NAME;
pub use correlation::{Correlation, TraceId, TraceParent};
pub use counted::counted;
pub use digest::{Digest, Hasher, PendingDigest, Unhashed};
pub use ending::{
    Ending, Exit, KillMode, KillReason, KillReport, LeftBehind, Signal, StopReason, StreamName,
    Usage,
};
pub use error::{ExecutorError, Violation};
pub(crate) use error::{suggested, with_causes};
pub use event::EVENT_TYPES;
pub(crate) use failure::whole_secs;
pub use failure::{Failure, FailureKind};
pub use id::{ApprovalId, EXECUTION_VARIABLE, ExecutionId, INSTANCE_VARIABLE, SOCKET_VARIABLE};
pub(crate) use json::JsonSink;
pub use judgement::{Judgement, RuleSource, Ruling, Verdict};
pub use lineage::Lineage;
pub(crate) use meant::{meant, or_meant, with_meant};
pub(crate) use micros::nearest_micros;
pub(crate) use millis::whole_millis;
pub(crate) use output::{CUT_MARK, Digests};
pub use output::{
    Connection, ConnectionResult, Degradation, Display, RunReport, Sandboxed, Status, ToolOutput,
    Verbatim,
};
pub use scope::{Scope, ScopedValues};
pub use secrets::{CONTEXT, SHORTEST_MASKED, Secrets};
pub use span::{InvalidSpanId, ParentSpan, SpanContext, SpanId};
pub use stage::{Point, Stage, StageTimes, When};
pub use summary::{
    MASK, SUMMARY_CHARS, looks_secret, mask_secrets, misleads, prepare_masking, summarize,
};
pub(crate) use thread_time::thread_time;
pub use timestamp::parse_timestamp;
pub(crate) use timestamp::timestamp;
pub use tool::{BUILT_IN_TOOLS, RiskLevel, ToolDefinition, ToolDetails};
pub(crate) use want::is_for_want;
pub(crate) use weight::{
    NESTS_AT_MOST, TOO_HEAVY, is_too_heavy, json_bytes, nests_deeper, nests_too_deeply,
};
pub(crate) use words::words;

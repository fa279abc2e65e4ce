//! The arguments of what looks at executions that have been.

use std::time::SystemTime;

use shelly_executor::client::Status;

use super::id::id;
use super::number::{number, uid};
use super::when::when;

/// Which executions to list, or to forget them.
#[derive(Debug, clap::Args)]
pub struct HistoryArgs {
    /// Only those that came in at this time or later
    ///
    /// A time is RFC 3339 (2026-11-22T09:00:00Z), a local date with or without a time of day, `now`,
    /// `today`, `yesterday` or `tomorrow`, or a span back from now such as `1h` or `30min ago`.
    #[arg(long, value_name = "TIME", value_parser = when)]
    pub since: Option<SystemTime>,

    /// Only those that came in before this time
    #[arg(long, value_name = "TIME", value_parser = when)]
    pub until: Option<SystemTime>,

    /// Only those of this tool
    #[arg(long)]
    pub tool: Option<String>,

    /// Only those of this status
    #[arg(long, value_parser = Status::ALL.map(Status::as_str))]
    pub status: Option<String>,

    /// Only those of the user with this uid
    #[arg(long, value_name = "UID", value_parser = uid, allow_negative_numbers = true)]
    pub caller: Option<u32>,

    /// Only those of this trace: the `trace_id` of their calls, or that of their `traceparent`
    #[arg(long, value_name = "TRACE_ID")]
    pub trace: Option<String>,

    /// Only ended ones with all of these words in call or answer; `word*` is what begins so
    #[arg(long, value_name = "WORDS")]
    pub grep: Option<String>,

    /// How many to show at most
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = number::<u32>, allow_negative_numbers = true)]
    pub lines: u32,

    /// Forget all executions that have ended, in place of listing any; the audit trail stays
    #[arg(long, conflicts_with_all = ["since", "until", "tool", "status", "caller", "trace", "grep", "lines"])]
    pub clear: bool,

    /// Do not ask whether --clear is meant
    #[arg(long, requires = "clear")]
    pub yes: bool,
}

/// Which output to print.
#[derive(Debug, clap::Args)]
pub struct OutputArgs {
    /// The execution's id, or 4 characters and more from its beginning or end, if only one of the newest 1000 has them
    #[arg(value_parser = id)]
    pub id: String,

    /// Print its standard error in place of its standard output
    #[arg(long)]
    pub stderr: bool,

    /// Go on with what it writes, until it ends, or the try does if it is tried again
    #[arg(short, long)]
    pub follow: bool,
}

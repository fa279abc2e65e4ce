//! The arguments of what waits for a person's word.

use clap::ValueEnum;

use super::id::id;

/// Which approvals to show.
#[derive(Debug, clap::Args)]
pub struct ApprovalsArgs {
    /// Show those that are decided or expired too
    #[arg(long)]
    pub all: bool,

    /// Keep showing new ones as they come; on a terminal, ask about each
    #[arg(long, conflicts_with = "all")]
    pub watch: bool,
}

/// What to approve, and for how long.
#[derive(Debug, clap::Args)]
pub struct ApproveArgs {
    /// The approval's id or that of the execution which waits for it, or the beginning or end of one, if only one that is pending has it
    #[arg(value_parser = id)]
    pub id: String,

    /// How long the approval holds; for this call alone if absent
    #[arg(long, value_name = "HOW LONG")]
    pub remember: Option<HowLong>,

    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// What to deny.
#[derive(Debug, clap::Args)]
pub struct DenyArgs {
    /// The approval's id or that of the execution which waits for it, or the beginning or end of one, if only one that is pending has it
    #[arg(value_parser = id)]
    pub id: String,

    /// Why; the caller is told
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// How long an approval holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HowLong {
    /// For this call alone
    Once,
    /// For calls like it until the daemon ends
    Session,
    /// For calls like it from now on
    Always,
}

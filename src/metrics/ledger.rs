use std::time::Duration;

use prometheus::Histogram;

use super::{Group, MetricsError};

/// A line in the log takes 10 µs, a commit 100, one that waits for the disk some milliseconds, and
/// whatever takes seconds is somebody else's lock or a disk that dies. In seconds.
const BUCKETS: [f64; 10] = [
    0.000_01, 0.000_05, 0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.1, 1.0, 10.0,
];

/// How long the ledger takes.
#[derive(Debug)]
pub(super) struct LedgerTimes {
    commits: Histogram,
    waits: Histogram,
}

impl LedgerTimes {
    pub(super) fn new(group: &Group<'_>) -> Result<Self, MetricsError> {
        Ok(Self {
            commits: group.times(
                "shelly_ledger_commit_duration_seconds",
                "How long each transaction of the ledger took, behind the answers mostly.",
                &BUCKETS,
            )?,
            waits: group.times(
                "shelly_ledger_wait_duration_seconds",
                "How long the answer to an execution waited until its end was safe in the ledger.",
                &BUCKETS,
            )?,
        })
    }

    pub(super) fn committed(&self, took: Duration) {
        self.commits.observe(took.as_secs_f64());
    }

    pub(super) fn recorded(&self, waited: Duration) {
        self.waits.observe(waited.as_secs_f64());
    }
}

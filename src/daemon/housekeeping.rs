//! What wants doing now and then: memory and history, and what people are told of how it stands.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::api::Api;
use crate::config::{AUDIT_HEAD, HistoryConfig, SandboxConfig};
use crate::domain::Degradation;
use crate::pipeline::Head;

/// How often orphans are looked for and the status line is brought up to date. It is for people;
/// they do not read faster.
const TICK: Duration = Duration::from_secs(1);

/// How often history is held to its limits though nothing was recorded: what is there grows older.
const AGEING: Duration = Duration::from_secs(3600);

/// After how many records of the audit trail its head is written down.
const AUDIT_RECORDS: u64 = 1000;

/// How long a sandbox that has failed its test is left alone until the next: a test starts one, and somebody may have
/// set it up meanwhile.
const RETEST: Duration = Duration::from_secs(10);

/// How long the status line may be, in bytes. systemd passes over a message of more than a page (`PIPE_BUF`).
const STATUS_BYTES: usize = 2048;

/// Puts on disk now and then what executions have said, and looks whether a spool that failed works again, for
/// as long as the daemon runs. Beside everything else, for the disk may take its time.
pub(super) async fn keep_spool(api: Api) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        api.executor.save_drafts(TICK).await;
        api.executor.probe_spool().await;
    }
}

/// Does what wants doing now and then, for as long as the daemon runs.
pub(super) async fn keep(api: Api) {
    let executor = api.executor.clone();
    tokio::spawn(async move { executor.sweep().await });
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut housekeeper = Housekeeper::new(api);
    loop {
        ticks.tick().await;
        housekeeper.look().await;
    }
}

/// What it knows from its last look. No look waits for long: what may take its time, as whatever the ledger
/// writes, is a [`Chore`].
struct Housekeeper {
    api: Api,
    problems: Vec<Degradation>,
    status: String,
    /// How much had been done.
    changes: Option<u64>,
    /// Whether there is memory to be given back, as the start has taken some.
    holds: bool,
    rest: Chore,
    /// What history was held to its limits for, and when.
    held_to: Option<(Option<Head>, HistoryConfig)>,
    held_at: Instant,
    pruning: Chore,
    /// Up to which record of the audit trail its head was written down.
    told: u64,
    /// The sandbox that was tested, and when.
    tested: Option<(SandboxConfig, Instant)>,
}

impl Housekeeper {
    fn new(api: Api) -> Self {
        Self {
            api,
            problems: Vec::new(),
            status: String::new(),
            changes: None,
            holds: false,
            rest: Chore::default(),
            held_to: None,
            held_at: Instant::now(),
            pruning: Chore::default(),
            told: 0,
            tested: None,
        }
    }

    async fn look(&mut self) {
        self.test_sandbox();
        self.give_back();
        self.api.executor.tidy();
        let problems = self.api.executor.degradations().await;
        tell_changes(&self.problems, &problems);
        self.keep_history();
        let status = status_line(&self.api, &problems);
        if status != self.status {
            super::service::status(&status);
            self.status = status;
        }
        self.problems = problems;
        if !self.holds {
            // What this look has run, too: while nothing happens it is all that runs.
            super::memory::unmap_code();
        }
    }

    /// Tests the sandbox once for each configuration of it, as soon as something wants it; again and again while it fails.
    fn test_sandbox(&mut self) {
        let executor = &self.api.executor;
        let sandbox = &executor.config().sandbox;
        let is_due = match &self.tested {
            Some((tested, at)) if tested == sandbox => {
                at.elapsed() >= RETEST && executor.sandbox_fails()
            }
            Some(_) | None => true,
        };
        if is_due && executor.wants_sandbox() {
            self.tested = Some((sandbox.clone(), Instant::now()));
            let executor = executor.clone();
            tokio::spawn(async move { executor.test_sandbox().await });
        }
    }

    /// Gives memory back when for a while nothing was done.
    fn give_back(&mut self) {
        let now = Some(self.api.executor.changes());
        if self.changes != now {
            self.changes = now;
            self.holds = true;
        } else if self.holds && self.api.executor.running() == 0 {
            let executor = self.api.executor.clone();
            self.holds = !self.rest.begin(super::memory::give_back(async move {
                executor.rest().await;
            }));
        }
    }

    /// Forgets what is too old when something was recorded or the limits are others, and writes down how far the
    /// audit trail has come: what is changed or cut off before that can be found out.
    fn keep_history(&mut self) {
        let head = self.api.executor.audit_head();
        let kept = Some((head, self.api.executor.config().history));
        if self.held_to != kept || self.held_at.elapsed() >= AGEING {
            let executor = self.api.executor.clone();
            let begun = self.pruning.begin(async move {
                if let Err(error) = executor.prune_history().await {
                    tracing::debug!(%error, "cannot forget the oldest executions");
                }
            });
            if begun {
                (self.held_to, self.held_at) = (kept, Instant::now());
            }
        }
        if head.is_some_and(|head| head.number >= self.told + AUDIT_RECORDS) {
            self.told = head.map_or(0, |head| head.number);
            tell_audit_head(&self.api);
        }
    }
}

/// Work beside the looks that may have to wait for a disk.
#[derive(Default)]
struct Chore(Option<JoinHandle<()>>);

impl Chore {
    /// Begins it, unless the last time still goes on; says whether.
    fn begin(&mut self, work: impl Future<Output = ()> + Send + 'static) -> bool {
        let is_free = self.0.as_ref().is_none_or(JoinHandle::is_finished);
        if is_free {
            self.0 = Some(tokio::spawn(work));
        }
        is_free
    }
}

/// Writes the end of the audit trail to the log, where who changes the ledger does not reach.
pub(super) fn tell_audit_head(api: &Api) {
    if let Some(head) = api.executor.audit_head().filter(|head| head.number > 0) {
        let head = format!("{}:{}", head.number, head.hash);
        tracing::info!(target: AUDIT_HEAD, AUDIT_HEAD = head, "audit trail at {head}");
    }
}

/// Logs what has ceased to work and what works again. (Of the configuration, whoever read it does.)
fn tell_changes(before: &[Degradation], now: &[Degradation]) {
    for new in now.iter().filter(|problem| !before.contains(problem)) {
        tracing::error!(code = new.code, source = new.source, "{}", new.detail);
    }
    let is_over = |old: &&Degradation| now.iter().all(|problem| problem.code != old.code);
    for old in before.iter().filter(is_over) {
        tracing::info!(code = old.code, source = old.source, "this is well again");
    }
}

/// How many executions run, whether more are taken, and what does not work as it should: of the
/// executor, these `problems`.
pub(super) fn status_line(api: &Api, problems: &[Degradation]) -> String {
    let mut line = format!("running {}", api.executor.running());
    if api.health.is_stopping() {
        return line + "; stopping";
    }
    for degradation in api.health.configuration().iter().chain(problems) {
        // One line: systemd cuts at the first newline.
        line.push_str("; degraded: ");
        line.push_str(&degradation.detail.replace('\n', " "));
    }
    cut(line)
}

/// As much of a line as systemd takes.
fn cut(mut line: String) -> String {
    if line.len() > STATUS_BYTES {
        line.truncate(line.floor_char_boundary(STATUS_BYTES));
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_systemd_would_pass_over_is_cut() {
        let short = "running 1".to_owned();
        assert_eq!(cut(short.clone()), short);
        let long = cut("ä".repeat(4096));
        assert_eq!(long, "ä".repeat(1024) + "…");
    }
}

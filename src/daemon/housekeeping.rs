use std::time::{Duration, Instant};

use crate::api::Api;
use crate::config::AUDIT_HEAD;
use crate::domain::Degradation;

/// How often orphans are looked for and the status line is brought up to date. It is for people;
/// they do not read faster.
const TICK: Duration = Duration::from_secs(1);

/// How often history is held to its limits though nothing was recorded: what is there grows older.
const AGEING: Duration = Duration::from_secs(3600);

/// After how many records of the audit trail its head is written down.
const AUDIT_RECORDS: u64 = 1000;

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
    let (mut last, mut told) = (String::new(), 0);
    let (mut held_to, mut held_at) = (None, Instant::now());
    let mut known = Vec::new();
    // The start took memory, too.
    let mut changes = None;
    let mut holds = false;
    let mut tested = None;
    loop {
        ticks.tick().await;
        let sandbox = &api.executor.config().sandbox;
        if tested.as_ref() != Some(sandbox) && api.executor.wants_sandbox() {
            tested = Some(sandbox.clone());
            let executor = api.executor.clone();
            tokio::spawn(async move { executor.test_sandbox().await });
        }
        let now = Some(api.executor.changes());
        if changes != now {
            changes = now;
            holds = true;
        } else if holds && api.executor.running() == 0 {
            // For a while nothing has begun or ended.
            api.executor.rest().await;
            super::memory::trim();
            holds = false;
        }
        api.executor.tidy();
        let problems = api.executor.degradations();
        tell_changes(&known, &problems);
        let limits = api.executor.config().history;
        let kept = Some((api.executor.audit_head(), limits));
        if held_to != kept || held_at.elapsed() >= AGEING {
            // Something was recorded, or the limits are others, so that something may have to go.
            (held_to, held_at) = (kept, Instant::now());
            keep_history(&api, &mut told).await;
        }
        let line = status_line(&api, &problems);
        if line != last {
            super::service::status(&line);
            last = line;
        }
        known = problems;
        if !holds {
            // What this look has run, too: while nothing happens it is all that runs.
            super::memory::unmap_code();
        }
    }
}

/// Forgets what is too old, and writes down how far the audit trail has come: what is changed or
/// cut off before that can be found out.
async fn keep_history(api: &Api, told: &mut u64) {
    if let Err(error) = api.executor.prune_history().await {
        tracing::debug!(%error, "cannot forget the oldest executions");
    }
    let head = api.executor.audit_head();
    if head.is_some_and(|head| head.number >= *told + AUDIT_RECORDS) {
        *told = head.map_or(0, |head| head.number);
        tell_audit_head(api);
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
        line.push_str(&format!(
            "; degraded: {}",
            degradation.detail.replace('\n', " ")
        ));
    }
    line
}

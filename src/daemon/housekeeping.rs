use std::time::Duration;

use crate::api::Api;
use crate::domain::Degradation;

/// How often orphans are looked for and the status line is brought up to date. It is for people;
/// they do not read faster.
const TICK: Duration = Duration::from_secs(1);

/// Does what wants doing now and then, for as long as the daemon runs.
pub(super) async fn keep(api: Api) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last = String::new();
    let mut known = Vec::new();
    let mut running = api.executor.watch_running();
    loop {
        ticks.tick().await;
        if running.has_changed().unwrap_or(false) && *running.borrow_and_update() == 0 {
            super::process::return_memory();
        }
        api.executor.tidy();
        known = tell_changes(known, api.executor.degradations());
        let line = status_line(&api);
        if line != last {
            super::service::status(&line);
            last = line;
        }
    }
}

/// Logs what has ceased to work and what works again. (Of the configuration, whoever read it does.)
fn tell_changes(before: Vec<Degradation>, now: Vec<Degradation>) -> Vec<Degradation> {
    for new in now.iter().filter(|problem| !before.contains(problem)) {
        tracing::error!(code = new.code, source = new.source, "{}", new.detail);
    }
    let is_over = |old: &&Degradation| now.iter().all(|problem| problem.code != old.code);
    for old in before.iter().filter(is_over) {
        tracing::info!(code = old.code, source = old.source, "this is well again");
    }
    now
}

/// How many executions run, whether more are taken, and what does not work as it should.
pub(super) fn status_line(api: &Api) -> String {
    let mut line = format!("running {}", api.executor.running());
    if api.health.is_stopping() {
        return line + "; stopping";
    }
    for degradation in api.degradations() {
        // One line: systemd cuts at the first newline.
        line.push_str(&format!(
            "; degraded: {}",
            degradation.detail.replace('\n', " ")
        ));
    }
    line
}

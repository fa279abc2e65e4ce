use std::time::Duration;

use crate::api::Api;

/// How often orphans are looked for and the status line is brought up to date. It is for people;
/// they do not read faster.
const TICK: Duration = Duration::from_secs(1);

/// Does what wants doing now and then, for as long as the daemon runs.
pub(super) async fn keep(api: Api) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last = String::new();
    let mut running = api.executor.watch_running();
    loop {
        ticks.tick().await;
        if running.has_changed().unwrap_or(false) && *running.borrow_and_update() == 0 {
            super::process::return_memory();
        }
        api.executor.tidy();
        let line = status_line(&api);
        if line != last {
            super::service::status(&line);
            last = line;
        }
    }
}

/// How many executions run, whether more are taken, and what does not work as it should.
pub(super) fn status_line(api: &Api) -> String {
    let mut line = format!("running {}", api.executor.running());
    if api.health.is_stopping() {
        line.push_str("; stopping");
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

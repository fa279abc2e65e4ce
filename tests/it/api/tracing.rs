//! What a collector of OpenTelemetry hears of executions.

mod python;
mod sending;
mod spans;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{Daemon, wait_to_equal};

/// Ends a daemon, which then says all that is left to say.
fn end(daemon: &mut Daemon) {
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().success());
}

fn id_of(answer: &Value) -> String {
    answer["execution_id"].as_str().expect("an id").to_owned()
}

/// How many spans were sent, dropped and refused.
fn counted(daemon: &Daemon) -> [u64; 3] {
    let text = daemon.get("/metrics");
    let text = String::from_utf8_lossy(&text.body).into_owned();
    ["sent", "dropped", "refused"].map(|result| {
        let name = format!("shelly_otlp_spans_total{{result=\"{result}\"}} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&name));
        value.expect(&name).parse().expect("a number")
    })
}

#[track_caller]
fn wait_for_counts(daemon: &Daemon, expected: [u64; 3]) {
    wait_to_equal("sent, dropped and refused", expected, || counted(daemon));
}

//! A command that takes all it can get has the limits of its cgroup, and the daemon its calm.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Daemon, Mode, skip, timed};

/// How fast `/health` is whatever the commands do.
const PROMPT: Duration = Duration::from_millis(100);

/// Runs a command in a limited cgroup and asks for the daemon's health all the while.
fn stays_calm(limits: &str, command: &str) -> serde_json::Value {
    let toml = format!("kill_grace_ms = 200\n[limits]\n{limits}");
    let daemon = Daemon::start_with(Mode::Cgroup, &toml);
    let baseline = daemon.baseline();
    let id = daemon.begin(command, &json!({"timeout_secs": 3}));
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut asked = 0;
    while daemon.get(&format!("/executions/{id}")).json()["status"] == "running" {
        assert!(Instant::now() < deadline, "it never ended");
        let (reply, took) = timed(|| daemon.get("/health"));
        assert_eq!(reply.status, 200);
        assert!(took.within(PROMPT), "{took:?}");
        asked += 1;
    }
    assert!(asked > 10, "asked {asked} times only");
    assert_eq!(daemon.bash("echo hi").stdout(), "hi");
    let result = daemon.ended(&id)["result"].clone();
    daemon.wait_clean(&baseline);
    result
}

#[test]
fn a_fork_bomb_is_contained_and_killed() {
    if !Mode::Cgroup.is_available() || !Mode::has_controller("pids") {
        skip("a fork bomb, for want of the pids controller in a cgroup v2");
        return;
    }
    let bomb = "bomb() { bomb | bomb & }; bomb; while :; do :; done";
    let result = stays_calm("pids_max = 100", bomb);
    assert_eq!(result["code"], "timeout", "{result}");
    assert_eq!(result["kill"]["survivors"], 0, "{result}");
    let signalled = result["kill"]["signalled"].as_u64().expect("a number");
    assert!((2..=100).contains(&signalled), "{result}");
}

#[test]
fn a_memory_hog_is_contained_and_killed() {
    if !Mode::Cgroup.is_available() || !Mode::has_controller("memory") {
        skip("a memory hog, for want of the memory controller in a cgroup v2");
        return;
    }
    // One after the other, so that it goes on until the time limit.
    let result = stays_calm("memory_max = 67108864", "while :; do tail /dev/zero; done");
    assert_eq!(result["code"], "timeout", "{result}");
    assert_eq!(result["oom_killed"], true, "{result}");
    assert_eq!(result["kill"]["survivors"], 0, "{result}");
    let peak = result["usage"]["memory_peak_bytes"]
        .as_u64()
        .expect("a number");
    assert!(peak <= 67_108_864, "{result}");
}

/// Limits that cannot be set are not left out: a command runs as it was configured to or not.
#[test]
fn a_limit_that_cannot_be_set_is_named() {
    if !Mode::Cgroup.is_available() || Mode::has_controller("memory") {
        skip("a missing controller, for it is there or no cgroup v2 is");
        return;
    }
    let daemon = Daemon::start_with(Mode::Cgroup, "[limits]\nmemory_max = 67108864");
    let body = daemon.bash("echo hi").json();
    assert_eq!(body["code"], "spawn_failed", "{body}");
    let content = body["content"].as_str().expect("text");
    assert!(
        content.contains("memory.max") && content.contains("67108864"),
        "{body}"
    );
    assert_unsupported(&daemon, "controller memory here");
}

/// An operator who set limits relies on them: without cgroups nothing runs that they would not hold.
#[test]
fn limits_without_cgroups_keep_commands_from_running() {
    let daemon = Daemon::start_with(Mode::Group, "[limits]\nmemory_max = 67108864\npids_max = 3");
    let body = daemon.bash("echo hi").json();
    assert_eq!(body["code"], "spawn_failed", "{body}");
    let content = body["content"].as_str().expect("text");
    assert!(content.contains("only cgroups can hold"), "{body}");
    assert_unsupported(&daemon, "controller memory, pids here");
    // It says so by itself, too, not only when asked.
    daemon.wait_until("it is logged", || {
        daemon.log().contains("limits_unsupported")
    });
}

#[track_caller]
fn assert_unsupported(daemon: &Daemon, part: &str) {
    let health = daemon.get("/health").json();
    assert_eq!(health["status"], "degraded", "{health}");
    assert_eq!(health["problems"][0]["code"], "limits_unsupported");
    let detail = health["problems"][0]["detail"].as_str().expect("text");
    assert!(detail.contains(part), "{detail}");
}

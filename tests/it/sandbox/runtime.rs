//! The runtime: missing, broken, there.

use serde_json::json;

use super::{assert_clean, is_there, start, wait_for_test};
use crate::support::{Daemon, Mode, wait_until};

#[test]
fn without_a_runtime_nothing_untrusted_runs() {
    let toml = "[sandbox]\nruntime = \"/nowhere/runsc\"\n[tools]\nuntrusted = [\"bash\"]\n";
    let daemon = Daemon::start_with(Mode::Group, toml);
    let witness = daemon.dir().join("witness");
    let reply = daemon.bash(&format!("touch {}", witness.display()));
    let body = reply.json();
    assert_eq!(
        (reply.status, &body["code"]),
        (503, &json!("sandbox_unavailable")),
        "{body}"
    );
    let detail = body["detail"].as_str().expect("text");
    for part in ["/nowhere/runsc", "install", "[sandbox]"] {
        assert!(detail.contains(part), "{detail}");
    }
    assert!(!witness.exists(), "it ran outside");
    wait_until("/health says so", || {
        let health = daemon.get("/health").json();
        health["sandbox"]["self_test"] == "failed"
            && health["problems"][0]["code"] == "sandbox_unavailable"
    });
    // What is trusted runs as ever.
    let body = daemon
        .post(&json!({"name": "execute_command", "input": {"command": "echo hi"}}))
        .json();
    assert_eq!(body["output"]["stdout"], "hi\n", "{body}");
}

#[test]
fn a_runtime_that_does_not_work_is_told_of() {
    for (program, said) in [
        ("#!/bin/sh\nexit 3\n", "does not say its version"),
        (
            "#!/bin/sh\n[ \"$1\" = --version ] && { echo broken version 1.0; exit; }\necho no platform here >&2; exit 128\n",
            "no platform here",
        ),
        (
            "#!/bin/sh\n[ \"$1\" = --version ] && { echo broken version 1.0; exit; }\nexit 0\n",
            "does not say why",
        ),
    ] {
        let dir = crate::support::scratch();
        let runtime = dir.join("runtime");
        std::fs::write(&runtime, program).expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&runtime, mode).expect("executable");
        let toml = format!(
            "[sandbox]\nruntime = {:?}\n[tools]\nuntrusted = [\"bash\"]\n",
            runtime.display().to_string()
        );
        let daemon = Daemon::start_with(Mode::Group, &toml);
        wait_for_test(&daemon, "failed");
        let reply = daemon.bash("true");
        let body = reply.json();
        assert_eq!(
            (reply.status, &body["code"]),
            (503, &json!("sandbox_unavailable")),
            "{body}"
        );
        assert!(
            body["detail"].as_str().expect("text").contains(said),
            "{body}"
        );
        assert_clean(&daemon, said);
        std::fs::remove_dir_all(dir).expect("removed");
    }
}

#[test]
fn its_state_is_told_when_something_needs_it() {
    if !is_there() {
        return;
    }
    let idle = Daemon::start();
    let health = idle.get("/health").json();
    assert_eq!(health["sandbox"]["self_test"], "untested", "{health}");
    let daemon = start(Mode::Group, "");
    let sandbox = &daemon.get("/health").json()["sandbox"];
    assert_eq!(sandbox["runtime"], "runsc", "{sandbox}");
    assert!(
        sandbox["version"].is_string() && sandbox["self_test_ms"].is_u64(),
        "{sandbox}"
    );
    assert_clean(&daemon, "after the self-test");
}

//! Calls that are taken back, and calls whose time is up.

use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tonic::{Code, Request};

use super::{bash, bash_only, connect};
use crate::support::grpc::problem_of;
use crate::support::{Daemon, Fifo, Mode, bash_call, wait_for, wait_until};

/// Runs until it is ended, in two sessions, after saying so in `file`.
fn long_command(file: &Path) -> String {
    format!(
        "setsid sleep 600 & sleep 600 & echo $SHELLY_EXECUTION_ID >{0}.new; mv {0}.new {0}; wait",
        file.display()
    )
}

fn id_in(file: &Path) -> String {
    let read = || fs::read_to_string(file).ok();
    wait_for("the command runs", read).trim().to_owned()
}

#[track_caller]
fn assert_disconnected(daemon: &Daemon, id: &str) {
    let record = daemon.ended(id);
    assert_eq!(record["status"], "cancelled", "{record}");
    assert_eq!(record["result"]["kill"]["reason"], "disconnect", "{record}");
}

#[test]
fn a_call_that_is_taken_back_leaves_nothing() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        let baseline = daemon.baseline();
        let grpc = connect(&daemon);
        let file = daemon.dir().join("unary");
        let call = grpc.begin_execute(bash_only(&long_command(&file)));
        let id = id_in(&file);
        drop(call);
        assert_disconnected(&daemon, &id);

        let file = daemon.dir().join("stream");
        let events = grpc
            .stream(bash_only(&long_command(&file)))
            .expect("a stream");
        let id = id_in(&file);
        drop(events);
        assert_disconnected(&daemon, &id);
        // The connection is as good as before.
        assert_eq!(
            grpc.execute(bash_only("true"))
                .expect("an answer")
                .exit_code,
            Some(0)
        );
        drop(grpc);
        daemon.wait_clean(&baseline);
    }
}

#[test]
fn a_connection_that_goes_takes_its_calls_with_it() {
    let daemon = Daemon::start();
    let grpc = connect(&daemon);
    let files = ["one", "two"].map(|name| daemon.dir().join(name));
    let calls = files
        .each_ref()
        .map(|file| grpc.begin_execute(bash_only(&long_command(file))));
    let ids = files.each_ref().map(|file| id_in(file));
    drop((calls, grpc));
    for id in ids {
        assert_disconnected(&daemon, &id);
    }
}

#[test]
fn a_call_over_json_can_be_taken_back_too() {
    let daemon = Daemon::start();
    let grpc = connect(&daemon);
    for accept in ["application/json", "text/event-stream"] {
        let file = daemon.dir().join(accept.replace('/', "-"));
        let body = bash_call(&long_command(&file), &json!({}));
        let call = grpc.begin_json(&body, accept);
        let id = id_in(&file);
        drop(call);
        assert_disconnected(&daemon, &id);
    }
    assert!(grpc.execute(bash_only("true")).is_ok());
}

#[test]
fn a_call_with_a_key_goes_on_without_its_client() {
    let daemon = Daemon::start();
    let grpc = connect(&daemon);
    let fifo = Fifo::new(daemon.dir().join("gate"));
    let file = daemon.dir().join("id");
    let command = format!(
        "echo $SHELLY_EXECUTION_ID >{0}.new; mv {0}.new {0}; read word < {1}; echo $word",
        file.display(),
        fifo.path().display()
    );
    let mut request = Request::new(bash_only(&command));
    request
        .metadata_mut()
        .insert("idempotency-key", "k".parse().expect("ASCII"));
    let call = grpc.begin_execute(request);
    let id = id_in(&file);
    drop(call);
    drop(grpc);
    fifo.reached().say("on");
    assert_eq!(daemon.ended(&id)["status"], "success");
}

/// The newest record.
fn newest(daemon: &Daemon) -> Value {
    daemon.get("/executions?limit=1").json()["executions"][0].clone()
}

#[test]
fn a_deadline_is_a_time_limit() {
    let daemon = Daemon::start();
    let grpc = connect(&daemon);
    let timed = |command: &str, members: &Value, deadline: Duration| {
        let mut request = Request::new(bash(command, members));
        request.set_timeout(deadline);
        grpc.execute(request)
    };
    // The client of these tests leaves its deadline to the daemon.
    let status = timed(
        "echo so far; sleep 600",
        &json!({"timeout_secs": 500}),
        Duration::from_secs(2),
    );
    let status = status.expect_err("no time");
    assert_eq!(status.code(), Code::DeadlineExceeded);
    let problem = problem_of(&status);
    assert_eq!(
        (problem.code.as_str(), problem.http_status),
        ("timeout", 504)
    );
    assert!(problem.detail.contains("2s"), "{problem:?}");
    assert_eq!(
        problem.partial.expect("it ran").content,
        "[stdout]\nso far\n\n[timeout]\n2s"
    );
    let id = problem.execution_id.expect("an execution");
    assert_eq!(daemon.ended(&id)["status"], "timeout");

    // It shortens the usual limit as well, and lengthens none.
    let status = timed("sleep 600", &json!({}), Duration::from_millis(200));
    assert_eq!(status.expect_err("no time").code(), Code::DeadlineExceeded);
    let status = timed(
        "sleep 600",
        &json!({"timeout_secs": 0.2}),
        Duration::from_secs(3600),
    );
    assert!(
        problem_of(&status.expect_err("no time"))
            .detail
            .contains("0.2s")
    );
    assert!(timed("true", &json!({}), Duration::from_secs(60)).is_ok());
}

/// What is unavailable clients call again by themselves.
#[test]
fn what_has_run_in_part_when_the_daemon_stops_is_not_called_unavailable() {
    let toml = "shutdown_grace_secs = 0\n[flow.tools.bash]\nmax_running = 1\n";
    let daemon = Daemon::start_with(Mode::Group, toml);
    let grpc = connect(&daemon);
    let file = daemon.dir().join("id");
    let mut call = grpc.begin_execute(bash_only(&long_command(&file)));
    id_in(&file);
    let mut waiting = grpc.begin_execute(bash_only("true"));
    wait_until("it waits", || {
        let waits = daemon.get("/executions?status=queued").json();
        waits["executions"].as_array().map(Vec::len) == Some(1)
    });
    daemon.signal(Signal::SIGTERM);
    let waited = grpc.end(&mut waiting).expect_err("it was given up");
    assert_eq!(waited.code(), Code::Unavailable, "{waited:?}");
    let status = grpc.end(&mut call).expect_err("it was killed");
    assert_eq!(status.code(), Code::Aborted, "{status:?}");
    let problem = problem_of(&status);
    assert_eq!(
        (problem.code.as_str(), problem.stage.as_deref()),
        ("shutting_down", Some("execution"))
    );
}

#[test]
fn a_client_that_goes_at_its_deadline_has_run_out_of_time() {
    let daemon = Daemon::start();
    let grpc = connect(&daemon);
    let file = daemon.dir().join("id");
    let mut request = Request::new(bash_only(&long_command(&file)));
    request.set_timeout(Duration::from_secs(2));
    let mut call = grpc.begin_execute(request);
    let id = id_in(&file);
    let _ = grpc.end(&mut call);
    let record = daemon.ended(&id);
    assert_eq!(record["status"], "timeout", "{record}");
    assert_eq!(record["result"]["kill"]["reason"], "timeout", "{record}");
}

#[test]
fn a_deadline_counts_while_nothing_runs_yet() {
    let policy = "default = \"allow\"\nask = [\"bash(command:marker *)\"]\n";
    let daemon = Daemon::start_under(policy, "");
    let grpc = connect(&daemon);
    let mut request = Request::new(bash_only("marker x"));
    request.set_timeout(Duration::from_millis(200));
    let status = grpc.execute(request).expect_err("nobody approved");
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(problem_of(&status).code, "timeout");
    let record = newest(&daemon);
    assert_eq!(record["started_at"], Value::Null);
    assert_eq!(record["status"], "timeout", "{record}");
    wait_until("nothing waits any more", || {
        daemon.get("/health").json()["running"] == 0
    });
}

#[test]
fn a_deadline_that_has_passed_runs_nothing() {
    let daemon = Daemon::start();
    let grpc = connect(&daemon);
    let mut request = Request::new(bash("true", &json!({"id": "toolu_01A"})));
    request.set_timeout(Duration::ZERO);
    let status = grpc.execute(request).expect_err("no time");
    assert_eq!(status.code(), Code::DeadlineExceeded);
    let problem = problem_of(&status);
    assert_eq!(problem.tool_use_id.as_deref(), Some("toolu_01A"));
    assert_eq!(problem.execution_id, None);
    assert_eq!(daemon.get("/executions").json()["executions"], json!([]));
}

#[test]
fn a_deadline_that_cannot_be_read_is_refused() {
    let daemon = Daemon::start();
    let grpc = connect(&daemon);
    let mut request = Request::new(bash_only("true"));
    request
        .metadata_mut()
        .insert("grpc-timeout", "10 days".parse().expect("ASCII"));
    let status = grpc.execute(request).expect_err("no time");
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("10 days"), "{status:?}");
}

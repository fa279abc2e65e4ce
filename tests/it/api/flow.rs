//! How often calls may be made, how many run at once, and the queue for it.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use super::skills::{Room, done};
use super::{blocked, call};
use crate::support::{Daemon, Fifo, Mode, Reply, bash_call, wait_for, wait_to_equal};

fn started(flow: &str) -> Daemon {
    Daemon::start_with(Mode::Group, &format!("[flow]\n{flow}\n"))
}

/// Checks a refusal and gives its Retry-After.
#[track_caller]
pub(super) fn refused(reply: &Reply, status: u16, code: &str) -> u64 {
    let body = reply.json();
    assert_eq!(
        (reply.status, &body["code"]),
        (status, &json!(code)),
        "{body}"
    );
    let after = reply.header("retry-after").expect("Retry-After");
    after.parse().expect("whole seconds")
}

#[track_caller]
fn runs(reply: &Reply) {
    assert_eq!(reply.status, 200, "{}", reply.json());
}

pub(super) fn status(daemon: &Daemon, id: &str) -> Value {
    daemon.get(&format!("/executions/{id}")).json()["status"].clone()
}

#[track_caller]
pub(super) fn wait_for_status(daemon: &Daemon, id: &str, expected: &str) {
    wait_to_equal("its status", json!(expected), || status(daemon, id));
}

fn for_tenant(tenant: &str) -> Value {
    json!({"tenant_id": tenant})
}

#[test]
fn what_is_called_too_often_is_told_when_to_come_back() {
    let rate = "{ calls = 1, per_secs = 1000, burst = 2 }";
    for (flow, whose) in [
        (format!("tools.bash.rate = {rate}"), "the tool `bash`"),
        (format!("tools.\"*\".rate = {rate}"), "the tool `bash`"),
        (format!("caller_rate = {rate}"), "uid "),
        (format!("tenant_rate = {rate}"), "the tenant \"acme\""),
    ] {
        let daemon = started(&flow);
        let once = || daemon.bash_with("true", &for_tenant("acme"));
        runs(&once());
        runs(&once());
        let reply = once();
        let after = refused(&reply, 429, "rate_limited");
        assert!((900..=1000).contains(&after), "{after}");
        let body = reply.json();
        let detail = body["detail"].as_str().expect("a text");
        assert!(
            detail.contains(whose) && detail.contains(&format!("in {after}s")),
            "{detail}"
        );
        assert_eq!(body["stage"], "permission");
        let record = daemon.ended(body["execution_id"].as_str().expect("an id"));
        assert_eq!(
            (&record["status"], &record["http_status"]),
            (&json!("failed"), &json!(429))
        );
    }
}

#[test]
fn a_rate_is_for_one_tenant_or_tool_and_not_for_another() {
    let daemon = started(
        "tenant_rate = { calls = 1, per_secs = 1000 }\ntools.execute_command.rate = { calls = 1, per_secs = 1000 }",
    );
    runs(&daemon.bash_with("true", &for_tenant("one")));
    runs(&daemon.bash_with("true", &for_tenant("two")));
    refused(
        &daemon.bash_with("true", &for_tenant("one")),
        429,
        "rate_limited",
    );
    // Without a tenant only the other limits hold.
    runs(&daemon.bash("true"));
    runs(&daemon.bash("true"));
    let other = json!({"name": "execute_command", "input": {"command": "true"}});
    runs(&daemon.post(&other));
    refused(&daemon.post(&other), 429, "rate_limited");
}

#[test]
fn who_waits_as_long_as_told_has_waited_long_enough() {
    let daemon = started("tools.bash.rate = { calls = 2 }");
    let refusal = wait_for("a refusal", || {
        Some(daemon.bash("true")).filter(|reply| reply.status != 200)
    });
    let after = refused(&refusal, 429, "rate_limited");
    assert_eq!(after, 1);
    std::thread::sleep(Duration::from_secs(after));
    runs(&daemon.bash("true"));
}

#[test]
fn a_call_that_the_policy_refuses_costs_nothing() {
    let daemon = Daemon::start_under(
        "default = \"allow\"\ndeny = [\"bash(command:id)\"]\n",
        "[flow]\ncaller_rate = { calls = 1, per_secs = 1000 }\n",
    );
    for _ in 0..3 {
        assert_eq!(daemon.bash("id").json()["code"], "permission_denied");
    }
    runs(&daemon.bash("true"));
    refused(&daemon.bash("true"), 429, "rate_limited");
}

#[test]
fn what_finds_no_place_waits_and_what_finds_no_room_to_wait_is_refused() {
    let daemon = started("queue_max = 1\ntools.bash.max_running = 1");
    let (script, fifo) = blocked(&daemon, "first");
    let first = daemon.begin(&script, &json!({}));
    let gate = fifo.reached();
    // Its time limit does not run while it waits.
    let second = daemon.begin("echo second", &json!({"timeout_secs": 2}));
    wait_for_status(&daemon, &second, "queued");
    let listed = || daemon.get("/executions?status=queued").json();
    wait_to_equal("those that wait", json!(second), || {
        listed()["executions"][0]["execution_id"].clone()
    });
    let reply = daemon.bash("echo third");
    let after = refused(&reply, 429, "queue_full");
    assert!((1..60).contains(&after), "{after}");
    // Others are not concerned.
    let other = json!({"name": "execute_command", "input": {"command": "sleep 2.1"}});
    runs(&daemon.post(&other));
    assert_eq!(status(&daemon, &second), "queued");
    gate.say("on");
    assert_eq!(daemon.ended(&first)["status"], "success");
    wait_for_status(&daemon, &second, "success");
    assert_eq!(daemon.output(&second, "stdout"), b"second\n");
    runs(&daemon.bash("true"));
}

#[test]
fn who_does_not_want_to_wait_any_more_leaves_the_queue() {
    let daemon = started("max_running = 1\nqueue_max = 1");
    let (script, fifo) = blocked(&daemon, "first");
    daemon.begin(&script, &json!({}));
    let gate = fifo.reached();
    let cancelled = daemon.begin("touch ran", &json!({}));
    wait_for_status(&daemon, &cancelled, "queued");
    let reply = daemon
        .connect()
        .request("DELETE", &format!("/executions/{cancelled}"), &[], b"");
    let record = reply.json();
    assert_eq!(
        (&record["status"], &record["started_at"]),
        (&json!("cancelled"), &Value::Null)
    );
    // Its place in the queue is another's now, who hangs up.
    let mut connection = daemon.connect();
    let body = bash_call("touch ran", &json!({})).to_string();
    connection.send("POST", "/execute", &[], body.as_bytes());
    let queued = || daemon.get("/executions?status=queued").json()["executions"].clone();
    wait_for("it waits", || {
        queued()[0]["execution_id"].as_str().map(str::to_owned)
    });
    drop(connection);
    wait_to_equal("those that wait", json!([]), queued);
    let last = daemon.begin("echo last", &json!({}));
    wait_for_status(&daemon, &last, "queued");
    gate.say("on");
    wait_for_status(&daemon, &last, "success");
    assert!(!daemon.dir().join("ran").exists());
}

#[test]
fn nobody_waits_longer_than_may_be_waited() {
    let daemon = started("max_running = 1\nqueue_timeout_secs = 1");
    let (script, fifo) = blocked(&daemon, "first");
    daemon.begin(&script, &json!({}));
    let gate = fifo.reached();
    let reply = daemon.bash("true");
    refused(&reply, 429, "queue_full");
    assert!(reply.content().contains("waited 1s"), "{}", reply.content());
    gate.say("on");
}

/// Who has called often does not come before who calls for the first time.
#[test]
fn callers_take_turns() {
    let daemon = started("max_running = 1");
    let (script, fifo) = blocked(&daemon, "first");
    daemon.begin(&script, &json!({}));
    let gate = fifo.reached();
    let order = daemon.dir().join("order");
    let waiting = ["a1", "a2", "a3", "b1", "b2"].map(|name| {
        let command = format!("echo {name} >> {}", order.display());
        let id = daemon.begin(&command, &for_tenant(&name[..1]));
        wait_for_status(&daemon, &id, "queued");
        id
    });
    gate.say("on");
    for id in &waiting {
        wait_for_status(&daemon, id, "success");
    }
    let order = fs::read_to_string(order).expect("written");
    assert_eq!(order, "a1\nb1\na2\nb2\na3\n");
}

#[test]
fn what_a_tool_calls_runs_in_its_place() {
    let room = Room::new("[flow]\nmax_running = 1\n");
    let steps = json!([{"tool": "bash", "parameters": {"command": "echo in"}}]);
    room.steps("outer", steps, json!({}));
    let script = "#!/usr/bin/python3
import shelly_skill as s
def main(input):
    return s.call('bash', {'command': 'echo in'})['exit_code']
s.run(main)
";
    room.program("program", script, json!({"calls": ["bash"]}));
    let daemon = room.start();
    let reply = super::skills::call(&daemon, "outer", json!({}));
    assert_eq!(reply.status, 200, "{}", reply.json());
    assert_eq!(done(&daemon, "program", json!({})), 0);
}

#[test]
fn other_limits_are_for_those_who_wait_already() {
    let daemon = started("max_running = 1");
    let (script, fifo) = blocked(&daemon, "first");
    daemon.begin(&script, &json!({}));
    let gate = fifo.reached();
    let second = daemon.begin("true", &json!({}));
    wait_for_status(&daemon, &second, "queued");
    let config = "[flow]\nmax_running = 2\n[cgroup]\nmode = \"group\"\n";
    fs::write(daemon.dir().join("executor.toml"), config).expect("written");
    wait_for_status(&daemon, &second, "success");
    gate.say("on");
}

/// A refusal is no answer that a key would be kept for.
#[test]
fn a_key_is_good_for_another_try() {
    let daemon = started("max_running = 1\nqueue_max = 0");
    let fifo = Fifo::new(daemon.dir().join("first"));
    let script = format!("read word < {}", fifo.path().display());
    let first = daemon.begin(&script, &json!({}));
    let gate = fifo.reached();
    let headers = [("Idempotency-Key", "k1")];
    let body = call("echo x >> ran").to_string();
    let post = || {
        daemon
            .connect()
            .request("POST", "/execute", &headers, body.as_bytes())
    };
    refused(&post(), 429, "queue_full");
    refused(&post(), 429, "queue_full");
    gate.say("on");
    wait_for_status(&daemon, &first, "success");
    let (done, again) = (post(), post());
    runs(&done);
    assert_eq!(done.json()["execution_id"], again.json()["execution_id"]);
}

#[test]
fn events_say_that_a_call_waits() {
    let daemon = started("max_running = 1");
    let (script, fifo) = blocked(&daemon, "first");
    daemon.begin(&script, &json!({}));
    let gate = fifo.reached();
    let second = daemon.begin("true", &json!({}));
    wait_for_status(&daemon, &second, "queued");
    let path = format!("/events?follow=false&type=executionQueued&execution_id={second}");
    wait_for("it is told", || {
        let text = String::from_utf8(daemon.get(&path).body).expect("text");
        text.contains("executionQueued").then_some(())
    });
    gate.say("on");
}

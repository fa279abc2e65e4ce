//! Questions that outlast the daemon.

use std::fs;
use std::time::SystemTime;

use nix::sys::signal::Signal;
use serde_json::json;

use super::approvals::{answer, approvals, approve, pending, start, start_above, start_with};
use super::{blocked, call};
use crate::support::{Daemon, wait_for, wait_until};

#[test]
fn an_environment_that_is_another_after_a_restart_makes_an_approval_stale() {
    let mut daemon = start();
    let marker = daemon.dir().join("marker");
    let id = daemon.begin(&format!("touch {}", marker.display()), &json!({}));
    pending(&daemon);
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    let path = daemon.dir().join("executor.toml");
    let toml = fs::read_to_string(&path).expect("there") + "[env]\nPATH = \"/elsewhere:/bin\"\n";
    fs::write(path, toml).expect("written");
    daemon = daemon.restart();
    approve(&daemon, &pending(&daemon));
    let result = daemon.ended(&id)["result"].clone();
    // What it was before is known by its digest only.
    assert_eq!(result["code"], "approval_stale", "{result}");
    assert!(!marker.exists());
}

#[test]
fn who_approved_what_was_lost_with_the_daemon_is_still_told() {
    let mut daemon = start();
    let running = daemon.dir().join("running");
    let script = format!("touch {}; sleep 60", running.display());
    let id = daemon.begin(&script, &json!({}));
    let asked = pending(&daemon);
    approve(&daemon, &asked);
    daemon.wait_until("it runs", || running.exists());
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    let daemon = daemon.restart();
    let record = daemon.get(&format!("/executions/{id}")).json();
    let approval = json!({"id": asked["id"], "approver_uid": 0});
    assert_eq!(
        (&record["status"], &record["approval"]),
        (&json!("lost"), &approval)
    );
}

#[test]
fn nobody_waits_for_what_is_asynchronous_and_a_restart_does_not_end_it() {
    let mut daemon = start();
    let marker = daemon.dir().join("marker");
    let members = json!({"stdin": "sun", "env": {"WORD": "moon"}});
    let script = format!("cat >{}; echo $WORD >>{0}", marker.display());
    let [approved, refused, late] = [(); 3].map(|()| daemon.begin(&script, &members));
    let secret = daemon.begin(
        &format!(
            "touch {}; : ghp_abcdefghijklmnopqrstuvwxyz0123456789",
            marker.display()
        ),
        &json!({}),
    );
    daemon.wait_until("all wait", || approvals(&daemon, "").len() == 4);
    let before = approvals(&daemon, "");
    let of = |execution: &str| {
        before
            .iter()
            .find(|approval| approval["execution_id"] == execution)
            .expect("asked")
            .clone()
    };
    // A synchronous one is lost with its caller.
    let mut caller = daemon.connect();
    caller.send("POST", "/execute", &[], call("id").to_string().as_bytes());
    daemon.wait_until("that waits too", || approvals(&daemon, "").len() == 5);
    let lost = approvals(&daemon, "")[4]["execution_id"]
        .as_str()
        .expect("an id")
        .to_owned();

    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        daemon.signal(signal);
        daemon.wait();
        daemon = daemon.restart();
        daemon.wait_until("all but the secret one wait again", || {
            approvals(&daemon, "").len() == 3
        });
        for id in [&approved, &refused, &late] {
            let record = daemon.get(&format!("/executions/{id}")).json();
            assert_eq!(record["status"], "waiting", "{signal}");
        }
    }
    assert_eq!(daemon.ended(&lost)["status"], "lost");
    assert_eq!(daemon.ended(&secret)["result"]["code"], "approval_stale");
    assert!(!marker.exists());
    approve(&daemon, &of(&approved));
    let record = daemon.ended(&approved);
    assert_eq!(
        (&record["status"], &record["approval"]["approver_uid"]),
        (&json!("success"), &json!(0))
    );
    assert_eq!(fs::read_to_string(&marker).expect("written"), "sunmoon\n");
    assert_eq!(
        answer(&daemon, &of(&refused), &json!({"decision": "deny"})).status,
        200
    );
    assert_eq!(daemon.ended(&refused)["status"], "denied");

    // What the policy denies by now is denied, whatever is answered.
    let waiting = of(&late);
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    fs::write(daemon.dir().join("policy.toml"), "default = \"deny\"\n").expect("ours");
    let daemon = daemon.restart();
    assert_eq!(daemon.ended(&late)["result"]["code"], "permission_denied");
    assert_eq!(
        answer(&daemon, &waiting, &json!({"decision": "approve"})).status,
        409
    );
}

/// What is asked about is left to the next daemon as soon as this one is asked to end, which takes as long as what runs.
#[test]
fn what_is_denied_or_cancelled_while_the_daemon_ends_is_no_loss() {
    let mut daemon = start();
    let (script, fifo) = blocked(&daemon, "gate");
    let running = daemon.begin(&script, &json!({}));
    approve(&daemon, &pending(&daemon));
    let gate = fifo.reached();
    let denied = daemon.begin("touch denied", &json!({}));
    let asked = pending(&daemon);
    let cancelled = daemon.begin("touch cancelled", &json!({}));
    daemon.wait_until("both are asked about", || approvals(&daemon, "").len() == 2);
    daemon.signal(Signal::SIGTERM);
    daemon.wait_until("it ends", || daemon.log().contains("stopping"));
    let reply = answer(
        &daemon,
        &asked,
        &json!({"decision": "deny", "reason": "no"}),
    );
    assert_eq!(reply.status, 200, "{}", reply.json());
    let path = format!("/executions/{cancelled}");
    let reply = daemon.connect().request("DELETE", &path, &[], b"");
    assert_eq!(reply.json()["status"], "cancelled", "{}", reply.json());
    gate.say("on");
    daemon.wait();
    daemon = daemon.restart();
    let of = |id: &str| {
        let record = daemon.ended(id);
        (record["status"].clone(), record["result"]["code"].clone())
    };
    assert_eq!(of(&running), (json!("success"), json!(null)));
    assert_eq!(of(&denied), (json!("denied"), json!("user_rejected")));
    assert_eq!(of(&cancelled), (json!("cancelled"), json!("cancelled")));
    let result = daemon.ended(&denied)["result"].clone();
    assert_eq!(result["stage"], "confirmation", "{result}");
    let told = &result["detail"];
    assert!(
        told.as_str().is_some_and(|told| told.contains("no")),
        "{told}"
    );
}

/// The grace is over, and what runs has yet to be killed.
#[test]
fn what_is_left_to_the_next_daemon_can_be_cancelled_as_long_as_this_one_answers() {
    let mut daemon = start_above("kill_grace_ms = 20000", "self_approval = true");
    let [begun, asked, go] = ["begun", "asked", "go"].map(|name| daemon.dir().join(name));
    let busy = format!(
        "trap 'touch {}' TERM; touch {}; until [ -e {} ]; do sleep 0.05; done",
        asked.display(),
        begun.display(),
        go.display()
    );
    daemon.begin(&busy, &json!({}));
    approve(&daemon, &pending(&daemon));
    daemon.wait_until("it runs", || begun.exists());
    let cancelled = daemon.begin("touch cancelled", &json!({}));
    pending(&daemon);
    daemon.signal(Signal::SIGTERM);
    daemon.wait_until("it ends", || daemon.log().contains("stopping"));
    // A second one means now.
    daemon.signal(Signal::SIGTERM);
    daemon.wait_until("what runs is asked to end", || asked.exists());
    let path = format!("/executions/{cancelled}");
    let reply = daemon.connect().request("DELETE", &path, &[], b"");
    assert_eq!(reply.json()["status"], "cancelled", "{}", reply.json());
    fs::write(&go, "").expect("written");
    daemon.wait();
    daemon = daemon.restart();
    assert_eq!(daemon.ended(&cancelled)["status"], "cancelled");
}

#[test]
fn no_more_calls_wait_for_an_answer_than_may() {
    let mut daemon = start_with("self_approval = true\npending_max = 2");
    let [first, second] = [(); 2].map(|()| daemon.begin("id -u", &json!({})));
    daemon.wait_until("both wait", || approvals(&daemon, "").len() == 2);
    let refused = daemon.post(&call("id -u"));
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (429, &json!("queue_full"))
    );
    assert_eq!(refused.header("retry-after"), Some("60"));
    assert!(
        refused.content().contains("`pending_max`"),
        "{}",
        refused.content()
    );
    // Nobody was asked about it, and what is not asked about runs.
    assert_eq!(approvals(&daemon, "?all=true").len(), 2);
    assert_eq!(daemon.bash("echo x").status, 200);

    // Those that were there before fewer may wait still do.
    let path = daemon.dir().join("executor.toml");
    let toml = fs::read_to_string(&path).expect("there");
    fs::write(path, toml.replace("pending_max = 2", "pending_max = 1")).expect("written");
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    daemon = daemon.restart();
    daemon.wait_until("both wait", || approvals(&daemon, "").len() == 2);
    approve(&daemon, &pending(&daemon));
    daemon.wait_until("one waits", || approvals(&daemon, "").len() == 1);
    assert_eq!(daemon.post(&call("id -u")).status, 429);
    approve(&daemon, &pending(&daemon));
    for id in [first, second] {
        assert_eq!(daemon.ended(&id)["status"], "success");
    }
    // There is a place again.
    daemon.begin("id -u", &json!({}));
    pending(&daemon);
}

#[test]
fn a_question_that_lapses_while_the_daemon_is_down_ends_its_call_as_any_other_would() {
    let mut daemon = start_with("self_approval = true\nasync_timeout_secs = 1");
    let marker = daemon.dir().join("marker");
    let script = format!("touch {}", marker.display());
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let id = daemon.begin(&script, &json!({}));
        let question = |daemon: &Daemon| {
            let mut all = approvals(daemon, "?all=true").into_iter();
            all.find(|one| one["execution_id"] == id)
        };
        let asked = wait_for("it is asked about", || question(&daemon));
        daemon.signal(signal);
        daemon.wait();
        let lapses = asked["expires_at"].as_str().expect("a time");
        let lapses = humantime::parse_rfc3339(lapses).expect("RFC 3339");
        wait_until("it has lapsed", || SystemTime::now() > lapses);
        daemon = daemon.restart();
        let record = daemon.ended(&id);
        assert_eq!(
            (&record["status"], &record["result"]["code"]),
            (&json!("denied"), &json!("approval_expired")),
            "{signal}: {record}"
        );
        assert_eq!(record["result"]["stage"], "confirmation", "{signal}");
        let told = question(&daemon).expect("kept");
        assert_eq!(told["status"], "expired", "{signal}: {told}");
    }
    assert!(!marker.exists());
}

/// Somebody gave it, so that nobody says that nobody did.
#[test]
fn an_approval_that_was_given_and_lapses_while_the_daemon_is_down_is_withdrawn() {
    let mut daemon = start_with("self_approval = true\nasync_timeout_secs = 5");
    let marker = daemon.dir().join("marker");
    daemon.begin("sleep 600", &json!({}));
    let id = daemon.begin(&format!("touch {}", marker.display()), &json!({}));
    let asked = pending(&daemon);
    daemon.signal(Signal::SIGTERM);
    daemon.wait_until("it ends", || daemon.log().contains("stopping"));
    approve(&daemon, &asked);
    // A second one means now.
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    let lapses = asked["expires_at"].as_str().expect("a time");
    let lapses = humantime::parse_rfc3339(lapses).expect("RFC 3339");
    wait_until("it has lapsed", || SystemTime::now() > lapses);
    let daemon = daemon.restart();
    assert_eq!(daemon.ended(&id)["result"]["code"], "approval_stale");
    let told = approvals(&daemon, "?all=true");
    let told = told.iter().find(|one| one["id"] == asked["id"]);
    assert_eq!(told.expect("kept")["status"], "withdrawn");
    let path = format!("/events?follow=false&after=0&execution_id={id}");
    let events = daemon.get(&path).body;
    let events = String::from_utf8_lossy(&events);
    assert!(events.contains("withdrawn"), "{events}");
    assert!(!events.contains("confirmationExpired"), "{events}");
    assert!(!marker.exists());
}

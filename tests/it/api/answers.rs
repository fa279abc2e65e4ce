//! The answer to a command that started and ended by itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::call;
use crate::support::{Daemon, Mode, SLEEPS, bash_call, wait_until};

/// The members of an answer; `kill` comes on top when a signal was sent.
const MEMBERS: [&str; 16] = [
    "background",
    "content",
    "display",
    "duration_ms",
    "execution_id",
    "exit_code",
    "is_error",
    "oom_killed",
    "risk_level",
    "sandbox",
    "signal",
    "stderr_bytes",
    "stdout_bytes",
    "tool_use_id",
    "truncated",
    "usage",
];

fn members(body: &Value) -> Vec<&str> {
    let mut members: Vec<&str> = body
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect();
    members.sort_unstable();
    members
}

#[test]
fn an_answer_has_all_its_members_whatever_is_known() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        let reply = daemon.post(&bash_call("echo hello", &json!({"id": "toolu_01A"})));
        assert_eq!(reply.header("content-type"), Some("application/json"));
        let mut body = reply.json();
        assert_eq!(members(&body), MEMBERS);
        assert!(body["duration_ms"].is_u64() && body["usage"]["cpu_ms"].is_u64());
        let id = body["execution_id"].as_str().expect("an id");
        // RFC 9562: the version is the first digit of the third group.
        assert_eq!((id.len(), &id[14..15]), (36, "7"), "{id}");
        if mode == Mode::Group {
            assert_eq!(body["usage"]["memory_peak_bytes"], Value::Null);
        }
        for volatile in ["execution_id", "duration_ms", "usage", "display"] {
            body.as_object_mut().expect("an object").remove(volatile);
        }
        let expected = json!({
            "content": "[stdout]\nhello\n\n[exit_code]\n0", "is_error": false,
            "tool_use_id": "toolu_01A", "exit_code": 0, "signal": null, "oom_killed": false,
            "truncated": false, "stdout_bytes": 6, "stderr_bytes": 0, "background": [],
            "risk_level": "trusted", "sandbox": null,
        });
        assert_eq!(body, expected);
        // Known or not, they are there.
        let bare = daemon.bash("exit 3").json();
        assert_eq!(members(&bare), MEMBERS);
        assert_eq!(bare["tool_use_id"], Value::Null);
    }
}

#[test]
fn every_exit_code_is_an_answer() {
    let daemon = Daemon::start();
    for code in [0, 1, 2, 126, 127, 137, 255] {
        let reply = daemon.bash(&format!("exit {code}"));
        let body = reply.json();
        assert_eq!((reply.status, &body["exit_code"]), (200, &json!(code)));
        assert_eq!(body["signal"], Value::Null);
        assert_eq!(body["is_error"], code != 0);
        assert_eq!(body["content"], format!("[exit_code]\n{code}"));
    }
}

#[test]
fn a_signal_is_an_answer_of_its_own_form() {
    let daemon = Daemon::start();
    for (number, name) in [
        (9, "SIGKILL"),
        (15, "SIGTERM"),
        (11, "SIGSEGV"),
        (37, "SIGRTMIN+3"),
    ] {
        let reply = daemon.bash(&format!("echo out; ulimit -c 0; kill -{number} $$"));
        let body = reply.json();
        assert_eq!(reply.status, 200, "{body}");
        assert_eq!(body["exit_code"], Value::Null);
        assert_eq!(body["signal"], json!({"number": number, "name": name}));
        assert_eq!(
            body["content"],
            format!("[stdout]\nout\n\n[signal]\n{name}")
        );
        assert_eq!(body["is_error"], true);
        // It was not the daemon that sent it.
        assert!(body.get("kill").is_none(), "{body}");
    }
}

#[test]
fn the_name_has_three_forms() {
    let daemon = Daemon::start();
    for form in ["name", "tool", "tool_name"] {
        let reply = daemon.post(&json!({form: "bash", "input": {"command": "echo x"}}));
        assert_eq!(reply.stdout(), "x", "{form}");
    }
    let both = daemon.post(&json!({"name": "bash", "tool": "bash", "input": {"command": "true"}}));
    assert_eq!(both.status, 400);
}

/// A block as the Messages API gives it, recorded.
const RECORDED: &str = r#"{
    "type": "tool_use",
    "id": "toolu_01T1x1fJ34qAmk2tNTrN7Up6",
    "name": "bash",
    "input": {"command": "uname -s; cat /nonexistent"},
    "caller": {"type": "direct"},
    "cache_control": {"type": "ephemeral"}
}"#;

#[test]
fn a_recorded_block_goes_in_and_a_tool_result_comes_out() {
    let daemon = Daemon::start();
    let tool_result = |body: &str| {
        let reply = daemon
            .connect()
            .request("POST", "/execute", &[], body.as_bytes());
        // All a brain does: no look at the status, no look at the block.
        let answer = reply.json();
        json!({
            "type": "tool_result", "tool_use_id": answer["tool_use_id"],
            "content": answer["content"], "is_error": answer["is_error"],
        })
    };
    let result = tool_result(RECORDED);
    assert_eq!(
        result["tool_use_id"], "toolu_01T1x1fJ34qAmk2tNTrN7Up6",
        "{result}"
    );
    assert_eq!(result["is_error"], true);
    let content = result["content"].as_str().expect("text");
    assert!(
        content.starts_with("[stdout]\nLinux\n\n[stderr]\ncat: ")
            && content.ends_with("\n\n[exit_code]\n1"),
        "{content}"
    );
    // What cannot be run makes one just as well.
    for (from, to) in [
        ("\"bash\"", "\"bsh\""),
        ("\"command\"", "\"cmd\""),
        ("\"cache_control\"", "\"cash_control\""),
        ("uname -s;", "echo begun; kill -STOP $$;"),
    ] {
        let timeout = RECORDED.replacen('{', "{\"timeout_secs\": 0.3, ", 1);
        let result = tool_result(&timeout.replace(from, to));
        assert_eq!(
            result["tool_use_id"], "toolu_01T1x1fJ34qAmk2tNTrN7Up6",
            "{result}"
        );
        assert_eq!(result["is_error"], true);
        assert!(
            result["content"]
                .as_str()
                .is_some_and(|text| !text.is_empty())
        );
    }
}

#[test]
fn the_content_type_is_not_looked_at() {
    let daemon = Daemon::start();
    let body = call("echo x").to_string();
    for kind in [
        None,
        Some("application/x-www-form-urlencoded"),
        Some("application/json; charset=utf-8"),
        Some("text/nonsense"),
    ] {
        let headers: Vec<_> = kind
            .map(|kind| ("Content-Type", kind))
            .into_iter()
            .collect();
        let reply = daemon
            .connect()
            .request("POST", "/execute", &headers, body.as_bytes());
        assert_eq!(reply.stdout(), "x", "{kind:?}");
    }
}

#[test]
fn a_call_may_ask_for_more() {
    let daemon = Daemon::start();
    let reply = daemon.post(&bash_call(
        "pwd; echo $GREETING; cat",
        &json!({"working_dir": "/usr", "env": {"GREETING": "hällo=x"}, "stdin": "from stdin"}),
    ));
    assert_eq!(reply.stdout(), "/usr\nhällo=x\nfrom stdin");
    // Null is as good as nothing.
    let reply = daemon.post(&bash_call(
        "cat; echo end",
        &json!({"working_dir": null, "env": null, "stdin": null, "timeout_secs": null,
               "background": null, "id": null, "type": null, "caller": null, "cache_control": null}),
    ));
    assert_eq!(reply.stdout(), "end");
}

#[test]
fn what_is_left_behind_is_listed_and_killed_unless_kept() {
    let daemon = Daemon::start();
    let script = &format!("sleep 1000 & {SLEEPS}; echo $!");
    let killed = daemon.post(&call(script)).json();
    let kept = daemon
        .post(&bash_call(script, &json!({"background": "keep"})))
        .json();
    for (body, was_killed) in [(&killed, true), (&kept, false)] {
        let left = &body["background"][0];
        assert_eq!(left["command"], "sleep 1000", "{body}");
        assert_eq!(left["killed"], was_killed);
        assert_eq!(left["held"], json!(["stdout", "stderr"]));
        assert_eq!(body["background"].as_array().map(Vec::len), Some(1));
        assert_eq!(body["exit_code"], 0);
        let alive = std::path::Path::new("/proc")
            .join(left["pid"].to_string())
            .exists();
        assert_eq!(alive, !was_killed);
    }
    assert_eq!(killed["kill"]["reason"], "background", "{killed}");
    assert!(kept.get("kill").is_none(), "{kept}");
    let pid = kept["background"][0]["pid"].to_string();
    drop(daemon);
    wait_until("the kept one is gone", || {
        !std::path::Path::new("/proc").join(&pid).exists()
    });
}

#[test]
fn an_answer_says_what_was_cut() {
    let daemon = Daemon::start_with(Mode::Group, "max_output_bytes = 100");
    let body = daemon
        .bash("head -c 300 /dev/zero | tr '\\0' x; head -c 50 /dev/zero | tr '\\0' y >&2")
        .json();
    let content = format!(
        "[stdout]\n{}\n...(truncated)\n\n[stderr]\n{}\n...(truncated)\n\n[exit_code]\n0",
        "x".repeat(75),
        "y".repeat(25)
    );
    assert_eq!(body["content"], content);
    assert_eq!(
        (
            &body["truncated"],
            &body["stdout_bytes"],
            &body["stderr_bytes"]
        ),
        (&json!(true), &json!(300), &json!(50))
    );
    let middle = Daemon::start_with(Mode::Group, "max_output_bytes = 8\ntruncate = \"middle\"");
    let body = middle.bash("printf 0123456789abcdef").json();
    assert_eq!(
        body["content"],
        "[stdout]\n0123\n...(truncated)\ncdef\n\n[exit_code]\n0"
    );
}

#[test]
fn others_are_answered_while_a_long_answer_is_made() {
    let daemon = Daemon::start_with(Mode::Group, "max_output_bytes = 16777216");
    // What is all escapes in JSON takes longest.
    let call = bash_call("yes $'\\1' | head -c 16777216", &json!({}));
    let mut id = String::new();
    let mut made = vec![longest_beside(&daemon, || {
        id = daemon.post(&call).json()["execution_id"]
            .as_str()
            .expect("an id")
            .to_owned();
    })];
    made.push(longest_beside(&daemon, || {
        let record = daemon.get(&format!("/executions/{id}"));
        assert!(record.body.len() > 16_777_216, "{}", record.status);
    }));
    for (took, longest) in made {
        assert!(
            longest * 3 < took,
            "of {took:?} /health was kept waiting for {longest:?}"
        );
    }
}

/// How long `asked` takes, and the longest that `GET /health` takes meanwhile.
fn longest_beside(daemon: &Daemon, asked: impl FnOnce()) -> (Duration, Duration) {
    let is_answered = AtomicBool::new(false);
    thread::scope(|scope| {
        let others = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            while !is_answered.load(Ordering::Relaxed) {
                let begun = Instant::now();
                assert_eq!(daemon.get("/health").status, 200);
                longest = longest.max(begun.elapsed());
            }
            longest
        });
        let begun = Instant::now();
        asked();
        let took = begun.elapsed();
        is_answered.store(true, Ordering::Relaxed);
        (took, others.join().expect("answers"))
    })
}

//! Calls that skills make: what they may call, on whose behalf, and how long what they called lasts.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::approvals::{approve, pending};
use super::skills::{ADD, Room, call, done, of_numbers, put_steps};
use crate::cli;
use crate::support::{Daemon, Fifo, Mode, timed, wait_until};

/// Begins a call that nobody waits for, and says what it is called.
fn begin(daemon: &Daemon, call: &Value) -> String {
    let headers = [("Prefer", "respond-async")];
    let call = call.to_string();
    let begun = (daemon.connect()).request("POST", "/execute", &headers, call.as_bytes());
    assert_eq!(begun.status, 202, "{}", begun.content());
    let body = begun.json();
    body["execution_id"].as_str().expect("an id").to_owned()
}

const CALLS: &str = "#!/usr/bin/python3
import shelly_skill as s
def main(input):
    try:
        answer = s.call(input['tool'], input.get('input'))
        return {'status': 200, 'content': answer['content'], 'output': answer.get('output')}
    except s.CallFailed as error:
        return {'status': error.status, 'code': error.code, 'content': str(error)}
s.run(main)
";

#[test]
fn a_program_calls_what_it_declares_and_nothing_else() {
    for mode in Mode::all() {
        calls_what_it_declares(Room::in_mode(mode, ""));
    }
}

fn calls_what_it_declares(room: Room) {
    room.program("caller", CALLS, json!({"calls": ["bash", "caller", "add"]}));
    room.program("add", ADD, of_numbers());
    let daemon = room.start();
    let output = done(
        &daemon,
        "caller",
        json!({"tool": "bash", "input": {"command": "echo hi"}}),
    );
    assert_eq!(output["content"], "[stdout]\nhi\n\n[exit_code]\n0");
    let output = done(&daemon, "caller", json!({"tool": "add", "input": {"a": 1}}));
    assert_eq!(output["output"], json!({"sum": 41}));
    for (tool, status, code, part) in [
        ("execute_command", 403, "permission_denied", "calls"),
        ("caller", 422, "call_cycle", "caller"),
        ("no_such_tool", 404, "unknown_tool", "no_such_tool"),
    ] {
        let input = json!({"tool": tool, "input": {"command": "true"}});
        let output = done(&daemon, "caller", input);
        assert_eq!(
            (&output["status"], &output["code"]),
            (&json!(status), &json!(code)),
            "{output}"
        );
        assert!(output["content"].to_string().contains(part), "{output}");
    }
}

/// Whether a program makes the call or a hook does, and though it does not have the variable itself.
#[test]
fn what_is_secret_in_a_call_is_so_in_those_that_it_leads_to() {
    let toml = "[secrets]\nvariables = [\"DB_PASS\"]\n\
                [[hooks]]\nname = \"note\"\nbefore = \"execution\"\nskill = \"note\"\ntools = [\"bash\"]\n\
                input = { text = \"about {{ input }}\" }\n";
    let room = Room::in_mode(Mode::Group, toml);
    room.program("caller", CALLS, json!({"calls": ["bash"]}));
    let note = "#!/usr/bin/python3\nimport shelly_skill as s\ns.run(lambda input: {})\n";
    room.program("note", note, json!({}));
    let daemon = room.start();
    let secret = "zebra-crossing-88";
    for (name, input) in [
        ("bash", json!({"command": format!("echo {secret}")})),
        (
            "caller",
            json!({"tool": "bash", "input": {"command": format!("echo {secret}")}}),
        ),
    ] {
        let call = json!({"name": name, "input": input, "env": {"DB_PASS": secret}});
        let reply = daemon.post(&call);
        assert_eq!(reply.status, 200, "{}", reply.content());
        assert!(!reply.content().contains(secret), "{}", reply.content());
    }
    let told = [
        json!(daemon.get("/executions").json()).to_string(),
        String::from_utf8_lossy(&daemon.get("/events?follow=false").body).into_owned(),
        daemon.log(),
    ];
    for text in told {
        assert!(!text.contains("zebra"), "{text}");
        assert!(text.contains("***"), "{text}");
    }
    let records = daemon.get("/executions").json();
    assert_eq!(
        records["executions"].as_array().map(Vec::len),
        Some(5),
        "{records}"
    );
}

#[test]
fn calls_within_calls_and_their_number_are_bounded() {
    let room = Room::new("[skills]\nmax_depth = 3\nmax_calls = 5\n");
    for depth in 0..5 {
        let next = format!("level{}", depth + 1);
        let script = format!(
            "#!/usr/bin/python3
import shelly_skill as s
def main(input):
    try:
        return s.call({next:?})['output']
    except s.CallFailed as error:
        return [error.code, str(error)]
s.run(main)
"
        );
        room.program(&format!("level{depth}"), &script, json!({"calls": [next]}));
    }
    room.program("level5", "#!/bin/sh\necho '\"deep\"'\n", json!({}));
    let many = "#!/usr/bin/python3
import shelly_skill as s
def main(input):
    for n in range(100):
        try:
            s.call('bash', {'command': 'true'})
        except s.CallFailed as error:
            return [n, error.status, error.code]
s.run(main)
";
    room.program("many", many, json!({"calls": ["bash"]}));
    let daemon = room.start();
    assert_eq!(done(&daemon, "level3", json!({})), "deep");
    let deep = done(&daemon, "level0", json!({}));
    assert_eq!(deep[0], "depth_exceeded");
    let chain = "`level0` calls `level1` calls `level2` calls `level3`";
    assert!(deep[1].to_string().contains(chain), "{deep}");
    assert_eq!(
        done(&daemon, "many", json!({})),
        json!([5, 429, "rate_limited"])
    );
}

#[test]
fn a_call_that_a_hook_changes_is_one_call() {
    let hook = r#"
[skills]
max_calls = 3
[[hooks]]
name = "change"
before = "permission"
command = ["/bin/sh", "-c", "echo '{\"decision\": \"change\", \"input\": {\"command\": \"echo changed\"}}'"]
tools = ["bash"]
"#;
    let room = Room::new(hook);
    let step = json!({"tool": "bash", "parameters": {"command": "echo first"}});
    room.steps("three", json!([step, step, step]), json!({}));
    let daemon = room.start();
    done(&daemon, "three", json!({}));
}

/// A token is good for the processes of its execution, as long as it lasts, and is in no record.
#[test]
fn a_token_is_good_for_its_own_execution_only() {
    for mode in Mode::all() {
        is_good_for_its_own(Room::in_mode(mode, ""));
    }
}

fn is_good_for_its_own(room: Room) {
    let script = "#!/bin/sh\nprintf %s \"$SHELLY_CAPABILITY\" > \"$TOKEN_FILE\"\nread line < \"$FIFO\"\necho \"\\\"token: $SHELLY_CAPABILITY\\\"\"\n";
    room.program("tells", script, json!({"calls": ["bash"]}));
    let daemon = room.start();
    let file = daemon.dir().join("token");
    let fifo = Fifo::new(daemon.dir().join("fifo"));
    let call = json!({
        "name": "tells", "input": {},
        "env": {"TOKEN_FILE": file.display().to_string(), "FIFO": fifo.path().display().to_string()},
    });
    let id = begin(&daemon, &call);
    let pen = fifo.reached();
    let token = fs::read_to_string(&file).expect("there");
    assert!(token.len() > 64, "{token}");
    let with = |token: &str| {
        let bearer = format!("Bearer {token}");
        let body = json!({"name": "bash", "input": {"command": "true"}}).to_string();
        let headers = [("Authorization", bearer.as_str())];
        daemon
            .connect()
            .request("POST", "/execute", &headers, body.as_bytes())
    };
    // This process is none of the skill's.
    for stolen in [token.as_str(), "", "x"] {
        let reply = with(stolen);
        assert_eq!(
            (reply.status, &reply.json()["code"]),
            (401, &json!("bad_capability"))
        );
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
    }
    pen.say("on");
    let record = daemon.ended(&id);
    assert_eq!(record["result"]["output"], "token: ***", "{record}");
    assert_eq!(with(&token).status, 401, "it died with its execution");
    assert!(!daemon.log().contains(&token));
    assert!(
        !daemon
            .get("/executions?limit=10")
            .json()
            .to_string()
            .contains(&token)
    );
}

/// Whether it is in memory, in the text of the answer or in a file of its own, and cut as the answer is.
#[test]
fn a_step_gives_its_output_to_later_ones_however_long_it_is() {
    let room = Room::new("max_output_bytes = 100000");
    let lengths = [
        ("short", "printf 'ab'"),
        ("long", "head -c 50000 /dev/zero | tr '\\0' x"),
        ("binary", "head -c 6000 /dev/zero"),
        ("cut", "head -c 100001 /dev/zero | tr '\\0' y"),
        // The hundred-thousandth byte is the first of two.
        ("letters", "printf x; yes ä | head -c 300000 | tr -d '\\n'"),
    ];
    let steps = lengths.map(|(name, command)| {
        json!({"tool": "bash", "parameters": {"command": command}, "save_output_as": name})
    });
    let result = lengths.map(|(name, _)| format!("{{{{ len({name}) }}}}"));
    let result = result.join(" ");
    room.steps("lengths", json!(steps), json!({"result": result}));
    let daemon = room.start();
    let output = done(&daemon, "lengths", json!({}));
    assert_eq!(output, "2 50000 6000 100000 50000");
}

/// What a skill has called ends with it.
#[test]
fn a_parent_takes_its_children_with_it() {
    for mode in Mode::all() {
        takes_its_children(Room::in_mode(mode, ""));
    }
}

fn takes_its_children(room: Room) {
    room.program("caller", CALLS, json!({"calls": ["bash"]}));
    room.steps(
        "steps",
        json!([{"tool": "bash", "parameters": {"command": "sleep 600"}}]),
        json!({}),
    );
    let daemon = room.start();
    for call in [
        json!({"name": "caller", "input": {"tool": "bash", "input": {"command": "sleep 600"}}}),
        json!({"name": "steps", "input": {}}),
    ] {
        let id = begin(&daemon, &call);
        let sleeper = || {
            let listed = daemon.get("/executions?status=running&tool=bash").json();
            listed["executions"]
                .as_array()
                .and_then(|all| all.first().cloned())
        };
        daemon.wait_until("it has called", || sleeper().is_some());
        let child = sleeper().expect("there")["execution_id"]
            .as_str()
            .expect("an id")
            .to_owned();
        let cancelled = daemon
            .connect()
            .request("DELETE", &format!("/executions/{id}"), &[], b"");
        assert_eq!(cancelled.json()["status"], "cancelled");
        let child = daemon.ended(&child);
        assert_eq!(
            (&child["status"], &child["parent_id"]),
            (&json!("cancelled"), &json!(id))
        );
        daemon.wait_until("nothing is left", || daemon.processes().is_empty());
    }
}

/// Calls with one key, made at once by a program that does not wait for them: none is left, and the
/// daemon stops.
#[test]
fn calls_that_never_begin_hold_nothing_up() {
    let room = Room::new("");
    let script = "#!/usr/bin/python3
import http.client, json, os, socket
for n in range(12):
    s = socket.socket(socket.AF_UNIX)
    s.connect(os.environ['SHELLY_SOCKET'])
    body = json.dumps({'name': 'bash', 'input': {'command': 'sleep 0.1'}})
    lines = ['POST /execute HTTP/1.1', 'Host: x', 'Content-Length: %d' % len(body),
             'Authorization: Bearer ' + os.environ['SHELLY_CAPABILITY']]
    if n % 2: lines.append('Idempotency-Key: k')
    if n % 3: lines.append('Prefer: respond-async')
    s.sendall(('\\r\\n'.join(lines) + '\\r\\n\\r\\n' + body).encode())
    globals()['keep%d' % n] = s
print(1)
";
    room.program("hasty", script, json!({"calls": ["bash"]}));
    let mut daemon = room.start();
    for _ in 0..5 {
        assert_eq!(done(&daemon, "hasty", json!({})), 1);
    }
    daemon.wait_until("nothing runs", || {
        daemon.get("/health").json()["running"] == 0
    });
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(daemon.wait().success());
}

/// A call of a skill's that waits for its approval does not outlive the skill, nor the daemon.
#[test]
fn a_childs_question_ends_with_its_parent() {
    let room = Room::new("[confirmation]\nself_approval = true\n");
    fs::write(
        room.dir.join("policy.toml"),
        "default = \"allow\"\nask = [\"execute_command\"]\n",
    )
    .expect("written");
    let script = "#!/usr/bin/python3
import http.client, os, shelly_skill as s, signal
def main(input):
    connection = s._Connection('localhost')
    headers = {'Authorization': 'Bearer ' + os.environ['SHELLY_CAPABILITY'], 'Prefer': 'respond-async'}
    connection.request('POST', '/execute', '{\"name\": \"execute_command\", \"input\": {\"command\": \"true\"}}', headers)
    connection.getresponse().read()
    signal.pause()
s.run(main)
";
    room.program("asker", script, json!({"calls": ["execute_command"]}));
    let mut daemon = room.start();
    let call = json!({"name": "asker", "input": {}, "timeout_secs": 3000});
    let id = begin(&daemon, &call);
    let child = pending(&daemon)["execution_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    daemon.signal(nix::sys::signal::Signal::SIGKILL);
    daemon.wait();
    daemon = daemon.restart();
    assert_eq!(daemon.ended(&id)["status"], "lost");
    let record = daemon.ended(&child);
    assert_ne!(record["status"], "success", "{record}");
    let open = daemon.get("/approvals").json();
    assert_eq!(open["approvals"], json!([]), "{open}");
    begin(&daemon, &call);
    pending(&daemon);
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(daemon.wait().success(), "it stops all the same");
}

/// What a tool has left alive on purpose lasts as long as who called for it.
#[test]
fn what_is_kept_for_a_skill_ends_with_it() {
    for mode in Mode::all() {
        is_kept_for(Room::in_mode(mode, ""));
    }
}

fn is_kept_for(room: Room) {
    let script = "#!/usr/bin/python3
import http.client, json, os, time, shelly_skill as s
def main(input):
    connection = s._Connection('localhost')
    headers = {'Authorization': 'Bearer ' + os.environ['SHELLY_CAPABILITY']}
    body = {'name': 'bash', 'input': {'command': 'sleep 600 & echo $!'}, 'background': 'keep'}
    connection.request('POST', '/execute', json.dumps(body), headers)
    connection.getresponse().read()
    with open(os.environ['FIFO']) as fifo:
        fifo.read()
    return None
s.run(main)
";
    room.program("starts", script, json!({"calls": ["bash"]}));
    let fifo = Fifo::new(room.dir.join("fifo"));
    let daemon = room.start();
    let keep = json!({"background": "keep"});
    assert_eq!(daemon.bash_with("sleep 601 &", &keep).status, 200);
    let others = daemon.processes();
    assert_eq!(others.len(), 1, "what is kept for a call from outside");
    let env = json!({"FIFO": fifo.path().display().to_string()});
    let call = json!({"name": "starts", "input": {}, "env": env});
    let id = begin(&daemon, &call);
    let pen = fifo.reached();
    assert_eq!(
        daemon.processes().len(),
        3,
        "the skill, and what it started"
    );
    pen.say("on");
    assert_eq!(daemon.ended(&id)["status"], "success");
    assert_eq!(daemon.processes(), others, "after its end");
    let id = begin(&daemon, &call);
    let _pen = fifo.reached();
    assert_eq!(
        daemon.processes().len(),
        3,
        "the skill, and what it started"
    );
    let path = format!("/executions/{id}");
    let cancelled = daemon.connect().request("DELETE", &path, &[], b"");
    assert_eq!(cancelled.json()["status"], "cancelled");
    assert_eq!(daemon.processes(), others, "after it was cancelled");
}

/// Who judges a call knows what led to it.
#[test]
fn rules_hooks_and_approvers_know_what_led_to_a_call() {
    let room = Room::new(
        "[confirmation]\nself_approval = true\n[[hooks]]\nname = \"look\"\nbefore = \"confirmation\"\ncommand = [\"/bin/sh\", \"look.sh\"]\ntools = [\"bash\"]\n",
    );
    let hook = "cat >given; echo '{\"decision\": \"allow\"}'\n";
    fs::write(room.dir.join("look.sh"), hook).expect("written");
    let policy = "default = \"deny\"
allow = [\"outer\", \"inner\", { rule = \"bash(command:echo *)\", called_by = [\"out*\"] }]
ask = [{ rule = \"bash(command:touch *)\", called_by = [\"inner\", \"other\"] }]
";
    fs::write(room.dir.join("policy.toml"), policy).expect("written");
    for (name, tool) in [("outer", "inner"), ("inner", "bash")] {
        let step = json!([{"tool": tool, "parameters": {"command": "{{ input.command }}"}}]);
        room.steps(name, step, json!({}));
    }
    let daemon = room.start();
    let says = |tool: &str| call(&daemon, tool, json!({"command": "echo hi"})).json();
    let answer = says("outer");
    assert_eq!(answer["is_error"], false, "{answer}");
    let given = fs::read_to_string(daemon.dir().join("given")).expect("given");
    let given: Value = serde_json::from_str(&given).expect("JSON");
    assert_eq!(given["chain"], json!(["outer", "inner"]), "{given}");
    for tool in ["inner", "bash"] {
        let answer = says(tool);
        assert!(
            answer["content"].to_string().contains("not permitted"),
            "{answer}"
        );
    }
    for (args, verdict) in [
        (&["--called-by", "outer,inner"][..], 0),
        (&["--called-by", "inner"], 1),
        (&[], 1),
    ] {
        let args = [&["policy", "explain"], args, &["--", "echo hi"]].concat();
        let explained = cli::run(&daemon, &args);
        assert_eq!(cli::code(&explained), verdict, "{args:?}: {explained:?}");
    }
    let marker = daemon.dir().join("marker");
    let touch = json!({"command": format!("touch {}", marker.display())});
    thread::scope(|scope| {
        let calling = scope.spawn(|| call(&daemon, "outer", touch.clone()).json());
        let asked = pending(&daemon);
        let chain = json!(["outer", "inner"]);
        assert_eq!((&asked["tool"], &asked["chain"]), (&json!("bash"), &chain));
        assert!(!marker.exists());
        let listed = cli::run(&daemon, &["approvals"]);
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert!(listed.contains("outer → inner → bash"), "{listed}");
        approve(&daemon, &asked);
        let answer = calling.join().expect("answered");
        assert_eq!(answer["is_error"], false, "{answer}");
    });
    assert!(marker.exists());
}

/// All that comes of a call knows the tools as they were when it began.
#[test]
fn what_a_call_leads_to_is_of_the_version_it_began_with() {
    let room = Room::new("");
    let skills = room.dir.join("skills");
    let fifo = Fifo::new(room.dir.join("fifo"));
    let echo = |n: u32| json!([{"tool": "bash", "parameters": {"command": format!("echo {n}")}}]);
    room.steps("other", echo(1), json!({}));
    let wait = format!("read line < {}", fifo.path().display());
    let steps = json!([
        {"tool": "bash", "parameters": {"command": wait}},
        {"tool": "other", "save_output_as": "said"}
    ]);
    room.steps("slow", steps, json!({}));
    let daemon = room.start();
    let id = begin(&daemon, &json!({"name": "slow", "input": {}}));
    let pen = fifo.reached();
    put_steps(&skills, "other", echo(2), json!({"version": "2.0.0"}));
    wait_until("it is replaced", || {
        daemon.get("/tools/other").json()["version"] == "2.0.0"
    });
    pen.say("on");
    let record = daemon.ended(&id);
    assert!(
        record["result"]["content"].to_string().contains('1'),
        "{record}"
    );
    assert!(done(&daemon, "other", json!({})).to_string().contains('2'));
}

/// A key stands for a call of those tools: what they may, others may not be told.
#[test]
fn a_key_of_a_skills_call_is_none_of_anybody_elses() {
    let room = Room::new("");
    let policy = "default = \"deny\"\nallow = [\"deploy\", {rule = \"bash(command:echo ok)\", called_by = [\"deploy\"]}]\n";
    fs::write(room.dir.join("policy.toml"), policy).expect("written");
    let body = r#"{"name": "bash", "input": {"command": "echo ok"}}"#;
    let script = format!(
        "#!/usr/bin/python3
import json, os, shelly_skill as s
def main(input):
    connection = s._Connection('localhost')
    headers = {{'Authorization': 'Bearer ' + os.environ['SHELLY_CAPABILITY'], 'Idempotency-Key': input['key']}}
    connection.request('POST', '/execute', '{body}', headers)
    return json.loads(connection.getresponse().read())['content']
s.run(main)
"
    );
    room.program("deploy", &script, json!({"calls": ["bash"]}));
    let daemon = room.start();
    let direct = |key: &str| {
        let headers = [("Idempotency-Key", key)];
        let mut connection = daemon.connect();
        connection.request("POST", "/execute", &headers, body.as_bytes())
    };
    let ok = json!("[stdout]\nok\n\n[exit_code]\n0");
    assert_eq!(done(&daemon, "deploy", json!({"key": "one"})), ok);
    assert_eq!(direct("one").status, 403, "what the skill was answered");
    assert_eq!(direct("two").status, 403);
    assert_eq!(done(&daemon, "deploy", json!({"key": "two"})), ok);
}

/// However long the text that it looks through, a composite holds nobody up.
#[test]
fn expressions_over_long_texts_hold_nobody_up() {
    let room = Room::new("");
    let look = "input.s.count('ab') > 99999999 or ".repeat(11) + "False";
    let step = json!({"tool": "bash", "parameters": {"command": "true"}, "condition": look});
    let steps: Vec<Value> = std::iter::repeat_n(step, 8).collect();
    room.steps("looks", json!(steps), json!({}));
    let daemon = room.start();
    for dry_run in [false, true] {
        let input = json!({"s": "a".repeat(8_000_000), "dry_run": dry_run});
        let id = begin(&daemon, &json!({"name": "looks", "input": input}));
        let (begun, mut longest) = (Instant::now(), Duration::ZERO);
        while daemon.get("/health").json()["running"] != 0 {
            let (_, took) = timed(|| daemon.get("/health"));
            longest = longest.max(took.wall.saturating_sub(took.lateness));
        }
        let took = begun.elapsed();
        assert!(longest * 3 < took, "{longest:?} of {took:?}");
        assert_eq!(daemon.ended(&id)["status"], "success");
    }
}

/// Neither the steps behind it nor what is to be done when it fails are for a stop.
#[test]
fn a_stop_ends_a_skill_whose_step_waits_for_an_approval() {
    let room = Room::new("shutdown_grace_secs = 3600\n");
    let marker = room.dir.join("marker");
    let steps = json!([
        {"tool": "bash", "parameters": {"command": "touch x"}, "on_error": "continue"},
        {"tool": "bash", "parameters": {"command": format!("echo two > {}", marker.display())}},
    ]);
    room.steps("asking", steps, json!({}));
    fs::write(
        room.dir.join("policy.toml"),
        "default = \"allow\"\nask = [\"bash(command:touch *)\"]\n",
    )
    .expect("written");
    let mut daemon = room.start();
    let mut caller = daemon.connect();
    caller.send(
        "POST",
        "/execute",
        &[],
        br#"{"name": "asking", "input": {}}"#,
    );
    daemon.wait_until("it waits", || {
        let pending = daemon.get("/approvals").json();
        pending["approvals"]
            .as_array()
            .is_some_and(|pending| pending.len() == 1)
    });
    daemon.signal(Signal::SIGTERM);
    let reply = caller.reply();
    assert_eq!(
        (reply.status, &reply.json()["code"]),
        (503, &json!("shutting_down"))
    );
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(!marker.exists());
}

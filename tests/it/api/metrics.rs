//! What is counted, read as Prometheus reads it.

use std::collections::BTreeMap;

use serde_json::json;

use super::access::{by, user};
use super::{begin, blocked, call};
use crate::support::{Daemon, Mode, Reply, wait_until};

/// The samples of a text, by name and labels as written.
struct Samples(BTreeMap<String, f64>);

impl Samples {
    #[track_caller]
    fn of(reply: &Reply) -> Self {
        assert_eq!(reply.status, 200, "{}", text(reply));
        let kind = reply.header("content-type").expect("a type");
        assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
        let text = text(reply);
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let samples = lines.map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a sample");
            (name.to_owned(), value.parse().expect("a number"))
        });
        Self(samples.collect())
    }

    #[track_caller]
    fn get(&self, name: &str) -> f64 {
        let value = self.0.get(name);
        *value.unwrap_or_else(|| panic!("{name} is not among {:#?}", self.0))
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(&reply.body).into_owned()
}

fn samples(daemon: &Daemon) -> Samples {
    Samples::of(&daemon.get("/metrics"))
}

fn executions(tool: &str, risk: &str, ending: &str) -> String {
    format!("shelly_executions_total{{ending=\"{ending}\",risk=\"{risk}\",tool=\"{tool}\"}}")
}

#[test]
fn executions_are_counted_by_tool_risk_and_ending() {
    let daemon = Daemon::start();
    for command in ["true", "true", "exit 3"] {
        assert_eq!(daemon.bash(command).status, 200);
    }
    assert_eq!(
        daemon
            .bash_with("sleep 60", &json!({"timeout_secs": 0.1}))
            .status,
        504
    );
    // What there is not has no name of its own, whatever it is called.
    for name in ["bsh", "no_such_tool"] {
        assert_eq!(daemon.post(&json!({"name": name, "input": {}})).status, 404);
    }
    assert_eq!(
        daemon.post(&json!({"name": "bash", "input": {}})).status,
        422
    );
    let samples = samples(&daemon);
    for (name, count) in [
        (executions("bash", "trusted", "success"), 2.0),
        (executions("bash", "trusted", "error"), 1.0),
        (executions("bash", "trusted", "timeout"), 1.0),
        (executions("unknown", "unknown", "failed"), 2.0),
        (executions("bash", "unknown", "failed"), 1.0),
        ("shelly_kills_total{reason=\"timeout\"}".to_owned(), 1.0),
        ("shelly_kill_survivors_total".to_owned(), 0.0),
        (
            "shelly_run_duration_seconds_count{risk=\"trusted\"}".to_owned(),
            4.0,
        ),
        (
            "shelly_run_duration_seconds_count{risk=\"untrusted\"}".to_owned(),
            0.0,
        ),
        (
            "shelly_stage_duration_seconds_count{stage=\"discovery\"}".to_owned(),
            7.0,
        ),
        (
            "shelly_stage_duration_seconds_count{stage=\"validation\"}".to_owned(),
            5.0,
        ),
        (
            "shelly_stage_duration_seconds_count{stage=\"execution\"}".to_owned(),
            4.0,
        ),
        (
            "shelly_stage_duration_seconds_count{stage=\"formatting\"}".to_owned(),
            4.0,
        ),
        ("shelly_executions_running".to_owned(), 0.0),
    ] {
        assert_eq!(samples.get(&name), count, "{name}");
    }
    assert!(samples.get("shelly_stage_duration_seconds_sum{stage=\"execution\"}") > 0.1);
    assert!(!samples.names().any(|name| name.contains("no_such_tool")));
}

#[test]
fn what_is_under_way_is_seen_and_what_it_writes_is_counted() {
    let daemon = Daemon::start_with(Mode::Group, "max_output_bytes = 1024");
    let (script, fifo) = blocked(&daemon, "go");
    let id = begin(&daemon, &script);
    wait_until("it runs", || {
        samples(&daemon).get("shelly_executions_running") == 1.0
    });
    fifo.reached().say("on");
    daemon.ended(&id);
    assert_eq!(
        daemon.bash("head -c 5000 /dev/zero; echo x >&2").status,
        200
    );
    let samples = samples(&daemon);
    assert_eq!(samples.get("shelly_outputs_truncated_total"), 1.0);
    let stdout = "begun\non\n".len() as f64 + 5000.0;
    assert_eq!(
        samples.get("shelly_output_bytes_total{stream=\"stdout\"}"),
        stdout
    );
    assert_eq!(
        samples.get("shelly_output_bytes_total{stream=\"stderr\"}"),
        2.0
    );
}

#[test]
fn verdicts_are_counted_by_rule() {
    let policy = "default = \"allow\"\ndeny = [\"bash(command:rm *)\"]\n";
    let daemon = Daemon::start_under(policy, "[access]\napprovers = []");
    assert_eq!(daemon.post(&call("rm x")).status, 403);
    assert_eq!(daemon.post(&call("rm y")).status, 403);
    assert_eq!(daemon.post(&call("true")).status, 200);
    let samples = samples(&daemon);
    let verdicts = |rule: &str, verdict: &str| {
        samples.get(&format!(
            "shelly_verdicts_total{{rule=\"{rule}\",verdict=\"{verdict}\"}}"
        ))
    };
    assert_eq!(verdicts("bash(command:rm *)", "deny"), 2.0);
    assert_eq!(verdicts("none", "allow"), 1.0);
    assert_eq!(samples.get(&executions("bash", "trusted", "denied")), 2.0);
}

#[test]
fn what_waits_for_an_approver_is_seen() {
    let policy = "default = \"allow\"\nask = [\"bash(command:touch *)\"]\n";
    let daemon = Daemon::start_under(policy, "");
    let waiting = || samples(&daemon).get("shelly_approvals_waiting");
    assert_eq!(waiting(), 0.0);
    let id = begin(&daemon, "touch /nowhere/x");
    wait_until("it waits", || waiting() == 1.0);
    assert_eq!(samples(&daemon).get("shelly_executions_running"), 1.0);
    let path = format!("/executions/{id}");
    daemon.connect().request("DELETE", &path, &[], b"");
    let samples = samples(&daemon);
    assert_eq!(samples.get("shelly_approvals_waiting"), 0.0);
    let asked = "shelly_verdicts_total{rule=\"bash(command:touch *)\",verdict=\"ask\"}";
    assert_eq!(samples.get(asked), 1.0);
    let cancelled = executions("bash", "trusted", "cancelled");
    assert_eq!(samples.get(&cancelled), 1.0);
}

#[test]
fn a_sandbox_that_cannot_be_had_is_counted() {
    let toml = "[sandbox]\nruntime = \"/nowhere/runsc\"";
    let daemon = Daemon::start_with(Mode::Group, toml);
    let mut call = call("true");
    call["risk_level"] = json!("untrusted");
    assert_eq!(daemon.post(&call).status, 503);
    let samples = samples(&daemon);
    let starts = |result: &str| {
        samples.get(&format!(
            "shelly_sandbox_starts_total{{result=\"{result}\"}}"
        ))
    };
    assert_eq!((starts("failed"), starts("started")), (1.0, 0.0));
    assert_eq!(samples.get(&executions("bash", "untrusted", "failed")), 1.0);
}

#[test]
fn the_ledger_is_timed() {
    let daemon = Daemon::start();
    assert_eq!(daemon.bash("true").status, 200);
    let waits = samples(&daemon).get("shelly_ledger_wait_duration_seconds_count");
    assert_eq!(waits, 1.0);
    wait_until("it is committed", || {
        samples(&daemon).get("shelly_ledger_commit_duration_seconds_count") > 0.0
    });
}

#[test]
fn what_does_not_work_has_a_line() {
    let daemon = Daemon::start();
    let problems = |samples: &Samples| {
        samples
            .names()
            .filter(|name| name.starts_with("shelly_problems"))
            .count()
    };
    assert_eq!(problems(&samples(&daemon)), 0);
    std::fs::write(daemon.dir().join("tools.toml"), "no = toml = here").expect("written");
    let name = "shelly_problems{code=\"tools_file_invalid\"}";
    wait_until("it has a line", || problems(&samples(&daemon)) == 1);
    assert_eq!(samples(&daemon).get(name), 1.0);
    std::fs::remove_file(daemon.dir().join("tools.toml")).expect("ours");
    wait_until("it has none", || problems(&samples(&daemon)) == 0);
}

#[test]
fn nothing_is_counted_where_that_is_switched_off() {
    let daemon = Daemon::start_with(Mode::Group, "[metrics]\nenabled = false");
    assert_eq!(daemon.bash("true").status, 200);
    let reply = daemon.get("/metrics");
    assert_eq!(reply.status, 404);
    let detail = reply.json()["detail"].as_str().expect("a text").to_owned();
    assert!(detail.contains("[metrics]"), "{detail}");
}

#[test]
fn observers_read_them_and_do_nothing_else() {
    const OBSERVER: u32 = 64_301;
    const CALLER: u32 = 64_302;
    let toml = format!(
        "[access]\ncallers = [\"user:{CALLER}\"]\nobservers = [\"user:{OBSERVER}\"]\nadmins = []"
    );
    let Some(daemon) = super::access::start(&toml) else {
        return;
    };
    let status = |who: u32, path: &str| by(user(who), || daemon.get(path).status);
    assert_eq!(status(OBSERVER, "/metrics"), 200);
    assert_eq!(status(CALLER, "/metrics"), 403);
    for path in ["/tools", "/executions", "/events", "/audit"] {
        assert_eq!(status(OBSERVER, path), 403, "{path}");
    }
    assert_eq!(by(user(OBSERVER), || daemon.bash("true").status), 403);
}

#[test]
fn queues_refusals_and_circuits_are_seen() {
    let flow = "[flow]\nqueue_max = 1\ntools.bash.max_running = 1\ntools.bash.breaker = { failures = 2, exit_codes = true }";
    let daemon = Daemon::start_with(Mode::Group, flow);
    let now = |name: &str| samples(&daemon).0.get(name).copied();
    let (running, queued) = (
        "shelly_flow_tool_running{tool=\"bash\"}",
        "shelly_flow_queued{tool=\"bash\"}",
    );
    let refused = |reason: &str| now(&format!("shelly_flow_refused_total{{reason=\"{reason}\"}}"));
    let circuit = || now("shelly_flow_circuit_open{tool=\"bash\"}");
    assert_eq!((refused("queue_full"), circuit()), (Some(0.0), None));
    let (script, fifo) = blocked(&daemon, "fifo");
    begin(&daemon, &script);
    let fifo = fifo.reached();
    let second = begin(&daemon, "true");
    wait_until("it waits for a place", || now(queued) == Some(1.0));
    assert_eq!(now(running), Some(1.0));
    assert_eq!(daemon.bash("true").status, 429);
    assert_eq!(refused("queue_full"), Some(1.0));
    fifo.say("on");
    assert_eq!(daemon.ended(&second)["status"], "success");
    for _ in 0..2 {
        assert_eq!(daemon.bash("false").status, 200);
    }
    assert_eq!(circuit(), Some(1.0));
    assert_eq!(daemon.bash("true").status, 503);
    assert_eq!(refused("circuit_open"), Some(1.0));
    assert_eq!(refused("queue_full"), Some(1.0));
}

#[test]
fn the_document_has_every_metric_and_no_other() {
    // Nobody answers there: what cannot be asked is told of, too.
    let redis = "backend = \"redis://127.0.0.1:1\"";
    let flow = format!(
        "[flow]\n{redis}\nmax_running = 9\ntools.bash.breaker = {{ failures = 2, exit_codes = true }}"
    );
    let daemon = Daemon::start_with(Mode::Group, &flow);
    assert_eq!(daemon.bash("false").status, 200);
    let (script, fifo) = blocked(&daemon, "fifo");
    begin(&daemon, &script);
    let fifo = fifo.reached();
    // Of what is wrong there is nothing to tell as long as nothing is.
    std::fs::write(daemon.dir().join("tools.toml"), "no = toml = here").expect("written");
    let text = text(&daemon.get("/metrics"));
    fifo.say("on");
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let mut there: Vec<&str> = types.collect();
    there.sort_unstable();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md");
    let document = std::fs::read_to_string(path).expect("readable");
    let rows = document
        .lines()
        .filter(|line| line.starts_with("| `shelly_"));
    let mut told: Vec<String> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            format!("{} {}", cells[1].trim_matches('`'), cells[2])
        })
        .collect();
    told.sort();
    assert_eq!(told, there);
}

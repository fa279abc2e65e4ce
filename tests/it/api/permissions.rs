//! What the policy file permits, as a caller meets it.

use std::fs;
use std::thread;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{begin, blocked, call, release};
use crate::support::{Daemon, Mode, Reply, bash_call, scratch, wait_until};

const POLICY: &str = r#"
default = "ask"
deny = [
    { rule = "bash(command:rm *)", reason = "Nothing is removed here.", suggest = "mv it to /tmp" },
]
allow = ["bash(command:echo *)", "bash(command:true)"]
"#;

/// A daemon under `policy`, with nobody to ask.
fn start(policy: &str) -> Daemon {
    Daemon::start_under(policy, "[access]\napprovers = []")
}

fn explain(daemon: &Daemon, call: &Value) -> Reply {
    let body = call.to_string();
    daemon
        .connect()
        .request("POST", "/permissions/explain", &[], body.as_bytes())
}

#[test]
fn what_is_denied_says_why_where_and_what_instead() {
    let daemon = start(POLICY);
    let marker = daemon.dir().join("marker");
    fs::write(&marker, "").expect("written");
    let script = format!("echo a; rm {}", marker.display());
    let reply = daemon.post(&call(&script));
    let body = reply.json();
    assert_eq!(reply.status, 403, "{body}");
    assert_eq!(body["code"], "permission_denied");
    assert_eq!(body["stage"], "permission");
    let judgement = &body["judgement"];
    assert_eq!(judgement["verdict"], "deny");
    assert_eq!(judgement["rule"], "bash(command:rm *)");
    assert_eq!(judgement["source"]["line"], 4);
    assert_eq!(judgement["segment"], format!("rm {}", marker.display()));
    let detail = body["detail"].as_str().expect("a text");
    for part in ["Nothing is removed here.", "policy.toml:4", "mv it to /tmp"] {
        assert!(detail.contains(part), "{detail}");
    }
    assert!(marker.exists(), "it was not run");
    let id = body["execution_id"].as_str().expect("an id");
    let record = daemon.ended(id);
    assert_eq!(
        (&record["status"], &record["http_status"]),
        (&json!("denied"), &json!(403))
    );
    daemon.wait_until("it is logged", || {
        daemon.log().contains("STATUS=\"denied\"")
    });
}

#[test]
fn what_would_be_asked_about_is_refused_where_nobody_can_be() {
    let daemon = start(POLICY);
    let body = daemon.post(&call("touch /tmp/never")).json();
    assert_eq!(
        (&body["code"], &body["stage"]),
        (&json!("permission_denied"), &json!("confirmation"))
    );
    assert_eq!(body["judgement"]["verdict"], "ask");
    assert!(
        body["detail"]
            .as_str()
            .is_some_and(|text| text.contains("nobody can be asked"))
    );
}

#[test]
fn what_is_allowed_runs_and_every_command_of_it_has_to_be() {
    let daemon = start(POLICY);
    for (script, status) in [
        ("echo a", 200),
        ("echo a && true || echo b", 200),
        ("echo a; id", 403),
        ("echo $(id)", 403),
        ("echo a > /tmp/never", 403),
        ("X=1 echo a", 403),
        ("echo a & echo b", 403),
        ("e\\cho a", 200),
    ] {
        let reply = daemon.post(&call(script));
        assert_eq!(reply.status, status, "{script}: {}", reply.json());
    }
}

#[test]
fn a_denied_command_is_found_behind_whatever_runs_it() {
    let daemon = start("default = \"allow\"\ndeny = [\"bash(command:rm -rf /)\"]\n");
    for script in [
        "eval -- rm -rf /",
        "time -p -- rm -rf /",
        "sudo -nu root find / -exec rm -rf / \\;",
        "runuser -u root -- rm -rf /",
        "ssh host rm -rf /",
        "start-stop-daemon -S -x x -- rm -rf /",
        "i386 rm -rf /",
        "tmux new rm -rf /",
        "systemd-nspawn -D /x rm -rf /",
        "docker exec box rm -rf /",
        "kubectl exec pod -- rm -rf /",
        "find . -exec sudo -nu x rm -rf / \\;",
    ] {
        let judgement = explain(&daemon, &call(script)).json();
        assert_ne!(judgement["verdict"], "allow", "{script}: {judgement}");
    }
    for script in ["ssh host uptime", "echo rm -rf /", "docker ps"] {
        let judgement = explain(&daemon, &call(script)).json();
        assert_eq!(judgement["verdict"], "allow", "{script}: {judgement}");
    }
}

/// `%n` makes bash's printf assign, to PATH for instance: then `git` is another program.
#[test]
fn a_printf_that_assigns_is_not_allowed() {
    let daemon = start(
        "default = \"deny\"\nallow = [\"bash(command:git status*)\", \"bash(command:printf *)\"]\n",
    );
    for (script, verdict) in [
        ("printf '%s\\n' a; git status", "allow"),
        ("printf '%5.2f%%n' 1", "allow"),
        ("printf '%n' PATH; git status", "deny"),
        ("printf -- '%s%5ln' a PATH", "deny"),
        ("printf -v PATH x", "deny"),
        ("printf -vPATH x", "deny"),
    ] {
        let judgement = explain(&daemon, &call(script)).json();
        assert_eq!(judgement["verdict"], verdict, "{script}: {judgement}");
    }
}

#[test]
fn a_call_that_changes_what_its_script_means_is_asked_about() {
    let daemon = start("default = \"allow\"\ndeny = [\"bash(command:touch *)\"]\n");
    for (name, verdict) in [
        ("BASH_ENV", "ask"),
        ("BASH_FUNC_ls%%", "ask"),
        ("PATH", "ask"),
        ("LD_PRELOAD", "ask"),
        ("GREETING", "allow"),
    ] {
        let call = bash_call("ls", &json!({"env": {name: "x"}}));
        let judgement = explain(&daemon, &call).json();
        assert_eq!(judgement["verdict"], verdict, "{name}: {judgement}");
    }
}

#[test]
fn a_shell_without_a_script_is_judged_by_what_it_is_given_to_read() {
    let daemon = start("default = \"allow\"\ndeny = [\"bash(command:touch *)\"]\n");
    for (script, stdin, verdict) in [
        ("bash", "ls; touch x", "deny"),
        ("sudo -i", "touch x", "deny"),
        ("ssh host", "touch x", "ask"),
        // It may read more than that, from a pipe for instance.
        ("bash", "ls", "ask"),
        ("cat", "touch x", "allow"),
        ("bash -c ls", "touch x", "allow"),
    ] {
        let call = bash_call(script, &json!({"stdin": stdin}));
        let judgement = explain(&daemon, &call).json();
        assert_eq!(judgement["verdict"], verdict, "{script}: {judgement}");
    }
}

#[test]
fn refusals_repeat_no_secrets() {
    let toml = "[secrets]\nvariables = [\"KEY\"]\n[env]\nKEY = \"hunter2secret\"\n[access]\napprovers = []\n";
    let daemon = Daemon::start_with(Mode::Group, toml);
    fs::write(daemon.dir().join("policy.toml"), POLICY).expect("written");
    let token = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let hidden = |text: &str| {
        assert!(
            !text.contains(token) && !text.contains("hunter2secret"),
            "{text}"
        );
    };
    wait_until("the policy is in force", || {
        explain(&daemon, &call("id")).json()["verdict"] == "ask"
    });
    for script in ["rm {}", "touch {}", "echo a > /etc/{}"] {
        let call = call(&script.replace("{}", &format!("{token}-hunter2secret")));
        hidden(&explain(&daemon, &call).json().to_string());
        let refused = daemon.post(&call).json();
        assert_eq!(refused["code"], "permission_denied");
        hidden(&refused.to_string());
        let id = refused["execution_id"].as_str().expect("an id");
        hidden(&daemon.ended(id).to_string());
    }
    fs::write(daemon.dir().join("policy.toml"), "default = \"allow\"\n").expect("written");
    wait_until("the policy is in force", || {
        explain(&daemon, &call("id")).json()["verdict"] == "allow"
    });
    for call in [
        json!({"name": format!("no-{token}"), "input": {}}),
        json!({"name": "bash", "input": {"command": "x", "hunter2secret": 1}}),
        bash_call("true", &json!({"working_dir": "/nowhere/hunter2secret"})),
        call("bash -c 'exec -a hunter2secret sleep 1000' & true"),
        bash_call(
            "echo hunter2secret other-value",
            &json!({"env": {"KEY": "other-value"}}),
        ),
    ] {
        let body = daemon.post(&call).json().to_string();
        hidden(&body);
        assert!(!body.contains("other-value"), "{body}");
    }
    hidden(&daemon.log());
}

#[test]
fn a_call_can_be_explained_without_being_run() {
    let daemon = start(POLICY);
    let marker = daemon.dir().join("marker");
    for (script, verdict) in [
        ("echo a".to_owned(), "allow"),
        (format!("touch {}", marker.display()), "ask"),
        ("true && rm -rf /".to_owned(), "deny"),
    ] {
        let reply = explain(&daemon, &call(&script));
        let judgement = reply.json();
        assert_eq!(
            (reply.status, &judgement["verdict"]),
            (200, &json!(verdict)),
            "{judgement}"
        );
        for member in ["reason", "would_change"] {
            assert!(
                judgement[member]
                    .as_str()
                    .is_some_and(|text| !text.is_empty()),
                "{judgement}"
            );
        }
    }
    assert!(!marker.exists());
    // What would not get as far as the policy says so as the call would.
    for (call, status, stage) in [
        (json!({"name": "bsh", "input": {}}), 404, "discovery"),
        (
            json!({"name": "bash", "input": {}, "id": "toolu_01A"}),
            422,
            "validation",
        ),
    ] {
        let reply = explain(&daemon, &call);
        let body = reply.json();
        assert_eq!(
            (reply.status, &body["stage"]),
            (status, &json!(stage)),
            "{body}"
        );
    }
    assert_eq!(explain(&daemon, &json!({"name": "bash"})).status, 400);
}

#[test]
fn explanations_keep_no_memory() {
    const MIB: u64 = 1 << 20;
    let daemon = start(POLICY);
    let line = "for i in a b c; do echo $i | wc -l; done\n";
    let long = call(&line.repeat(1200));
    assert_eq!(explain(&daemon, &long).status, 200);
    let start = daemon.reset_peak();
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| (0..4).for_each(|_| drop(explain(&daemon, &long))));
        }
    });
    // Four are read at once, and each takes some MiB until it has been.
    let taken = daemon.memory("VmHWM").saturating_sub(start);
    assert!(taken < 64 * MIB, "{} MiB", taken / MIB);
    wait_until("the memory is given back", || {
        daemon.memory("VmRSS") < start + 8 * MIB
    });
}

#[test]
fn the_shipped_policy_allows() {
    let daemon = Daemon::start();
    let judgement = explain(&daemon, &call("rm -rf /nowhere; $(anything)")).json();
    assert_eq!(judgement["verdict"], "allow");
}

#[test]
fn a_changed_policy_is_taken_up_and_a_broken_one_is_not() {
    let daemon = start(POLICY);
    let path = daemon.dir().join("policy.toml");
    let replace = |text: &str| {
        let new = daemon.dir().join("new");
        fs::write(&new, text).expect("written");
        fs::rename(&new, &path).expect("renamed");
    };
    let verdict = |script: &str| explain(&daemon, &call(script)).json()["verdict"].clone();
    let problems = || daemon.get("/health").json()["problems"].clone();
    assert_eq!(verdict("id"), "ask");
    replace("default = \"deny\"\n");
    wait_until("the new policy is in force", || verdict("id") == "deny");
    for broken in [
        "default = \"maybe\"\n",
        "",
        "# default = \"allow\"\n",
        "\n\nno_such_key = 1\n",
        "deny = [{ rule = \"bash(command:rm *)\", match = [\"ls\"] }]\n",
        "default = \"allow\"\ndeny = [\"bash(cmd:rm *)\"]\n",
    ] {
        replace(broken);
        wait_until("/health tells", || {
            problems()[0]["code"] == "policy_invalid"
        });
        assert!(
            problems()[0]["detail"]
                .as_str()
                .is_some_and(|text| text.contains("policy.toml:"))
        );
        assert_eq!(verdict("id"), "deny", "the last good one stays in force");
        replace("default = \"deny\"\n");
        wait_until("it is well again", || problems() == json!([]));
    }
    // A policy that is gone is not "no policy".
    fs::remove_file(&path).expect("removed");
    wait_until("/health tells", || {
        problems()[0]["code"] == "policy_invalid"
    });
    assert_eq!(verdict("id"), "deny");
    let detail = problems()[0]["detail"].to_string();
    assert!(
        detail.contains("put the file back, or restart the daemon"),
        "{detail}"
    );
}

#[test]
fn a_start_without_a_policy_is_loud_and_well() {
    let mut daemon = start(POLICY);
    let path = daemon.dir().join("policy.toml").display().to_string();
    let health = daemon.get("/health").json();
    assert_eq!(health["policy"]["file"], path.as_str(), "{health}");
    let absence = format!("there is no `{path}`: everything is allowed");
    assert!(!daemon.log().contains(&absence), "{}", daemon.log());
    fs::remove_file(&path).expect("removed");
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    let daemon = daemon.restart();
    let log = daemon.log();
    let told = log.lines().find(|line| line.contains(&absence));
    assert!(told.is_some_and(|line| line.contains("WARN")), "{log}");
    let health = daemon.get("/health").json();
    assert_eq!(health["status"], "ok", "{health}");
    assert_eq!(
        health["policy"],
        json!({"file": null, "rules": 0, "remembered": 0}),
        "{health}"
    );
}

/// The audit trail outlives the directory in which a daemon was started.
#[test]
fn a_rules_file_is_named_by_its_absolute_path() {
    let daemon = start(POLICY);
    let source = explain(&daemon, &call("rm -rf /")).json()["source"].clone();
    let path = daemon.dir().join("policy.toml");
    assert_eq!(source["file"], path.to_str().expect("UTF-8"), "{source}");
}

#[test]
fn a_broken_policy_does_not_start() {
    let dir = scratch();
    fs::write(
        dir.join("executor.toml"),
        "[cgroup]\nmode = \"group\"\n[access]\napprovers = []\n",
    )
    .expect("written");
    fs::write(dir.join("policy.toml"), "\ndeny = [\"bash(\"]\n").expect("written");
    for arguments in [
        &[
            "--config",
            "executor.toml",
            "--state",
            "state",
            "--socket",
            "socket",
        ][..],
        &["--config", "executor.toml", "--check-config"],
        &["--check-policy", "policy.toml"],
    ] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_shelly-executord"))
            .args(arguments)
            .current_dir(&dir)
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(78), "{said}");
        assert!(said.contains("policy.toml:2: "), "{said}");
    }
    fs::remove_dir_all(dir).expect("ours");
}

#[test]
fn a_long_script_is_not_read_where_no_rule_asks_for_it() {
    let daemon = Daemon::start_with(Mode::Group, "");
    let script = format!("{}echo done", "true\n".repeat(2_000_000));
    assert_eq!(daemon.bash(&script).stdout(), "done");
}

/// As what waits for an approval is.
#[test]
fn what_waits_for_a_place_is_judged_by_the_policy_that_is_in_force_by_then() {
    let daemon = Daemon::start_under("default = \"allow\"\n", "[flow]\nmax_running = 1\n");
    for (policy, verdict) in [
        ("default = \"deny\"\n", "deny"),
        ("default = \"ask\"\n", "ask"),
        ("default = \"allow\"\nallow = [\"bash\"]\n", "allow"),
    ] {
        fs::write(daemon.dir().join("policy.toml"), "default = \"allow\"\n").expect("written");
        daemon.wait_until("all is allowed", || verdict_of(&daemon, "id") == "allow");
        let marker = daemon.dir().join(verdict);
        let (script, fifo) = blocked(&daemon, &format!("go-{verdict}"));
        begin(&daemon, &script);
        let queued = begin(&daemon, &format!("touch {}", marker.display()));
        let path = format!("/executions/{queued}");
        daemon.wait_until("it waits for its place", || {
            daemon.get(&path).json()["status"] == "queued"
        });
        let rules = policy.matches('[').count();
        fs::write(daemon.dir().join("policy.toml"), policy).expect("written");
        daemon.wait_until("another is in force", || {
            let health = daemon.get("/health").json();
            verdict_of(&daemon, "id") == verdict && health["policy"]["rules"] == rules
        });
        release(&fifo, "on");
        let ended = daemon.ended(&queued);
        if verdict == "allow" {
            assert_eq!(ended["status"], "success", "{ended}");
        } else {
            assert_eq!(ended["result"]["code"], "permission_denied", "{ended}");
        }
        assert_eq!(marker.exists(), verdict == "allow");
    }
}

fn verdict_of(daemon: &Daemon, command: &str) -> Value {
    explain(daemon, &call(command)).json()["verdict"].take()
}

//! A change of the configuration is taken up as a whole or not at all, and `/health` tells which.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use serde_json::{Value, json};

use crate::support::{Daemon, Fifo, Mode, scratch, wait_for, wait_to_equal, wait_until};

/// A valid configuration by which a test can tell which one is in force.
pub(super) fn configuration(word: &str) -> String {
    format!("[env]\nWORD = \"{word}\"\n[cgroup]\nmode = \"group\"\n")
}

pub(super) fn start() -> Daemon {
    Daemon::start_with(Mode::Group, "[env]\nWORD = \"first\"\n")
}

/// Replaces a file in the daemon's directory the way editors do: another is renamed over it.
pub(super) fn replace(daemon: &Daemon, name: &str, text: &str) {
    let new = daemon.dir().join(format!("{name}.new"));
    fs::write(&new, text).expect("written");
    fs::rename(new, daemon.dir().join(name)).expect("renamed");
}

pub(super) fn word(daemon: &Daemon) -> String {
    daemon.bash("echo $WORD").stdout()
}

#[track_caller]
pub(super) fn wait_for_word(daemon: &Daemon, expected: &str) {
    wait_until(&format!("{expected:?} is in force"), || {
        word(daemon) == expected
    });
}

fn problems(daemon: &Daemon) -> Vec<Value> {
    let health = daemon.get("/health").json();
    let problems = health["problems"].as_array().expect("a list").clone();
    let expected = if problems.is_empty() {
        "ok"
    } else {
        "degraded"
    };
    assert_eq!(health["status"], expected, "{health}");
    problems
}

/// Waits for the one problem of that code.
#[track_caller]
pub(super) fn wait_for_problem(daemon: &Daemon, code: &str) -> Value {
    wait_until(&format!("/health says {code}"), || {
        problems(daemon)
            .iter()
            .any(|problem| problem["code"] == code)
    });
    let mut problems = problems(daemon);
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems.remove(0)
}

#[track_caller]
pub(super) fn wait_for_health(daemon: &Daemon) {
    wait_until("/health is ok", || problems(daemon).is_empty());
}

#[test]
fn a_file_that_is_replaced_is_taken_up() {
    let daemon = start();
    assert_eq!(word(&daemon), "first");
    for next in ["second", "third"] {
        replace(&daemon, "executor.toml", &configuration(next));
        wait_for_word(&daemon, next);
    }
    wait_for_health(&daemon);
}

#[test]
fn a_file_that_is_edited_in_place_is_taken_up() {
    let daemon = start();
    for next in ["second", "third"] {
        fs::write(daemon.dir().join("executor.toml"), configuration(next)).expect("written");
        wait_for_word(&daemon, next);
    }
}

#[test]
fn a_change_that_is_not_valid_leaves_the_last_good_one_in_force() {
    let daemon = start();
    for (text, parts) in [
        (
            "\n[env]\nWORD = \"bad\"\n[limits]\npids_max = 0\n",
            &["executor.toml:5: ", "pids_max", "from 1 to"][..],
        ),
        (
            "words = []\n",
            &["executor.toml:1: ", "words", "expected one of"],
        ),
        ("[env\n", &["executor.toml:1: "]),
    ] {
        replace(&daemon, "executor.toml", text);
        let problem = wait_for_problem(&daemon, "config_invalid");
        let detail = problem["detail"].as_str().expect("a detail");
        for part in parts {
            assert!(detail.contains(part), "{detail:?} lacks {part:?}");
        }
        assert!(detail.contains("stays in force"), "{detail}");
        let path = daemon.dir().join("executor.toml");
        assert_eq!(problem["source"], path.to_str().expect("UTF-8"));
        assert_eq!(word(&daemon), "first");

        replace(&daemon, "executor.toml", &configuration("first"));
        wait_for_health(&daemon);
    }
    replace(&daemon, "executor.toml", &configuration("good"));
    wait_for_word(&daemon, "good");

    let path = "/events?follow=false&type=configurationReloaded,configurationRefused";
    let events = String::from_utf8(daemon.get(path).body).expect("text");
    assert!(
        events.contains("event: configurationReloaded\n"),
        "{events}"
    );
    let refused = events.matches("event: configurationRefused\n").count();
    assert!(refused >= 3, "{events}");
    assert!(events.contains("executor.toml:5: "), "{events}");
}

#[test]
fn a_file_that_is_gone_is_no_configuration_at_all() {
    // Taking the built-in configuration for it could admit people whom the file kept out.
    let daemon = start();
    fs::remove_file(daemon.dir().join("executor.toml")).expect("there");
    let problem = wait_for_problem(&daemon, "config_invalid");
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(detail.contains("executor.toml"), "{detail}");
    assert_eq!(word(&daemon), "first");
    fs::write(daemon.dir().join("executor.toml"), configuration("again")).expect("written");
    wait_for_word(&daemon, "again");
    wait_for_health(&daemon);
}

#[test]
fn a_shell_that_cannot_be_run_is_a_problem_until_there_is_another() {
    let daemon = start();
    for (key, wrong) in [
        ("shell", "/bin/nosuch"),
        ("shell", "/usr/bin"),
        ("working_dir", "/nowhere"),
    ] {
        let group = "[cgroup]\nmode = \"group\"\n";
        replace(
            &daemon,
            "executor.toml",
            &format!("{key} = \"{wrong}\"\n{group}"),
        );
        let found = wait_for("a problem", || problems(&daemon).pop());
        let expected = (&json!("commands_fail"), &json!(key));
        assert_eq!((&found["code"], &found["source"]), expected, "{found}");
        assert!(found["detail"].to_string().contains(wrong), "{found}");
        replace(&daemon, "executor.toml", group);
        wait_to_equal("the problems", vec![], || problems(&daemon));
    }
}

#[test]
fn keys_that_take_a_restart_say_so() {
    let daemon = start();
    let changed = "max_connections = 7\nspool_max_bytes = 0\n[env]\nWORD = \"second\"\n[cgroup]\nmode = \"auto\"\n[log]\nformat = \"json\"\n";
    replace(&daemon, "executor.toml", changed);
    // The rest of the change is in force.
    wait_for_word(&daemon, "second");
    let problems = problems(&daemon);
    for key in [
        "`max_connections`",
        "`cgroup`",
        "`log.format`",
        "`spool_max_bytes`",
    ] {
        let told = problems.iter().any(|problem| {
            problem["code"] == "restart_needed"
                && problem["detail"]
                    .as_str()
                    .is_some_and(|detail| detail.contains(key))
        });
        assert!(told, "{key}: {problems:?}");
    }
    assert_eq!(problems.len(), 4, "{problems:?}");
    // What is wrong with the next one comes on top.
    replace(&daemon, "executor.toml", "default_timeout_secs = 0\n");
    wait_until("that is told as well", || {
        self::problems(&daemon).len() == 5
    });

    // Taken back, there is nothing to restart for.
    replace(&daemon, "executor.toml", &configuration("third"));
    wait_for_word(&daemon, "third");
    wait_for_health(&daemon);
}

#[test]
fn access_changes_with_the_file() {
    let daemon = start();
    replace(
        &daemon,
        "executor.toml",
        "[access]\ncallers = [\"user:no-such-user\"]\nadmins = []\n[env]\nWORD = \"second\"\n",
    );
    // The daemon's own user stays admitted, whatever the lists say.
    wait_for_word(&daemon, "second");
    wait_until("the log warns of a name that nobody has", || {
        daemon.log().contains("no-such-user")
    });
}

/// Reading it would wait for a writer, and everybody for the reader.
#[test]
fn a_file_that_is_no_file_is_not_read() {
    let daemon = start();
    let path = daemon.dir().join("executor.toml");
    let fifo = Fifo::new(daemon.dir().join("fifo"));
    // At once, or the file is missing for a moment, which is a problem of its own.
    fs::rename(fifo.path(), &path).expect("renamed");
    let problem = wait_for_problem(&daemon, "config_invalid");
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(detail.contains("not a regular file"), "{detail}");
}

#[test]
fn descriptions_are_read_at_each_look() {
    let daemon = start();
    let description = || {
        let tools = daemon.get("/tools").json();
        assert_eq!(tools[0]["name"], "bash");
        tools[0]["description"].as_str().expect("text").to_owned()
    };
    let built_in = description();
    assert!(built_in.contains("/bin/bash -c"), "{built_in}");

    // No waiting: the next look has it.
    replace(
        &daemon,
        "tools.toml",
        "[bash]\ndescription = \"Be careful.\"\n",
    );
    assert_eq!(description(), "Be careful.");
    assert_eq!(problems(&daemon), Vec::<Value>::new());

    replace(&daemon, "tools.toml", "[bash]\ndescription = 3\n");
    assert_eq!(description(), built_in);
    let problem = wait_for_problem(&daemon, "tools_file_invalid");
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(detail.contains("tools.toml:2: `description`"), "{detail}");
    let path = daemon.dir().join("tools.toml");
    assert_eq!(problem["source"], path.to_str().expect("UTF-8"));
    wait_until("it is logged", || {
        daemon.log().contains("tools_file_invalid")
    });

    fs::remove_file(daemon.dir().join("tools.toml")).expect("there");
    assert_eq!(description(), built_in);
    wait_for_health(&daemon);
    wait_until("it is logged", || daemon.log().contains("well again"));
}

/// Who was told that a file is refused is told when it is not any more, though nothing is new then.
#[test]
fn what_is_as_it_was_again_is_told() {
    let daemon = start();
    let policy = "default = \"allow\"\nallow = [\"bash\"]\n";
    replace(&daemon, "policy.toml", policy);
    let events = || {
        let events = daemon.get("/events?follow=false&type=policyReloaded,policyRefused,configurationReloaded,configurationRefused");
        let text = String::from_utf8(events.body).expect("text");
        let kinds = text.lines().filter_map(|line| line.strip_prefix("event: "));
        kinds.map(str::to_owned).collect::<Vec<_>>()
    };
    wait_to_equal("what is told", vec!["policyReloaded".to_owned()], events);
    let good = configuration("first");
    for (name, text, code, kind) in [
        ("policy.toml", policy, "policy_invalid", "policy"),
        ("executor.toml", &good, "config_invalid", "configuration"),
    ] {
        if name == "executor.toml" {
            replace(&daemon, name, text);
            wait_for_health(&daemon);
        }
        replace(&daemon, name, "x = [");
        wait_for_problem(&daemon, code);
        replace(&daemon, name, text);
        wait_for_health(&daemon);
        let told = [format!("{kind}Refused"), format!("{kind}Reloaded")];
        wait_until("both are told", || events().ends_with(&told));
        wait_until("it is logged", || {
            daemon.log().contains(&format!("the {kind} is valid again"))
        });
    }
}

/// What `[files]` asks about is a part of the policy, whose own file need not be valid for it.
#[test]
fn what_is_asked_about_from_now_on_is_so_under_a_policy_that_stays_in_force() {
    let dir = scratch();
    let toml = |confirm: &str| {
        format!(
            "[files]\nbase_dirs = [{:?}]\n{confirm}[access]\napprovers = []\n{}",
            dir.display().to_string(),
            configuration("first")
        )
    };
    let (before, after) = (toml(""), toml("confirm_write = true\n"));
    fs::write(dir.join("executor.toml"), before).expect("written");
    fs::write(
        dir.join("policy.toml"),
        "default = \"allow\"\ndeny = [\"bash(command:rm *)\"]\n",
    )
    .expect("written");
    let daemon = Daemon::launch(dir, None, |_| {});
    let write = || {
        let input = json!({"file_path": daemon.dir().join("f"), "content": "x\n"});
        daemon.post(&json!({"name": "write_file", "input": input}))
    };
    assert_eq!(write().status, 200);
    replace(&daemon, "policy.toml", "x = [");
    wait_for_problem(&daemon, "policy_invalid");
    replace(&daemon, "executor.toml", &after);
    let refused = wait_for("it is refused", || {
        Some(write()).filter(|reply| reply.status == 403)
    });
    assert!(
        refused.json()["detail"]
            .to_string()
            .contains("confirm_write"),
        "{}",
        refused.json()
    );
    // The rest of the policy is as it was.
    assert_eq!(daemon.bash("rm x").status, 403);
    assert_eq!(daemon.bash("true").status, 200);
}

/// A daemon whose policy lets nobody run anything.
fn start_forbidding(rules: usize) -> Daemon {
    let dir = scratch();
    fs::write(dir.join("executor.toml"), configuration("first")).expect("written");
    fs::write(dir.join("policy.toml"), forbidding(rules)).expect("written");
    Daemon::launch(dir, None, |_| {})
}

fn forbidding(rules: usize) -> String {
    let rule = |number| {
        format!("  {{ rule = \"bash(command:cmd{number}x *)\", match = [\"cmd{number}x x\"] }},\n")
    };
    let rules: String = (0..rules).map(rule).collect();
    format!("default = \"deny\"\nallow = [\n{rules}]\n")
}

/// It is being read when it goes: that it has been read counts, not what is there by the time it is understood.
#[test]
fn a_policy_that_goes_while_it_is_read_is_not_given_up() {
    const MANY: usize = 2000;
    let daemon = start_forbidding(MANY);
    assert_eq!(daemon.bash("true").status, 403);
    let path = daemon.dir().join("policy.toml");
    let read = Inotify::init(InitFlags::empty()).expect("an inotify");
    read.add_watch(&path, AddWatchFlags::IN_ACCESS)
        .expect("watched");
    fs::write(&path, forbidding(MANY + 1)).expect("written");
    read.read_events().expect("it is read");
    fs::remove_file(&path).expect("removed");
    // As the file is gone, and of the one that was there.
    wait_for_problem(&daemon, "policy_invalid");
    assert_eq!(daemon.bash("true").status, 403);
    replace(&daemon, "policy.toml", &forbidding(1));
    wait_for_health(&daemon);
    assert_eq!(daemon.bash("true").status, 403);
}

/// That a link leads nowhere does not mean that there is nothing to be read.
#[test]
fn a_link_that_leads_nowhere_is_no_lack_of_a_policy() {
    let dir = scratch();
    fs::write(dir.join("executor.toml"), configuration("first")).expect("written");
    symlink("/no/such/file", dir.join("policy.toml")).expect("made");
    for check in [
        &["--check-config"][..],
        &["--state", "state", "--socket", "s"],
    ] {
        let refused = Command::new(env!("CARGO_BIN_EXE_shelly-executord"))
            .args(check)
            .args(["--config", "executor.toml"])
            .current_dir(&dir)
            .output()
            .expect("it starts");
        let told = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(78), "{refused:?}");
        assert!(
            told.contains("policy.toml") && told.contains("No such file"),
            "{told}"
        );
    }
    fs::remove_dir_all(dir).expect("ours");
}

#[test]
fn a_file_that_somebody_is_still_writing_is_not_taken_up() {
    let daemon = start();
    let path = daemon.dir().join("executor.toml");
    let mut file = fs::File::create(&path).expect("created");
    // Valid by itself, as far as it goes.
    file.write_all(configuration("half").as_bytes())
        .expect("written");
    // Longer than a directory is to be quiet.
    std::thread::sleep(Duration::from_millis(500));
    file.write_all(b"[tools]\ndisabled = [\"check_condition\"]\n")
        .expect("written");
    drop(file);
    wait_for_word(&daemon, "half");
    let taken_up = || {
        let log = daemon.log();
        log.matches("took up a changed configuration").count()
    };
    wait_until("the log says so", || taken_up() > 0);
    assert_eq!(taken_up(), 1, "{}", daemon.log());
}

#[test]
fn a_file_that_was_emptied_does_not_allow_what_was_forbidden() {
    let daemon = start();
    let path = daemon.dir().join("executor.toml");
    fs::write(&path, "").expect("written");
    let problem = wait_for_problem(&daemon, "config_invalid");
    assert!(
        problem["detail"].to_string().contains("is empty"),
        "{problem}"
    );
    assert_eq!(word(&daemon), "first");
    fs::write(&path, "# nothing\n").expect("written");
    wait_for_word(&daemon, "");
    wait_for_problem(&daemon, "restart_needed");
}

//! Sandboxes that are there before their call.

use std::collections::HashSet;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::{
    assert_clean, bundles, give_to_nobody, is_of, is_there, modes, runtimes, start, wait_for_test,
    waiting, workspace,
};
use crate::support::{Daemon, Mode, wait_until};

/// The one that waits, once it does.
#[track_caller]
fn the_one(daemon: &Daemon) -> PathBuf {
    let mut found = None;
    wait_until("one waits", || {
        let all = waiting(daemon);
        found = all.iter().next().cloned();
        // Its runtime has made what it keeps there.
        let is_begun = |dir: &PathBuf| {
            let state = fs::read_dir(dir.join("state"));
            state.is_ok_and(|mut state| state.next().is_some())
        };
        all.len() == 1 && all.iter().all(is_begun)
    });
    found.expect("it waits")
}

/// Whether a sandbox has been told what to run.
fn is_told(bundle: &Path) -> bool {
    fs::metadata(bundle.join("in/report")).is_ok_and(|report| report.len() > 0)
}

fn reconfigure(daemon: &Daemon, from: &str, to: &str) {
    let file = daemon.dir().join("executor.toml");
    let text = fs::read_to_string(&file).expect("there");
    assert!(text.contains(from), "{text}");
    fs::write(file, text.replace(from, to)).expect("written");
}

#[test]
fn a_call_finds_one_and_leaves_the_next() {
    for mode in modes() {
        let daemon = start(mode, "");
        // The self-test was the first to use one.
        let first = the_one(&daemon);
        assert_eq!(daemon.get("/health").json()["sandbox"]["ready"], 1);
        let id = daemon.begin("echo up; read x; sleep 60 & wait", &json!({"stdin": "x\n"}));
        wait_until("it runs", || daemon.output(&id, "stdout") == b"up\n");
        assert!(is_told(&first), "{mode:?}: another runs it");
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let beside = if processors >= 2 { 1 } else { 0 };
        wait_until(
            "the next is prepared where there are processors for both",
            || waiting(&daemon).len() == beside && bundles(&daemon).len() == 1 + beside,
        );
        let path = format!("/executions/{id}");
        let record = daemon.connect().request("DELETE", &path, &[], b"").json();
        assert_eq!(record["status"], "cancelled", "{record}");
        let second = the_one(&daemon);
        assert_ne!(first, second, "{mode:?}: used twice");
        // What it says is of its call and not of before.
        let reply = daemon.bash("echo $SHELLY_EXECUTION_ID; ls /tmp; exit 7");
        let body = reply.json();
        assert_eq!(
            reply.stdout(),
            body["execution_id"].as_str().expect("an id"),
            "{body}"
        );
        assert_eq!(body["exit_code"], 7, "{body}");
        assert_clean(&daemon, "after calls");
        assert_ne!(the_one(&daemon), second);
    }
}

#[test]
fn many_at_once_are_none_of_its_business() {
    for mode in modes() {
        let daemon = start(mode, "");
        the_one(&daemon);
        let ids: Vec<String> = (0..4)
            .map(|_| daemon.begin("sleep 0.1; echo $$", &json!({})))
            .collect();
        for id in &ids {
            assert_eq!(daemon.ended(id)["status"], "success", "{mode:?}");
        }
        let last = the_one(&daemon);
        assert_eq!(bundles(&daemon), [last], "{mode:?}");
    }
}

#[test]
fn as_many_wait_as_are_to() {
    if !is_there() {
        return;
    }
    let daemon = start(Mode::Group, "[sandbox]\nready = 3");
    let three = || wait_until("three wait", || waiting(&daemon).len() == 3);
    three();
    let ids: Vec<String> = (0..3)
        .map(|_| daemon.begin("echo $$", &json!({})))
        .collect();
    for id in &ids {
        assert_eq!(daemon.ended(id)["status"], "success");
    }
    three();
    reconfigure(&daemon, "ready = 3", "ready = 0");
    wait_until("none waits any more", || bundles(&daemon).is_empty());
    assert_clean(&daemon, "after three");
}

#[test]
fn one_is_for_who_is_granted_the_same() {
    for mode in modes() {
        let dir = crate::support::scratch();
        let late = dir.join("late");
        let toml = format!("[sandbox]\nworkspaces = [\"/tmp\"]\nhidden = [{late:?}]");
        let daemon = start(mode, &toml);
        let plain = the_one(&daemon);
        let (dir, members) = (workspace(&daemon), json!({"workspace": workspace(&daemon)}));
        assert_eq!(
            daemon.bash_with("echo 1 >> x", &members).json()["exit_code"],
            0
        );
        wait_until("one of the same kind waits instead", || {
            !plain.exists() && waiting(&daemon).len() == 1
        });
        let granted = the_one(&daemon);
        // It sees what comes to be there while it waits.
        fs::write(dir.join("y"), "given\n").expect("written");
        assert_eq!(
            daemon.bash_with("cat y; echo 2 >> x", &members).stdout(),
            "given"
        );
        assert!(!granted.exists(), "{mode:?}: another did it");
        assert_eq!(fs::read_to_string(dir.join("x")).expect("there"), "1\n2\n");

        // The same name is not the same directory.
        let granted = the_one(&daemon);
        fs::rename(&dir, dir.with_extension("old")).expect("renamed");
        fs::create_dir(&dir).expect("made");
        give_to_nobody(&dir);
        assert_eq!(daemon.bash_with("ls; echo 3 >> x", &members).stdout(), "");
        assert_eq!(fs::read_to_string(dir.join("x")).expect("there"), "3\n");
        wait_until("that one is gone", || !granted.exists());
        let old = dir.with_extension("old");
        assert_eq!(fs::read_to_string(old.join("x")).expect("there"), "1\n2\n");

        // What is hidden as soon as it is there is hidden from the next.
        let granted = the_one(&daemon);
        fs::create_dir(&late).expect("made");
        fs::write(late.join("secret"), "").expect("written");
        let look = format!("ls {}; [ -d {} ]", late.display(), late.display());
        assert_eq!(daemon.bash_with(&look, &members).stdout(), "", "{mode:?}");
        wait_until("that one is gone", || !granted.exists());

        // Without the grant nothing is there.
        let reply = daemon.bash(&format!("[ -e {} ] || echo none", dir.display()));
        assert_eq!(reply.stdout(), "none", "{mode:?}");
        assert_clean(&daemon, "after grants");
    }
}

#[test]
fn another_configuration_is_in_force_at_once() {
    for mode in modes() {
        let daemon = start(mode, "[sandbox]\nfile_size_max = 8192");
        let before = the_one(&daemon);
        assert_eq!(daemon.bash("ulimit -f").stdout(), "8");
        the_one(&daemon);
        reconfigure(&daemon, "file_size_max = 8192", "file_size_max = 16384");
        wait_until("it is read", || daemon.bash("ulimit -f").stdout() == "16");
        assert!(!before.exists());
        reconfigure(&daemon, "file_size_max = 16384", "ready = 0");
        wait_until("none waits any more", || {
            let sandbox = &daemon.get("/health").json()["sandbox"];
            sandbox["ready"] == 0 && bundles(&daemon).is_empty()
        });
        assert_clean(&daemon, "after changes");
    }
}

#[test]
fn one_that_died_is_not_counted_on() {
    for mode in modes() {
        let daemon = start(mode, "");
        let bundle = the_one(&daemon);
        let mine = runtimes(&daemon)
            .into_iter()
            .filter(|pid| is_of(*pid, &bundle));
        let mine: HashSet<i32> = mine.collect();
        assert!(!mine.is_empty());
        for pid in mine {
            // Some end with the others.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        wait_until("it is cleared away", || !bundle.exists());
        assert_eq!(daemon.bash("echo hi").stdout(), "hi", "{mode:?}");
        assert_clean(&daemon, "after a death");
    }
}

#[test]
fn none_outlives_the_daemon() {
    for mode in modes() {
        let mut daemon = start(mode, "");
        the_one(&daemon);
        daemon.signal(Signal::SIGTERM);
        daemon.wait();
        assert_eq!(runtimes(&daemon), Vec::<i32>::new(), "{mode:?}");
        assert_eq!(bundles(&daemon), Vec::<PathBuf>::new(), "{mode:?}");

        // Killed, it can do nothing about it: who waits sees that there is nobody to wait for.
        daemon = daemon.restart();
        wait_for_test(&daemon, "passed");
        the_one(&daemon);
        daemon.signal(Signal::SIGKILL);
        daemon.wait();
        wait_until("it has ended", || runtimes(&daemon).is_empty());
        let bundle = bundles(&daemon);
        assert_eq!(bundle.len(), 1);
        daemon = daemon.restart();
        assert!(!bundle[0].exists(), "{mode:?}: it is removed");
        wait_for_test(&daemon, "passed");
        assert_clean(&daemon, "after a crash");
    }
}

/// Without cgroups who gives up session and environment is known by there being nobody else.
#[test]
fn one_that_waits_is_nobody_to_hide_behind() {
    for mode in modes() {
        let daemon = Daemon::start_with(mode, "");
        let untrusted = json!({"risk_level": "untrusted"});
        assert_eq!(daemon.bash_with("true", &untrusted).status, 200);
        the_one(&daemon);
        let command =
            "(env -i setsid sh -c 'sleep 60300 & sleep 60301 &' &) ; sleep 0.2; echo done";
        let body = daemon.bash(command).json();
        assert_eq!(body["risk_level"], "trusted", "{body}");
        let left = body["background"].as_array().expect("a list").len();
        assert_eq!(left, 2, "{mode:?}: {body}");
        assert_eq!(body["kill"]["survivors"], 0, "{mode:?}: {body}");
        assert_clean(&daemon, "after somebody who hid");
    }
}

#[test]
fn one_with_sockets_is_made_for_its_call() {
    for mode in modes() {
        let daemon = start(mode, "[sandbox]\negress = { bash = [\"crates.io:443\"] }");
        // The self-test has none, and leaves one like it.
        let plain = the_one(&daemon);
        let reply = daemon.bash("echo $http_proxy");
        assert!(
            reply.stdout().starts_with("http://127.0.0.1:"),
            "{mode:?}: {}",
            reply.content()
        );
        assert_eq!(bundles(&daemon), [plain], "{mode:?}");
        assert_eq!(Mode::Group == mode, daemon.cgroup().is_none());
    }
}

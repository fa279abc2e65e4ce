//! The runtime: missing, broken, there.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{
    assert_clean, bundles, is_there, modes, runtimes, start, wait_for_test, waiting, workspace,
};
use crate::support::{Daemon, Mode, Process, SLEEPS, scratch, skip, timed, wait_until};

#[test]
fn its_first_process_is_nothing_to_be_started_by_hand() {
    for args in [
        &[][..],
        &["0.0.0", "/tmp/report", "1", "", "/", "/bin/true"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_shelly-sandbox-init"))
            .args(args)
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{said}");
        assert!(said.contains("inside of a sandbox"), "{said}");
    }
}

/// Copies a program and the libraries it needs to where they are below `root`.
fn install(program: &str, root: &Path) {
    let output = Command::new("ldd").arg(program).output().expect("ldd");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let libraries = text.split_whitespace().filter(|word| word.starts_with('/'));
    for file in libraries.chain([program]) {
        let to = root.join(&file[1..]);
        fs::create_dir_all(to.parent().expect("below the root")).expect("made");
        fs::copy(file, to).expect("copied");
    }
}

/// A root directory with these programs and what they need.
pub(super) fn root_with(programs: &[&str]) -> PathBuf {
    let root = scratch();
    for dir in ["proc", "sys", "dev", "tmp", "etc"] {
        fs::create_dir(root.join(dir)).expect("made");
    }
    for program in programs {
        install(program, &root);
    }
    install(env!("CARGO_BIN_EXE_shelly-sandbox-init"), &root);
    root
}

/// runc shares the host's kernel, and makes cgroups of its own.
#[test]
fn another_runtime_runs_it_as_well_and_leaves_as_little() {
    let version = Command::new("runc").arg("--version").output();
    if !nix::unistd::geteuid().is_root() || version.is_err() {
        skip("another runtime than gVisor, for there is no runc, or you are not root");
        return;
    }
    let mut earlier = cgroups();
    // Of a test that was killed.
    earlier.retain(|cgroup| fs::remove_dir(cgroup).is_err());
    assert_eq!(earlier, Vec::<PathBuf>::new());
    for mode in Mode::all() {
        let root = root_with(&["/bin/bash", "/bin/cat", "/bin/sleep", "/bin/ls"]);
        let toml =
            format!("[sandbox]\nruntime = \"runc\"\nrootfs = {root:?}\nworkspaces = [\"/tmp\"]");
        let mut daemon = start(mode, &toml);
        runs_as_any(&daemon);
        assert_clean(&daemon, "after runc");
        assert_eq!(cgroups_in_use(&daemon), Vec::<PathBuf>::new());
        let call = json!({"name": "bash", "input": {"command": "sleep 600 & sleep 60100"}});
        let headers = [("Prefer", "respond-async")];
        let call = call.to_string();
        let begun = daemon
            .connect()
            .request("POST", "/execute", &headers, call.as_bytes());
        assert_eq!(begun.status, 202);
        daemon.wait_until("it runs", || {
            !cgroups_in_use(&daemon).is_empty() && sleeps(60_100)
        });
        daemon.signal(Signal::SIGKILL);
        daemon.wait();
        daemon = daemon.restart();
        daemon.wait_until("it is dead", || !sleeps(60_100));
        wait_for_test(&daemon, "passed");
        assert_clean(&daemon, "after the daemon was killed");
        assert_eq!(cgroups_in_use(&daemon), Vec::<PathBuf>::new());
        // What waits has made directories there, and cgroups.
        daemon.signal(Signal::SIGTERM);
        daemon.wait();
        assert_eq!(cgroups(), Vec::<PathBuf>::new());
        fs::remove_dir_all(root).expect("ours");
    }
}

fn runs_as_any(daemon: &Daemon) {
    let body = daemon.bash("cat /proc/self/status; ls /; exit 3").json();
    let content = body["content"].as_str().expect("text");
    assert_eq!(
        (&body["exit_code"], &body["sandbox"]["runtime"]),
        (&json!(3), &json!("runc")),
        "{body}"
    );
    for part in [
        "Uid:\t65534\t65534",
        "CapEff:\t0000000000000000",
        "NoNewPrivs:\t1",
        "\nproc\n",
    ] {
        assert!(content.contains(part), "{part:?}: {content}");
    }
    assert!(!content.contains("\nroot\n"), "{content}");
    let body = daemon.bash("kill -9 $$").json();
    assert_eq!(body["signal"]["name"], "SIGKILL", "{body}");
    let body = daemon.bash("exit 137").json();
    assert_eq!(
        (&body["exit_code"], &body["signal"]),
        (&json!(137), &Value::Null),
        "{body}"
    );
    let body = daemon.bash(&format!("sleep 60 & {SLEEPS}; echo hi")).json();
    assert_eq!(body["background"][0]["command"], "sleep 60", "{body}");
    let body = daemon
        .bash_with(
            "trap '' TERM; sleep 60 & sleep 61",
            &json!({"timeout_secs": 2}),
        )
        .json();
    assert_eq!(
        (&body["code"], &body["kill"]["survivors"]),
        (&json!("timeout"), &json!(0)),
        "{body}"
    );
    // No way out, but the loopback is there.
    let out = "(: < /dev/tcp/127.0.0.1/9) 2>&1; (: < /dev/tcp/192.0.2.1/9) 2>&1";
    let said = daemon.bash(out).content();
    assert!(
        said.contains("Connection refused") && said.contains("unreachable"),
        "{said}"
    );
    let dir = workspace(daemon);
    let reply = daemon.bash_with("echo kept > x; echo y > /etc/y", &json!({"workspace": dir}));
    assert!(reply.content().contains("/etc/y: "), "{}", reply.content());
    assert_eq!(fs::read_to_string(dir.join("x")).expect("there"), "kept\n");
}

/// Whether somebody sleeps for so long.
fn sleeps(seconds: u32) -> bool {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.any(|pid| is_sleeping(pid, &seconds.to_string()))
}

fn is_sleeping(pid: i32, seconds: &str) -> bool {
    let words = format!("sleep\0{seconds}\0").into_bytes();
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == words)
}

/// The cgroups that runc has made for sandboxes, but for those that wait for a call.
fn cgroups_in_use(daemon: &Daemon) -> Vec<PathBuf> {
    let ours = waiting(daemon);
    let is_waiting = |cgroup: &PathBuf| {
        let cgroup = cgroup.to_str().unwrap_or_default();
        let mut names = ours.iter().filter_map(|one| one.file_name()?.to_str());
        names.any(|name| cgroup.ends_with(name))
    };
    let mut found = cgroups();
    found.retain(|cgroup| !is_waiting(cgroup));
    found
}

/// All of them.
fn cgroups() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = dirs.pop() {
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let name = entry.file_name();
            if name.to_string_lossy().contains("execution-shelly-") {
                found.push(entry.path());
            }
            dirs.push(entry.path());
        }
    }
    found
}

#[test]
fn a_root_of_its_own_is_all_there_is() {
    if !is_there() {
        return;
    }
    let root = root_with(&["/bin/bash", "/bin/cat"]);
    fs::write(root.join("etc/motd"), "inside").expect("written");
    let toml = format!("[sandbox]\nrootfs = {root:?}\nworkspaces = [\"/tmp\"]");
    let mut daemon = start(Mode::Group, &toml);
    let files = "cat /etc/motd; echo /*; cat /etc/passwd";
    let body = daemon.bash(files).json();
    let content = body["content"].as_str().expect("text");
    // Where the project was built is where its first process is found, at any depth.
    let mut names = Vec::new();
    for entry in fs::read_dir(&root).expect("there") {
        let name = entry.expect("an entry").file_name();
        names.push(format!("/{}", name.to_str().expect("UTF-8")));
    }
    names.sort();
    let all = format!("[stdout]\ninside{}\n\n", names.join(" "));
    assert!(content.starts_with(&all), "{all}: {body}");
    assert!(content.contains("/etc/passwd: No such file"), "{body}");
    let dir = workspace(&daemon);
    let reply = daemon.bash_with("echo kept > x; echo y > /etc/y", &json!({"workspace": dir}));
    assert!(reply.content().contains("/etc/y: "), "{}", reply.content());
    assert_eq!(fs::read_to_string(dir.join("x")).expect("there"), "kept\n");
    assert!(!root.join("etc/y").exists());
    assert_clean(&daemon, "after a root of its own");
    // The runtime of one that waits makes directories in it.
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    fs::remove_dir_all(root).expect("ours");
}

#[test]
fn without_a_runtime_nothing_untrusted_runs() {
    let toml = "[sandbox]\nruntime = \"/nowhere/runsc\"\n[tools]\nuntrusted = [\"bash\"]\n[files]\nbase_dirs = [\"/tmp\"]\n";
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
    let file = daemon.dir().join("executor.toml");
    let body = daemon
        .post(&json!({"name": "read_file", "input": {"file_path": file}}))
        .json();
    assert_eq!(body["is_error"], false, "{body}");
    // The other tool for commands is one of them.
    let body = daemon
        .post(&json!({"name": "execute_command", "input": {"command": "echo hi"}}))
        .json();
    assert_eq!(body["code"], "sandbox_unavailable", "{body}");
}

/// Nothing is configured to run in it: whoever calls decides.
#[test]
fn once_somebody_wants_it_it_is_tested() {
    let mut daemon = Daemon::start_with(Mode::Group, "[sandbox]\nruntime = \"/nowhere/runsc\"\n");
    let state = |daemon: &Daemon| daemon.get("/health").json()["sandbox"].clone();
    assert_eq!(state(&daemon)["self_test"], "untested");
    let untrusted = json!({"risk_level": "untrusted"});
    assert_eq!(daemon.bash_with("true", &untrusted).status, 503);
    wait_for_test(&daemon, "failed");
    // Who called has been told. What nobody has configured is nothing that does not work.
    assert_eq!(daemon.get("/health").json()["status"], "ok");
    if !is_there() {
        return;
    }
    // What was found out of one runtime is not told of another.
    let file = daemon.dir().join("executor.toml");
    let configure = |more: &str| {
        let config = format!("{more}[cgroup]\nmode = \"group\"\n");
        fs::write(&file, config).expect("written");
    };
    configure("");
    wait_for_test(&daemon, "passed");
    let version = state(&daemon)["version"].clone();
    assert!(version.is_string(), "{version}");
    configure("[sandbox]\nruntime = \"/bin/true\"\n");
    wait_for_test(&daemon, "failed");
    assert_eq!(state(&daemon)["version"], json!(null));
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
}

/// As whoever reads the problem in `/health` does.
#[test]
fn a_runtime_that_is_installed_later_makes_it_well() {
    if !is_there() {
        return;
    }
    let dir = scratch();
    let runtime = dir.join("runsc");
    let path = runtime.display();
    let toml = format!("[sandbox]\nruntime = \"{path}\"\n[tools]\nuntrusted = [\"bash\"]\n");
    let daemon = Daemon::start_with(Mode::Group, &toml);
    wait_for_test(&daemon, "failed");
    let mut find = Command::new("sh");
    let found = find.args(["-c", "command -v runsc"]).output();
    let found = String::from_utf8(found.expect("it starts").stdout).expect("text");
    std::os::unix::fs::symlink(found.trim(), &runtime).expect("made");
    wait_for_test(&daemon, "passed");
    wait_until("it is well", || {
        daemon.get("/health").json()["status"] == "ok"
    });
    drop(daemon);
    fs::remove_dir_all(dir).expect("ours");
}

#[test]
fn a_runtime_that_does_not_work_is_told_of() {
    for (program, said) in [
        ("#!/bin/sh\nexit 3\n", "does not say its version"),
        ("#!/bin/sh\nexec sleep 60\n", "does not say its version"),
        (
            "#!/bin/sh\n[ \"$1\" = --version ] && { echo broken version 1.0; exit; }\necho no platform here >&2; exit 128\n",
            "no platform here",
        ),
        (
            "#!/bin/sh\n[ \"$1\" = --version ] && { echo broken version 1.0; exit; }\nexit 0\n",
            "does not say why",
        ),
    ] {
        let (dir, runtime) = runtime_of(program);
        let toml = format!("{runtime}\n[tools]\nuntrusted = [\"bash\"]\n");
        let daemon = Daemon::start_with(Mode::Group, &toml);
        wait_for_test(&daemon, "failed");
        let (reply, took) = timed(|| daemon.bash("true"));
        assert!(took.within(Duration::from_secs(12)), "{said}: {took:?}");
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
        // What fails is tested again now and then, and may be just now.
        wait_until("no test is under way", || {
            daemon.processes().is_empty() && runtimes(&daemon).is_empty()
        });
        assert_clean(&daemon, said);
        fs::remove_dir_all(dir).expect("removed");
    }
}

/// A directory with a program, and what configures that as the runtime.
pub(super) fn runtime_of(program: &str) -> (PathBuf, String) {
    let dir = scratch();
    let runtime = dir.join("runtime");
    fs::write(&runtime, program).expect("written");
    fs::set_permissions(&runtime, Permissions::from_mode(0o755)).expect("executable");
    let toml = format!("[sandbox]\nruntime = {runtime:?}\n");
    (dir, toml)
}

/// As Kata does with its virtual machines, which become the daemon's children.
#[test]
fn what_a_runtime_leaves_to_the_daemon_lives_as_long_as_the_sandbox() {
    const PROGRAM: &str = "#!/bin/sh
case \"$*\" in
*' run '*)
    (setsid sleep 60102 </dev/null >/dev/null 2>&1 &)
    (setsid sleep 0.0102 </dev/null >/dev/null 2>&1 &)
esac
exec runsc \"$@\"
";
    for mode in modes() {
        let (dir, runtime) = runtime_of(PROGRAM);
        let options = "runtime_args = [\"--ignore-cgroups\", \"--network=none\"]\nready = 0\n";
        let daemon = start(mode, &format!("{runtime}{options}"));
        let id = daemon.begin("echo up; sleep 60", &json!({}));
        wait_until("it runs", || daemon.output(&id, "stdout") == b"up\n");
        // It does when it looks for what commands have left behind.
        wait_until("the daemon has reaped what has ended", || {
            let has_ended =
                |child: &Process| child.state == 'Z' || is_sleeping(child.pid, "0.0102");
            !daemon.children().iter().any(has_ended)
        });
        assert!(sleeps(60_102), "{mode:?}: {}", daemon.log());
        let path = format!("/executions/{id}");
        let record = daemon.connect().request("DELETE", &path, &[], b"").json();
        assert_eq!(record["status"], "cancelled", "{record}");
        assert!(!sleeps(60_102), "{mode:?}: {record}");
        assert_clean(&daemon, "after a runtime that leaves something");
        fs::remove_dir_all(dir).expect("ours");
    }
}

/// Who asks a runtime for the end of a program does not end what that runtime has left to the daemon.
#[test]
fn a_program_has_its_last_words_whoever_its_runtime_belongs_to() {
    // It runs as an orphan, for whose end the one that was started waits.
    const PROGRAM: &str = "#!/bin/sh
case \"$*\" in
*' run '*)
    exec 4>&1 5<&0
    ( (setsid runsc \"$@\" <&5 3>&1 >&4 4>&- 5<&- &) ) | cat
    exit
esac
exec runsc \"$@\"
";
    for mode in modes() {
        let (dir, runtime) = runtime_of(PROGRAM);
        let options = "runtime_args = [\"--ignore-cgroups\", \"--network=none\"]\nready = 0\n";
        let daemon = start(mode, &format!("kill_grace_ms = 60000\n{runtime}{options}"));
        let last = "trap 'sleep 1; echo bye; exit 5' TERM; echo up; sleep 600 & wait";
        let id = daemon.begin(last, &json!({}));
        daemon.wait_until("it runs", || daemon.output(&id, "stdout") == b"up\n");
        let path = format!("/executions/{id}");
        let record = daemon.connect().request("DELETE", &path, &[], b"").json();
        assert_eq!(record["status"], "cancelled", "{record}");
        let content = record["result"]["content"].as_str().expect("text");
        assert!(content.contains("up\nbye\n"), "{mode:?}: {content}");
        assert_clean(&daemon, "after last words");
        fs::remove_dir_all(dir).expect("ours");
    }
}

/// Nobody else would end it.
#[test]
fn a_self_test_ends_with_the_daemon() {
    const PROGRAM: &str = "#!/bin/sh
[ \"$1\" = --version ] && { echo slow version 1.0; exit; }
sleep 60103 & wait
";
    for mode in Mode::all() {
        let (dir, runtime) = runtime_of(PROGRAM);
        let toml = format!("{runtime}\n[tools]\nuntrusted = [\"bash\"]\n");
        let mut daemon = Daemon::start_with(mode, &toml);
        daemon.wait_until("it is tried", || sleeps(60_103));
        daemon.signal(Signal::SIGTERM);
        assert_eq!(daemon.wait().code(), Some(0), "{mode:?}");
        assert!(!sleeps(60_103), "{mode:?}: {}", daemon.log());
        assert_eq!(bundles(&daemon), Vec::<PathBuf>::new(), "{mode:?}");
        fs::remove_dir_all(dir).expect("ours");
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

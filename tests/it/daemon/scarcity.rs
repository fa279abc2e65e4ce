//! What the machine or the unit does not grant any more: a caller's command, or a slip of an editor, takes it, and the
//! daemon goes on.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rustix::process::{Resource, Rlimit, prlimit};

use crate::support::{Daemon, Mode, Reply, scratch, skip, wait_until};

/// How many threads and processes a group of processes may have: `TasksMax=`, by a cgroup of the first version or the second.
struct Tasks(PathBuf);

impl Tasks {
    /// A group that may have any number, with this process and its threads in it; `None` where there can be none.
    fn of(pid: Pid) -> Option<Self> {
        const ROOTS: [&str; 2] = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"];
        let roots = ROOTS.into_iter().map(Path::new);
        roots
            .map(|root| Self(root.join(format!("shelly-test-tasks-{pid}"))))
            .find(|group| {
                let made = fs::create_dir(&group.0).is_ok();
                made && group.0.join("pids.max").exists()
                    && fs::write(group.0.join("cgroup.procs"), pid.to_string()).is_ok()
            })
    }

    fn current(&self) -> String {
        fs::read_to_string(self.0.join("pids.current")).expect("a number")
    }

    fn limit(&self, most: &str) {
        fs::write(self.0.join("pids.max"), most.trim()).expect("limited");
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        // Only when all of it has ended.
        let _ = fs::remove_dir(&self.0);
    }
}

fn codes(daemon: &Daemon) -> Vec<String> {
    let health = daemon.get("/health").json();
    let problems = health["problems"].as_array().expect("problems").iter();
    let codes = problems.map(|problem| problem["code"].as_str().expect("a code").to_owned());
    codes.collect()
}

fn write(daemon: &Daemon, word: &str) {
    let text = format!("[env]\nWORD = \"{word}\"\n[cgroup]\nmode = \"group\"\n");
    fs::write(daemon.dir().join("executor.toml"), text).expect("written");
}

fn word(daemon: &Daemon) -> String {
    daemon.bash("echo $WORD").stdout()
}

/// The library that watches takes for granted that there are threads.
#[test]
fn a_reload_without_a_thread_to_watch_with_is_no_end() {
    let daemon = Daemon::start();
    let Some(tasks) = Tasks::of(daemon.pid()) else {
        return skip("a reload without threads, for there is no controller of pids");
    };
    // It has what it needs of others.
    assert_eq!(daemon.bash("echo hi").stdout(), "hi");
    tasks.limit(&tasks.current());
    let log = daemon.log().len();
    daemon.signal(Signal::SIGHUP);
    wait_until("it says that it cannot watch", || {
        daemon.log()[log..].contains("no thread could be started") || codes(&daemon).is_empty()
    });
    write(&daemon, "changed");
    daemon.signal(Signal::SIGHUP);
    assert_eq!(daemon.get("/health").status, 200);
    tasks.limit("max");
    wait_until("the change is in force", || word(&daemon) == "changed");
    write(&daemon, "again");
    wait_until("it is watched again", || word(&daemon) == "again");
    drop(daemon);
    drop(tasks);
}

/// As with `LimitFSIZE=` in the unit, or where a file system has a smallest largest file.
#[test]
fn what_may_not_grow_is_no_end() {
    let dir = scratch();
    let limited = |command: &mut Command| {
        let program = command.get_program().to_owned();
        let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        *command = Command::new("prlimit");
        command
            .arg("--fsize=2000000:unlimited")
            .arg(program)
            .args(args);
    };
    let daemon = Daemon::start_in(dir, Mode::Group, "", limited);
    let long = daemon.bash("seq 600000");
    assert_eq!(long.status, 200);
    assert_eq!(long.json()["exit_code"], 0);
    // A command may let its files grow, and ends by the signal where it may not.
    let own = daemon.bash("ulimit -f; (ulimit -f 1; head -c 5000 /dev/zero >big); echo $?");
    assert_eq!(own.stdout(), "unlimited\n153");
}

#[test]
fn a_configuration_without_end_is_refused() {
    let daemon = Daemon::start();
    let before = fs::read_to_string(daemon.dir().join("executor.toml")).expect("text");
    let endless = File::create(daemon.dir().join("executor.toml")).expect("made");
    endless.set_len(1 << 40).expect("sparse");
    wait_until("it is refused", || codes(&daemon) == ["config_invalid"]);
    let health = daemon.get("/health").json();
    let detail = health["problems"][0]["detail"].as_str().expect("text");
    assert!(detail.contains("it is larger than 1 MiB"), "{detail}");
    fs::write(daemon.dir().join("executor.toml"), before).expect("written");
    wait_until("it is valid again", || codes(&daemon).is_empty());
}

/// No watch tells that what could not be read can be.
#[test]
fn what_could_not_be_read_is_read_when_it_can_be() {
    let daemon = Daemon::start();
    let remembered = daemon.dir().join("state/policy.d");
    let events = |kind: &str| {
        let path = format!("/events?follow=false&after=0&type={kind}");
        let events = daemon.get(&path).body;
        String::from_utf8_lossy(&events).matches("event: ").count()
    };
    let _ = fs::remove_dir_all(&remembered);
    fs::write(&remembered, "").expect("in its place");
    daemon.signal(Signal::SIGHUP);
    wait_until("it cannot be read", || codes(&daemon) == ["policy_invalid"]);
    fs::remove_file(&remembered).expect("removed");
    wait_until("it can", || codes(&daemon).is_empty());
    wait_until("that is told", || events("policyReloaded") == 1);
    // However often it was tried: once, or twice where the look behind the start found it as well.
    let told = events("policyRefused");
    assert!((1..=2).contains(&told), "{told}");
    // Who asks for it is told each time.
    fs::write(&remembered, "").expect("in its place");
    for times in 1..3 {
        daemon.signal(Signal::SIGHUP);
        wait_until("it is told again", || {
            events("policyRefused") == told + times
        });
    }
}

fn descriptors(daemon: &Daemon) -> HashSet<u64> {
    let dir = format!("/proc/{}/fd", daemon.pid());
    let taken = fs::read_dir(dir).expect("its descriptors");
    let numbers = taken.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.collect()
}

/// Gives the daemon no descriptor but those that it has, and `more`. Returns the number from which on it gets none.
fn leave_descriptors(daemon: &Daemon, more: usize) -> u64 {
    let taken = descriptors(daemon);
    let mut free = (0..).filter(|number| !taken.contains(number));
    let limit = free.nth(more).expect("one is free");
    limit_descriptors(daemon, limit);
    limit
}

fn limit_descriptors(daemon: &Daemon, limit: u64) {
    let pid = rustix::process::Pid::from_raw(daemon.pid().as_raw());
    let limit = Rlimit {
        current: Some(limit),
        maximum: Some(1024),
    };
    prlimit(pid, Resource::Nofile, limit).expect("limited");
}

#[test]
fn what_is_kept_is_not_told_as_lost_for_want_of_a_descriptor() {
    let daemon = Daemon::start();
    let long = daemon.bash("seq 30000");
    let id = long.json()["execution_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let (record, output) = (
        format!("/executions/{id}"),
        format!("/executions/{id}/output?stream=stdout"),
    );
    let mut connection = daemon.connect();
    let whole = connection.request("GET", &record, &[], b"").json();
    assert_eq!(whole["result"]["content"], long.json()["content"]);
    wait_until("only what is held for good is held", || {
        leave_descriptors(&daemon, 0);
        [&record, &output].iter().all(|path| {
            let reply = connection.request("GET", path, &[], b"");
            assert!(
                matches!(reply.status, 200 | 500),
                "{path}: {}",
                reply.content()
            );
            if reply.status == 500 {
                assert!(
                    reply.content().contains("cannot be read")
                        || reply.content().contains("unable to open"),
                    "{}",
                    reply.content()
                );
            } else if **path == record {
                assert_eq!(reply.json(), whole);
            }
            reply.status == 500
        })
    });
    limit_descriptors(&daemon, 1024);
    assert_eq!(connection.request("GET", &record, &[], b"").json(), whole);
    assert_eq!(connection.request("GET", &output, &[], b"").status, 200);
}

#[test]
fn skills_that_cannot_be_read_for_want_of_a_descriptor_stay_as_they_were() {
    let dir = scratch();
    let skill = dir.join("skills/hello");
    fs::create_dir_all(&skill).expect("created");
    let describe = |word: &str| {
        // With the mark that some editors write.
        let manifest = format!(
            "\u{feff}{{\"name\": \"hello\", \"version\": \"1.0.0\", \"description\": \"Says {word}.\", \
             \"mode\": \"composite\", \"input\": {{\"type\": \"object\"}}, \
             \"steps\": [{{\"tool\": \"bash\", \"parameters\": {{\"command\": \"true\"}}}}]}}"
        );
        fs::write(skill.join("skill.json"), manifest).expect("written");
    };
    describe("hi");
    let daemon = Daemon::start_in(dir, Mode::Group, "", |_| {});
    let mut connection = daemon.connect();
    let mut get = |path: &str| connection.request("GET", path, &[], b"");
    let says = |tool: Reply| tool.json()["description"].clone();
    assert_eq!(says(get("/tools/hello")), "Says hi.");
    wait_until("only what is held for good is held", || {
        leave_descriptors(&daemon, 0);
        describe("there");
        let health = get("/health").json().to_string();
        health.contains("skills stay as they were")
    });
    // It has one of the two, whether or not it could be read once before.
    assert!(says(get("/tools/hello")).is_string());
    limit_descriptors(&daemon, 1024);
    wait_until("it is read", || says(get("/tools/hello")) == "Says there.");
    wait_until("all is well", || codes(&daemon).is_empty());
}

#[test]
fn a_connection_that_took_the_last_descriptor_is_answered_once_there_is_another() {
    let daemon = Daemon::start();
    assert_eq!(daemon.get("/health").status, 200);
    let before = descriptors(&daemon).len();
    leave_descriptors(&daemon, 1);
    let mut connection = daemon.connect();
    connection.send("GET", "/health", &[], b"");
    // It waits for half a second only, so that nothing is waited for here: mostly it is accepted by then.
    let is_accepted = (0..10).any(|_| {
        thread::yield_now();
        descriptors(&daemon).len() > before
    });
    limit_descriptors(&daemon, 1024);
    assert_eq!(connection.reply().status, 200, "{is_accepted}");
}

/// Of many that have one descriptor each and need another, none must wait for the others.
#[test]
fn many_connections_that_take_all_descriptors_give_them_back() {
    let daemon = Daemon::start();
    assert_eq!(daemon.bash("echo warm").status, 200);
    let limit = leave_descriptors(&daemon, 8);
    let free = || {
        let taken = descriptors(&daemon);
        (0..limit).filter(|number| !taken.contains(number)).count()
    };
    let crowd: Vec<_> = (0..30)
        .map(|_| {
            let mut connection = UnixStream::connect(daemon.socket()).expect("connected");
            // It may be closed by now.
            let _ = connection.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
            connection
        })
        .collect();
    wait_until("they take what there is", || free() <= 1);
    drop(crowd);
    wait_until("they have given it back", || free() >= 6);
    limit_descriptors(&daemon, 1024);
    assert_eq!(daemon.get("/health").status, 200);
}

/// Clients beyond them would be cut off without a word, and the operator would look for the reason elsewhere.
#[test]
fn few_descriptors_for_many_connections_are_told() {
    let start = |toml: &str| {
        let few = || {
            let limit = Rlimit {
                current: Some(100),
                maximum: Some(334),
            };
            Ok(rustix::process::setrlimit(Resource::Nofile, limit)?)
        };
        Daemon::start_adjusted(Mode::Group, toml, |command| {
            // SAFETY: a system call and nothing else.
            unsafe { std::os::unix::process::CommandExt::pre_exec(command, few) };
        })
    };
    let told = "raise it (LimitNOFILE=, ulimit -n), or lower max_connections to 30";
    let daemon = start("");
    daemon.wait_until("it is told", || daemon.log().contains(told));
    let daemon = start("max_connections = 30");
    assert!(!daemon.log().contains("LimitNOFILE"), "{}", daemon.log());
}

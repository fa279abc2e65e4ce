//! Skills that come, change and go while the daemon runs, and several versions of one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::json;

use super::approvals::{approve, pending};
use super::skills::{Room, call, done, put_program, refused, write};
use crate::support::{Daemon, Fifo, wait_until};

#[test]
fn skills_come_and_go_without_a_restart() {
    let room = Room::new("");
    let skills = room.dir.join("skills");
    room.program("old", "#!/bin/sh\necho 1\n", json!({}));
    let daemon = room.start();
    assert_eq!(done(&daemon, "old", json!({})), 1);
    put_program(&skills, "new", "#!/bin/sh\necho 2\n", json!({}));
    wait_until("the new one is there", || {
        call(&daemon, "new", json!({})).status == 200
    });
    // One that is broken is told of, with its line; the others are there.
    fs::create_dir_all(skills.join("broken")).expect("created");
    fs::write(
        skills.join("broken/skill.json"),
        "{\n  \"name\": \"broken\",\n  \"colour\": 1\n}",
    )
    .expect("written");
    wait_until("the broken one is told of", || {
        let health = daemon.get("/health").json();
        let problems = health["problems"].to_string();
        health["status"] == "degraded"
            && problems.contains("skill_invalid")
            && problems.contains("skill.json:3")
    });
    assert_eq!(done(&daemon, "old", json!({})), 1);
    fs::remove_dir_all(skills.join("broken")).expect("removed");
    fs::remove_dir_all(skills.join("old")).expect("removed");
    wait_until("they are gone", || {
        call(&daemon, "old", json!({})).status == 404
            && daemon.get("/health").json()["status"] == "ok"
    });
    // Replaced again and again, it is there all the while, and in the end as it was last.
    for n in 0..1000 {
        let manifest = json!({
            "name": "new", "version": format!("1.0.{n}"), "description": "For a test.", "mode": "code",
            "input": {"type": "object"}, "command": ["./run"],
        });
        write(&skills.join("new"), &manifest);
        if n % 100 == 0 {
            assert_eq!(done(&daemon, "new", json!({})), 2);
        }
    }
    wait_until("the last is in force", || {
        daemon.get("/tools/new").json()["version"] == "1.0.999"
    });
}

/// A skill, or all of them, that the daemon may not read are told of, and the others are there.
#[test]
fn what_may_not_be_read_is_told() {
    let room = Room::new("");
    let skills = room.dir.join("skills");
    for name in ["open", "shut"] {
        room.program(name, "#!/bin/sh\necho 1\n", json!({}));
    }
    let set = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("changed");
    };
    set(&skills.join("shut"), 0o000);
    let daemon = Daemon::start_in(room.dir, room.mode, &room.toml, obey_permissions);
    let problem = |path: &Path| {
        let health = daemon.get("/health").json();
        let problem = health["problems"][0].to_string();
        let tells = problem.contains("skill_invalid")
            && problem.contains(&format!("{}: cannot be read: ", path.display()));
        health["status"] == "degraded" && tells
    };
    daemon.wait_until("it is told of", || problem(&skills.join("shut")));
    assert_eq!(done(&daemon, "open", json!({})), 1);
    refused(&daemon, "shut", 404, "unknown_tool");
    set(&skills, 0o000);
    let reload = || {
        daemon.signal(Signal::SIGHUP);
    };
    reload();
    daemon.wait_until("all of it is told of", || problem(&skills));
    refused(&daemon, "open", 404, "unknown_tool");
    assert_eq!(daemon.bash("echo hi").stdout(), "hi");
    set(&skills, 0o755);
    set(&skills.join("shut"), 0o755);
    reload();
    daemon.wait_until("all is well", || {
        daemon.get("/health").json()["status"] == "ok"
            && call(&daemon, "shut", json!({})).status == 200
    });
}

/// Has the command do without what lets root read and enter whatever it likes.
fn obey_permissions(command: &mut Command) {
    // From linux/capability.h.
    const CAP_DAC_OVERRIDE: libc::c_ulong = 1;
    const CAP_DAC_READ_SEARCH: libc::c_ulong = 2;
    // SAFETY: prctl(2) is a system call and nothing else.
    unsafe {
        command.pre_exec(|| {
            for capability in [CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH] {
                // Only root has and can drop them.
                libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
            }
            Ok(())
        });
    }
}

#[test]
fn an_execution_keeps_the_version_it_began_with() {
    let room = Room::new("");
    let skills = room.dir.join("skills");
    let fifo = Fifo::new(room.dir.join("fifo"));
    let script = format!(
        "#!/bin/sh\nread line < {}\necho '{{\"n\": 1}}'\n",
        fifo.path().display()
    );
    let output =
        |kind: &str| json!({"output": {"type": "object", "properties": {"n": {"type": kind}}}});
    room.program("slow", &script, output("integer"));
    let daemon = room.start();
    let id = daemon.connect().request(
        "POST",
        "/execute",
        &[("Prefer", "respond-async")],
        br#"{"name": "slow", "input": {}}"#,
    );
    let id = id.json()["execution_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let pen = fifo.reached();
    let mut other = output("string");
    other["version"] = json!("2.0.0");
    put_program(&skills, "slow", &script, other);
    wait_until("it is replaced", || {
        daemon.get("/tools/slow").json()["version"] == "2.0.0"
    });
    pen.say("on");
    let record = daemon.ended(&id);
    assert_eq!(record["result"]["output"], json!({"n": 1}), "{record}");
}

#[test]
fn several_versions_stand_side_by_side() {
    let room = Room::new("");
    for (dir, version) in [
        ("v@1.2.0", "1.2.0"),
        ("v@1.10.0", "1.10.0"),
        ("v@2.0.0-rc.1", "2.0.0-rc.1"),
    ] {
        let script = format!("#!/bin/sh\necho '\"{version}\"'\n");
        room.program(dir, &script, json!({"name": "v", "version": version}));
    }
    let daemon = room.start();
    assert_eq!(done(&daemon, "v", json!({})), "1.10.0");
    for version in ["1.2.0", "1.10.0", "2.0.0-rc.1"] {
        let answer = daemon
            .post(&json!({"name": "v", "input": {}, "tool_version": version}))
            .json();
        assert_eq!(answer["output"], version, "{answer}");
        let shown = daemon.get(&format!("/tools/v?version={version}")).json();
        assert_eq!(shown["version"], version);
        assert_eq!(shown["versions"], json!(["1.10.0", "1.2.0", "2.0.0-rc.1"]));
    }
    let listed = daemon.get("/tools").json();
    let named = listed
        .as_array()
        .expect("a list")
        .iter()
        .filter(|tool| tool["name"] == "v");
    assert_eq!(named.count(), 1);
}

/// What was approved is the skill as it was, on disk and in the registry.
#[test]
fn a_skill_that_changes_is_not_what_was_approved() {
    let room = Room::new("[confirmation]\nself_approval = true\n");
    let marker = room.dir.join("marker");
    room.program("asks", "#!/bin/sh\necho 1\n", json!({}));
    fs::write(
        room.dir.join("policy.toml"),
        "default = \"allow\"\nask = [\"asks\"]\n",
    )
    .expect("written");
    let program = room.dir.join("skills/asks/run");
    let daemon = room.start();
    let begin = || {
        let call = json!({"name": "asks", "input": {}}).to_string();
        let headers = [("Prefer", "respond-async")];
        let begun = daemon
            .connect()
            .request("POST", "/execute", &headers, call.as_bytes());
        begun.json()["execution_id"]
            .as_str()
            .expect("an id")
            .to_owned()
    };
    let (unchanged, first) = (begin(), pending(&daemon));
    approve(&daemon, &first);
    assert_eq!(daemon.ended(&unchanged)["result"]["output"], 1);
    let (changed, second) = (begin(), pending(&daemon));
    let script = format!("#!/bin/sh\ntouch {}\n", marker.display());
    fs::write(&program, script).expect("written");
    approve(&daemon, &second);
    let result = daemon.ended(&changed)["result"].clone();
    assert_eq!(result["code"], "approval_stale", "{result}");
    assert!(!marker.exists());
}

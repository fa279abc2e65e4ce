//! A ledger whose disk is full.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::json;

use super::history::{list, summaries};
use super::keys::keyed;
use super::{approvals, blocked, call, hooks, release};
use crate::support::{Daemon, Reply, scratch, skip, wait_to_equal};

/// A file system of its own for the state directory, so small that it can be filled.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` where nothing can be mounted.
    fn mount(dir: &Path, mebibytes: u32) -> Option<Self> {
        fs::create_dir(dir).expect("ours");
        let mounted = Command::new("mount")
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={mebibytes}m,mode=0700"),
                "none",
            ])
            .arg(dir)
            .output();
        if mounted.is_ok_and(|mounted| mounted.status.success()) {
            return Some(Self(dir.to_owned()));
        }
        skip("a disk that is full, which takes root to mount one");
        None
    }

    fn fill(&self) {
        let mut file = fs::File::create(self.0.join("fill")).expect("room");
        for length in [64 * 1024, 1] {
            while file.write_all(&vec![b'x'; length]).is_ok() {}
        }
    }

    fn free(&self) {
        fs::remove_file(self.0.join("fill")).expect("ours");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The daemon may still be using it.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
        // Whoever would have removed it with all the rest came across a file system.
        if let Some(scratch) = self.0.parent() {
            let _ = fs::remove_dir_all(scratch);
        }
    }
}

/// A daemon whose disk can be filled, and that disk, which is to go last; `None` where nothing can be mounted.
fn on_small_disk(audit: &str) -> Option<(SmallDisk, Daemon)> {
    on_disk(4, audit)
}

/// The same on one of this size.
fn on_disk(mebibytes: u32, audit: &str) -> Option<(SmallDisk, Daemon)> {
    let dir = scratch();
    let disk = SmallDisk::mount(&dir.join("state"), mebibytes)?;
    let toml = format!("[cgroup]\nmode = \"group\"\n[ledger]\naudit = \"{audit}\"\n");
    fs::write(dir.join("executor.toml"), toml).expect("ours");
    Some((disk, Daemon::launch(dir, None, |_| {})))
}

fn wait_for_the_reserve(daemon: &Daemon, disk: &SmallDisk) {
    daemon.wait_until("there is room in reserve", || {
        let reserve = fs::metadata(disk.0.join("ledger.db-reserve"));
        reserve.is_ok_and(|reserve| reserve.len() == 4 << 20)
    });
}

#[test]
fn what_cannot_be_recorded_runs_or_does_not_as_configured() {
    for audit in ["required", "best_effort"] {
        let Some((disk, daemon)) = on_small_disk(audit) else {
            return;
        };
        assert_eq!(daemon.bash("echo before").status, 200);
        // With its words: nothing is left to be written when the disk is full.
        daemon.wait_until("it is on file", || {
            summaries(&list(&daemon, "text=before")).len() == 1
        });
        disk.fill();
        // The log has its room already: what is there is safe, and that the ledger has none for it is found
        // behind the answer, unless something else has found it before.
        let safe = daemon.bash("echo safe");
        if audit == "best_effort" || safe.json()["code"] != "audit_unavailable" {
            assert_eq!(safe.status, 200, "{}", safe.content());
        }
        wait_to_equal("its code", json!("ledger_full"), || {
            daemon.get("/health").json()["problems"][0]["code"].clone()
        });
        let marker = daemon.dir().join("marker");
        let body = call(&format!(
            "touch {}; : {}",
            marker.display(),
            "x".repeat(20_000)
        ));
        let full = daemon.post(&body);
        if audit == "required" {
            assert_eq!(
                (full.status, &full.json()["code"]),
                (503, &json!("audit_unavailable"))
            );
            assert!(!marker.exists());
        } else {
            assert_eq!(full.status, 200, "{}", full.content());
            assert!(marker.exists());
        }
        let health = daemon.get("/health").json();
        assert_eq!(
            (&health["status"], &health["problems"][0]["code"]),
            (&json!("degraded"), &json!("ledger_full"))
        );
        let cleared = daemon.connect().request("DELETE", "/executions", &[], b"");
        assert_eq!(
            (cleared.status, &cleared.json()["code"]),
            (503, &json!("audit_unavailable"))
        );
        disk.free();
        daemon.wait_until("all is well", || {
            daemon.get("/health").json()["status"] == "ok"
        });
        assert_eq!(daemon.bash("echo after").status, 200);
        let known = summaries(&list(&daemon, ""));
        // Where something else has found the disk full before it, a call is refused at the door and
        // no execution.
        let is_execution = |reply: &&Reply| reply.json()["execution_id"].is_string();
        assert!(
            is_execution(&&full) || audit == "required",
            "{}",
            full.json()
        );
        let expected = 2 + [&safe, &full].into_iter().filter(is_execution).count();
        assert_eq!(known.len(), expected, "{audit}: {known:?}");
        assert_eq!(daemon.get("/audit/verify").json()["intact"], true);
    }
}

/// Whoever clears up is to have the tool for it, also after a reboot.
#[test]
fn a_daemon_starts_on_a_full_disk() {
    let Some((disk, mut daemon)) = on_disk(80, "best_effort") else {
        return;
    };
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        wait_for_the_reserve(&daemon, &disk);
        let before = daemon.bash("echo before").json()["execution_id"].take();
        let killed = signal == Signal::SIGKILL;
        // Nobody tells its end: a start has to settle it.
        let open = killed.then(|| daemon.begin("sleep 600", &json!({})));
        daemon.signal(signal);
        daemon.wait();
        disk.fill();
        daemon = daemon.restart();
        assert!(daemon.log().contains("is given up") || !killed);
        let before = before.as_str().expect("an id");
        assert_eq!(daemon.ended(before)["status"], "success", "{signal}");
        if let Some(open) = open {
            assert_eq!(daemon.ended(&open)["status"], "lost");
        }
        let clear = format!("rm {}", disk.0.join("fill").display());
        assert_eq!(daemon.bash(&clear).status, 200, "{signal}");
        daemon.wait_until("all is well", || {
            daemon.get("/health").json()["status"] == "ok"
        });
    }
}

/// What is on file can be read, and who is told that nothing has run may do it all again.
#[test]
fn what_has_run_under_a_key_is_repeated_though_nothing_can_be_recorded() {
    for audit in ["required", "best_effort"] {
        let Some((disk, daemon)) = on_small_disk(audit) else {
            return;
        };
        let marker = daemon.dir().join("marker");
        let body = call(&format!("echo ran >>{}", marker.display()));
        let first = keyed(&daemon, "k", &body);
        assert_eq!(first.status, 200, "{}", first.content());
        disk.fill();
        daemon.bash("echo found");
        wait_to_equal("its code", json!("ledger_full"), || {
            daemon.get("/health").json()["problems"][0]["code"].clone()
        });
        assert_eq!(keyed(&daemon, "k", &body).json(), first.json(), "{audit}");
        let other = keyed(&daemon, "k", &call("echo other"));
        assert_eq!(
            (other.status, &other.json()["code"]),
            (409, &json!("idempotency_conflict"))
        );
        let new = keyed(&daemon, "new", &body);
        assert_eq!(
            (new.status, &new.json()["code"]),
            (503, &json!("audit_unavailable"))
        );
        assert!(new.content().contains("was not run"), "{}", new.content());
        assert_eq!(fs::read_to_string(&marker).expect("written"), "ran\n");
    }
}

/// Nor is it forgotten by a daemon that is killed before there is room.
#[test]
fn what_was_answered_under_a_key_on_a_full_disk_is_known_after_a_kill() {
    for audit in ["required", "best_effort"] {
        let Some((disk, mut daemon)) = on_small_disk(audit) else {
            return;
        };
        let marker = daemon.dir().join("marker");
        let (script, fifo) = blocked(&daemon, "go");
        let body = call(&format!(
            "echo ran >>{}; {script}; echo hi",
            marker.display()
        ));
        let first = std::thread::scope(|scope| {
            let first = scope.spawn(|| keyed(&daemon, "k", &body));
            daemon.wait_until("it runs", || marker.exists());
            disk.fill();
            release(&fifo, "on");
            first.join().expect("answered")
        });
        assert_eq!(first.status, 200, "{}", first.content());
        let id = first.json()["execution_id"].clone();
        let path = format!("/executions/{}", id.as_str().expect("an id"));
        assert_eq!(daemon.get(&path).json()["status"], "success");
        daemon.signal(Signal::SIGKILL);
        daemon.wait();
        // A start takes some room.
        disk.free();
        let daemon = daemon.restart();
        assert_eq!(daemon.get(&path).json()["status"], "success", "{audit}");
        assert_eq!(keyed(&daemon, "k", &body).json(), first.json(), "{audit}");
        assert_eq!(fs::read_to_string(&marker).expect("written"), "ran\n");
    }
}

/// Nothing ran, and the caller was told to come again.
#[test]
fn a_key_is_good_for_another_try_of_what_could_not_be_recorded() {
    let dir = scratch();
    let Some(disk) = SmallDisk::mount(&dir.join("state"), 4) else {
        return;
    };
    let hook = format!("until [ -e go ]; do sleep 0.02; done; {}", hooks::ALLOW);
    let hooks = [("gate", "before = \"permission\"", hook.as_str())];
    let toml = "[cgroup]\nmode = \"group\"\n[ledger]\naudit = \"required\"\n";
    fs::write(dir.join("executor.toml"), hooks::tables(&hooks) + toml).expect("ours");
    hooks::write_scripts(&dir, &hooks);
    let daemon = Daemon::launch(dir, None, |_| {});
    let marker = daemon.dir().join("marker");
    let body = call(&format!("echo ran >>{}", marker.display()));

    let first = std::thread::scope(|scope| {
        let first = scope.spawn(|| keyed(&daemon, "k", &body));
        daemon.wait_until("it is on record", || {
            summaries(&list(&daemon, "status=running")).len() == 1
        });
        disk.fill();
        fs::write(daemon.dir().join("go"), "").expect("written");
        first.join().expect("answered")
    });
    assert_eq!(
        (first.status, &first.json()["code"]),
        (503, &json!("audit_unavailable"))
    );
    assert!(!marker.exists());

    disk.free();
    daemon.wait_until("all is well", || {
        daemon.get("/health").json()["status"] == "ok"
    });
    let second = keyed(&daemon, "k", &body);
    assert_eq!(second.status, 200, "{}", second.content());
    assert_eq!(keyed(&daemon, "k", &body).json(), second.json());
    assert_eq!(fs::read_to_string(&marker).expect("written"), "ran\n");
    assert_eq!(list(&daemon, "status=running")["executions"], json!([]));
}

/// More than is kept for when the disk is back: what became of them is, though not all of their texts are.
#[test]
fn what_ended_while_the_disk_was_full_has_ended() {
    let Some((disk, daemon)) = on_disk(300, "best_effort") else {
        return;
    };
    disk.fill();
    let ids: Vec<String> = (0..70)
        .map(|_| {
            let reply = daemon.bash("head -c 1200000 /dev/zero | tr '\\0' x");
            assert_eq!(reply.status, 200);
            let id = reply.json()["execution_id"].take();
            id.as_str().expect("an id").to_owned()
        })
        .collect();
    let all_succeeded = || {
        for id in &ids {
            let record = daemon.get(&format!("/executions/{id}")).json();
            assert_eq!(record["status"], "success", "{id}: {record}");
        }
    };
    all_succeeded();
    disk.free();
    daemon.wait_until("all is well", || {
        daemon.get("/health").json()["status"] == "ok"
    });
    all_succeeded();
    assert_eq!(list(&daemon, "status=running")["executions"], json!([]));
    assert_eq!(daemon.get("/audit/verify").json()["intact"], true);
}

/// That nobody asks any more is on record as soon as the disk is back, or somebody could still be asked.
#[test]
fn a_question_that_ends_while_the_disk_is_full_is_not_asked_any_more() {
    let dir = scratch();
    let Some(disk) = SmallDisk::mount(&dir.join("state"), 4) else {
        return;
    };
    let toml = "[cgroup]\nmode = \"group\"\n[ledger]\naudit = \"best_effort\"\n[confirmation]\nself_approval = true\n";
    fs::write(dir.join("executor.toml"), toml).expect("ours");
    fs::write(dir.join("policy.toml"), "default = \"ask\"\n").expect("ours");
    let daemon = Daemon::launch(dir, None, |_| {});
    let id = daemon.begin("true", &json!({}));
    let asked = approvals::pending(&daemon);
    disk.fill();
    let cancelled = daemon
        .connect()
        .request("DELETE", &format!("/executions/{id}"), &[], b"");
    assert!(cancelled.status < 300, "{}", cancelled.content());
    assert_eq!(daemon.ended(&id)["status"], "cancelled");
    disk.free();
    daemon.wait_until("nobody is asked", || {
        approvals::approvals(&daemon, "").is_empty()
    });
    let answer = approvals::answer(&daemon, &asked, &json!({"decision": "approve"}));
    assert_eq!(answer.status, 409, "{}", answer.content());
    assert_eq!(daemon.get("/audit/verify").json()["intact"], true);
}

/// Whoever restarts a daemon because its disk is full loses nothing that was answered.
#[test]
fn what_ended_while_the_disk_was_full_is_known_after_a_stop() {
    let Some((disk, mut daemon)) = on_disk(80, "best_effort") else {
        return;
    };
    wait_for_the_reserve(&daemon, &disk);
    disk.fill();
    let reply = daemon.bash("seq 20000");
    assert_eq!(reply.status, 200, "{}", reply.content());
    let id = reply.json()["execution_id"].take();
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    disk.free();
    daemon = daemon.restart();
    let record = daemon.ended(id.as_str().expect("an id"));
    assert_eq!(record["status"], "success", "{record}");
    assert_eq!(daemon.get("/audit/verify").json()["intact"], true);
}

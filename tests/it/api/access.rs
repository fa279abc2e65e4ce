//! Who may do what, asked by other users. Each of them is a thread of this process: credentials
//! are a thread's own (credentials(7)), and what the daemon is told are those of the thread that
//! connected.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread;

use serde_json::{Value, json};

use super::approvals_meanwhile::reconfigure;
use super::{begin, blocked, call};
use crate::support::openapi::DOCUMENT;
use crate::support::{Daemon, Events, Mode, Reply, skip};

/// Ids that nobody has.
const USER: u32 = 64_201;
const OTHER: u32 = 64_202;
const GROUP: u32 = 64_210;

#[derive(Clone, Copy)]
pub struct Who<'a> {
    uid: u32,
    gid: u32,
    groups: &'a [u32],
}

/// A user whose primary group has the same number, and no others.
pub fn user(uid: u32) -> Who<'static> {
    Who {
        uid,
        gid: uid,
        groups: &[],
    }
}

/// A daemon whose socket everybody can connect to; `None` where nobody can become another.
pub fn start(toml: &str) -> Option<Daemon> {
    if !nix::unistd::geteuid().is_root() {
        skip("access by other users, which takes root to become one");
        return None;
    }
    let daemon = Daemon::start_with(Mode::Group, toml);
    fs::set_permissions(daemon.dir(), fs::Permissions::from_mode(0o755)).expect("ours");
    fs::set_permissions(daemon.socket(), fs::Permissions::from_mode(0o666)).expect("ours");
    Some(daemon)
}

/// Does something as somebody else.
pub fn by<T: Send>(who: Who<'_>, work: impl FnOnce() -> T + Send) -> T {
    let become_them = move || {
        // SAFETY: the system calls as such change this thread only, and read `groups` while they
        // run; the C library's wrappers would change every thread.
        let results = unsafe {
            [
                libc::syscall(libc::SYS_setgroups, who.groups.len(), who.groups.as_ptr()),
                libc::syscall(libc::SYS_setresgid, who.gid, who.gid, who.gid),
                libc::syscall(libc::SYS_setresuid, who.uid, who.uid, who.uid),
            ]
        };
        assert_eq!(results, [0, 0, 0]);
    };
    thread::scope(|scope| {
        let thread = scope.spawn(move || {
            become_them();
            work()
        });
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn ask(daemon: &Daemon, who: Who<'_>, method: &str, path: &str) -> Reply {
    by(who, || daemon.connect().request(method, path, &[], b""))
}

fn run(daemon: &Daemon, who: Who<'_>) -> Reply {
    by(who, || daemon.bash("echo x"))
}

#[track_caller]
fn assert_denied(reply: &Reply) {
    assert_eq!(
        (reply.status, &reply.json()["code"]),
        (403, &json!("access_denied"))
    );
}

#[test]
fn callers_are_admitted_by_user_and_by_each_of_their_groups() {
    let toml = format!("[access]\ncallers = [\"user:{USER}\", \"group:{GROUP}\"]");
    let Some(daemon) = start(&toml) else { return };
    for who in [
        user(USER),
        Who {
            gid: GROUP,
            ..user(OTHER)
        },
        Who {
            groups: &[1, GROUP, 7],
            ..user(OTHER)
        },
        // The daemon's own user needs no list.
        user(0),
    ] {
        let reply = run(&daemon, who);
        assert_eq!(reply.stdout(), "x");
        let record = ask(
            &daemon,
            who,
            "GET",
            &format!(
                "/executions/{}",
                reply.json()["execution_id"].as_str().expect("an id")
            ),
        );
        assert_eq!(record.json()["caller_uid"], who.uid);
    }
    // More groups than are asked for at first.
    let many: Vec<u32> = (70_000..70_200).chain([GROUP]).collect();
    assert_eq!(
        run(
            &daemon,
            Who {
                groups: &many,
                ..user(OTHER)
            }
        )
        .status,
        200
    );
    for who in [
        user(OTHER),
        // A user's number is no group's.
        Who {
            gid: USER,
            ..user(OTHER)
        },
        Who {
            gid: 1,
            ..user(GROUP)
        },
        Who {
            groups: &[1, 7],
            ..user(OTHER)
        },
    ] {
        let reply = run(&daemon, who);
        assert_denied(&reply);
        let detail = reply.json()["detail"].clone();
        let told = detail.as_str().expect("a text");
        assert!(
            told.contains(&who.uid.to_string()) && told.contains("[access]"),
            "{told}"
        );
    }
    assert_eq!(daemon.get("/health").json()["running"], 0);
}

#[test]
fn credentials_are_those_of_the_connection() {
    let toml = format!("[access]\ncallers = [\"user:{USER}\"]");
    let Some(daemon) = start(&toml) else { return };
    // Handed over, a connection stays what it was when it was made.
    let mut connection = by(user(OTHER), || daemon.connect());
    assert_denied(&connection.request("GET", "/tools", &[], b""));
    let mut connection = by(user(USER), || daemon.connect());
    assert_eq!(connection.request("GET", "/tools", &[], b"").status, 200);
}

#[test]
fn a_caller_sees_its_own_and_an_admin_all() {
    let toml = format!(
        "[access]\ncallers = [\"user:{USER}\", \"user:{OTHER}\"]\nadmins = [\"group:{GROUP}\"]"
    );
    let Some(daemon) = start(&toml) else { return };
    let admin = Who {
        groups: &[GROUP],
        ..user(64_203)
    };
    let (script, fifo) = blocked(&daemon, "go");
    let id = by(user(USER), || begin(&daemon, &script));
    let record = format!("/executions/{id}");
    let output = format!("/executions/{id}/output?stream=stdout");
    let unknown = ask(
        &daemon,
        user(USER),
        "GET",
        "/executions/0198c0de-0000-7000-8000-000000000000",
    )
    .json();
    for (method, path) in [("GET", &record), ("GET", &output), ("DELETE", &record)] {
        let reply = ask(&daemon, user(OTHER), method, path);
        assert_eq!(reply.status, 404, "{method} {path}");
        // In every word like one that is not there.
        let told = reply
            .json()
            .to_string()
            .replace(&id, "0198c0de-0000-7000-8000-000000000000");
        assert_eq!(told, unknown.to_string());
    }
    for who in [user(USER), admin, user(0)] {
        let seen = ask(&daemon, who, "GET", &record).json();
        assert_eq!(
            (&seen["status"], &seen["caller_uid"]),
            (&json!("running"), &json!(USER))
        );
        assert_eq!(ask(&daemon, who, "GET", &output).status, 200);
    }
    // An admin runs things too, which only admins see besides.
    let admins = run(&daemon, admin).json()["execution_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    assert_eq!(
        ask(&daemon, user(USER), "GET", &format!("/executions/{admins}")).status,
        404
    );
    let cancelled = ask(&daemon, admin, "DELETE", &record);
    assert_eq!(cancelled.json()["status"], "cancelled");
    // Its owner can cancel as well.
    let (script, _never) = blocked(&daemon, "never");
    let id = by(user(USER), || begin(&daemon, &script));
    let cancelled = ask(&daemon, user(USER), "DELETE", &format!("/executions/{id}"));
    assert_eq!(cancelled.json()["status"], "cancelled");
    drop(fifo);
}

#[test]
fn every_route_that_says_so_turns_strangers_away_and_no_other() {
    let Some(daemon) = start("") else { return };
    let paths = DOCUMENT["paths"].as_object().expect("paths");
    let mut turned_away = 0;
    for (path, item) in paths {
        for (method, operation) in item.as_object().expect("operations") {
            let guarded = operation["responses"]["403"].is_object();
            let target = path
                .replace("{name}", "bash")
                .replace("{id}", "0198c0de-0000-7000-8000-000000000000")
                .replace("/events", "/events?follow=false");
            let reply = ask(&daemon, user(USER), &method.to_uppercase(), &target);
            if guarded {
                assert_denied(&reply);
                turned_away += 1;
            } else {
                assert_eq!(reply.status, 200, "{method} {target}");
            }
            // Refused or not, the daemon's own user is let through to the handler.
            let own = daemon
                .connect()
                .request(&method.to_uppercase(), &target, &[], b"");
            assert_ne!(own.status, 403, "{method} {target}");
        }
    }
    assert!(turned_away >= 6, "{turned_away}");
    // Strangers are told no more than that: not what there is, nor what was wrong.
    let body = by(user(USER), || daemon.post(&json!({"nonsense": 1})));
    assert_denied(&body);
    assert_denied(&ask(&daemon, user(USER), "GET", "/executions/nonsense"));
}

#[test]
fn a_stranger_runs_nothing_asynchronously_either() {
    let Some(daemon) = start("") else { return };
    let marker = daemon.dir().join("ran");
    let body = call(&format!("touch {}", marker.display())).to_string();
    for header in [("Prefer", "respond-async"), ("Accept", "text/event-stream")] {
        let reply = by(user(USER), || {
            daemon
                .connect()
                .request("POST", "/execute", &[header], body.as_bytes())
        });
        assert_denied(&reply);
        assert_eq!(reply.json()["execution_id"], Value::Null);
    }
    assert!(!marker.exists());
}

#[test]
fn who_is_no_admin_any_more_hears_no_more_of_others() {
    let toml = |admins: &str| {
        format!(
            "[cgroup]\nmode = \"group\"\n[access]\ncallers = [\"user:{USER}\"]\nadmins = [{admins}]\n"
        )
    };
    let admin = format!("\"user:{USER}\"");
    let Some(daemon) = start(&toml(&admin).replace("[cgroup]\nmode = \"group\"\n", "")) else {
        return;
    };
    let listen = || by(user(USER), || Events::get(&daemon, "/events"));
    let run = || {
        daemon.bash("true").json()["execution_id"]
            .as_str()
            .expect("an id")
            .to_owned()
    };
    let has = |heard: &[crate::support::Event], id: &str| {
        heard
            .iter()
            .any(|event| event.data.to_string().contains(id))
    };
    let events = listen();
    let before = run();
    reconfigure(&daemon, &toml(""));
    let after = run();
    // It ends, and whoever listens again hears of themselves.
    let heard = events.rest();
    assert!(has(&heard, &before) && !has(&heard, &after), "{heard:?}");
    let mut events = listen();
    let (other, own) = (run(), by(user(USER), run));
    let heard: Vec<_> = events.by_ref().take(3).collect();
    assert!(has(&heard, &own) && !has(&heard, &other), "{heard:?}");
}

//! What an admin has had forgotten is gone when the answer says so, and after a daemon that was killed on the way.

use std::fs;
use std::thread;

use nix::sys::signal::Signal;
use serde_json::json;

use super::history::spooled;
use crate::support::{Daemon, wait_until};

/// Whoever reads it meanwhile gets all of it, or hears that it is gone.
#[test]
fn what_is_forgotten_while_it_is_read_is_read_or_unknown() {
    let daemon = Daemon::start();
    for _ in 0..100 {
        let ids: Vec<String> = (0..3)
            .map(|_| daemon.bash("seq 9000").json()["execution_id"].clone())
            .map(|id| id.as_str().expect("an id").to_owned())
            .collect();
        thread::scope(|scope| {
            for id in &ids {
                let daemon = &daemon;
                scope.spawn(move || {
                    loop {
                        for path in [
                            format!("/executions/{id}"),
                            format!("/executions/{id}/output?stream=stdout"),
                        ] {
                            let reply = daemon.get(&path);
                            if reply.status == 404 {
                                assert_eq!(reply.json()["code"], "unknown_execution", "{path}");
                                return;
                            }
                            assert_eq!(reply.status, 200, "{path}");
                            let text = String::from_utf8_lossy(&reply.body).into_owned();
                            assert!(
                                text.contains("8999") && text.contains("9000"),
                                "{path}: {}",
                                &text[..text.len().min(1000)]
                            );
                        }
                    }
                });
            }
            daemon.connect().request("DELETE", "/executions", &[], b"");
        });
    }
}

#[test]
fn outputs_go_with_their_executions() {
    let mut daemon = Daemon::start();
    for _ in 0..20 {
        daemon.bash("seq 4000");
    }
    let before = spooled(&daemon);
    assert_eq!(before.len(), 20);
    let cleared = daemon.connect().request("DELETE", "/executions", &[], b"");
    assert_eq!(
        (cleared.json(), spooled(&daemon)),
        (json!({"deleted": 20}), vec![])
    );

    // As when it is killed before they are removed, with nothing else in the spool that its ledger knows.
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    for name in before {
        fs::write(daemon.dir().join("state/spool").join(name), "text").expect("written");
    }
    let daemon = daemon.restart();
    wait_until("they are gone", || spooled(&daemon).is_empty());
}

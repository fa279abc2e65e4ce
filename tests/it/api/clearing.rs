//! What an admin has had forgotten is gone when the answer says so, and after a daemon that was killed on the way.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::json;

use super::history::spooled;
use crate::support::{Daemon, wait_until};

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

//! Scripts that are hard to read for the policy: what they take of the daemon.

use std::thread;

use serde_json::{Value, json};

use crate::support::{Daemon, bash_call, wait_until};

const POLICY: &str = "default = \"allow\"\ndeny = [\"bash(command:marker*)\"]\n";

fn judged(daemon: &Daemon, script: &str) -> Value {
    let body = bash_call(script, &json!({})).to_string();
    let mut connection = daemon.connect();
    let reply = connection.request("POST", "/permissions/explain", &[], body.as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.json());
    reply.json()
}

fn denies(daemon: &Daemon) {
    let judged = judged(daemon, "for f in *; do marker \"$f\"; done");
    assert_eq!(judged["verdict"], "deny", "{judged}");
}

/// As long as may be read, and of what takes the longest or the most memory for its length.
fn long_scripts() -> Vec<String> {
    let fill = |piece: &str| piece.repeat(65_000 / piece.len());
    [
        "(a $b)\n",
        "a $b c $d\n",
        "a;",
        "\\a",
        "a=(b)\n",
        "$a",
        "'a'\"b\"",
        "$(a)",
        "((a;",
        "a<b ",
        "x=$(cat <<  E) ",
        "cat <<$[  1] ",
        "eval 'a b'\n",
        "sudo env a ",
        "[[ a =~ (b) ]]\n",
    ]
    .map(fill)
    .to_vec()
}

#[test]
fn long_scripts_keep_nobody_else_waiting_and_no_memory() {
    const MOST: u64 = 256 << 20;
    let daemon = Daemon::start_under(POLICY, "");
    denies(&daemon);
    let scripts = long_scripts();
    let before = daemon.reset_peak();
    for _ in 0..2 {
        // More than are read at once.
        thread::scope(|scope| {
            let judging: Vec<_> = scripts
                .iter()
                .map(|script| scope.spawn(|| judged(&daemon, script)))
                .collect();
            for one in judging {
                let judged = one.join().expect("judged");
                assert!(judged["verdict"] != "deny", "{judged}");
            }
        });
        denies(&daemon);
    }
    let peak = daemon.memory("VmHWM");
    assert!(peak < before + MOST, "{before} to {peak}");
    // What it took goes back to the system when nothing happens.
    wait_until("the memory is given back", || {
        daemon.memory("VmRSS") < before + (16 << 20)
    });
    let threads = daemon.status("Threads");
    assert_eq!(
        daemon.bash("for i in 1; do echo done; done").stdout(),
        "done"
    );
    denies(&daemon);
    assert!(daemon.status("Threads") <= threads + 2, "{threads}");
}

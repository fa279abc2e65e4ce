//! Two hundred clients that hang up at once, at every stage of a call, and leave nothing behind.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{Connection, Daemon, Fifo, Mode, bash_call, wait_until};

const CLIENTS: usize = 200;

const STREAM: &[(&str, &str)] = &[("Accept", "text/event-stream")];

/// Runs until it is ended, in two sessions, after saying so in `file`.
fn long_command(file: &Path) -> String {
    format!(
        "setsid sleep 600 & sleep 600 & echo $SHELLY_EXECUTION_ID >{0}.new; mv {0}.new {0}; echo here; wait",
        file.display()
    )
}

/// Files that commands write, one for each client.
fn markers(daemon: &Daemon, stage: &str) -> Vec<PathBuf> {
    let dir = daemon.dir().join(stage);
    fs::create_dir(&dir).expect("a directory");
    (0..CLIENTS)
        .map(|number| dir.join(number.to_string()))
        .collect()
}

fn execute(connection: &mut Connection, command: &str, headers: &[(&str, &str)]) {
    let body = bash_call(command, &json!({})).to_string();
    connection.send("POST", "/execute", headers, body.as_bytes());
}

fn connect(daemon: &Daemon) -> Vec<Connection> {
    (0..CLIENTS).map(|_| daemon.connect()).collect()
}

/// The record of the execution that wrote `marker`.
fn record(daemon: &Daemon, marker: &Path) -> Value {
    let id = fs::read_to_string(marker).expect("an id");
    daemon.ended(id.trim())
}

#[track_caller]
fn assert_disconnected(daemon: &Daemon, mode: Mode, marker: &Path) {
    let record = record(daemon, marker);
    assert_eq!(record["status"], "cancelled", "{mode:?}: {record}");
    let kill = &record["result"]["kill"];
    assert_eq!(kill["reason"], "disconnect", "{mode:?}: {record}");
    // Side by side in process groups nobody can vouch for nobody else being there.
    assert!(
        kill["survivors"] == 0 || (mode == Mode::Group && kill["survivors"].is_null()),
        "{record}"
    );
}

#[test]
fn before_the_body_is_complete() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        let baseline = daemon.baseline();
        let mut clients = connect(&daemon);
        for (number, client) in clients.iter_mut().enumerate() {
            let head = "POST /execute HTTP/1.1\r\nHost: shelly\r\nContent-Length: 1000\r\n";
            // Some in the middle of the headers, some before the body, some within it.
            client.write(
                match number % 3 {
                    0 => head.as_bytes().to_vec(),
                    1 => format!("{head}\r\n").into_bytes(),
                    _ => format!("{head}\r\n{{\"name\": \"bash\", \"input\"").into_bytes(),
                }
                .as_slice(),
            );
        }
        drop(clients);
        daemon.wait_clean(&baseline);
    }
}

#[test]
fn over_the_limit_of_connections() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "kill_grace_ms = 100\nmax_connections = 20");
        let baseline = daemon.baseline();
        let files = markers(&daemon, "over");
        let mut clients = connect(&daemon);
        for (client, file) in clients.iter_mut().zip(&files) {
            execute(client, &long_command(file), &[]);
        }
        let begun = || files.iter().filter(|file| file.exists()).count();
        wait_until("all that may have begun", || begun() == 20);
        drop(clients);
        wait_until("the daemon has places again", || {
            daemon.connect().request("GET", "/health", &[], b"").status == 200
        });
        daemon.wait_clean(&baseline);
        assert_eq!(
            begun(),
            20,
            "{mode:?}: nobody was begun for a client that was gone"
        );
    }
}

#[test]
fn while_the_command_runs() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "kill_grace_ms = 100");
        let baseline = daemon.baseline();
        let files = markers(&daemon, "running");
        let mut clients = connect(&daemon);
        for (client, file) in clients.iter_mut().zip(&files) {
            execute(client, &long_command(file), &[]);
            // A second request on the same connection, which waits for the first.
            execute(client, &format!("touch {}.second", file.display()), &[]);
        }
        wait_until("all run", || files.iter().all(|file| file.exists()));
        drop(clients);
        daemon.wait_clean(&baseline);
        for file in &files {
            assert_disconnected(&daemon, mode, file);
            assert!(!file.with_extension("second").exists(), "{mode:?}");
        }
    }
}

#[test]
fn while_the_output_is_streamed() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "kill_grace_ms = 100\nmax_output_bytes = 100000");
        let baseline = daemon.baseline();
        let files = markers(&daemon, "streaming");
        let mut clients = connect(&daemon);
        for (number, (client, file)) in clients.iter_mut().zip(&files).enumerate() {
            let command = long_command(file);
            // Some have nothing to read any more, to some is written faster than they read.
            let command = match number % 20 {
                0 => command.replace("wait", "yes"),
                _ => command,
            };
            execute(client, &command, STREAM);
        }
        for client in &mut clients {
            assert_eq!(client.reply_head().status, 200);
            let mut events = Vec::new();
            while !String::from_utf8_lossy(&events).contains("here") {
                events.extend(client.chunk().expect("an event"));
            }
        }
        drop(clients);
        daemon.wait_clean(&baseline);
        for file in &files {
            assert_disconnected(&daemon, mode, file);
        }
    }
}

/// The execution has ended by itself; what is lost is the answer, and the record has it.
#[test]
fn while_the_answer_is_read() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "max_output_bytes = 250000");
        let baseline = daemon.baseline();
        let files = markers(&daemon, "reading");
        let mut clients = connect(&daemon);
        for (number, (client, file)) in clients.iter_mut().zip(&files).enumerate() {
            let command = format!(
                "echo $SHELLY_EXECUTION_ID >{}; head -c 400000 /dev/zero | tr '\\0' x",
                file.display()
            );
            execute(client, &command, if number % 2 == 0 { &[] } else { STREAM });
        }
        for client in &mut clients {
            // More than a socket takes at once is still to come.
            assert_eq!(client.reply_head().status, 200);
        }
        // A stream's head comes before the command says anything.
        let is_named = |file: &PathBuf| fs::read(file).is_ok_and(|id| id.ends_with(b"\n"));
        wait_until("all have begun", || files.iter().all(is_named));
        drop(clients);
        daemon.wait_clean(&baseline);
        // They are large, so not all of them.
        for (number, file) in files.iter().enumerate().step_by(39) {
            let record = record(&daemon, file);
            // A stream may have been left before the command had written everything.
            let allowed = if number % 2 == 0 {
                &["success"][..]
            } else {
                &["success", "cancelled"]
            };
            assert!(
                allowed.contains(&record["status"].as_str().expect("text")),
                "{mode:?}: {record}"
            );
            if record["status"] == "success" {
                assert_eq!(record["result"]["stdout_bytes"], 400_000, "{mode:?}");
            }
        }
    }
}

#[test]
fn a_half_close_is_no_hang_up() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        for (number, headers) in [&[][..], STREAM].into_iter().enumerate() {
            let gate = Fifo::new(daemon.dir().join(format!("gate-{number}")));
            let mut client = daemon.connect();
            let command = format!("read _ <{}; echo hi", gate.path().display());
            execute(&mut client, &command, headers);
            client.half_close();
            let held = gate.reached();
            // Whoever connects after it is served after it was seen.
            assert_eq!(daemon.get("/health").json()["running"], 1, "{mode:?}");
            assert_eq!(daemon.bash("true").status, 200, "{mode:?}");
            drop(held);
            let reply = client.reply();
            assert_eq!(reply.status, 200, "{mode:?}");
            let text = String::from_utf8(reply.body).expect("text");
            assert!(
                text.contains(r#""content":"[stdout]\nhi\n\n[exit_code]\n0""#),
                "{mode:?}: {text}"
            );
        }
    }
}

#[test]
fn who_asked_not_to_wait_may_go() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        let gate = Fifo::new(daemon.dir().join("gate"));
        let command = format!("read _ <{}; echo hi", gate.path().display());
        let id = daemon.begin(&command, &json!({}));
        let held = gate.reached();
        assert_eq!(daemon.bash("true").status, 200, "{mode:?}");
        drop(held);
        let record = daemon.ended(&id);
        assert_eq!(record["status"], "success", "{mode:?}");
        assert_eq!(
            record["result"]["content"], "[stdout]\nhi\n\n[exit_code]\n0",
            "{mode:?}"
        );
    }
}

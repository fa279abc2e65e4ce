//! Secrets in an output: masked once, in everything that is made of it.

use serde_json::{Value, json};

use crate::support::{Daemon, Events, Fifo, Mode, bash_call, wait_to_equal};

const TOKEN: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";

/// Everything of the daemon's that could hold a secret: its log and its files.
fn whole_state(daemon: &Daemon) -> String {
    let mut all = daemon.log();
    let mut dirs = vec![daemon.dir().to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
            let kind = entry.file_type().expect("a type");
            if kind.is_dir() {
                dirs.push(entry.path());
            } else if kind.is_file() && !entry.file_name().to_string_lossy().ends_with(".toml") {
                let bytes = std::fs::read(entry.path()).unwrap_or_default();
                all.push_str(&String::from_utf8_lossy(&bytes));
            }
        }
    }
    all
}

#[test]
fn tokens_are_masked_in_answer_spool_and_record() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        let body = daemon
            .bash(&format!(
                "t={TOKEN}; echo \"a $t b\"; echo $t >&2; echo $t-"
            ))
            .json();
        assert_eq!(
            body["content"],
            "[stdout]\na *** b\n***-\n\n[stderr]\n***\n\n[exit_code]\n0"
        );
        // Counts are of what is masked.
        assert_eq!(body["stdout_bytes"], "a *** b\n***-\n".len());
        let id = body["execution_id"].as_str().expect("an id");
        assert_eq!(daemon.output(id, "stdout"), b"a *** b\n***-\n");
        assert_eq!(daemon.output(id, "stderr"), b"***\n");
        assert!(!whole_state(&daemon).contains(TOKEN));
    }
}

#[test]
fn a_token_in_two_writes_never_shows_in_events() {
    let daemon = Daemon::start();
    let fifo = Fifo::new(daemon.dir().join("go"));
    let (first, second) = TOKEN.split_at(17);
    let script = format!(
        "printf 'line\\na {first}'; read _ < {}; printf '{second} b'",
        fifo.path().display()
    );
    let (_, events) = Events::open(&daemon, &bash_call(&script, &json!({})));
    fifo.reached().say("on");
    let events = events.rest();
    let texts = events.iter().filter(|event| event.name == "stdout");
    let texts: Vec<&str> = texts
        .filter_map(|event| event.data["text"].as_str())
        .collect();
    assert_eq!(texts.concat(), "line\na *** b");
    let result = &events.last().expect("a result").data;
    assert_eq!(
        result["content"],
        "[stdout]\nline\na *** b\n\n[exit_code]\n0"
    );
}

#[test]
fn values_of_marked_variables_and_patterns_are_masked() {
    let toml = "[secrets]\nvariables = [\"DEPLOY\", \"GIVEN\"]\npatterns = [\"pin [0-9]+\"]\n\
                [env]\nDEPLOY = \"correct horse\"\n";
    let daemon = Daemon::start_with(Mode::Group, toml);
    let call = bash_call(
        "echo \"$DEPLOY/$GIVEN/$OTHER\"; echo my pin 1234; cat <<< 'correct horse'",
        &json!({"env": {"GIVEN": "hunter2", "OTHER": "shown"}}),
    );
    let body = daemon.post(&call).json();
    assert_eq!(
        body["content"],
        "[stdout]\n***/***/shown\nmy ***\n***\n\n[exit_code]\n0"
    );
    let state = whole_state(&daemon);
    assert!(!state.contains("correct horse") && !state.contains("hunter2"));
}

#[test]
fn they_can_be_let_through() {
    let daemon = Daemon::start_with(Mode::Group, "[secrets]\ntokens = false");
    let body = daemon.bash(&format!("echo {TOKEN}")).json();
    assert_eq!(
        body["content"],
        format!("[stdout]\n{TOKEN}\n\n[exit_code]\n0")
    );
}

/// Longer than what is read on the event loop, with a token across every border of a piece.
#[test]
fn long_outputs_are_masked_throughout() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        let path = daemon.dir().join("long.toml");
        let line = format!("{} {TOKEN}\n", "x".repeat(58));
        std::fs::write(&path, line.repeat(40_000)).expect("written");
        let reply = daemon.bash(&format!("cat {}", path.display())).json();
        let masked = format!("{} ***\n", "x".repeat(58)).repeat(40_000);
        assert_eq!(reply["stdout_bytes"], masked.len());
        assert_eq!(reply["truncated"], Value::Bool(true));
        let content = reply["content"].as_str().expect("a text");
        assert!(!content.contains("ghp_") && content.contains("x ***\nx"));
        let id = reply["execution_id"].as_str().expect("an id");
        assert!(
            daemon.output(id, "stdout") == masked.as_bytes(),
            "the spool differs"
        );
    }
}

/// What may become a secret is held back, but the answer does not wait for it.
#[test]
fn what_is_kept_in_the_background_takes_nothing_from_the_answer() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "[secrets]\npatterns = [\"pin [0-9]+\"]");
        let [ends, goes_on] = ["ends", "goes-on"].map(|name| Fifo::new(daemon.dir().join(name)));
        let command = format!(
            "(read _ <{}; printf 'n 1234\\nready'; sleep 600) & read _ <{}; printf 'my pi'",
            goes_on.path().display(),
            ends.path().display()
        );
        let id = daemon.begin(&command, &json!({"background": "keep"}));
        let gate = ends.reached();
        let mut follower = daemon.connect();
        let path = format!("/executions/{id}/output?stream=stdout&follow=true");
        follower.send("GET", &path, &[], b"");
        assert_eq!(follower.reply_head().status, 200);
        gate.say("on");
        let answer = daemon.ended(&id)["result"].clone();
        assert_eq!(answer["content"], "[stdout]\nmy pi\n\n[exit_code]\n0");
        assert_eq!(answer["stdout_bytes"], 5, "{mode:?}");
        let followed: Vec<u8> = std::iter::from_fn(|| follower.chunk()).flatten().collect();
        assert_eq!(String::from_utf8_lossy(&followed), "my pi", "{mode:?}");
        goes_on.reached().say("on");
        // The rest of that line may still become one.
        wait_to_equal("what follows is masked", b"my ***\n".to_vec(), || {
            daemon.output(&id, "stdout")
        });
        // It is another than at the end, and nobody has changed it.
        assert_eq!(
            daemon.get("/audit/verify").json()["intact"],
            true,
            "{mode:?}"
        );
    }
}

/// What the command line of a process begins with is told of it, and is cut.
#[test]
fn of_a_secret_no_part_is_told_with_what_was_left_behind() {
    let value = "correct-horse-battery-staple-0123456789";
    let toml = format!("[secrets]\nvariables = [\"DB_PASS\"]\n[env]\nDB_PASS = {value:?}\n");
    let daemon = Daemon::start_with(Mode::Group, &toml);
    let (dir, filler) = (daemon.dir().display(), "x".repeat(150));
    let script = format!(
        "cd {dir}; mkfifo go; sh -c 'echo >go; sleep 60; : {filler} {value}' >/dev/null 2>&1 & read _ <go"
    );
    let body = daemon.bash(&script).json();
    let left = body["background"].to_string();
    assert!(left.contains("x ***"), "{body}");
    assert!(!whole_state(&daemon).contains("correct-"), "{body}");
    assert!(!body.to_string().contains("correct-"), "{body}");
}

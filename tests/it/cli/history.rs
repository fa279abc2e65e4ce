//! What looks back: `history`, `show`, `output` and `replay`.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use serde_json::{Value, json};

use super::terminal::Terminal;
use super::{code, json, run, shellyctl, text};
use crate::support::{Daemon, Fifo, Mode};

const NOBODYS: &str = "0198c0de-0000-7000-8000-000000000000";

/// The id of a command that has run.
fn ran(daemon: &Daemon, command: &str) -> String {
    let answer = daemon.bash(command).json();
    answer["execution_id"].as_str().expect("an id").to_owned()
}

fn ids(list: &Value) -> Vec<&str> {
    let executions = list["executions"].as_array().expect("a list").iter();
    let ids = executions.map(|item| item["execution_id"].as_str().expect("an id"));
    ids.collect()
}

#[test]
fn history_lists_the_newest_first_and_what_is_asked_for() {
    let daemon = Daemon::start();
    let first = ran(&daemon, "echo needle");
    let second = ran(&daemon, "exit 3");
    let third = daemon.bash_with("kill -9 $$", &json!({"trace_id": "turn-7"}));
    let third = third.json()["execution_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let list = |args: &[&str]| json(&daemon, &[&["history"], args].concat());
    let all = list(&[]);
    assert_eq!(ids(&all), [&*third, &*second, &*first]);
    assert_eq!(all["next"], Value::Null);
    let newest = list(&["-n", "1"]);
    assert_eq!(ids(&newest), [&third]);
    assert!(newest["next"].is_string(), "{newest}");
    assert_eq!(ids(&list(&["--status", "success"])), [&first]);
    assert_eq!(ids(&list(&["--grep", "needle"])), [&first]);
    assert_eq!(ids(&list(&["--trace", "turn-7"])), [&third]);
    assert_eq!(ids(&list(&["--since", "1h", "--tool", "bash"])).len(), 3);
    for none in [
        ["--until", "1h ago"],
        ["--since", "2100-01-01T00:00:00+01:00"],
        ["--tool", "other"],
        ["--caller", "4294967"],
        ["--trace", "turn-8"],
    ] {
        assert_eq!(ids(&list(&none)).len(), 0, "{none:?}");
    }
    let table = run(&daemon, &["history"]);
    let lines: Vec<&str> = text(&table.stdout).lines().collect();
    assert!(lines[0].starts_with("CREATED "), "{table:?}");
    assert!(
        lines[1].contains(&third) && lines[1].contains(" error SIGKILL "),
        "{table:?}"
    );
    assert!(lines[2].contains(" error 3 "), "{table:?}");
    assert!(lines[3].ends_with(" echo needle"), "{table:?}");
    for (args, told) in [
        (&["history", "--since", "soon"][..], "`yesterday`"),
        (&["history", "--caller", "root"], "expected a uid"),
        (&["history", "-n", "abc"], "expected a whole number"),
        (&["events", "--after", "x"], "expected a whole number"),
        (
            &["audit", "export", "--after", "x"],
            "expected a whole number",
        ),
    ] {
        let refused = run(&daemon, args);
        assert_eq!(code(&refused), 2, "{refused:?}");
        assert!(text(&refused.stderr).contains(told), "{refused:?}");
    }
}

#[test]
fn a_piece_of_an_id_will_do_and_what_ids_are_is_told() {
    let daemon = Daemon::start();
    let (first, second) = (ran(&daemon, "echo 1"), ran(&daemon, "echo 2"));
    let end = |id: &str| id[id.len() - 12..].to_owned();
    let shown = run(&daemon, &["show", &end(&first)]);
    assert!(text(&shown.stdout).contains(&first), "{shown:?}");
    let output = run(&daemon, &["output", &end(&second)]);
    assert_eq!(text(&output.stdout), "2\n", "{output:?}");
    let again = run(&daemon, &["replay", &end(&second)]);
    assert_eq!(text(&again.stdout), "2\n", "{again:?}");
    let cancelled = run(&daemon, &["cancel", &end(&first)]);
    assert!(text(&cancelled.stdout).contains(&first), "{cancelled:?}");
    let both = run(&daemon, &["show", &first[..4]]);
    assert_eq!(code(&both), 2, "{both:?}");
    let told = text(&both.stderr);
    assert!(told.contains(&first) && told.contains(&second), "{told}");
    let unknown = run(&daemon, &["cancel", "0000"]);
    assert_eq!(code(&unknown), 125, "{unknown:?}");
    assert!(
        text(&unknown.stderr).contains("`shellyctl history -n 1000` lists those that you may see"),
        "{unknown:?}"
    );
    let short = run(&daemon, &["cancel", &first[33..]]);
    assert_eq!(code(&short), 2, "{short:?}");
    assert!(
        text(&short.stderr).contains("expected 4 characters"),
        "{short:?}"
    );
    for command in ["show", "cancel", "output", "replay", "approve", "deny"] {
        let empty = run(&daemon, &[command, ""]);
        assert_eq!(code(&empty), 2, "{empty:?}");
        assert!(text(&empty.stderr).contains("it is empty"), "{empty:?}");
    }
}

#[test]
fn history_goes_on_where_one_answer_ends() {
    const MOST_AT_ONCE: usize = 1000;
    let daemon = Daemon::start();
    for _ in 0..=MOST_AT_ONCE {
        daemon.post(&json!({"name": "nosuch", "input": {}}));
    }
    let count = (MOST_AT_ONCE + 1).to_string();
    let list = json(&daemon, &["history", "-n", &count]);
    let mut found = ids(&list);
    assert_eq!(found.len(), MOST_AT_ONCE + 1);
    assert!(found.is_sorted_by(|newer, older| newer > older));
    found.dedup();
    assert_eq!(found.len(), MOST_AT_ONCE + 1);
}

#[test]
fn history_is_forgotten_only_when_that_is_meant() {
    let daemon = Daemon::start();
    ran(&daemon, "true");
    let left = || ids(&json(&daemon, &["history"])).len();
    let unasked = run(&daemon, &["history", "--clear"]);
    assert_eq!(code(&unasked), 2);
    assert!(text(&unasked.stderr).contains("--yes"), "{unasked:?}");
    let mut asked = Terminal::start(&daemon, &["history", "--clear"]);
    asked.expect("[y/N] ");
    asked.press("\n");
    asked.expect("nothing was forgotten");
    assert_eq!((asked.end().0, left()), (Some(1), 1));
    let mut asked = Terminal::start(&daemon, &["history", "--clear"]);
    asked.expect("[y/N] ");
    asked.press("y\n");
    asked.expect("forgot 1 execution");
    assert_eq!((asked.end().0, left()), (Some(0), 0));
    ran(&daemon, "true");
    let cleared = run(&daemon, &["history", "--clear", "--yes", "--json"]);
    assert_eq!(text(&cleared.stdout), "{\"deleted\":1}\n");
    assert_eq!(left(), 0);
}

#[test]
fn show_tells_all_of_a_record() {
    let daemon = Daemon::start();
    let members = json!({"working_dir": "/usr", "env": {"SOME": "x"}, "timeout_secs": 9});
    let answer = daemon.bash_with("echo out; exit 3", &members).json();
    let id = answer["execution_id"].as_str().expect("an id");
    let shown = run(&daemon, &["show", id]);
    assert_eq!(code(&shown), 0, "{shown:?}");
    let shown = text(&shown.stdout);
    assert!(shown.starts_with(&format!("● {id} bash: echo out; exit 3\n")));
    for part in [
        "  error, exit code 3\n",
        "Directory: /usr\n",
        "Variables: SOME\n",
        "Policy: allow ",
        "Output: 4 bytes to stdout, 0 to stderr\n",
        "\nInput\n{\n  \"command\": \"echo out; exit 3\"\n}\n",
        "\nResult\n[stdout]\nout\n\n[exit_code]\n3\n",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    let record = json(&daemon, &["show", id]);
    assert_eq!(
        record,
        daemon.get(&format!("/executions/{id}")).json(),
        "the daemon's own"
    );
    let unknown = run(&daemon, &["show", NOBODYS]);
    assert_eq!(code(&unknown), 125);
    assert!(
        text(&unknown.stderr).contains("unknown_execution"),
        "{unknown:?}"
    );
}

#[test]
fn output_is_what_was_written_to_the_byte() {
    let daemon = Daemon::start();
    let script = "head -c 3000000 /dev/urandom | tee written; echo err >&2";
    let directory = json!({"working_dir": daemon.dir().to_str().expect("UTF-8")});
    let answer = daemon.bash_with(script, &directory).json();
    let id = answer["execution_id"].as_str().expect("an id");
    let written = std::fs::read(daemon.dir().join("written")).expect("there");
    let output = run(&daemon, &["output", id]);
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    assert!(output.stdout == written, "{} bytes", output.stdout.len());
    let output = run(&daemon, &["output", "--stderr", id]);
    assert_eq!(text(&output.stdout), "err\n");
    assert_eq!(text(&output.stderr), "");
    assert_eq!(code(&run(&daemon, &["output", NOBODYS])), 125);
}

#[test]
fn output_can_be_followed_to_its_end() {
    let daemon = Daemon::start();
    let fifo = Fifo::new(daemon.dir().join("go"));
    let script = format!(
        "echo begin; read word < {}; echo $word",
        fifo.path().display()
    );
    let id = daemon.begin(&script, &json!({}));
    let gate = fifo.reached();
    let mut command = shellyctl(daemon.socket(), &["output", "--follow", &id]);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .expect("shellyctl starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut begin = String::new();
    stdout.read_line(&mut begin).expect("a line");
    assert_eq!(begin, "begin\n");
    gate.say("end");
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("UTF-8");
    assert_eq!(rest, "end\n");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn replay_ends_as_exec_or_call_would() {
    let daemon = Daemon::start();
    let id = ran(&daemon, "echo out; echo err >&2; exit 7");
    let again = run(&daemon, &["replay", &id]);
    assert_eq!(
        (code(&again), text(&again.stdout), text(&again.stderr)),
        (7, "out\n", "err\n")
    );
    let newest = json(&daemon, &["history", "-n", "1"]);
    assert_eq!(newest["executions"][0]["replay_of"], *id);
    let repeated = ids(&newest)[0];
    let shown = run(&daemon, &["show", repeated]);
    assert!(
        text(&shown.stdout).contains(&format!("Replay of: {id}\n")),
        "{shown:?}"
    );
    let answer = json(&daemon, &["replay", &id]);
    assert_eq!(answer["exit_code"], 7);
    daemon.post(&json!({"name": "nosuch", "input": {}}));
    let unknown = json(&daemon, &["history", "--tool", "nosuch"]);
    let again = run(&daemon, &["replay", ids(&unknown)[0]]);
    assert_eq!(code(&again), 125);
    assert!(text(&again.stderr).contains("unknown_tool"), "{again:?}");
    assert_eq!(code(&run(&daemon, &["replay", NOBODYS])), 125);
}

#[test]
fn replay_keeps_the_time_limit() {
    let daemon = Daemon::start_with(Mode::Group, "default_timeout_secs = 2");
    let id = ran(&daemon, "echo begun; exec sleep 60");
    let again = run(&daemon, &["replay", &id]);
    assert_eq!((code(&again), text(&again.stdout)), (124, "begun\n"));
}

#[test]
fn what_of_an_output_is_not_kept_is_said() {
    let daemon = Daemon::start_with(
        Mode::Group,
        "spool_max_bytes = 2000\nmax_output_bytes = 1000\n",
    );
    let id = ran(
        &daemon,
        "head -c 5000 /dev/zero | tr '\\0' x; echo whole >&2",
    );
    let output = run(&daemon, &["output", &id]);
    assert_eq!((code(&output), output.stdout.len()), (0, 2000));
    let said = text(&output.stderr);
    assert!(
        said.contains("wrote 5000 bytes to stdout") && said.contains("keeps these 2000"),
        "{said}"
    );
    let output = run(&daemon, &["output", "--stderr", &id]);
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        ("whole\n", "")
    );
}

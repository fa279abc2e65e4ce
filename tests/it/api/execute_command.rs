//! The tool `execute_command`: `bash` with a structured output.

use serde_json::{Value, json};

use super::hooks;
use crate::support::{Daemon, Mode};

fn call(input: &Value) -> Value {
    json!({"name": "execute_command", "input": input})
}

#[test]
fn it_answers_a_program_and_a_model() {
    let daemon = Daemon::start();
    let answer = daemon.post(&call(
        &json!({"command": "echo 1; echo 2 >&2; exit 3", "cwd": null}),
    ));
    let body = answer.json();
    assert_eq!(answer.status, 200, "{body}");
    assert_eq!(
        body["output"],
        json!({"return_code": 3, "stdout": "1\n", "stderr": "2\n"})
    );
    assert_eq!(
        body["content"],
        "[stdout]\n1\n\n[stderr]\n2\n\n[exit_code]\n3"
    );
    assert_eq!(
        (&body["is_error"], &body["exit_code"]),
        (&json!(true), &json!(3))
    );
    // The record has it, too, and from the ledger no less.
    let record = daemon.ended(body["execution_id"].as_str().expect("an id"));
    assert_eq!(record["result"], body);
    let signalled = daemon.post(&call(&json!({"command": "kill -9 $$"}))).json();
    assert_eq!(signalled["output"]["return_code"], -9);
    let stopped =
        json!({"name": "execute_command", "input": {"command": "sleep 60"}, "timeout_secs": 0.2});
    let stopped = daemon.post(&stopped);
    assert_eq!(stopped.status, 504);
    assert_eq!(stopped.json()["output"], Value::Null);
    // `bash` answers a model only.
    let plain = daemon.bash("true");
    assert!(plain.json().get("output").is_none());
}

#[test]
fn its_directory_is_that_of_the_call() {
    let daemon = Daemon::start();
    let dir = daemon.dir().join("work");
    std::fs::create_dir_all(dir.join("below")).expect("a directory");
    for (cwd, working_dir) in [
        (dir.join("below").display().to_string(), None),
        ("below".to_owned(), Some(dir.display().to_string())),
    ] {
        let mut call = call(&json!({"command": "pwd", "cwd": cwd}));
        if let Some(working_dir) = working_dir {
            call["working_dir"] = json!(working_dir);
        }
        let body = daemon.post(&call).json();
        let expected = format!("{}\n", dir.join("below").display());
        assert_eq!(body["output"]["stdout"], expected);
        // What is repeated runs in the same place.
        let id = body["execution_id"].as_str().expect("an id");
        let record = daemon.ended(id);
        assert_eq!(
            record["working_dir"],
            dir.join("below").display().to_string()
        );
        let again = daemon
            .connect()
            .request("POST", &format!("/executions/{id}/replay"), &[], b"")
            .json();
        assert_eq!(again["output"]["stdout"], expected, "{again}");
    }
    let home = nix::unistd::User::from_uid(nix::unistd::getuid());
    let home = home.expect("a database").expect("a user").dir;
    let body = daemon
        .post(&call(&json!({"command": "pwd -P", "cwd": "~"})))
        .json();
    let home = std::fs::canonicalize(home).expect("a home");
    assert_eq!(body["output"]["stdout"], format!("{}\n", home.display()));
}

/// A rule sees where the path leads, not how it is written.
#[test]
fn rules_on_its_directory_follow_links() {
    let policy = "default = \"allow\"\ndeny = [\"execute_command(cwd:/proc/**)\", \"write_file(file_path:/proc/**)\"]";
    let daemon = Daemon::start_under(policy, "");
    std::os::unix::fs::symlink("/proc/self", daemon.dir().join("link")).expect("a link");
    for (cwd, status) in [
        ("/proc/1".to_owned(), 403),
        ("/usr/../proc/1".to_owned(), 403),
        (daemon.dir().join("link").display().to_string(), 403),
        ("/usr".to_owned(), 200),
    ] {
        let answer = daemon.post(&call(&json!({"command": "true", "cwd": cwd})));
        assert_eq!(answer.status, status, "{cwd}: {}", answer.json());
    }
    // A redirect is relative to it.
    let answer = daemon.post(&call(&json!({"command": "echo x > y", "cwd": "/proc"})));
    assert_eq!(answer.status, 403);
}

/// Who refuses `bash` means commands by whatever name.
#[test]
fn what_is_said_of_bash_holds_for_it() {
    let call = call(&json!({"command": "true"}));
    let deny = r#"echo '{"decision":"deny","reason":"frozen"}'"#;
    let daemon = hooks::start(&[(
        "freeze",
        "before = \"permission\"\ntools = [\"bash\"]",
        deny,
    )]);
    hooks::assert_denied(&daemon.post(&call), "permission", &["frozen"]);
    let daemon = Daemon::start_with(Mode::Group, "[tools]\ndisabled = [\"bash\"]\n");
    assert_eq!(daemon.post(&call).json()["code"], "tool_disabled");
}

/// Without a directory of its own it is run in the call's.
#[test]
fn a_rule_on_its_directory_holds_for_that_of_the_call() {
    let policy = "default = \"allow\"\ndeny = [\"execute_command(cwd:/etc/**)\"]";
    let daemon = Daemon::start_under(policy, "");
    let link = daemon.dir().join("link");
    std::os::unix::fs::symlink("/etc", &link).expect("linked");
    let link = link.to_str().expect("text");
    let in_dir = |dir: &str, input: &Value| {
        let mut call = call(input);
        call["working_dir"] = json!(dir);
        daemon.post(&call).status
    };
    assert_eq!(in_dir("/etc", &json!({"command": "pwd"})), 403);
    assert_eq!(in_dir("/etc", &json!({"command": "pwd", "cwd": "."})), 403);
    assert_eq!(in_dir("/etc", &json!({"command": "pwd", "cwd": null})), 403);
    assert_eq!(in_dir("/", &json!({"command": "pwd", "cwd": "etc"})), 403);
    assert_eq!(in_dir(link, &json!({"command": "pwd"})), 403);
    assert_eq!(in_dir("/usr", &json!({"command": "pwd"})), 200);
    // In the daemon's own.
    let plain = daemon.post(&call(&json!({"command": "pwd"})));
    assert_eq!(plain.status, 200, "{}", plain.content());
    let denies = format!(
        "default = \"allow\"\ndeny = [\"execute_command(cwd:{}/**)\"]",
        daemon.dir().display()
    );
    let daemon = Daemon::start_under(&denies, "");
    let plain = daemon.post(&call(&json!({"command": "pwd"})));
    assert_eq!(plain.status, 200, "{}", plain.content());
    let all = std::env::temp_dir().canonicalize().expect("there");
    let denies = format!(
        "default = \"allow\"\ndeny = [\"execute_command(cwd:{}/**)\"]",
        all.display()
    );
    let daemon = Daemon::start_under(&denies, "");
    assert_eq!(daemon.post(&call(&json!({"command": "pwd"}))).status, 403);
}

//! What the file tools are there for: tasks done by calls alone.

use std::fs;

use serde_json::{Value, json};

use super::files::{base, call, done, holds, start};

/// The seed's first example: run a script; if it prints 1, have it print 2; run it again.
#[test]
fn a_script_is_changed_when_it_prints_one() {
    let daemon = start();
    fs::write(base(&daemon).join("a.sh"), "#!/bin/sh\necho 1\n").expect("written");
    let run = || {
        let output = done(
            &daemon,
            "execute_command",
            json!({"command": "sh a.sh", "cwd": null}),
        );
        assert_eq!(output["return_code"], 0);
        output["stdout"].clone()
    };
    let script_output = run();
    let context = json!({"script_output": script_output});
    assert!(holds(&daemon, "script_output.strip() == '1'", &context));
    assert!(holds(
        &daemon,
        "condition_result == True",
        &json!({"condition_result": true})
    ));
    let read = done(&daemon, "read_file", json!({"file_path": "a.sh"}));
    assert_eq!(read["content"], "#!/bin/sh\necho 1\n");
    let edit = json!({
        "file_path": "a.sh", "search_pattern": "echo 1", "replacement": "echo 2", "regex": false,
        "expected_digest": read["digest"],
    });
    let edited = call(&daemon, "edit_file", edit).json();
    let diff = edited["content"].as_str().expect("a text");
    assert!(
        diff.contains("-echo 1") && diff.contains("+echo 2"),
        "{diff}"
    );
    assert!(holds(
        &daemon,
        "new_output.strip() == '2'",
        &json!({"new_output": run()})
    ));
}

/// The second: errors of a log are gathered in a file.
#[test]
fn errors_of_a_log_are_gathered() {
    let daemon = start();
    let lines: String = (1..=1000)
        .map(|n| match n % 400 {
            0 => format!("12:00:{n} ERROR no route to {n}\n"),
            _ => format!("12:00:{n} INFO all is well\n"),
        })
        .collect();
    fs::write(base(&daemon).join("app.log"), lines).expect("written");
    let found = done(
        &daemon,
        "search_files",
        json!({"pattern": "ERROR", "dir_path": "app.log"}),
    );
    assert_eq!(found["matches"], 2);
    let errors: Vec<&str> = found["lines"]
        .as_array()
        .expect("lines")
        .iter()
        .filter_map(|line| line["text"].as_str())
        .collect();
    let content = format!("{}\n", errors.join("\n"));
    done(
        &daemon,
        "write_file",
        json!({"file_path": "errors.txt", "content": content, "mode": "w"}),
    );
    done(
        &daemon,
        "write_file",
        json!({"file_path": "errors.txt", "content": "end\n", "mode": "a"}),
    );
    let written = fs::read_to_string(base(&daemon).join("errors.txt")).expect("there");
    assert_eq!(
        written,
        "12:00:400 ERROR no route to 400\n12:00:800 ERROR no route to 800\nend\n"
    );
}

/// The third: a configuration is read, looked at, and changed.
#[test]
fn a_configuration_is_switched() {
    let daemon = start();
    let config = base(&daemon).join("config.json");
    fs::write(&config, "{\n  \"debug\": false,\n  \"port\": 80\n}\n").expect("written");
    let read = done(&daemon, "read_file", json!({"file_path": "config.json"}));
    let text = read["content"].as_str().expect("a text");
    let parsed: Value = serde_json::from_str(text).expect("JSON");
    assert!(holds(
        &daemon,
        "config['debug'] == False",
        &json!({"config": parsed})
    ));
    let edit = json!({
        "file_path": "config.json", "search_pattern": "(\"debug\": )false", "replacement": "${1}true",
        "regex": true,
    });
    done(&daemon, "edit_file", edit);
    let changed = fs::read_to_string(&config).expect("there");
    assert_eq!(changed, "{\n  \"debug\": true,\n  \"port\": 80\n}\n");
}

//! The skills in `config/skills`, each called through a daemon.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::support::{Daemon, scratch, skip};

const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/skills");
/// What they share: each has copies of its own.
const LIB: &str = "lib";

fn names() -> BTreeSet<String> {
    let entries = fs::read_dir(SAMPLES).expect("there").flatten();
    entries
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().expect("UTF-8"))
        .filter(|name| name != LIB)
        .collect()
}

/// A daemon with copies of the samples, a memory of its own, and `checksum` compiled where it can be.
fn start() -> Daemon {
    let dir = scratch();
    let skills = dir.join("skills");
    fs::create_dir_all(&skills).expect("created");
    for name in names().iter().filter(|name| *name != "checksum") {
        copy(&Path::new(SAMPLES).join(name), &skills.join(name));
    }
    if let Some(compiled) = compiled() {
        copy(compiled, &skills.join("checksum"));
    }
    let memory = dir.join("memory/memory.db");
    let toml = format!(
        "[cgroup]\nmode = \"group\"\n[env]\nSHELLY_MEMORY_FILE = {memory:?}\n[files]\nbase_dirs = [{dir:?}]\n"
    );
    fs::write(dir.join("executor.toml"), toml).expect("written");
    Daemon::launch(dir, None, |_| {})
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("created");
    for entry in fs::read_dir(from).expect("a directory").flatten() {
        fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}

/// A copy of `checksum` after `make`; none where that is not to be had.
fn compiled() -> Option<&'static PathBuf> {
    static DIR: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = DIR.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("checksum");
        copy(&Path::new(SAMPLES).join("checksum"), &dir);
        let rustc = Path::new(env!("CARGO")).with_file_name("rustc");
        let rustc = if rustc.exists() {
            rustc
        } else {
            "rustc".into()
        };
        let made = Command::new("make")
            .arg("-C")
            .arg(&dir)
            .arg(format!("RUSTC={}", rustc.display()))
            .output();
        let made = made.ok()?;
        assert!(made.status.success(), "{made:?}");
        Some(dir)
    });
    made.as_ref()
}

fn call(daemon: &Daemon, name: &str, input: &Value) -> (u16, Value) {
    let reply = daemon.post(&json!({"name": name, "input": input}));
    (reply.status, reply.json())
}

#[track_caller]
fn done(daemon: &Daemon, name: &str, input: Value) -> Value {
    let (status, body) = call(daemon, name, &input);
    assert_eq!((status, &body["is_error"]), (200, &json!(false)), "{body}");
    body["output"].clone()
}

#[test]
fn every_sample_is_loaded_and_says_what_it_takes_and_gives() {
    let daemon = start();
    let health = daemon.get("/health").json();
    assert_eq!(health["problems"], json!([]));
    for name in names() {
        let shown = daemon.get(&format!("/tools/{name}"));
        if name == "checksum" && compiled().is_none() {
            skip("the sample `checksum`, for there is no make");
            continue;
        }
        assert_eq!(shown.status, 200, "{name}");
        let shown = shown.json();
        assert_eq!(shown["output_schema"]["type"], "object", "{name}");
        assert_eq!(
            shown["input_schema"]["additionalProperties"], false,
            "{name}"
        );
        // None takes a member that it does not know.
        let (status, body) = call(&daemon, &name, &json!({"no_such_member": 1}));
        assert_eq!(
            (status, &body["code"]),
            (422, &json!("invalid_input")),
            "{name}"
        );
    }
}

#[test]
fn the_copies_of_what_they_share_are_the_same() {
    let mut copies = 0;
    for shared in fs::read_dir(Path::new(SAMPLES).join(LIB))
        .expect("there")
        .flatten()
    {
        let text = fs::read_to_string(shared.path()).expect("readable");
        for name in names() {
            let copy = Path::new(SAMPLES).join(&name).join(shared.file_name());
            if let Ok(found) = fs::read_to_string(&copy) {
                assert!(
                    found == text,
                    "{} is another than {}: copy it there",
                    copy.display(),
                    shared.path().display()
                );
                copies += 1;
            }
        }
    }
    assert!(copies > 5, "{copies}");
}

#[test]
fn word_count_counts_what_any_text_holds() {
    let daemon = start();
    for (text, lines, words) in [
        ("", 0, 0),
        ("one two\nthree\n", 2, 3),
        ("no end", 0, 2),
        ("\"quoted\" \\ back\\slash\t\u{1}x é 😀\n\n", 2, 6),
        ("{\"text\": \"not this\"}, 'nor $(this) `or` %s", 0, 7),
    ] {
        let expected = json!({"lines": lines, "words": words, "bytes": text.len()});
        let given = json!({"text": text});
        assert_eq!(done(&daemon, "word_count", given), expected, "{text:?}");
    }
    let long = "a line with \"quotes\"\n".repeat(50_000);
    let counted = done(&daemon, "word_count", json!({"text": long}));
    assert_eq!(counted["lines"], 50_000);
    assert_eq!(call(&daemon, "word_count", &json!({"text": 1})).0, 422);
}

#[test]
fn disk_report_reports_what_bash_told_it() {
    let daemon = start();
    let dir = daemon.dir().join("it's a \"dir\"");
    fs::create_dir(&dir).expect("created");
    let path = json!({"path": dir.display().to_string()});
    let report = done(&daemon, "disk_report", path);
    let found = report["filesystems"].as_array().expect("a list");
    assert_eq!(found.len(), 1, "{report}");
    assert!(found[0]["size_bytes"].as_u64() > Some(0), "{report}");
    let (status, body) = call(&daemon, "disk_report", &json!({"path": "/no/such/place"}));
    assert_eq!((status, &body["is_error"]), (200, &json!(true)), "{body}");
    assert!(
        body["content"].to_string().contains("/no/such/place"),
        "{body}"
    );
    let wrong = json!({"min_percent": 101});
    assert_eq!(call(&daemon, "disk_report", &wrong).0, 422);
}

#[test]
fn checksum_is_that_of_others() {
    let daemon = start();
    if compiled().is_none() {
        skip("the sample `checksum`, for there is no make");
        return;
    }
    let file = daemon.dir().join("a file \"é\"");
    for (text, sum) in [
        (
            "",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        ),
        (
            "abc",
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        ),
        (
            &"a".repeat(1_000_000),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
        ),
    ] {
        fs::write(&file, text).expect("written");
        let expected = json!({"algorithm": "sha256", "checksum": sum, "bytes": text.len()});
        let given = json!({"file_path": file.display().to_string()});
        assert_eq!(done(&daemon, "checksum", given), expected);
    }
    let (_, body) = call(&daemon, "checksum", &json!({"file_path": "/dev/null"}));
    assert_eq!(body["is_error"], true, "{body}");
    assert!(
        body["content"].to_string().contains("no regular file"),
        "{body}"
    );
    assert_eq!(
        call(&daemon, "checksum", &json!({"file_path": "relative"})).0,
        422
    );
}

#[test]
fn raise_output_raises_one_to_two_and_leaves_others() {
    let daemon = start();
    let script = daemon.dir().join("script.sh");
    let given = json!({"script": script.display().to_string()});
    for (text, before, changed, after) in
        [("echo 1\n", "1", true, "2"), ("echo 7\n", "7", false, "7")]
    {
        fs::write(&script, text).expect("written");
        let expected =
            json!({"before": before, "changed": changed, "after": after, "return_code": 0});
        assert_eq!(done(&daemon, "raise_output", given.clone()), expected);
    }
    fs::write(&script, "exit 3\n").expect("written");
    let (_, body) = call(&daemon, "raise_output", &given);
    assert_eq!(body["is_error"], true, "{body}");
    assert_eq!(
        call(&daemon, "raise_output", &json!({"script": "/a; rm b"})).0,
        422
    );
}

fn texts(found: &Value) -> Vec<&str> {
    let found = found["memories"].as_array().expect("a list").iter();
    found
        .map(|one| one["text"].as_str().expect("a text"))
        .collect()
}

#[test]
fn memories_are_stored_found_and_forgotten() {
    let daemon = start();
    let store = |text: &str, tags: Value| {
        done(&daemon, "memory_store", json!({"text": text, "tags": tags}))
    };
    let search = |input: Value| done(&daemon, "memory_search", input);
    assert_eq!(search(json!({})), json!({"memories": []}));
    let tea = store("Ada prefers green tea.", json!(["taste"]));
    assert_eq!(tea["is_new"], true);
    store("The deploy key lives in the vault.", json!([]));
    store("我喜欢简洁的代码", json!(["taste"]));
    // The same once more is no second memory.
    let again = store(" Ada prefers green tea.\n", json!(["drink"]));
    assert_eq!(again, json!({"id": tea["id"], "is_new": false}));
    for (query, expected) in [
        ("who likes tea?", vec!["Ada prefers green tea."]),
        ("prefer", vec!["Ada prefers green tea."]),
        ("简洁", vec!["我喜欢简洁的代码"]),
        (
            "\" OR * NEAR( vault",
            vec!["The deploy key lives in the vault."],
        ),
        ("nothing of the kind", vec![]),
        ("100% _", vec![]),
        ("...", vec![]),
    ] {
        assert_eq!(texts(&search(json!({"query": query}))), expected, "{query}");
    }
    let newest = search(json!({"limit": 1}));
    assert_eq!(texts(&newest), ["我喜欢简洁的代码"]);
    let tagged = search(json!({"tag": "drink"}));
    assert_eq!(tagged["memories"][0]["tags"], json!(["drink", "taste"]));
    assert_eq!(texts(&tagged), ["Ada prefers green tea."]);
    let forget = |id: &Value| done(&daemon, "memory_forget", json!({"id": id}));
    assert_eq!(forget(&tea["id"]), json!({"forgotten": true}));
    assert_eq!(forget(&tea["id"]), json!({"forgotten": false}));
    assert_eq!(search(json!({"query": "tea"})), json!({"memories": []}));
    for (tool, wrong) in [
        ("memory_store", json!({"text": " "})),
        ("memory_search", json!({"limit": 0})),
        ("memory_forget", json!({"id": "1"})),
    ] {
        assert_eq!(call(&daemon, tool, &wrong).0, 422, "{tool}");
    }
}

#[test]
fn what_is_captured_of_one_message_is_recalled_for_another() {
    let daemon = start();
    let message = "Hi! My name is Grace. Do you remember me? The build is red again.\n\
                   Please remember that releases are on Tuesdays! I prefer tabs. 我叫小明。";
    let given = json!({"message": message, "response": "I love tests. Noted!"});
    let captured = done(&daemon, "auto_capture", given.clone());
    let captured = captured["captured"].as_array().expect("a list");
    let captured: Vec<&str> = captured
        .iter()
        .map(|one| one["text"].as_str().expect("a text"))
        .collect();
    assert_eq!(
        captured,
        [
            "My name is Grace.",
            "Please remember that releases are on Tuesdays!",
            "I prefer tabs.",
            "我叫小明。"
        ]
    );
    let again = done(&daemon, "auto_capture", given);
    assert_eq!(again["captured"][0]["is_new"], false);
    let recalled = done(
        &daemon,
        "auto_recall",
        json!({"query": "When is the next release?"}),
    );
    assert_eq!(
        texts(&recalled),
        ["Please remember that releases are on Tuesdays!"]
    );
    assert_eq!(
        done(&daemon, "auto_recall", json!({"query": " "})),
        json!({"memories": []})
    );
    assert_eq!(call(&daemon, "auto_recall", &json!({})).0, 422);
    assert_eq!(call(&daemon, "auto_capture", &json!({"message": 1})).0, 422);
    // What was found came by a call, with this one as its parent.
    let calls = daemon.get("/executions?tool=memory_search").json();
    let calls = calls["executions"].as_array().expect("a list");
    let id = calls[0]["execution_id"].as_str().expect("an id");
    assert_eq!(daemon.ended(id)["depth"], 1);
}

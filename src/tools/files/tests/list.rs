use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::json;

use super::Room;
use crate::tools::files::FileError;
use crate::tools::files::list::list_dir;

fn paths(output: &serde_json::Value) -> Vec<&str> {
    let entries = output["entries"].as_array().expect("a list").iter();
    entries
        .map(|entry| entry["path"].as_str().expect("text"))
        .collect()
}

#[test]
fn entries_are_sorted_and_described() {
    let room = Room::new();
    let file = room.put("b", "123");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o4750)).expect("set");
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_000_000_000_250);
    fs::File::open(&file)
        .expect("opened")
        .set_modified(time)
        .expect("set");
    room.put("a/x", "");
    symlink("../outside", room.at("c")).expect("linked");
    mkfifoat(CWD, room.at("d"), Mode::from_raw_mode(0o600)).expect("made");
    room.put(".hidden", "");
    let answer = room.call(list_dir, json!({})).expect("listed");
    let output = answer.output.expect("there");
    assert_eq!(paths(&output), ["a", "b", "c", "d"]);
    let expected = json!({
        "path": "b", "type": "file", "size_bytes": 3, "modified": "2001-09-09T01:46:40.250Z",
        "permissions": "4750", "link_target": null,
    });
    assert_eq!(output["entries"][1], expected);
    assert_eq!(output["entries"][0]["type"], "directory");
    assert_eq!(output["entries"][2]["link_target"], "../outside");
    assert_eq!(output["entries"][3]["type"], "fifo");
    let lines: Vec<&str> = answer.content.lines().collect();
    assert_eq!(lines[1], "4750          3 2001-09-09T01:46:40.250Z b");
    assert!(
        lines[0].ends_with(" a/") && lines[2].ends_with(" c -> ../outside"),
        "{lines:?}"
    );
    let all = room.output(list_dir, json!({"show_hidden": true}));
    assert_eq!(paths(&all), [".hidden", "a", "b", "c", "d"]);
}

#[test]
fn one_entry_is_one_line() {
    let room = Room::new();
    room.put("a\n0644          0 2001-09-09T01:46:40.250Z key", "");
    symlink("x\ny", room.at("b")).expect("linked");
    // Named as another one is shown.
    room.put(r#""c\n""#, "");
    let answer = room.call(list_dir, json!({})).expect("listed");
    let lines: Vec<&str> = answer.content.lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].ends_with(r#"Z "\"c\\n\"""#), "{lines:?}");
    assert!(
        lines[1].ends_with(r#"Z "a\n0644          0 2001-09-09T01:46:40.250Z key""#),
        "{lines:?}"
    );
    assert!(lines[2].ends_with(r#" b -> "x\ny""#), "{lines:?}");
    let output = answer.output.expect("there");
    assert_eq!(
        paths(&output)[1],
        "a\n0644          0 2001-09-09T01:46:40.250Z key"
    );
}

#[test]
fn levels_and_entries_are_bounded() {
    let room = Room::new();
    for path in ["a/b/c/d", "a/e", "f"] {
        room.put(path, "");
    }
    symlink("..", room.at("a/up")).expect("linked");
    for (depth, expected) in [
        (1, &["a", "f"][..]),
        (2, &["a", "a/b", "a/e", "a/up", "f"]),
        (10, &["a", "a/b", "a/b/c", "a/b/c/d", "a/e", "a/up", "f"]),
    ] {
        let output = room.output(list_dir, json!({"depth": depth}));
        assert_eq!(
            (paths(&output), &output["truncated"]),
            (expected.to_vec(), &json!(false))
        );
    }
    let some = room
        .call(list_dir, json!({"depth": 10, "max_entries": 3}))
        .expect("listed");
    assert!(some.note.contains("there are more"), "{}", some.note);
    let output = some.output.expect("there");
    assert_eq!(
        (paths(&output), &output["truncated"]),
        (vec!["a", "a/b", "a/b/c"], &json!(true))
    );
    for (input, parts) in [
        (json!({"depth": 0}), &["depth", "1 to 10"]),
        (json!({"depth": 11}), &["depth", "1 to 10"]),
        (json!({"max_entries": 0}), &["max_entries", "1 to 10000"]),
    ] {
        room.refusal(list_dir, input, parts);
    }
    room.refusal(
        list_dir,
        json!({"dir_path": "f"}),
        &["`f`", "a file", "not a directory"],
    );
    let empty = room
        .call(list_dir, json!({"dir_path": "a/b/c/../../../a/b/c"}))
        .expect("listed");
    assert!(empty.content.contains(" d\n"));
}

#[test]
fn times_before_the_epoch_and_after_the_calendar_are_left_out() {
    let room = Room::new();
    let file = fs::File::open(room.put("f", "")).expect("opened");
    file.set_modified(SystemTime::UNIX_EPOCH - Duration::from_secs(1))
        .expect("set");
    let output = room.output(list_dir, json!({}));
    assert_eq!(output["entries"][0]["modified"], json!(null));
}

#[test]
fn listing_stops_when_told_to() {
    let room = Room::new();
    room.put("f", "");
    let stopped = room.call_until(list_dir, json!({}), &|| true);
    assert!(matches!(stopped, Err(FileError::Stopped)));
}

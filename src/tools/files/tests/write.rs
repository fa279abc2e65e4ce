use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::json;

use super::{Ends, Room};
use crate::domain::Digest;
use crate::tools::files::FileError;
use crate::tools::files::write::write_file;

fn mode(room: &Room, path: &str) -> u32 {
    fs::metadata(room.at(path))
        .expect("there")
        .permissions()
        .mode()
        & 0o7777
}

#[test]
fn a_file_is_created_overwritten_and_added_to() {
    let room = Room::new();
    let answer = room
        .call(write_file, json!({"file_path": "f", "content": "a\n"}))
        .expect("made");
    assert_eq!(
        answer.content,
        "created `f` (2 bytes)\n--- /dev/null\n+++ f\n@@ -0,0 +1 @@\n+a\n"
    );
    assert_eq!(
        (room.bytes("f"), mode(&room, "f")),
        (b"a\n".to_vec(), 0o644)
    );
    let answer = room.call(
        write_file,
        json!({"file_path": "f", "content": "b\n", "mode": "w"}),
    );
    let answer = answer.expect("written");
    assert!(answer.content.contains("\n-a\n+b\n"), "{}", answer.content);
    let append = json!({"file_path": "f", "content": "c\n", "mode": "a"});
    let answer = room.call(write_file, append).expect("added");
    assert!(
        answer
            .content
            .starts_with("added 2 bytes to `f` (4 bytes)\n"),
        "{}",
        answer.content
    );
    assert!(answer.content.ends_with(" b\n+c\n"), "{}", answer.content);
    assert_eq!(
        answer.output.expect("there")["digest"],
        Digest::of(b"b\nc\n").to_string()
    );
    assert_eq!(
        (room.bytes("f"), room.names()),
        (b"b\nc\n".to_vec(), vec!["f".to_owned()])
    );
    let append = json!({"file_path": "new", "content": "x", "mode": "a"});
    assert_eq!(room.output(write_file, append)["created"], true);
    // There is no text that it could be the same as.
    let empty = json!({"file_path": "empty", "content": ""});
    let answer = room.call(write_file, empty).expect("made");
    assert_eq!(answer.content, "created `empty` (0 bytes)\n");
}

#[test]
fn directories_are_made_on_request_and_only_then() {
    let room = Room::new();
    let mut input = json!({"file_path": "a/b/f", "content": "x"});
    room.refusal(write_file, input.clone(), &["a/b/f", "create_dirs"]);
    input["create_dirs"] = true.into();
    input["dry_run"] = true.into();
    room.call(write_file, input.clone()).expect("pretended");
    assert!(room.names().is_empty());
    input["dry_run"] = false.into();
    room.call(write_file, input).expect("made");
    assert_eq!(room.bytes("a/b/f"), b"x");
    assert_eq!(mode(&room, "a/b"), 0o755);
    room.put("file", "x");
    let below = json!({"file_path": "file/f", "content": "x", "create_dirs": true});
    room.refusal(write_file, below, &["file/f", "Not a directory"]);
}

/// Whose call is stopped takes away what it made, and nobody else's call with that, however many are stopped.
#[test]
fn directories_that_another_call_takes_away_are_made_again() {
    let room = Room::new();
    let input = |name: &str| json!({"file_path": format!("a/b/{name}"), "content": "x", "create_dirs": true});
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends(&is_done);
        for number in 0..8 {
            let (room, is_done) = (&room, &is_done);
            scope.spawn(move || {
                while !is_done.load(Ordering::Relaxed) {
                    let name = format!("stopped-{number}");
                    let stopped = room.call_until(write_file, input(&name), &|| true);
                    assert!(matches!(stopped, Err(FileError::Stopped)), "{stopped:?}");
                }
            });
        }
        let failed = (0..200).find_map(|_| {
            let written = room.call(write_file, input("f"));
            // Not the directories, which somebody makes or takes away just now.
            let _ = fs::remove_file(room.at("a/b/f"));
            let _ = fs::remove_dir(room.at("a/b")).and_then(|()| fs::remove_dir(room.at("a")));
            written.err()
        });
        assert!(failed.is_none(), "{failed:?}");
    });
}

#[test]
fn directories_made_for_a_file_that_fails_are_removed() {
    let room = Room::new();
    let name = "n".repeat(300);
    let input = json!({"file_path": format!("a/b/{name}"), "content": "x", "create_dirs": true});
    room.refusal(write_file, input, &["File name too long"]);
    let input = json!({"file_path": "a/b/c", "content": "x", "create_dirs": true});
    let stopped = room.call_until(write_file, input, &|| true);
    assert!(matches!(stopped, Err(FileError::Stopped)));
    assert!(room.names().is_empty(), "{:?}", room.names());
}

#[test]
fn permissions_are_octal_and_without_set_id() {
    let room = Room::new();
    for (text, expected) in [("0600", 0o600), ("755", 0o755), ("0000", 0)] {
        let input = json!({"file_path": "f", "content": "x", "permissions": text});
        room.call(write_file, input).expect(text);
        assert_eq!(mode(&room, "f"), expected, "{text}");
    }
    for text in ["4755", "0888", "rw", "", "06", "+644", "00644"] {
        let input = json!({"file_path": "f", "content": "x", "permissions": text});
        room.refusal(write_file, input, &["permissions", "\"0644\""]);
    }
    let append = json!({"file_path": "f", "content": "x", "mode": "a", "permissions": "0644"});
    room.refusal(write_file, append, &["permissions", "\"a\""]);
}

#[test]
fn text_is_written_in_the_encoding_that_is_named_or_there() {
    let room = Room::new();
    for (before, encoding, mode, after) in [
        (&b""[..], Some("latin1"), "w", &b"\xe9"[..]),
        (b"", Some("utf-16"), "w", b"\xff\xfe\xe9\0"),
        (b"\xff\xfea\0", Some("utf-16"), "w", b"\xff\xfe\xe9\0"),
        (b"\xfe\xff\0a", Some("utf-16"), "w", b"\xfe\xff\0\xe9"),
        (b"\xff\xfea\0", None, "a", b"\xff\xfea\0\xe9\0"),
        (b"", Some("utf-16"), "a", b"\xff\xfe\xe9\0"),
        (b"", Some("utf-8-sig"), "a", b"\xef\xbb\xbf\xc3\xa9"),
        (b"\xff\xfea\0", None, "w", b"\xc3\xa9"),
        (b"\xfe", Some("latin1"), "a", b"\xfe\xe9"),
        (b"\xfe", Some("utf-8"), "a", b"\xfe\xc3\xa9"),
    ] {
        room.put("f", before);
        let mut input = json!({"file_path": "f", "content": "\u{e9}", "mode": mode});
        if let Some(encoding) = encoding {
            input["encoding"] = encoding.into();
        }
        room.call(write_file, input.clone()).expect("written");
        assert_eq!(room.bytes("f"), after, "{input}");
    }
    // What the file is in cannot be told, unless somebody says so.
    room.put("f", b"h\xe9");
    let added = json!({"file_path": "f", "content": "\u{e9}", "mode": "a"});
    room.refusal(write_file, added, &["encoding", "not utf-8"]);
    assert_eq!(room.bytes("f"), b"h\xe9");
    let plain = json!({"file_path": "f", "content": "e", "mode": "a"});
    room.call(write_file, plain).expect("the same in all");
    // No letter is the same in half a character.
    room.put("f", b"\xff\xfea");
    let plain = json!({"file_path": "f", "content": "e", "mode": "a"});
    room.refusal(write_file, plain, &["encoding", "not utf-16"]);
    let lacks = json!({"file_path": "f", "content": "\u{20ac}", "encoding": "latin1"});
    room.refusal(write_file, lacks, &["encoding", "latin1"]);
}

/// The text may be what it was and the file all the same another.
#[test]
fn another_encoding_of_the_same_text_is_told() {
    let room = Room::new();
    let same = "the text is the same as before";
    let to_utf_16 = format!("{same}, its encoding is not: utf-16 instead of utf-8");
    let spoilt = format!("{same} but for bytes that are not utf-8, in whose place");
    for (before, content, encoding, expected) in [
        (&b"a"[..], "a", "utf-8", same.to_owned()),
        (b"a", "a", "latin1", same.to_owned()),
        (b"a", "a", "utf-16", to_utf_16),
        (
            b"\xff\xfea\0",
            "a",
            "utf-16le",
            format!("{same}, its encoding is not: utf-16le instead of utf-16"),
        ),
        (
            b"\xef\xbb\xbfa",
            "a",
            "utf-8",
            format!("{same}, its encoding is not: utf-8 instead of utf-8-sig"),
        ),
        (b"a\xff", "a\u{fffd}", "utf-8", spoilt),
    ] {
        room.put("f", before);
        let input = json!({"file_path": "f", "content": content, "encoding": encoding});
        let told = room.call(write_file, input).expect("written").content;
        let line = told.lines().nth(1).expect("it is told");
        assert!(line.starts_with(&expected), "{line:?}, not {expected:?}");
        assert_eq!(line == same, expected == same, "{line:?}");
    }
    room.put("f", b"\xff\xfea\0");
    let nothing = json!({"file_path": "f", "content": "", "mode": "a"});
    let told = room.call(write_file, nothing).expect("added").content;
    assert!(told.ends_with(&format!("{same}\n")), "{told}");
}

#[test]
fn what_is_too_large_is_refused_before_anything_is_written() {
    let mut room = Room::new();
    room.config.files.max_file_size = 10;
    room.put("f", "12345678");
    for (content, mode) in [("12345678901", "w"), ("123", "a")] {
        let input = json!({"file_path": "f", "content": content, "mode": mode});
        room.refusal(
            write_file,
            input,
            &["11 bytes", "at most 10 ([files] max_file_size_mb)"],
        );
    }
    assert_eq!(room.bytes("f"), b"12345678");
    room.put("large", "1234567890123");
    let over = json!({"file_path": "large", "content": "small"});
    let answer = room.call(write_file, over).expect("written");
    let output = answer.output.expect("there");
    assert_eq!(
        (&output["diff"], room.bytes("large")),
        (&json!(null), b"small".to_vec())
    );
    assert!(
        answer.content.contains("too large to be read"),
        "{}",
        answer.content
    );
}

#[test]
fn a_dry_run_shows_all_and_changes_nothing() {
    let room = Room::new();
    room.put("f", "a\n");
    for (path, mode, part) in [
        ("f", "w", "-a\n+b\n"),
        ("f", "a", " a\n+b\n"),
        ("g", "w", "+b\n"),
    ] {
        let input = json!({"file_path": path, "content": "b\n", "mode": mode, "dry_run": true});
        let answer = room.call(write_file, input).expect("pretended");
        assert!(answer.content.starts_with("dry run"), "{}", answer.content);
        assert!(answer.content.ends_with(part), "{}", answer.content);
    }
    assert_eq!(
        (room.bytes("f"), room.names()),
        (b"a\n".to_vec(), vec!["f".to_owned()])
    );
}

#[test]
fn binary_content_is_replaced_without_a_diff() {
    let room = Room::new();
    room.put("f", b"\0\x01");
    let answer = room
        .call(write_file, json!({"file_path": "f", "content": "x"}))
        .expect("written");
    assert!(answer.content.contains("no text"), "{}", answer.content);
    room.refusal(
        write_file,
        json!({"file_path": "d/", "content": "x"}),
        &["d/", "directory"],
    );
    room.refusal(
        write_file,
        json!({"file_path": "d/..", "content": "x"}),
        &["d/.."],
    );
}

/// Agents make calls beside one another.
#[test]
fn whoever_makes_a_directory_first_makes_it_for_all() {
    let room = Room::new();
    for round in 0..50 {
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let room = &room;
                let path = format!("{round}/a/b/{writer}");
                let input = json!({"file_path": path, "content": "x", "create_dirs": true});
                scope.spawn(move || room.call(write_file, input).expect("written"));
            }
        });
    }
}

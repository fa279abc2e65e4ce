use serde_json::json;

use super::Room;
use crate::config::BaseDir;
use crate::domain::Digest;
use crate::tools::files::FileError;
use crate::tools::files::read::read_file;
use crate::tools::files::search::search_files;

#[test]
fn a_whole_file_is_answered_with_what_there_is_to_know_of_it() {
    let room = Room::new();
    room.put("f", "one\ntwo\nthree");
    let answer = room
        .call(read_file, json!({"file_path": "f"}))
        .expect("read");
    assert_eq!(answer.content, "one\ntwo\nthree");
    let digest = Digest::of(b"one\ntwo\nthree").to_string();
    let expected = json!({
        "file_path": "f", "content": "one\ntwo\nthree", "encoding": "utf-8", "size_bytes": 13,
        "total_lines": 3, "start_line": 1, "end_line": 3, "digest": digest, "invalid_bytes": 0,
        "truncated": false,
    });
    assert_eq!(answer.output, Some(expected));
    room.put("empty", "");
    let empty = room.output(read_file, json!({"file_path": "empty"}));
    assert_eq!(empty["total_lines"], 0);
    assert_eq!(empty["start_line"], json!(null));
}

#[test]
fn lines_are_counted_from_one() {
    let room = Room::new();
    room.put("f", "1\n2\n3\n4\n");
    for (input, expected) in [
        (json!({"start_line": 2, "end_line": 3}), "2\n3\n"),
        (json!({"start_line": 3}), "3\n4\n"),
        (json!({"end_line": 1}), "1\n"),
        (json!({"start_line": 4, "end_line": 99}), "4\n"),
        (
            json!({"start_line": 3, "line_numbers": true}),
            "3\t3\n4\t4\n",
        ),
    ] {
        let mut input = input;
        input["file_path"] = "f".into();
        let answer = room.call(read_file, input.clone()).expect("read");
        assert_eq!(answer.content, expected, "{input}");
    }
    for (input, parts) in [
        (
            json!({"start_line": 0}),
            &["start_line", "counted from 1"][..],
        ),
        (json!({"start_line": 5}), &["start_line", "only 4 lines"]),
        (json!({"start_line": 3, "end_line": 2}), &["end_line", "3"]),
        (json!({"start_line": 1, "offset": 1}), &["offset", "lines"]),
        (json!({"offset": 9}), &["offset", "only 8 bytes"]),
        (
            json!({"length": 1u64 << 40}),
            &["length", "max_file_size_mb"],
        ),
    ] {
        let mut input = input;
        input["file_path"] = "f".into();
        room.refusal(read_file, input, parts);
    }
    room.put("one", "1");
    let beyond = json!({"file_path": "one", "start_line": 2});
    let told = room.refusal(read_file, beyond, &["has only 1 line"]);
    assert!(!told.contains("1 lines"), "{told}");
}

#[test]
fn a_file_is_not_read_as_the_directory_that_it_is_not() {
    let room = Room::new();
    room.put("f", "text");
    room.refusal(
        read_file,
        json!({"file_path": "f/"}),
        &["ends with a slash"],
    );
    let search = json!({"pattern": "t", "dir_path": "f/"});
    room.refusal(search_files, search, &["ends with a slash"]);
}

#[test]
fn encodings_are_detected_or_named_and_what_does_not_fit_is_told() {
    let room = Room::new();
    let utf16: Vec<u8> = "\u{feff}h\u{e9}\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    for (bytes, named, encoding, content, invalid) in [
        (&b"h\xc3\xa9\n"[..], None, "utf-8", "h\u{e9}\n", 0),
        (b"\xef\xbb\xbfh\n", None, "utf-8-sig", "h\n", 0),
        (&utf16, None, "utf-16", "h\u{e9}\n", 0),
        (&utf16, Some("utf-16le"), "utf-16", "h\u{e9}\n", 0),
        (&utf16[2..], Some("utf-16le"), "utf-16le", "h\u{e9}\n", 0),
        (b"h\xe9\n", Some("latin1"), "latin1", "h\u{e9}\n", 0),
        (
            b"h\x80\n",
            Some("windows-1252"),
            "windows-1252",
            "h\u{20ac}\n",
            0,
        ),
        (b"h\xe9\n", None, "utf-8", "h\u{fffd}\n", 1),
        (b"h\0\n", Some("utf-8"), "utf-8", "h\0\n", 0),
    ] {
        room.put("f", bytes);
        let mut input = json!({"file_path": "f"});
        if let Some(named) = named {
            input["encoding"] = named.into();
        }
        let answer = room.call(read_file, input).expect("read");
        let output = answer.output.expect("there");
        assert_eq!(output["encoding"], encoding, "{bytes:?}");
        assert_eq!(output["content"], content, "{bytes:?}");
        assert_eq!(output["invalid_bytes"], invalid, "{bytes:?}");
        assert_eq!(
            answer.note.contains("[1 byte is not utf-8"),
            invalid > 0,
            "{bytes:?}"
        );
    }
    for binary in [&b"\x7fELF\0\0"[..], b"\xff\xfe\0\0a\0\0\0"] {
        room.put("f", binary);
        room.refusal(
            read_file,
            json!({"file_path": "f"}),
            &["binary", "encoding"],
        );
    }
    room.refusal(
        read_file,
        json!({"file_path": "f", "encoding": "x"}),
        &["encoding", "\"x\"", "utf-8"],
    );
    room.refusal(
        read_file,
        json!({"file_path": "nothing"}),
        &["nothing", "No such file"],
    );
}

#[test]
fn of_a_file_that_is_too_large_parts_are_read() {
    let mut room = Room::new();
    room.config.files.max_file_size = 1 << 20;
    let lines: String = (1..=1_000_000)
        .map(|number| format!("line {number}\n"))
        .collect();
    room.put("f", &lines);
    let parts = ["max_file_size_mb", "start_line", "offset"];
    room.refusal(read_file, json!({"file_path": "f"}), &parts);
    let input = json!({"file_path": "f", "start_line": 999_999, "line_numbers": true});
    let answer = room.call(read_file, input).expect("read");
    assert_eq!(
        answer.content,
        " 999999\tline 999999\n1000000\tline 1000000\n"
    );
    let output = answer.output.expect("there");
    assert_eq!(
        (&output["end_line"], &output["digest"]),
        (&json!(1_000_000), &json!(null))
    );
    let middle = json!({"file_path": "f", "start_line": 500_000, "end_line": 500_001});
    assert_eq!(
        room.output(read_file, middle)["content"],
        "line 500000\nline 500001\n"
    );
    room.refusal(
        read_file,
        json!({"file_path": "f", "start_line": 2}),
        &["end_line", "fewer"],
    );
    room.refusal(
        read_file,
        json!({"file_path": "f", "start_line": 1_000_001}),
        &["only 1000000 lines"],
    );

    // A last one without its newline counts.
    room.put("g", format!("{lines}last"));
    let last = json!({"file_path": "g", "start_line": 1_000_001});
    assert_eq!(room.output(read_file, last)["content"], "last");
    let beyond = json!({"file_path": "g", "start_line": 1_000_002});
    room.refusal(read_file, beyond, &["only 1000001 lines"]);

    let bytes = json!({"file_path": "f", "offset": 7, "length": 6});
    assert_eq!(room.output(read_file, bytes)["content"], "line 2");
    let mut rest = room
        .call(read_file, json!({"file_path": "f", "offset": 7}))
        .expect("read");
    let output = rest.output.take().expect("there");
    let shown = output["content"].as_str().expect("text");
    let end = ((1 << 20) - "line 1000000\n".len()..=1 << 20).contains(&shown.len());
    assert!(end && shown.ends_with('\n'), "whole lines");
    assert_eq!(output["truncated"], true);
    let (told, next) = (rest.take_text(usize::MAX).0, 7 + shown.len());
    let hint = format!("\n[more follows: read on from offset {next}]");
    assert!(told.ends_with(&hint), "the model is told, too");

    room.config.files.max_file_size = 16 << 20;
    let all = room.output(read_file, json!({"file_path": "f"}));
    assert_eq!(
        (&all["total_lines"], all["content"] == lines),
        (&json!(1_000_000), true)
    );
}

#[test]
fn bytes_of_a_file_of_the_kernels_are_read_though_it_has_no_size() {
    let mut room = Room::new();
    room.config.files.base_dirs = vec![BaseDir::Named("/proc".into())];
    let file = json!({"file_path": "/proc/cpuinfo"});
    let whole = room.output(read_file, file)["content"].clone();
    let whole = whole.as_str().expect("text");
    let part = json!({"file_path": "/proc/cpuinfo", "offset": 5, "length": 9});
    let part = room.output(read_file, part);
    assert_eq!(
        (&part["content"], &part["truncated"]),
        (&json!(whole[5..14]), &json!(false))
    );
    let beyond = json!({"file_path": "/proc/cpuinfo", "offset": 1 << 30});
    room.refusal(read_file, beyond, &["offset", "ends before"]);
}

#[test]
fn reading_stops_when_told_to() {
    let room = Room::new();
    room.put("f", vec![b'x'; 3 << 20]);
    let stopped = room.call_until(read_file, json!({"file_path": "f"}), &|| true);
    assert!(matches!(stopped, Err(FileError::Stopped)));
}

#[test]
fn a_file_that_grows_while_it_is_read_is_still_held_to_the_limit() {
    let mut room = Room::new();
    room.config.files.max_file_size = 1000;
    let path = room.put("f", "x");
    let grow = || {
        std::fs::write(&path, "x".repeat(2000)).expect("written");
        false
    };
    let grown = room.call_until(read_file, json!({"file_path": "f"}), &grow);
    let refusal = grown.expect_err("it is too large").to_string();
    assert!(refusal.contains("max_file_size_mb"), "{refusal}");
}

/// What the text does not say is said behind it.
#[test]
fn an_empty_file_is_told_of() {
    let room = Room::new();
    room.put("empty", "");
    let mut answer = room
        .call(read_file, json!({"file_path": "empty"}))
        .expect("read");
    assert_eq!(answer.take_text(100).0, "[the file is empty]");
    assert_eq!(answer.output.expect("an output")["content"], "");
}

#[test]
fn where_a_long_text_goes_on_is_told() {
    let room = Room::new();
    room.put(
        "long",
        (1..=100)
            .map(|line| format!("line {line}\n"))
            .collect::<String>(),
    );
    let text = |input| room.call(read_file, input).expect("read").take_text(30).0;
    let hint = "\n...(truncated)\n[lines 1 to 4 of 100: read on with start_line 5]";
    assert_eq!(
        text(json!({"file_path": "long"})),
        format!("line 1\nline 2\nline 3\nline 4{hint}")
    );
    let hint = "\n...(truncated)\n[lines 50 to 51 of 100: read on with start_line 52]";
    assert_eq!(
        text(json!({"file_path": "long", "start_line": 50, "line_numbers": true, "end_line": 90})),
        format!("50\tline 50\n51\tline 51{hint}")
    );
    assert!(text(json!({"file_path": "long", "offset": 3})).contains("read on from offset 33]"));
}

/// It is the range that cuts through them, and the file is well.
#[test]
fn characters_that_a_range_of_bytes_cuts_through_are_not_counted() {
    let mut room = Room::new();
    room.put("f", "a\u{20ac}b\u{e9}");
    for (range, content, invalid) in [
        (json!({"offset": 0, "length": 3}), "a\u{fffd}", 0),
        (json!({"offset": 2, "length": 3}), "\u{fffd}\u{fffd}b", 0),
        (json!({"offset": 2, "length": 1}), "\u{fffd}", 0),
        (json!({"offset": 1, "length": 3}), "\u{20ac}", 0),
    ] {
        let mut input = range;
        input["file_path"] = "f".into();
        let output = room.output(read_file, input.clone());
        let told = (&output["content"], &output["invalid_bytes"]);
        assert_eq!(told, (&json!(content), &json!(invalid)), "{input}");
    }
    let mut within = room
        .call(read_file, json!({"file_path": "f", "offset": 2}))
        .expect("read");
    let hint = "[more follows: read on from offset 4]";
    let (told, _) = within.take_text(6);
    assert!(told.ends_with(hint), "{told}");
    // A file may end in the middle of one, which does not fit.
    room.put("f", b"a\xc3");
    let end = room.output(
        read_file,
        json!({"file_path": "f", "offset": 0, "length": 2}),
    );
    assert_eq!(end["invalid_bytes"], 1);
    let within = room.output(read_file, json!({"file_path": "f", "offset": 1}));
    assert_eq!(within["invalid_bytes"], 1);
    // A word that is in two parts is read with the second, or nobody would know it for a secret.
    room.config.files.max_file_size = 20;
    room.put("f", "a word and sk-0123456789abcdefghij\n");
    let mut first = room
        .call(read_file, json!({"file_path": "f", "offset": 0}))
        .expect("read");
    assert_eq!(
        first.take_text(100).0,
        "a word and \n[more follows: read on from offset 11]"
    );
    // What is left for the next part is not shown before.
    room.config.files.max_file_size = 4;
    room.put("f", "abc\u{e9}de");
    let first = json!({"file_path": "f", "offset": 0});
    let mut first = room.call(read_file, first).expect("read");
    assert_eq!(
        first.take_text(100).0,
        "abc\n[more follows: read on from offset 3]"
    );
    let next = json!({"file_path": "f", "offset": 3});
    assert_eq!(room.output(read_file, next)["content"], "\u{e9}de");
}

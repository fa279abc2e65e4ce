use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Room, VALUE};
use crate::domain::Digest;
use crate::tools::files::edit::edit_file;

fn edit(search: &str, replacement: &str) -> Value {
    json!({"file_path": "f", "search_pattern": search, "replacement": replacement})
}

fn with(mut input: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().expect("an object") {
        input[name] = value.clone();
    }
    input
}

#[test]
fn one_match_is_replaced_and_the_difference_answered() {
    let room = Room::new();
    room.put("f", "a\nb\nc\n");
    let answer = room.call(edit_file, edit("b", "B")).expect("edited");
    assert_eq!(room.bytes("f"), b"a\nB\nc\n");
    let diff = "--- f\n+++ f\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n";
    assert_eq!(answer.content, format!("replaced 1 match in `f`\n{diff}"));
    let output = answer.output.expect("there");
    assert_eq!(output["diff"], diff);
    assert_eq!(output["replacements"], 1);
    assert_eq!(output["digest"], Digest::of(b"a\nB\nc\n").to_string());
}

#[test]
fn a_missing_match_is_refused_with_the_lines_that_are_most_like_it() {
    let room = Room::new();
    let text = "fn main() {\n    let total = count(items);\n    println!(\"{total}\");\n}\n";
    room.put("f", text);
    let search = edit("let totals = count(item);", "x");
    room.refusal(
        edit_file,
        search,
        &["`f`", "2:     let total = count(items);"],
    );
    room.refusal(
        edit_file,
        edit("quite another thing", "x"),
        &["nor a line like it"],
    );
    let over = edit("let total = count(items);\nnothing", "x");
    room.refusal(edit_file, over, &["2:     let total"]);
    assert_eq!(room.bytes("f"), text.as_bytes());
    room.refusal(
        edit_file,
        with(edit("x+", ""), &json!({"regex": true})),
        &["no match"],
    );
    // A group that is none would be nothing in the place of text.
    for (replacement, group) in [
        ("$1_baz", "1_baz"),
        ("$2", "2"),
        ("a${name}", "name"),
        ("$$$x", "x"),
    ] {
        let wrong = with(edit("(let)", replacement), &json!({"regex": true}));
        let told = format!("a group `{group}`");
        room.refusal(edit_file, wrong, &["replacement", &told, "${1}_x"]);
    }
    room.refusal(edit_file, edit("", "x"), &["search_pattern", "empty"]);
    room.refusal(
        edit_file,
        with(edit("(", ""), &json!({"regex": true})),
        &["search_pattern", "unclosed"],
    );
    let missing = json!({"file_path": "none", "search_pattern": "a", "replacement": "b"});
    room.refusal(edit_file, missing, &["none", "write_file"]);
}

#[test]
fn an_ambiguous_match_is_refused_with_its_places() {
    let room = Room::new();
    room.put("f", "x\n".repeat(12));
    let refusal = room.refusal(edit_file, edit("x", "y"), &["12 matches", "replace_all"]);
    assert!(
        refusal.contains("in lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...:"),
        "{refusal}"
    );
    let regex = with(edit("^x", "y"), &json!({"regex": true}));
    room.refusal(edit_file, regex, &["12 matches"]);
    assert_eq!(room.bytes("f"), "x\n".repeat(12).as_bytes());
    // It overlaps itself: there are two places that may be meant.
    room.put("f", "ababa");
    room.refusal(edit_file, edit("aba", "y"), &["2 matches", "in lines 1, 1"]);
    let all = with(edit("aba", "y"), &json!({"replace_all": true}));
    room.call(edit_file, all).expect("edited");
    assert_eq!(room.bytes("f"), b"yba");
}

#[test]
fn regular_expressions_match_at_lines_and_have_groups() {
    let room = Room::new();
    for (text, search, replacement, all, expected) in [
        (
            "a = 1\nb = 2\n",
            r"^(\w) = (\d)$",
            "$2 = ${1}x$$",
            true,
            "1 = ax$\n2 = bx$\n",
        ),
        (
            "a = 1\nb = 2\n",
            r"^b = (?<n>\d)",
            "b: $n",
            false,
            "a = 1\nb: 2\n",
        ),
        ("abc", "(?i)B", "x", false, "axc"),
        ("a\nb\n", r"\n", ";", true, "a;b;"),
        ("a\nb", "^", "> ", true, "> a\n> b"),
        ("gr\u{fc}n", r"\bgr\u{fc}n\b", "rot", false, "rot"),
        ("ab", r"(?<=a)b", "x", false, "refused"),
    ] {
        room.put("f", text);
        let input = with(
            edit(search, replacement),
            &json!({"regex": true, "replace_all": all}),
        );
        let done = room.call(edit_file, input);
        match expected {
            "refused" => assert!(done.is_err(), "{search}"),
            _ => assert_eq!(
                String::from_utf8(room.bytes("f")).expect("UTF-8"),
                expected,
                "{search}"
            ),
        }
    }
}

#[test]
fn line_endings_marks_and_encodings_stay() {
    let room = Room::new();
    let utf16 = |text: &str| -> Vec<u8> {
        format!("\u{feff}{text}")
            .encode_utf16()
            .flat_map(u16::to_be_bytes)
            .collect()
    };
    for (before, search, replacement, encoding, after) in [
        (
            b"a\r\nb\r\nc".to_vec(),
            "a\nb",
            "x\ny\nz",
            None,
            b"x\r\ny\r\nz\r\nc".to_vec(),
        ),
        (
            b"a\r\nb\r\n".to_vec(),
            "a\r\nb",
            "x",
            None,
            b"x\r\n".to_vec(),
        ),
        (
            b"a\r\nb\n".to_vec(),
            "b",
            "x\ny",
            None,
            b"a\r\nx\ny\n".to_vec(),
        ),
        (
            b"no newline".to_vec(),
            "newline",
            "end",
            None,
            b"no end".to_vec(),
        ),
        (
            b"\xef\xbb\xbfa".to_vec(),
            "a",
            "b",
            None,
            b"\xef\xbb\xbfb".to_vec(),
        ),
        (
            utf16("gr\u{fc}n\r\n"),
            "gr\u{fc}n\n",
            "rot\n",
            None,
            utf16("rot\r\n"),
        ),
        (
            b"gr\xfcn \xff".to_vec(),
            "gr\u{fc}n",
            "\u{e4}h",
            Some("latin1"),
            b"\xe4h \xff".to_vec(),
        ),
    ] {
        room.put("f", &before);
        let mut input = edit(search, replacement);
        if let Some(encoding) = encoding {
            input["encoding"] = encoding.into();
        }
        room.call(edit_file, input).expect(search);
        assert_eq!(room.bytes("f"), after, "{before:?}");
    }
    room.put("f", "a\r\nb\r\n");
    let regex = with(edit("a$", "x"), &json!({"regex": true}));
    room.call(edit_file, regex).expect("edited");
    assert_eq!(room.bytes("f"), b"x\r\nb\r\n");
}

#[test]
fn an_edit_may_be_about_carriage_returns() {
    let room = Room::new();
    for (search, replacement, regex, after) in [
        ("\r", "", false, &b"a\nb\n"[..]),
        ("\\r\\n", "\n", true, b"a\nb\n"),
        ("\\r?\\n", "\n", true, b"a\nb\n"),
        ("a\\r\\nb", "x", true, b"x\r\n"),
        // One that is text.
        ("a\n", "x\\r\n", false, b"x\\r\r\nb\r\n"),
        ("[\\\\r]?a\n", "x\n", true, b"x\r\nb\r\n"),
    ] {
        room.put("f", "a\r\nb\r\n");
        let input = json!({"regex": regex, "replace_all": true});
        room.call(edit_file, with(edit(search, replacement), &input))
            .expect(search);
        assert_eq!(room.bytes("f"), after, "{search}");
    }
}

#[test]
fn bytes_that_are_no_text_are_not_spoiled() {
    let room = Room::new();
    room.put("f", b"gr\xfcn");
    room.refusal(
        edit_file,
        edit("gr", "x"),
        &["1 byte that is not utf-8", "latin1"],
    );
    let lacks = with(edit("gr", "\u{20ac}"), &json!({"encoding": "latin1"}));
    room.refusal(edit_file, lacks, &["encoding", "'\u{20ac}'"]);
    assert_eq!(room.bytes("f"), b"gr\xfcn");
    room.put("f", b"a\0b");
    room.refusal(edit_file, edit("a", "x"), &["binary"]);
}

#[test]
fn what_would_change_nothing_is_said_and_not_written() {
    let room = Room::new();
    let path = room.put("f", "a\n");
    let before = std::fs::metadata(&path).expect("there");
    let answer = room.call(edit_file, edit("a", "a")).expect("done");
    assert!(
        answer.content.starts_with("`f` is as it was"),
        "{}",
        answer.content
    );
    let dry = with(edit("a", "b"), &json!({"dry_run": true}));
    let answer = room.call(edit_file, dry).expect("done");
    assert!(answer.content.starts_with("dry run"), "{}", answer.content);
    assert!(answer.content.contains("\n-a\n+b\n"), "{}", answer.content);
    let after = std::fs::metadata(&path).expect("there");
    use std::os::unix::fs::MetadataExt;
    assert_eq!(
        (before.ino(), before.ctime_nsec()),
        (after.ino(), after.ctime_nsec())
    );
    assert_eq!(
        (room.bytes("f"), room.names()),
        (b"a\n".to_vec(), vec!["f".to_owned()])
    );
}

#[test]
fn a_file_does_not_outgrow_the_limit_nor_the_memory() {
    let mut room = Room::new();
    room.config.files.max_file_size = 1000;
    room.put("f", "a".repeat(900));
    let all = with(
        edit("a", &"b".repeat(100_000)),
        &json!({"replace_all": true}),
    );
    room.refusal(edit_file, all, &["1000 bytes", "max_file_size_mb"]);
    room.put("f", "a".repeat(999));
    let slightly = with(edit("^a", "bbb"), &json!({"regex": true}));
    room.refusal(edit_file, slightly, &["1000 bytes"]);
    assert_eq!(room.bytes("f"), "a".repeat(999).as_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Literal edits are what `str::replacen` does, if there is exactly one place for it.
    #[test]
    fn a_literal_edit_is_what_the_standard_library_does(
        text in "[ab\n\u{e9}]{0,30}",
        search in "[ab\n\u{e9}]{1,3}",
        replacement in "[abc\n$]{0,3}",
        all: bool,
    ) {
        let room = Room::new();
        room.put("f", &text);
        let places = (0..text.len()).filter(|at| text.get(*at..).is_some_and(|t| t.starts_with(&search)));
        let places = places.count();
        let input = with(edit(&search, &replacement), &json!({"replace_all": all}));
        let done = room.call(edit_file, input);
        let expected = match (places, all) {
            (0, _) => None,
            (_, true) => Some(text.replace(&search, &replacement)),
            (1, false) => Some(text.replacen(&search, &replacement, 1)),
            (_, false) => None,
        };
        prop_assert_eq!(done.is_ok(), expected.is_some());
        let after = String::from_utf8(room.bytes("f")).expect("UTF-8");
        prop_assert_eq!(after, expected.unwrap_or(text));
    }
}

#[test]
fn a_replacement_that_repeats_a_whole_file_is_refused_before_it_is_made() {
    let room = Room::new();
    room.put("f", "x".repeat(1 << 20));
    // What it would come to is a terabyte.
    let input = edit("(?s)\\A.*\\z", &"$0".repeat(1 << 20));
    for replace_all in [true, false] {
        let input = with(
            input.clone(),
            &json!({"regex": true, "replace_all": replace_all, "dry_run": true}),
        );
        let error = room
            .call(edit_file, input)
            .expect_err("refused")
            .to_string();
        assert!(error.contains("max_file_size_mb"), "{error}");
    }
}

#[test]
fn groups_of_a_match_are_put_where_they_are_named() {
    for (replacement, expected) in [
        ("${1}_baz", "foo_baz"),
        ("$1 $b$$ $", "foo bar$ $"),
        ("$0$0", "foo_barfoo_bar"),
        ("${b}", "bar"),
    ] {
        let room = Room::new();
        room.put("f", "foo_bar");
        let input = edit("(foo)_(?P<b>bar)", replacement);
        room.call(edit_file, with(input, &json!({"regex": true})))
            .expect("edited");
        assert_eq!(room.bytes("f"), expected.as_bytes(), "{replacement}");
    }
}

#[test]
fn of_a_secret_that_is_cut_no_part_is_shown() {
    let mut room = Room::new();
    room.secrets.add(VALUE);
    let line = format!("{} {VALUE} and more", "a".repeat(1965));
    room.put("f", format!("{line}\nb\n"));
    let output = room.output(edit_file, edit("b\n", "c\n"));
    let diff = output["diff"].as_str().expect("text");
    assert!(diff.contains("a *** and more\n-b\n+c\n"), "{diff}");

    room.put("f", format!("zz{}{VALUE}\n", "x".repeat(165)));
    let near = edit(&format!("zq{}", "x".repeat(180)), "");
    let error = room.refusal(edit_file, near, &["1: zzxx", "x***"]);
    assert!(!error.contains("correct"), "{error}");

    let replacement = format!("${{{}{VALUE}}}", "x".repeat(180));
    let named = with(edit("x", &replacement), &json!({"regex": true}));
    let error = room.refusal(edit_file, named, &["a group `xx", "x***`"]);
    assert!(!error.contains("correct"), "{error}");
}

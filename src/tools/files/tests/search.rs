use std::os::unix::fs::symlink;
use std::sync::Arc;

use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::{Value, json};

use super::{Room, VALUE};
use crate::domain::Secrets;
use crate::tools::files::search::search_files;
use crate::tools::files::{FileError, Work};

fn found(room: &Room, input: Value) -> String {
    let shown = input.to_string();
    let mut answer = room.call(search_files, input).expect(&shown);
    answer.take_text(usize::MAX).0
}

#[test]
fn a_path_is_on_one_line() {
    let room = Room::new();
    room.put("a\nb:1:secret", "x\n");
    let input = |files_only| json!({"pattern": "x", "files_only": files_only});
    assert_eq!(found(&room, input(false)), "\"a\\nb:1:secret\":1:x\n");
    assert_eq!(found(&room, input(true)), "\"a\\nb:1:secret\"\n");
}

#[test]
fn matching_lines_are_shown_as_ripgrep_does() {
    let room = Room::new();
    room.put("a.rs", "fn a() {}\nlet Fn = 1;\n");
    room.put("dir/b.txt", "no\nfn b\r\n\nfn (c)\n");
    for (input, expected) in [
        (
            json!({"pattern": "^fn"}),
            "a.rs:1:fn a() {}\ndir/b.txt:2:fn b\ndir/b.txt:4:fn (c)\n",
        ),
        (json!({"pattern": "fn b$"}), "dir/b.txt:2:fn b\n"),
        (
            json!({"pattern": "(c)", "fixed_strings": true}),
            "dir/b.txt:4:fn (c)\n",
        ),
        (
            json!({"pattern": "^LET fn", "case_insensitive": true}),
            "a.rs:2:let Fn = 1;\n",
        ),
        (
            json!({"pattern": "fn", "glob": "*.rs"}),
            "a.rs:1:fn a() {}\n",
        ),
        (
            json!({"pattern": "fn", "glob": "!*.{rs,c}"}),
            "dir/b.txt:2:fn b\ndir/b.txt:4:fn (c)\n",
        ),
        (
            json!({"pattern": "fn", "glob": "dir/**"}),
            "dir/b.txt:2:fn b\ndir/b.txt:4:fn (c)\n",
        ),
        (
            json!({"pattern": "fn", "files_only": true}),
            "a.rs\ndir/b.txt\n",
        ),
        (
            json!({"pattern": "fn b", "dir_path": "dir"}),
            "dir/b.txt:2:fn b\n",
        ),
        (
            json!({"pattern": "fn b", "dir_path": "dir/b.txt"}),
            "dir/b.txt:2:fn b\n",
        ),
        (
            json!({"pattern": "fn", "dir_path": "dir", "context_lines": 1}),
            "dir/b.txt-1-no\ndir/b.txt:2:fn b\ndir/b.txt-3-\ndir/b.txt:4:fn (c)\n",
        ),
        (json!({"pattern": "nowhere"}), "no match in 2 files\n"),
    ] {
        assert_eq!(found(&room, input.clone()), expected, "{input}");
    }
    room.refusal(
        search_files,
        json!({"pattern": "("}),
        &["pattern", "unclosed", "fixed_strings"],
    );
    room.refusal(
        search_files,
        json!({"pattern": "x", "glob": "{"}),
        &["glob"],
    );
    room.refusal(
        search_files,
        json!({"pattern": "x", "max_matches": 0}),
        &["max_matches"],
    );
    room.refusal(
        search_files,
        json!({"pattern": "x", "context_lines": 21}),
        &["context_lines", "20"],
    );
    room.refusal(
        search_files,
        json!({"pattern": "x", "dir_path": "none"}),
        &["none", "No such file"],
    );
}

#[test]
fn structured_output_has_every_line() {
    let room = Room::new();
    room.put("f", "1\nx\n3\n");
    let output = room.output(search_files, json!({"pattern": "x", "context_lines": 1}));
    let line = |number: u64, text: &str, kind: &str| json!({"path": "f", "line": number, "text": text, "kind": kind});
    let expected = json!([
        line(1, "1", "context"),
        line(2, "x", "match"),
        line(3, "3", "context")
    ]);
    assert_eq!(output["lines"], expected);
    assert_eq!(
        (&output["matches"], &output["files"]),
        (&json!(1), &json!(["f"]))
    );
}

#[test]
fn what_git_ignores_is_left_out() {
    let room = Room::new();
    room.put(".gitignore", "*.log\n/target/\n!keep.log\n");
    room.put(".git/config", "x");
    for path in [
        "a.log",
        "keep.log",
        "sub/b.log",
        "target/c",
        "sub/target/d",
        ".hidden",
        "sub/deep/e.tmp",
    ] {
        room.put(path, "x\n");
    }
    room.put("sub/.ignore", "*.tmp\n");
    let files = |input: Value| {
        let mut input = input;
        input["pattern"] = "x".into();
        input["files_only"] = true.into();
        found(&room, input)
    };
    assert_eq!(files(json!({})), "keep.log\nsub/target/d\n");
    assert_eq!(files(json!({"dir_path": "sub"})), "sub/target/d\n");
    assert_eq!(
        files(json!({"dir_path": "sub", "respect_gitignore": false})),
        "sub/b.log\nsub/deep/e.tmp\nsub/target/d\n"
    );
    assert!(files(json!({"show_hidden": true})).contains(".hidden\n"));
    // Of many lines none is forgotten, and the last counts.
    let many: String = (0..20_000)
        .map(|n| format!("/gen{n}/**/x?*.[ch]\n"))
        .collect();
    room.put(".gitignore", format!("*.log\n/target/\n{many}!keep.log\n"));
    assert_eq!(files(json!({})), "keep.log\nsub/target/d\n");
    // As some editors write it.
    room.put(".gitignore", "\u{feff}*.log\n/target/\n!keep.log\n");
    assert_eq!(files(json!({})), "keep.log\nsub/target/d\n");
}

#[test]
fn binary_large_and_special_files_are_passed_over_and_told() {
    let mut room = Room::new();
    room.config.files.max_file_size = 1000;
    room.put("text", "needle\n");
    room.put("binary", b"needle\n\0");
    room.put("large", "needle\n".repeat(1000));
    room.put(
        "utf16",
        "\u{feff}needle\n"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect::<Vec<_>>(),
    );
    for name in ["fifo", ".gitignore", ".ignore"] {
        mkfifoat(CWD, room.at(name), Mode::from_raw_mode(0o600)).expect("made");
    }
    symlink("../outside", room.at("link")).expect("linked");
    symlink("text", room.at("other")).expect("linked");
    let mut answer = room
        .call(search_files, json!({"pattern": "needle|secret"}))
        .expect("searched");
    assert_eq!(
        answer.take_text(usize::MAX).0,
        "text:1:needle\nutf16:1:needle\nnot searched: 1, binary\nnot searched: 1, larger than [files] max_file_size_mb\n"
    );
    let output = answer.output.expect("there");
    assert_eq!(
        (&output["matches"], &output["files"]),
        (&json!(2), &json!(["text", "utf16"]))
    );
}

#[test]
fn what_is_forbidden_or_not_permitted_is_passed_over_and_told() {
    let mut room = Room::new();
    room.put("a", "x\n");
    room.put("private/b", "x\n");
    room.put("forbidden/c", "x\n");
    room.config.files.forbidden = vec![room.at("forbidden")];
    let access = room.access();
    let private = room.at("private/b");
    let work = Work {
        access: &access,
        should_stop: &|| false,
        permits: &|path| path != private,
        secrets: &room.secrets,
    };
    let input = serde_json::from_value(json!({"pattern": "x"})).expect("an input");
    let mut answer = search_files(&work, &input).expect("searched");
    assert_eq!(
        answer.take_text(usize::MAX).0,
        "a:1:x\nnot searched: 2, denied\n"
    );
}

#[test]
fn much_is_bounded() {
    let room = Room::new();
    room.put("a", "x\n".repeat(300));
    room.put("b", format!("x{}\n", "y".repeat(100_000)));
    let answer = room
        .call(search_files, json!({"pattern": "x"}))
        .expect("searched");
    let output = answer.output.expect("there");
    assert_eq!(
        (&output["matches"], &output["truncated"]),
        (&json!(200), &json!(true))
    );
    assert!(
        answer.note.ends_with("raise max_matches)\n"),
        "{}",
        answer.note
    );
    let long = found(&room, json!({"pattern": "x", "glob": "b"}));
    assert!(
        long.len() < 1000 && long.ends_with("... (cut)\n"),
        "{}",
        long.len()
    );
    let stopped = room.call_until(search_files, json!({"pattern": "x"}), &|| true);
    assert!(matches!(stopped, Err(FileError::Stopped)));
}

/// A match is shown wherever in a line it is.
#[test]
fn of_a_long_line_the_match_is_shown() {
    let room = Room::new();
    let line = format!("{}needle{}\r\nshort\n", "é".repeat(3000), "y".repeat(3000));
    room.put("long", line);
    let output = room.output(search_files, json!({"pattern": "needle"}));
    let text = output["lines"][0]["text"].as_str().expect("text");
    assert!(
        text.starts_with("(cut) ...éé") && text.ends_with("yy... (cut)"),
        "{text}"
    );
    assert!(text.contains("éneedley"), "{text}");
    let output = room.output(search_files, json!({"pattern": "^é"}));
    let text = output["lines"][0]["text"].as_str().expect("text");
    assert!(
        text.starts_with("éé") && text.ends_with("é... (cut)"),
        "{text}"
    );
}

#[test]
fn a_line_end_is_not_searched_for_as_text_either() {
    let room = Room::new();
    for input in [
        json!({"pattern": "a\nb"}),
        json!({"pattern": "a\nb", "fixed_strings": true}),
    ] {
        let refusal = room.refusal(search_files, input, &["lines are searched one by one"]);
        assert!(!refusal.contains("set fixed_strings"), "{refusal}");
    }
}

#[test]
fn of_a_secret_that_is_cut_no_part_is_shown() {
    let mut room = Room::new();
    room.secrets = Secrets::new(true, Arc::default());
    room.secrets.add(VALUE);
    let [pad, name, rest] = [("q", 400), ("y", 84), ("z", 600)].map(|(c, n)| c.repeat(n));
    let token = "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8";
    let object = format!(r#"{{"pad":"{pad}","token":"{token}","{name}":"NEEDLE{rest}"}}"#);
    let line = format!("{} {VALUE}{}", "x".repeat(465), "y".repeat(300));
    room.put("a", format!("{object}\n{line}\n"));
    let shown = found(&room, json!({"pattern": "NEEDLE"}));
    assert!(shown.contains(r#""token":"***","yy"#), "{shown}");
    assert!(
        !shown.contains("A1b2") && !shown.contains("Q7r8"),
        "{shown}"
    );
    // What is looked for may be in it.
    let shown = found(&room, json!({"pattern": "Q7r8"}));
    assert!(shown.contains(r#""token":"***","yy"#), "{shown}");
    assert!(
        !shown.contains("A1b2") && !shown.contains("Q7r8"),
        "{shown}"
    );
    let shown = found(&room, json!({"pattern": "^x"}));
    assert!(shown.contains("x ***yy"), "{shown}");
}

#[test]
fn a_pattern_is_no_longer_than_what_it_takes_to_read_it_allows() {
    let room = Room::new();
    let long = "\\pL".repeat(2000);
    let input = json!({"pattern": long});
    room.refusal(search_files, input, &["pattern", "6000 bytes", "4096"]);
    let input = json!({"pattern": "x", "glob": long});
    room.refusal(search_files, input, &["glob", "4096"]);
}

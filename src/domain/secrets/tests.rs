use proptest::prelude::*;
use serde_json::json;

use super::*;

fn secrets(values: &[&str], patterns: &[&str]) -> Secrets {
    let compile = |pattern: &&str| Regex::new(pattern).expect("a pattern");
    let mut secrets = Secrets::new(true, patterns.iter().map(compile).collect());
    for value in values {
        secrets.add(value);
    }
    secrets
}

/// Masks a stream that comes in these pieces, as captures do.
fn in_pieces<'a>(secrets: &Secrets, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let (mut buffer, mut masked) = (Vec::new(), 0);
    for piece in pieces {
        buffer.extend_from_slice(piece);
        let before = buffer[..masked].to_vec();
        masked = secrets.mask(&mut buffer, masked, false);
        assert!(
            buffer.starts_with(&before),
            "what was handed out has changed"
        );
    }
    secrets.mask(&mut buffer, masked, true);
    buffer
}

#[test]
fn names_of_members_are_masked_too_and_none_is_lost() {
    let secrets = secrets(&["hunter2", "hunter3"], &[]);
    let mut value = json!({"a": ["hunter2"], "hunter2": 1, "hunter3": {"is hunter2": 2}});
    assert!(secrets.mask_value(&mut value));
    assert_eq!(
        value,
        json!({"a": ["***"], "***": 1, "***2": {"is ***": 2}})
    );
    assert!(!secrets.mask_value(&mut value));

    let names = (0..20_000).map(|n| (format!("ghp_{n:036}"), json!(n)));
    let mut many = Value::Object(names.collect());
    secrets.mask_value(&mut many);
    assert_eq!(many.as_object().map(Map::len), Some(20_000));
}

#[test]
fn a_summary_shows_no_part_of_what_it_is_cut_in() {
    let long = "s".repeat(20_000);
    let secrets = secrets(&["correct-horse-battery", &long], &[]);
    let filler = "x".repeat(190);
    let summary = secrets.summarize(&format!("{filler} correct-horse-battery y"));
    assert_eq!(summary, format!("{filler} *** y"));
    assert_eq!(secrets.summarize(&format!("x {long}")), "x ***");
}

/// A PIN is as secret without its quotes. What was counted is none, and a schema may want a number there.
#[test]
fn numbers_that_were_said_are_masked_as_they_are_written() {
    let secrets = secrets(&["12345678"], &[]);
    let mut value = json!({"a": [12_345_678, 1], "b": -12_345_678, "c": 2.5});
    assert!(!secrets.mask_value(&mut value));
    assert!(secrets.mask_said(&mut value));
    assert_eq!(value, json!({"a": ["***", 1], "b": "-***", "c": 2.5}));
    assert!(!secrets.mask_said(&mut value));
}

#[test]
fn tokens_values_and_patterns_are_masked_and_nothing_else() {
    let secrets = secrets(&["hunter2", "two\nlines", "abc"], &["pin: [0-9]+"]);
    for (text, expected) in [
        ("", ""),
        ("nothing to hide", "nothing to hide"),
        ("a ghp_0123456789abcdefghijABCDEFGHIJ012345 b", "a *** b"),
        ("ghp_short", "ghp_short"),
        ("sk-ant-api03-abcdefghijklmnop\n", "***\n"),
        // Within a word it is something else.
        (
            "task-force-of-nineteen-people",
            "task-force-of-nineteen-people",
        ),
        ("AKIAIOSFODNN7EXAMPLE=AKIAIOSFODNN7EXAMPLE", "***=***"),
        (
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijk.",
            "***",
        ),
        // JSON in base64 is no token for that.
        (
            "eyJhIjogImJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoifQ",
            "eyJhIjogImJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoifQ",
        ),
        // After an escape one begins.
        (
            "\x1b[1;31mAKIAIOSFODNN7EXAMPLE\x1b[0m \\nAKIAIOSFODNN7EXAMPLE %3dAKIAIOSFODNN7EXAMPLE",
            "\x1b[1;31m***\x1b[0m \\n*** %3d***",
        ),
        ("31mAKIAIOSFODNN7EXAMPLE", "31mAKIAIOSFODNN7EXAMPLE"),
        (
            r#""\u001B[31mAKIAIOSFODNN7EXAMPLE" '\x1b[1;31mAKIAIOSFODNN7EXAMPLE'"#,
            r#""\u001B[31m***" '\x1b[1;31m***'"#,
        ),
        (
            r"\033[0mAKIAIOSFODNN7EXAMPLE \e[mAKIAIOSFODNN7EXAMPLE",
            r"\033[0m*** \e[m***",
        ),
        (
            r"\u00e9AKIAIOSFODNN7EXAMPLE \xe9AKIAIOSFODNN7EXAMPLE",
            r"\u00e9*** \xe9***",
        ),
        (r"u00e9AKIAIOSFODNN7EXAMPLE", r"u00e9AKIAIOSFODNN7EXAMPLE"),
        ("xhunter2hunter2x", "x******x"),
        ("of two\nlines", "of ***"),
        // Too short to be one.
        ("abc", "abc"),
        ("my pin: 12345\npin: 1", "my ***\n***"),
        ("é hunter2 \u{fffd}", "é *** \u{fffd}"),
    ] {
        assert_eq!(secrets.mask_text(text), expected, "{text}");
    }
}

#[test]
fn values_are_masked_as_json_has_them_too() {
    let secrets = secrets(&["pa\"ss\\wörd\n🔑", "aa/bb"], &[]);
    for text in [
        "pa\"ss\\wörd\n🔑",
        r#"pa\"ss\\wörd\n🔑"#,
        r#"pa\"ss\\w\u00f6rd\n\ud83d\udd11"#,
        r"aa\/bb",
    ] {
        assert_eq!(secrets.mask_text(&format!("<{text}>")), "<***>", "{text}");
    }
}

#[test]
fn lines_of_a_value_are_masked_by_themselves() {
    let key =
        "-----BEGIN KEY-----\nb3BlbnNzaC1rZXk\n  indented = \"yes\"\n}\nshort\n-----END KEY-----\n";
    let secrets = secrets(&[key, "only one line"], &[]);
    for (text, expected) in [
        (key.to_owned(), "***"),
        (
            key.replace('\n', "\r\n"),
            "***\r\n***\r\n  ***\r\n}\r\nshort\r\n***\r\n",
        ),
        ("key: b3BlbnNzaC1rZXk".to_owned(), "key: ***"),
        (r#"["indented = \"yes\""]"#.to_owned(), r#"["***"]"#),
        // What is in every text says nothing.
        ("} short, only one".to_owned(), "} short, only one"),
    ] {
        assert_eq!(secrets.mask_text(&text), expected, "{text}");
    }
}

#[test]
fn what_may_become_a_secret_is_held_back_and_no_more() {
    let secrets = secrets(&["hunter2"], &[]);
    for (text, done) in [
        ("done", 4),
        ("a line\n", 7),
        ("a hunt", 2),
        ("a gh", 2),
        ("a ghp_0123", 2),
        ("a light", 7),
        ("Password: ", 10),
        ("......", 6),
    ] {
        let mut buffer = text.as_bytes().to_vec();
        assert_eq!(secrets.mask(&mut buffer, 0, false), done, "{text}");
    }
}

#[test]
fn hostile_text_takes_linear_time() {
    let values = [
        "a".repeat(60_000) + "b" + &"a".repeat(60_000),
        "aaaaaaab".to_owned(),
    ];
    let secrets = secrets(&values.each_ref().map(String::as_str), &[]);
    for unit in [
        "eyJ-",
        "eyJ-hf_",
        "eyJ-ghp_-",
        "eyJ-sk-",
        "eyJ.",
        "AKIA",
        "sk-",
        "a",
        "eyJ",
        "gh",
    ] {
        let mut buffer = unit.repeat((1 << 20) / unit.len()).into_bytes();
        let begun = std::time::Instant::now();
        secrets.mask(&mut buffer, 0, false);
        // Quadratic, it would be minutes.
        assert!(
            begun.elapsed().as_secs() < 5,
            "{unit}: {:?}",
            begun.elapsed()
        );
    }
}

#[test]
fn patterns_are_found_in_long_lines_wherever_they_are_cut() {
    let secrets = secrets(
        &[],
        &[r#""password":"[^"]*""#, r"\bpin=[0-9]+", "^top: [a-z]+"],
    );
    let record = r#"{"user":"me","password":"hunter2secret","pin=":"pin=1234 xpin=1234"},"#;
    let mut text = String::from("top: secret ");
    while text.len() < 40_000 {
        text.push_str(record);
    }
    text.push_str("top: open\ntop: secret\n");
    let whole = secrets.mask_text(&text);
    assert_eq!(
        whole.matches("***").count(),
        2 + 2 * text.matches("user").count()
    );
    for size in [1, 7, 61, 4096, 9000, 16_385, 20_000, 39_999] {
        let cut = in_pieces(&secrets, text.as_bytes().chunks(size));
        assert!(cut == whole.as_bytes(), "{size}");
    }
}

#[test]
fn a_long_value_is_masked_in_a_long_line_whatever_patterns_there_are() {
    let value = "v".repeat(50_000);
    let secrets = secrets(&[&value], &["pin: [0-9]+"]);
    let text = format!("{}{value}, {}", "-".repeat(20_000), "-".repeat(4000));
    for size in [1000, 65_536, 100_000] {
        let cut = in_pieces(&secrets, text.as_bytes().chunks(size));
        assert!(cut.len() == 24_005, "{size}: {}", cut.len());
    }
}

#[test]
fn secrets_that_overlap_without_end_are_not_held_without_end() {
    let words = secrets(&[], &["pw=.*", "[a-z]{20,}"]);
    let values = secrets(&["abcd", "cdab"], &[]);
    let word = "a".repeat(2000) + " ";
    for (secrets, begin, unit) in [(words, "pw=", word.as_str()), (values, "", "abcd")] {
        let (mut buffer, mut done) = (begin.as_bytes().to_vec(), 0);
        for _ in 0..200 {
            buffer.extend(unit.repeat(4096 / unit.len()).into_bytes());
            let before = done;
            done = secrets.mask(&mut buffer, done, false);
            assert!(buffer.len() - done <= LONGEST_SEARCHED + 8, "{unit}");
            let handed_on = &buffer[before..done];
            assert!(!handed_on.windows(4).any(|piece| piece == b"abcd"));
            let context = done.saturating_sub(CONTEXT);
            buffer.drain(..context);
            done -= context;
        }
    }
}

#[test]
fn a_long_value_is_masked_whatever_else_begins_in_it() {
    let [a, b, c] = [("a", 40_000), ("b", 20_000), ("c", 40_000)].map(|(of, n)| of.repeat(n));
    let secrets = secrets(&[&(a.clone() + &b), &(b.clone() + &c)], &[]);
    let text = a + &b + &c[1..] + "e";
    for size in [1000, 65_536] {
        let cut = in_pieces(&secrets, text.as_bytes().chunks(size));
        assert!(
            cut == ("***".to_owned() + &c[1..] + "e").into_bytes(),
            "{size}"
        );
    }
}

#[test]
fn a_match_in_a_long_line_is_masked_as_far_as_it_is_held() {
    let secrets = secrets(&[], &["pw=[a-h]+"]);
    let text = format!(
        "{}pw={} x",
        "-".repeat(20_000),
        "a".repeat(LONGEST_HELD - 3)
    );
    for size in [1, 1000, 4096, 65_536] {
        let cut = in_pieces(&secrets, text.as_bytes().chunks(size));
        assert!(cut.ends_with(b"-*** x"), "{size}");
    }
}

proptest! {
    #[test]
    fn it_does_not_matter_where_a_stream_is_cut(
        parts in proptest::collection::vec(
            prop_oneof![
                Just("ghp_0123456789abcdefghijABCDEFGHIJ012345".to_owned()),
                Just("hunter2".to_owned()),
                Just("hunter".to_owned()),
                Just("AKIAIOSFODNN7EXAMPLE".to_owned()),
                Just("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc".to_owned()),
                Just("pin: 1234".to_owned()),
                Just("\n".to_owned()),
                "[ a-z._-]{0,4}",
            ],
            0..12,
        ),
        cuts in proptest::collection::vec(1usize..9, 1..40),
    ) {
        let lines = "hunter2hunter\nghp_0123456789\n2hunter2";
        let secrets = secrets(&["hunter2", "ter2\nh", "2hun", lines], &["pin: [0-9]+"]);
        let text = parts.concat();
        let whole = secrets.mask_text(&text);
        let mut rest = text.as_bytes();
        let mut cuts = cuts.iter().cycle();
        let pieces = std::iter::from_fn(|| {
            let (piece, others) = rest.split_at((*cuts.next()?).min(rest.len()));
            rest = others;
            (!piece.is_empty()).then_some(piece)
        });
        let cut = in_pieces(&secrets, pieces);
        prop_assert_eq!(String::from_utf8_lossy(&cut), whole);
    }
}

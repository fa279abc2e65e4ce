//! Nothing takes the stack, or the processor for long.

use std::time::Instant;

use super::*;

/// Shapes that take a parser's stack or time; `n` is how often.
fn shapes(n: usize) -> Vec<String> {
    let around = |open: &str, inner: &str, close: &str| {
        format!("{}{inner}{}", open.repeat(n), close.repeat(n))
    };
    vec![
        around("find . -exec ", "true", ""),
        around("find -exec xargs ", "true", ""),
        format!("echo '$({}'", "(".repeat(n)),
        format!("echo '$({}'", "${a:-".repeat(n)),
        around("echo '", &"$(".repeat(n), "'"),
        around("cat <<'E'\n", &"$(".repeat(n), "\nE\n"),
        around("$[ ", "#", ""),
        around(" #", "((", ""),
        around("<<a\n", "a", ""),
        format!("su -c '{}'", "a (\n".repeat(n)),
        around("((", "true", "); )"),
        around("(", "true", ")"),
        around("((", "1", "))"),
        around("{ ", "true", "; }"),
        around("if ", "true", "; then :; fi"),
        around("if :; then ", "true", "; fi"),
        around("case x in x) ", "true", ";; esac"),
        around("case x in x) ", "true", " esac"),
        around("case x in (x) ", "true", "; esac"),
        around("while ", "true", "; do :; done"),
        around("for i in x; do ", "true", "; done"),
        around("$(", "true", ")"),
        around("\"$(", "true", ")\""),
        around("${x:-", "true", "}"),
        around("\"${x:-", "true", "}\""),
        around("$((", "1", "))"),
        around("$((", "1", ")"),
        around("`", "true", "`"),
        around("<(", "true", ")"),
        around("a <(", "true", ")"),
        around("a <(", "true", ""),
        around("[[ (", " x ", ") ]]"),
        format!("[[ {} x {} ]]", "( ".repeat(n), ") ".repeat(n)),
        format!("[[ {} x ]]", "! ".repeat(n)),
        around("f() { ", "true", "; }"),
        around("f() ", "{ :; }", ""),
        around("coproc ", "true", ""),
        around("coproc x { ", "true", "; }"),
        around("! ", "true", ""),
        around("time ", "true", ""),
        around("a=(", "b", ")"),
        around("x[", "1", "]=2"),
        around("@(", "a", ")"),
        around("{a,", "b", "}"),
        around("cat <<E\n$(", "a", ")\nE\n"),
        "cat <<E ".repeat(n),
        "a | ".repeat(n),
        "a && ".repeat(n),
        "{".repeat(n),
        "(".repeat(n),
        "'".repeat(n),
        "\"".repeat(n),
        "\"$(\"".repeat(n),
        "${".repeat(n),
        "$'".repeat(n),
        "\\".repeat(n),
        "eval ".repeat(n),
        "sudo ".repeat(n),
        "bash -c ".repeat(n),
        format!("start-stop-daemon -- {}", "-x a ".repeat(n)),
        "start-stop-daemon -x start-stop-daemon -- ".repeat(n),
        format!("cset {}", "-e cset -- ".repeat(n)),
        "flatpak run --command=flatpak x ".repeat(n),
        "x=".repeat(n),
        "$((".repeat(n),
        "((a;".repeat(n),
    ]
}

#[test]
fn nothing_takes_the_stack_or_runs_away() {
    for n in [8, 10, 12, 13, 16, 40, 390, 5000] {
        for script in shapes(n) {
            let begin = &script[..script.len().min(60)];
            let start = Instant::now();
            let read = read_shell(&script, &fence(60));
            assert_ne!(read.err(), Some(Unreadable::TooSlow), "{n} times {begin:?}");
            let took = start.elapsed();
            assert!(
                took < Duration::from_secs(20),
                "{took:?}: {n} times {begin:?}"
            );
        }
    }
}

#[test]
fn nobody_waits_beyond_the_limit() {
    let impatient = Fence {
        time_limit: Duration::ZERO,
        ..Fence::default()
    };
    // As long as it may be: a fence of nothing is passed long before it is read.
    let script = "(a $b)\n".repeat(390) + &"a $b c $d\n".repeat(6000);
    assert_eq!(read_shell(&script, &impatient), Err(Unreadable::TooSlow));
    let long = Fence::default().max_bytes + 1;
    assert_eq!(
        read_shell(&"a".repeat(long), &fence(20)),
        Err(Unreadable::TooLong)
    );
}

#[test]
fn what_is_a_command_in_each_of_its_words_is_given_up_soon() {
    for (script, took) in [
        ("nice ", "bash "),
        ("bash ", "x "),
        ("sudo ", "sudo "),
        ("fc ", "x "),
        ("xargs ", "env "),
    ]
    .map(|(first, others)| {
        let count = (Fence::default().max_bytes - first.len()) / others.len();
        let script = format!("{first}{}", others.repeat(count));
        let start = Instant::now();
        let read = read_shell(&script, &fence(60));
        assert_ne!(read.err(), Some(Unreadable::TooSlow), "{first}{others}");
        (format!("{first}{others}"), start.elapsed())
    }) {
        assert!(took < Duration::from_secs(10), "{script}: {took:?}");
    }
}

#[test]
fn however_many_shells_there_are_their_input_is_read_once() {
    let start = Instant::now();
    let read = read_with_input(
        &"bash;".repeat(800),
        Some(&"x y z;".repeat(10_000)),
        &fence(60),
    );
    assert!(read.is_ok_and(|reading| !reading.commands.is_empty()));
    assert!(start.elapsed() < Duration::from_secs(10));
}

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
        format!("echo \"{}\"", around("${x%", "a", "}")),
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
        format!(
            "strace -s 200 {}",
            "start-stop-daemon -x nice -- ".repeat(n)
        ),
        format!("choom {}-- {}", "-n 0 ".repeat(n / 4), "x ".repeat(n / 4)),
        format!("fzf --bind '{}'", "reload:".repeat(n)),
        format!("fzf --bind 'a=b{}'", "execute(".repeat(n)),
        format!("fzf --bind '{}'", "reload".repeat(n)),
        format!("make --eval '{}'", "${shell ".repeat(n)),
        format!("sudo {}", "env a ".repeat(n)),
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

/// What is quoted in an expansion is looked through as if it was not.
#[test]
fn what_is_quoted_in_what_is_quoted_is_read_once() {
    let quoted = |script: String, _| {
        let text = script.replace('\\', "\\x5c").replace('\'', "\\x27");
        format!("${{x:-$'{text}'}}")
    };
    let script = (0..24).fold("$(true)".to_owned(), quoted);
    let read = read_shell(&format!("echo {script}"), &fence(60));
    assert_ne!(read.err(), Some(Unreadable::TooSlow));
}

#[test]
fn the_limit_ends_the_reading_of_a_word() {
    let impatient = Fence {
        time_limit: Duration::from_millis(20),
        ..Fence::default()
    };
    let levels = |n| ("$((".repeat(n), "))".repeat(n));
    let (open, close) = levels(50);
    for script in [
        format!("echo {open}{}1{close}", "1+".repeat(31_000)),
        format!("echo {}[{}", "a".repeat(32_000), "=".repeat(32_000)),
        format!("{}[x]{}", "a".repeat(32_000), "[".repeat(32_000)),
    ] {
        let read = read_shell(&script, &impatient);
        assert_eq!(read, Err(Unreadable::TooSlow), "{}", &script[..10]);
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
        ("eval ", "x "),
        ("eval 2>&1 ", "x "),
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

/// `count` words as names of files are.
fn names(count: usize) -> String {
    let names: Vec<String> = (0..count).map(|at| format!("file{at:03}.txt")).collect();
    names.join(" ")
}

#[test]
fn a_long_command_behind_a_wrapper_is_read() {
    for (script, command) in [
        ("sudo NAMES", "rm NAMES"),
        ("timeout 5 NAMES", "rm NAMES"),
        ("strace -f -s 200 NAMES", "rm NAMES"),
        ("xargs -0 NAMES", "rm NAMES \u{3}"),
        ("find . -exec NAMES ;", "rm NAMES"),
        ("bash x.sh NAMES", "x.sh rm NAMES"),
        ("ssh host NAMES", "rm NAMES"),
        ("choom OPTIONS -- NAMES", "rm NAMES"),
        ("sudo env A=b nice -n 5 NAMES", "rm NAMES"),
        (
            "sudo start-stop-daemon -x /bin/rm -- NAMES",
            "/bin/rm rm NAMES",
        ),
    ] {
        for count in [330, 2000] {
            let fill = |text: &str| {
                let text = text.replace("NAMES", &format!("rm {}", names(count)));
                let text = text.replace("rm rm", "rm");
                text.replace("OPTIONS", &"-n 0 ".repeat(count / 4))
            };
            let reading = read_shell(&fill(script).replace(';', "\\;"), &fence(60));
            let reading = reading.unwrap_or_else(|error| panic!("{script}: {error}"));
            let command = fill(command);
            assert!(
                reading.commands.iter().any(|one| one.text() == command),
                "{script}"
            );
        }
    }
}

#[test]
fn what_is_too_much_to_look_at_is_called_that() {
    for script in [
        format!("sudo {}", "a ".repeat(30_000)),
        "sudo env A=b ".repeat(4000),
        "start-stop-daemon -x env -- ".repeat(1000),
        "bash x ".repeat(8000),
    ] {
        let start = Instant::now();
        let read = read_shell(&script, &fence(60));
        let begin = &script[..40];
        assert_eq!(read, Err(Unreadable::TooMuch), "{begin}");
        let took = start.elapsed();
        assert!(took < Duration::from_secs(10), "{took:?}: {begin}");
    }
    let deep = "eval ".repeat(100) + "true";
    assert_eq!(read_shell(&deep, &fence(60)), Err(Unreadable::TooDeep));
}

/// Commands that share a text are many, and yet no more than so many.
#[test]
fn there_are_only_so_many_commands() {
    let scripts = [
        format!("choom {}-- {}", "-n 0 ".repeat(4000), "x ".repeat(1000)),
        format!("sudo {}", names(3000)),
        "git submodule foreach ".repeat(2900),
        "find ".repeat(13_000),
        format!("sudo {}", "curl ".repeat(13_000)),
        format!("sudo {}", "tar ".repeat(13_000)),
        format!("fzf --bind 'a=b,{}'", "reload:".repeat(9_000)),
    ];
    for script in scripts {
        let start = Instant::now();
        let commands = read_shell(&script, &fence(60)).map_or(0, |read| read.commands.len());
        assert!(commands < 16_000, "{commands}: {:?}", &script[..40]);
        let took = start.elapsed();
        assert!(
            took < Duration::from_secs(10),
            "{took:?}: {:?}",
            &script[..40]
        );
    }
}

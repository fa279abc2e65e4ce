//! Scripts that shells read in different ways.

use std::path::Path;

use super::*;

/// Whether nothing is known of some command in it.
fn is_unclear(script: &str, shell: &str) -> bool {
    let setting = Setting::new(Shell::at(Path::new(shell)), None);
    let reading = read_shell_in(script, setting, &fence(20)).expect(script);
    let mut commands = reading.commands.iter();
    commands.any(|one| one.text() == "\u{3}")
}

/// What dash, or bash in POSIX mode, runs otherwise than bash.
const APART: [&str; 25] = [
    "((marker))",
    "(( 1 || marker ))",
    "! ((marker))",
    "if ((marker)); then :; fi",
    "f() ((marker)); f",
    "for ((i = 0; i < 1; i++)); do break; done",
    "[[ a || marker ]]",
    "[[ a > /tmp/f ]]",
    "while [[ a -nt b || marker ]]; do :; done",
    "echo a &>/dev/null marker",
    "echo a &>>/dev/null marker",
    r"echo $'a\'; marker #'",
    r"echo ${x:-$'a'}",
    "for x in $'a'; do :; done",
    r#": "${x-'}"; marker x; : "'}""#,
    r#": "${x:+'}"; marker x; : "'}""#,
    r#"true || : "${x/'}"; marker x; : "'}""#,
    r#"true || : "${x^'}"; marker x; : "'}""#,
    r#"true || : "${x[']}"; marker x; : "']}""#,
    "echo \"${x-it's}\"\nmarker x\necho \"it's}\"",
    r#": "${x-${y-'}}"; marker x; : "'}}""#,
    r#": ${x-"${y-'}"}; marker x; : "'}"}"#,
    "echo $[ ; marker x; : ]",
    r#"echo "$[ ; marker x; : ]""#,
    "echo $((marker x) )",
];

/// Quotes and parentheses in what may be arithmetic: where bash itself has that end is not for us to say.
const QUOTED: [&str; 3] = [
    ": $(( '1)) ; marker x; : $((1' ))",
    "true || : $(( '1)) ; marker x; : $((1' ))",
    r#"true || : "$(( ' ))"; marker x; : "$((' ))""#,
];

/// What all of them run in the same way.
const ALIKE: [&str; 16] = [
    "echo $((1 + 2)) $(date)",
    "[ a = b ] && echo c || echo d",
    "grep '^a$' f; grep \"a$\" '[[:space:]]'",
    "echo a >/dev/null 2>&1 & wait",
    "time sleep 1",
    "time -p sleep 1",
    "set -eu; echo a",
    "set -o pipefail -e",
    "case a in b) echo c;; esac",
    "cat <<E\n((a)) [[ b ]] &> c\nE",
    r#"echo "'${x}' it's ${y:-a} it's""#,
    r#"echo "${x#'a'}" "${x%%'b'*}" ${x:-'a'}"#,
    r#"echo "${x:-a\'b}" '${x-' "it's ${x} {'}""#,
    "cat <<E\n'${x}' it's\nE",
    "echo $((x + ${y:-1})) 'a$[b'",
    r#"sed "s/'${x:-a}'/b/" f"#,
];

/// What has bash itself read as POSIX says.
const POSIX: [&str; 16] = [
    "set -o posix",
    "set -eo pos''ix",
    "set $opts",
    "shopt -so posix",
    "POSIXLY_CORRECT=1",
    "export POSIXLY_CORRECT",
    "read POSIXLY''_CORRECT <<< 1",
    ": ${POSIXLY_CORRECT=1}",
    "env SHELLOPTS=posix bash x.sh",
    "bash --posix x.sh",
    "bash -o posix x.sh",
    "exec -a sh bash x.sh",
    "env --argv0=sh bash x.sh",
    "trap 'set -o posix' USR1",
    "f() { set -o posix; }",
    "bash -c 'set -o posix'",
];

#[test]
fn what_bash_reads_otherwise_in_posix_mode_is_unclear() {
    let quoted = r#": "${x-'}"; marker x; : "'}""#;
    for mode in POSIX {
        assert!(
            is_unclear(&format!("{mode}\n{quoted}"), "/bin/bash"),
            "{mode}"
        );
    }
    for taker in ["bash --posix -c", "bash -o posix -c", "bash -eo posix -c"] {
        let script = format!("{taker} '{}'", quoted.replace('\'', r"'\''"));
        assert!(is_unclear(&script, "/bin/bash"), "{taker}");
    }
    for script in [
        "set -o posix; [[ a ]] && echo \"'${x}'\" ${y:-'a'}",
        "set -euo pipefail; echo \"${x-it's} it's}\"",
        "set -- \"$@\"; echo \"${x-'a'}\"",
        "set -o posix; echo $'a' $(( \"$x\" + 1 )) \"${x%'a'}\"",
    ] {
        assert!(!is_unclear(script, "/bin/bash"), "{script}");
    }
}

#[test]
fn what_another_shell_may_run_otherwise_is_unclear() {
    for script in QUOTED {
        assert!(is_unclear(script, "/bin/bash"), "{script}");
    }
    for script in APART {
        assert!(!is_unclear(script, "/bin/bash"), "{script}");
        for shell in ["/bin/sh", "/usr/bin/dash"] {
            assert!(is_unclear(script, shell), "{shell}: {script}");
        }
    }
    for script in ALIKE {
        for shell in ["/bin/bash", "/bin/sh"] {
            assert!(!is_unclear(script, shell), "{shell}: {script}");
        }
        for shell in ["/usr/bin/fish", "/bin/zsh", "/opt/own"] {
            assert!(is_unclear(script, shell), "{shell}: {script}");
        }
    }
}

#[test]
fn who_reads_a_script_in_a_script_is_known() {
    for script in APART {
        let script = script.replace('\'', "'\\''");
        for taker in ["bash -c", "eval", "bash-5.2 -c", "timeout 9 bash -c"] {
            assert!(
                !is_unclear(&format!("{taker} '{script}'"), "/bin/bash"),
                "{taker} {script}"
            );
        }
        for taker in [
            "sh -c",
            "dash -c",
            "busybox sh -c",
            "watch -g",
            "su root -c",
            "flock f -c",
            "sh -c -- eval",
            "bash -c \"$x\"; dash -c",
        ] {
            assert!(
                is_unclear(&format!("{taker} '{script}'"), "/bin/bash"),
                "{taker} {script}"
            );
        }
    }
    for taker in ["dash", "sudo -s"] {
        let script = format!("{taker} <<'E'\n((marker))\nE");
        assert!(is_unclear(&script, "/bin/bash"), "{taker}");
    }
    assert!(!is_unclear("sh -c 'echo a'; [[ b ]]", "/bin/bash"));
    assert!(is_unclear("fish -c 'and marker'", "/bin/bash"));
}

#[test]
fn options_of_time_and_lines_run_again_are_unclear() {
    for script in [
        "set -o posix\ntime -f %e marker",
        "time -p -f %e marker",
        "time \"-f\" %e marker; [[ a ]]",
        "set -o history -H\n: marker\n!:1-$",
        "set -H; [[ a ]]",
        "bash -o history -Hc 'echo a'",
        "bash -i <<< 'echo a'",
        "set -o history -o hist\"expand\"; [[ a ]]",
        "h=H; set -o history -$h",
        "bash --rcfile /dev/null -o history -H <<< 'echo a'",
        "bash -o history -o hist'expand' <<< 'echo a'",
        "shopt -so history hist\"expand\"",
        "//proc/self/exe -c 'marker'",
        "cd /proc/self; ./exe -c 'marker'",
        "nice --foo 5 /proc/self/exe -c 'marker'",
        "/proc/self/exe -c 'marker'",
        "/proc/$$/exe -c 'marker'",
        "exec 3</bin/marker; /dev/fd/3 x",
    ] {
        assert!(is_unclear(script, "/bin/bash"), "{script}");
    }
    for script in [
        "./exe a",
        "docker exec c bash -lc 'cd /app && [[ -f x ]] && make &> log'",
        "sudo grep -E '((a|b))' f",
        "re='((a|b))'; grep x f",
        "bash -ic 'echo a'",
        "bash -c 'grep -iH a b'",
        "set -- -H",
        "bash -ec 'a' -- -i",
    ] {
        assert!(!is_unclear(script, "/bin/bash"), "{script}");
    }
}

/// What is no script to bash may be one to another.
#[test]
fn what_only_another_shell_takes_for_a_script_is_unclear() {
    for script in [
        "[[ a; marker",
        "function; marker",
        "select; marker",
        "if [[ a; then marker; fi",
        "((marker); [[ a)",
        "echo a\n[[ b; marker",
    ] {
        for taker in [
            "watch",
            "flock f -c",
            "su u -c",
            "script -qc",
            "git rebase -x",
        ] {
            let script = format!("{taker} '{script}'");
            assert!(is_unclear(&script, "/bin/bash"), "{script}");
        }
        let pager = format!("PAGER='{script}' man ls");
        assert!(is_unclear(&pager, "/bin/bash"), "{pager}");
    }
}

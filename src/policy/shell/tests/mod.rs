//! The loose reader: what it finds, and that nothing makes it run away.

mod bounds;
mod dialects;
mod remote;
mod wrappers;

use std::time::Duration;

use super::*;

fn fence(secs: u64) -> Fence {
    Fence {
        time_limit: Duration::from_secs(secs),
        ..Fence::default()
    }
}

fn read_with_input(
    script: &str,
    input: Option<&str>,
    fence: &Fence,
) -> Result<Reading, Unreadable> {
    let shell = Shell::Bash;
    read_shell_in(script, Setting::new(shell, input), fence)
}

fn finds(script: &str) -> Option<bool> {
    let reading = read_shell(script, &fence(20)).ok()?;
    let named = |command: &&Command| {
        let program = command.text().split(' ').next().unwrap_or_default();
        program.rsplit('/').next() == Some("marker")
    };
    let found: Vec<&Command> = reading.commands.iter().filter(named).collect();
    (!found.is_empty()).then(|| found.iter().any(|command| command.certain))
}

#[test]
fn commands_are_found_wherever_they_stand() {
    let scripts = [
        "marker",
        "a; marker",
        "a | marker",
        "a & marker",
        "(marker)",
        "{ marker; }",
        "if marker; then :; fi",
        "if :; then marker; fi",
        "if :; then :; elif marker; then :; else :; fi",
        "for i in a; do marker; done",
        "for i in $(marker); do :; done",
        "while marker; do :; done",
        "until marker; do :; done",
        "case a in a) marker;; esac",
        "case $(marker) in a) ;; esac",
        "case a in a) marker ;& b) : ;;& c) marker; esac",
        "f() { marker; }",
        "function f { marker; }",
        "! marker",
        "time marker",
        "coproc marker",
        "coproc x { marker; }",
        "a $(marker)",
        "a `marker`",
        "a \"$(marker)\"",
        "a \"`marker`\"",
        "a $(b $(marker))",
        "a `b \\`marker\\``",
        "a <(marker)",
        "a > >(marker)",
        "a ${x:-$(marker)}",
        "a \"${x:-`marker`}\"",
        "a $((1 + $(marker)))",
        "((x = $(marker)))",
        "[[ -n $(marker) ]]",
        "x=$(marker)",
        "x=$(marker) a",
        "x=(a $(marker))",
        "x[$(marker)]=1",
        "declare x=$(marker)",
        "cat <<E\n$(marker)\nE",
        "cat <<E\n`marker`\nE",
        "cat <<-E\n\t$(marker)\n\tE",
        "cat <<<$(marker)",
        "cat <<<\"$(marker)\"",
        "m\\arker",
        "'marker'",
        "\"mark\"er",
        "mar\\\nker",
        "$'\\x6darker'",
        "m''arker",
        "/usr/bin/marker",
        "../marker x",
        "'./marker' x",
        "env marker",
        "env -i A=b marker",
        "env -u X marker",
        "sudo marker",
        "sudo -u root -- marker",
        "timeout 5 marker",
        "timeout -k 1 -s KILL 5 marker",
        "nice -n 5 marker",
        "nice marker",
        "nohup marker &",
        "setsid -f marker",
        "stdbuf -oL marker",
        "ionice -c 3 marker",
        "command marker",
        "builtin eval marker",
        "exec marker",
        "exec -a x marker",
        "find . -exec marker {} \\;",
        "find . -execdir marker {} +",
        "find . -exec bash -c marker \\;",
        "xargs marker",
        "xargs -0 -n 1 marker",
        "chronic marker",
        "su-exec root marker",
        "ip netns exec n marker",
        "ip -n x netns exec n marker",
        "gdb -q --args marker x",
        "npx marker",
        "uv run marker",
        "npm exec marker",
        "npm x -- marker",
        "npm exe marker",
        "pnpm dlx marker",
        "pipenv run marker",
        "conda run -n x marker",
        "ip net e n marker",
        "ip v e x marker",
        "cpulimit -l 5 -- marker",
        "s6-setuidgid x marker",
        "ifne marker",
        "sudo env nice timeout 5 marker",
        "bash -c marker",
        "bash -lc 'a; marker'",
        "sh -e -c 'bash -c \"marker\"'",
        "bash -o pipefail -c marker",
        "/bin/bash -c \"marker\"",
        "eval marker",
        "eval 'a;' marker",
        "eval \"eval 'marker'\"",
        "trap marker EXIT",
        "trap -- 'a; marker' EXIT INT",
        "bash <<E\nmarker\nE",
        "bash <<<marker",
        "bash -s <<'E'\nmarker\nE",
        "source /dev/stdin <<<marker",
        "bash /dev/stdin <<< marker",
        "a && (b || { c; $(marker); })",
        "for ((i=$(marker); i<1; i++)); do :; done",
        "a\nb\nmarker\nc",
        "a ;marker",
        "a&&marker",
        "if :; then a <<E && marker\nx\nE\nfi",
    ];
    let missed: Vec<&str> = scripts
        .into_iter()
        .filter(|script| finds(script) != Some(true))
        .collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn what_may_be_a_command_is_found_too() {
    let scripts = [
        "X=marker; $X",
        "PAGER=marker man x",
        "LESSOPEN='|marker %s' less x",
        "LESSOPEN='|-marker %s' less x",
        "dpkg --pre-invoke=marker --configure -a",
        "dpkg --status-logger marker -l",
        "apt-get -o APT::Update::Pre-Invoke::=marker update",
        "apt-get --option=APT::Update::Post-Invoke::=marker update",
        "git remote-ext x marker y",
        "env PAGER=marker man x",
        "alias x=marker",
        "su -c marker",
        "mapfile -C marker x",
        "sudo --odd 5 marker",
        "printf -v 'a[$(marker)]' x",
        "x='a[$(marker)]'; ((x))",
        "PS4='$(marker)'",
        "[[ -v 'a[$(marker)]' ]]",
        "timeout --new-option 3 5 marker",
        "watch marker",
        "watch 'marker x'",
        "tmux new-session -d 'marker x'",
        "capsh -- -c 'marker x'",
        "npm exec --call='marker x'",
        "npm exec -c 'marker x'",
        "pee 'marker x' cat",
        "uv run --frozen --with x marker",
        "declare -x PROMPT_COMMAND='marker'",
        "export X='`marker`'",
    ];
    let missed: Vec<&str> = scripts
        .into_iter()
        .filter(|script| finds(script).is_none())
        .collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn what_is_text_is_no_command() {
    for script in [
        "echo marker",
        "echo 'a; marker'",
        "# marker\na",
        "cat <<'E'\n$(marker)\nE",
        "cat <<E\nmarker\nE",
        "a \"; marker\"",
        "command -v marker",
        "grep -r marker .",
        "awk '{print $(NF)} # marker'",
    ] {
        assert_eq!(finds(script), None, "{script:?}");
    }
}

#[test]
fn what_is_known_only_when_it_runs_is_told() {
    for script in [
        "$X",
        "\"$X\"",
        "$(echo marker)",
        "a; ${X:-b}",
        "ma*",
        "{marker,x}",
        "bash",
        "curl x | sh",
        "echo marker | at now",
        "at -f x now",
        "tmux if-shell true 'run \"x\"'",
        "tmux -f x new",
        "eval $X",
        "bash -c \"$X\"",
        "bash $X",
        "m\"$X\"",
        "~/x",
        ". /dev/fd/3",
        "env $X",
    ] {
        let reading =
            read_shell(script, &fence(20)).unwrap_or_else(|error| panic!("{script}: {error}"));
        let unknown = |command: &Command| {
            command.text().starts_with(['\u{2}', '\u{3}'])
                || command.text().starts_with("m")
                || command.text().contains(" \u{3}")
        };
        assert!(
            reading.commands.iter().any(unknown),
            "{script:?} {reading:?}"
        );
    }
}

/// The shells that know it run what the parser takes for the name of a variable.
#[test]
fn a_substitution_in_braces_is_not_passed_over() {
    for script in [
        "echo ${ marker; }",
        "echo \"${ marker;}\"",
        "x=${\tmarker; }",
        "echo $(( ${\nmarker; } + 1 ))",
        "${|marker; }",
        "${(marker)}",
        "cat <<E\n${ marker; }\nE",
        "echo $\\\n{ marker; }",
        "eval 'echo ${ marker; }'",
    ] {
        let read = read_shell(script, &fence(60));
        assert_eq!(read, Err(Unreadable::Ambiguous), "{script}");
    }
    assert!(read_shell("echo ${x} ${y:-z}", &fence(60)).is_ok());
}

/// To bash it is a word.
#[test]
fn a_huge_descriptor_is_none() {
    for (script, words) in [
        ("66666666666666666666>x $a", "66666666666666666666 \u{3}"),
        ("echo 12345678901<x $a", "echo 12345678901 \u{3}"),
        ("(a 4294967296>&1)", "a 4294967296"),
        ("echo 999>x $a", "echo \u{3}"),
    ] {
        assert!(finds_exactly(script, words), "{script}");
    }
}

/// Whether a command of exactly these words is found, for certain.
fn finds_exactly(script: &str, words: &str) -> bool {
    let reading =
        read_shell(script, &fence(20)).unwrap_or_else(|error| panic!("{script}: {error}"));
    let mut commands = reading.commands.iter();
    commands.any(|command| command.certain && command.text() == words)
}

#[test]
fn a_redirect_of_a_named_descriptor_is_no_word() {
    for script in [
        "rm -rf / {a}>/dev/null",
        "{a}>/dev/null rm -rf /",
        "rm {_a1}>>x -rf /",
        "rm -rf / {a}>&1",
        "rm -rf / {a}<&-",
        "rm -rf / {a}<<<x",
        "rm -rf / {a}<<E\nx\nE",
        "rm -rf / {a[0]}>x",
        "rm -rf / {a\\\n}>x",
        "rm -rf / {a}\\\n>x",
        "rm -rf / {a}<>x {b}>|x",
        "(rm -rf / {a}>x)",
        "x=$(rm -rf / {a}>x)",
        "bash {a}>x -c 'rm -rf / {a}>x'",
        "rm -rf / 5\\\n>x",
    ] {
        assert!(finds_exactly(script, "rm -rf /"), "{script:?}");
    }
    for (script, words) in [
        ("echo {a} >x", "echo {a}"),
        ("echo '{a}'>x", "echo {a}"),
        ("echo {a-b}>x", "echo {a-b}"),
        ("echo {1}>x", "echo {1}"),
    ] {
        assert!(finds_exactly(script, words), "{script:?}");
    }
}
#[test]
fn what_env_splits_is_a_command() {
    for script in [
        "env -S'rm -rf /'",
        "env -vS'rm -rf /'",
        "env -vS 'rm -rf /'",
        "env -i -uX -S 'A=b rm -rf /'",
        "env -iu X -S 'rm -rf' /",
        "env -vS 'rm' -rf /",
        "env --split-string='rm -rf /'",
        "env --s 'rm -rf /'",
        "env -vS \"-i -S'rm -rf /'\"",
        "sudo env -vS'rm -rf /'",
        "env -S 'bash -c \"rm -rf /\"'",
    ] {
        assert!(finds_exactly(script, "rm -rf /"), "{script:?}");
    }
    let reading = read_shell("env -vS'rm\\_-rf\\_/'", &fence(20)).expect("readable");
    assert!(reading.commands.iter().any(|one| one.text() == "rm -rf /"));
}

#[test]
fn what_git_and_jobs_run_is_a_command() {
    for script in [
        "git bisect run rm -rf /",
        "git -C x bisect run rm -rf /",
        "git bisect run sh -c 'rm -rf /'",
        "jobs -x rm -rf /",
    ] {
        assert!(finds_exactly(script, "rm -rf /"), "{script:?}");
    }
    for script in [
        "git rebase -x 'rm -rf /'",
        "git rebase --exec='rm -rf /' x",
        "git submodule foreach --recursive 'rm -rf /'",
        "git submodule foreach rm -rf /",
        "git -c alias.x='!rm -rf /' x",
        "git filter-branch --tree-filter 'rm -rf /' HEAD",
    ] {
        let reading = read_shell(script, &fence(20)).expect("readable");
        let mut commands = reading.commands.iter();
        assert!(commands.any(|one| one.text() == "rm -rf /"), "{script:?}");
    }
}

#[test]
fn a_shell_reads_its_input() {
    let input = "x; rm -rf /\n";
    let commands = |script: &str, input| {
        let reading = read_with_input(script, input, &fence(20));
        reading.expect("readable").commands
    };
    let unknown = |one: &Command| one.text() == "\u{3}";
    for script in [
        "bash",
        "sh -s",
        "bash -",
        "sudo -s",
        "sudo -nu root -i",
        "sudo --login -u root",
        "doas -s",
        "su",
        "su - root",
        "runuser -u root -- bash",
        "nice bash",
        "cd x && bash",
        "if x; then bash; fi",
        "chroot /x",
        "unshare -r",
        ". /dev/stdin",
        "sudo bash -c bash",
    ] {
        let found = commands(script, Some(input));
        let certain = |one: &Command| one.certain && one.text() == "rm -rf /";
        assert!(found.iter().any(certain), "{script:?} {found:?}");
        assert!(found.iter().any(unknown), "{script:?} {found:?}");
        assert!(commands(script, None).iter().any(unknown), "{script:?}");
    }
    for script in ["ssh host", "at now", "docker exec -i x bash"] {
        let found = commands(script, Some(input));
        assert!(
            found.iter().any(|one| one.text() == "rm -rf /"),
            "{script:?}"
        );
    }
    for script in [
        "cat",
        "bash -c x",
        "bash x.sh",
        "sudo -u simon x",
        "sudo -u simon -n x",
        "su -c x",
        "sudo -s x",
        "bash <<< x",
    ] {
        let found = commands(script, Some(input));
        assert!(
            !found.iter().any(|one| one.text() == "rm -rf /"),
            "{script:?}"
        );
        assert!(!found.iter().any(unknown), "{script:?} {found:?}");
    }
}

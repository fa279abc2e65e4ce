//! The loose reader: what it finds, and that nothing makes it run away.

use std::time::{Duration, Instant};

use super::*;

fn fence(secs: u64) -> Fence {
    Fence {
        time_limit: Duration::from_secs(secs),
        ..Fence::default()
    }
}

fn finds(script: &str) -> Option<bool> {
    let reading = read_shell(script, &fence(20)).ok()?;
    let named = |command: &&Command| {
        let program = command.text.split(' ').next().unwrap_or_default();
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
            command.text.starts_with(['\u{2}', '\u{3}'])
                || command.text.starts_with("m")
                || command.text.contains(" \u{3}")
        };
        assert!(
            reading.commands.iter().any(unknown),
            "{script:?} {reading:?}"
        );
    }
}

/// Whether a deny rule on `rm *` would have something to say.
fn finds_rm(script: &str, input: Option<&str>) -> Option<bool> {
    let reading = read_with_input(script, input, &fence(20)).expect(script);
    let named = |command: &&Command| {
        let text = command.text.trim_start_matches("/bin/");
        text == "rm -rf /x" || text == "\u{3}"
    };
    let found: Vec<&Command> = reading.commands.iter().filter(named).collect();
    (!found.is_empty()).then(|| found.iter().any(|one| one.certain))
}

#[test]
fn what_the_words_of_wrappers_run_is_found() {
    for script in [
        "sshpass -p pw rm -rf /x",
        "systemd-cat -t x rm -rf /x",
        "logsave -a log rm -rf /x",
        "pidstat -e rm -rf /x",
        "torsocks -p 1 rm -rf /x",
        "proxychains4 -q -f x rm -rf /x",
        "arch-chroot /mnt rm -rf /x",
        "doppler run -- rm -rf /x",
        "aws-vault exec p -- rm -rf /x",
        "rbenv exec rm -rf /x",
        "pyenv exec rm -rf /x",
        "micromamba run -n x rm -rf /x",
        "lxc-attach -n c -- rm -rf /x",
        "sem rm -rf /x",
        "xterm -e rm -rf /x",
        "bash5 -c 'rm -rf /x'",
        "ksh93 -c 'rm -rf /x'",
        "yash -c 'rm -rf /x'",
        "fish --command='rm -rf /x'",
        "fish --command 'rm -rf /x'",
        "msgexec -i x rm -rf /x",
        "memusage rm -rf /x",
        "not-14 rm -rf /x",
        "fakeroot-sysv -- rm -rf /x",
        "envdir d rm -rf /x",
        "setlock -n f rm -rf /x",
        "coreutils rm -rf /x",
        "valgrind.bin --tool=none rm -rf /x",
    ] {
        assert_eq!(finds_rm(script, None), Some(true), "{script}");
    }
    for script in [
        "docker-compose exec -T web rm -rf /x",
        "docker compose exec web rm -rf /x",
        "podman-compose run web rm -rf /x",
        "autossh -M 0 host rm -rf /x",
        "crictl exec c rm -rf /x",
        "ctr task exec --exec-id a c rm -rf /x",
        "buildah run c -- rm -rf /x",
        "k3s kubectl exec p -- rm -rf /x",
        "microk8s kubectl exec p -- rm -rf /x",
        "minikube ssh -- rm -rf /x",
        "minikube ssh 'rm -rf /x'",
        "adb shell rm -rf /x",
        "multipass exec vm -- rm -rf /x",
        "pct exec 100 -- rm -rf /x",
        "mispipe 'rm -rf /x' cat",
        "dpkg-architecture -c 'rm -rf /x'",
        "dpkg-architecture --command='rm -rf /x'",
        "openvt -- rm -rf /x",
        "dsh -a 'rm -rf /x'",
        "uclampset -m 0 rm -rf /x",
        "qemu-x86_64-static /bin/sh -c 'rm -rf /x'",
        "prove --exec='rm -rf /x' t",
        "systemd-run -p ExecStartPre='rm -rf /x' true",
        "man -P 'rm -rf /x' ls",
        "watchexec rm -rf /x",
        "watchexec 'rm -rf /x'",
        "mpirun -n 4 rm -rf /x",
        "srun --pty rm -rf /x",
        "nvm exec 20 rm -rf /x",
        "xterm -e 'rm -rf /x'",
        "hyperfine --prepare 'rm -rf /x' true",
        "hyperfine --cleanup='rm -rf /x' true",
        "hyperfine -p'rm -rf /x' true",
        "hyperfine 'rm -rf /x'",
        "ansible all -m shell -a 'rm -rf /x'",
        "salt '*' cmd.run 'rm -rf /x'",
        "pdsh -w h 'rm -rf /x'",
        "vagrant ssh -c 'rm -rf /x'",
        "nix-shell --run 'rm -rf /x'",
        "ls | entr -s 'rm -rf /x'",
        "ssh -oProxyCommand='rm -rf /x' host",
        "ssh -o 'ProxyCommand rm -rf /x' host",
        "socat - EXEC:'rm -rf /x'",
        "start-stop-daemon -S --exec /bin/sh -- -c 'rm -rf /x'",
        "git rebase -ix 'rm -rf /x'",
        "git rebase -i -x'rm -rf /x'",
        "git rebase --exe 'rm -rf /x'",
        "git config alias.x '!rm -rf /x'",
        "git config --global core.editor 'rm -rf /x'",
        "git clone --config core.fsmonitor='rm -rf /x' y",
        "git clone -ccore.fsmonitor='rm -rf /x' y",
        "git fetch --upload-pack='rm -rf /x' y",
        "git clone ext::'rm -rf /x'",
        "git filter-branch --setup 'rm -rf /x' HEAD",
    ] {
        assert_eq!(finds_rm(script, None), Some(false), "{script}");
    }
}

#[test]
fn what_reads_a_shell_elsewhere_or_later_is_told() {
    let cron = "MAILTO=x\n# m h\n0 0 * * *\trm -rf /x\n";
    for script in [
        "echo 'rm -rf /x' | ssh host",
        "ssh -p 22 host < cmds.sh",
        "ssh host -p 22 < cmds.sh",
        "ssh -tt -l u host <<< 'rm -rf /x'",
        "cat <<E | ssh h\nrm -rf /x\nE",
        "ssh h <<E\nrm -rf /x\nE",
        "autossh -M 0 host < x",
        "echo x | docker run -i image",
        "docker run --rm -it image < x",
        "echo x | podman run --interactive image",
        "echo x | docker attach c",
        "docker compose run web < x",
        "kubectl run -i --image=x y < z",
        "echo x | script",
        "script -q out < x",
        "nix-shell < x",
        "nix develop < x",
        "echo x | ksh93",
        "echo x | yash",
        "echo x | lxc-attach -n c",
        "echo x | adb shell",
        "echo x | machinectl shell y",
        "echo x | vagrant ssh",
        "(crontab -l; echo '0 0 * * * rm -rf /x') | crontab -",
        "crontab file",
        "crontab - <<E\n@reboot rm -rf /x\nE",
        "crontab -u root - <<'E'\n0 0 * * * rm -rf /x\nE",
        "crontab <<< '*/5 * * * * rm -rf /x'",
    ] {
        assert!(finds_rm(script, None).is_some(), "{script}");
    }
    assert_eq!(
        finds_rm("crontab - <<E\n0 0 * * * rm -rf /x\nE", None),
        Some(false)
    );
    let found = read_with_input("crontab -", Some(cron), &fence(20)).expect("readable");
    assert!(found.commands.iter().any(|one| one.text == "rm -rf /x"));
    for script in [
        "ssh host ls",
        "ssh -p 22 host -v ls",
        "ssh -fN -L 1:x:2 host",
        "ssh -V",
        "docker ps -a",
        "docker run image ls",
        "docker exec -i db cat",
        "crontab -l",
        "crontab -u root -l",
        "script -qc ls out",
        "nix-shell --run ls",
        "adb shell ls",
        "vagrant ssh -c ls",
        "setarch -R ls",
        "git log -x y",
        // Templates, names of files, and values; none of them is a script.
        "docker inspect -f '{{ .State.Status }}' web",
        "docker inspect -f '{{range .Mounts}}{{.Source}} {{end}}' web",
        "docker ps --format '{{json .}}'",
        "docker ps --format 'table {{.Names}}\t{{.Status}}'",
        "docker run --rm -v \"$PWD:/app\" -w /app node npm test",
        "docker build -t \"img:$TAG\" .",
        "docker compose start",
        "docker-compose run --rm web pytest",
        "cat x | docker run -i --rm jq .a",
        "kubectl get pods -o jsonpath='{range .items[*]}{.metadata.name}{end}'",
        "kubectl get pod x -o jsonpath='{..image}'",
        "kubectl patch d x -p '{\"spec\": {\"replicas\": 1}}'",
        "rsync -a \"$HOME/x/\" h:y",
        "rsync -av --exclude='*.log' --exclude '*.pyc' --exclude 'node_modules/*' src/ h:dst/",
        "scp 'h:/var/log/*.log' .",
        "git rm -r config",
    ] {
        assert_eq!(finds_rm(script, None), None, "{script}");
    }
}

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

/// Found by fuzzing: the parser unwraps the number.
#[test]
fn a_huge_descriptor_is_no_panic() {
    for script in [
        "66666666666666666666>x $a",
        "echo 12345678901<x $a",
        "(a 4294967296>&1)",
    ] {
        let read = read_shell(script, &fence(60));
        assert_eq!(read, Err(Unreadable::Grammar), "{script}");
    }
    assert!(read_shell("echo 999>x $a", &fence(60)).is_ok());
}
/// Whether a command of exactly these words is found, for certain.
fn finds_exactly(script: &str, words: &str) -> bool {
    let reading =
        read_shell(script, &fence(20)).unwrap_or_else(|error| panic!("{script}: {error}"));
    let mut commands = reading.commands.iter();
    commands.any(|command| command.certain && command.text == words)
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
    assert!(reading.commands.iter().any(|one| one.text == "rm -rf /"));
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
        assert!(commands.any(|one| one.text == "rm -rf /"), "{script:?}");
    }
}

#[test]
fn a_shell_reads_its_input() {
    let input = "x; rm -rf /\n";
    let commands = |script: &str, input| {
        let reading = read_with_input(script, input, &fence(20));
        reading.expect("readable").commands
    };
    let unknown = |one: &Command| one.text == "\u{3}";
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
        let certain = |one: &Command| one.certain && one.text == "rm -rf /";
        assert!(found.iter().any(certain), "{script:?} {found:?}");
        assert!(found.iter().any(unknown), "{script:?} {found:?}");
        assert!(commands(script, None).iter().any(unknown), "{script:?}");
    }
    for script in ["ssh host", "at now", "docker exec -i x bash"] {
        let found = commands(script, Some(input));
        assert!(found.iter().any(|one| one.text == "rm -rf /"), "{script:?}");
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
            !found.iter().any(|one| one.text == "rm -rf /"),
            "{script:?}"
        );
        assert!(!found.iter().any(unknown), "{script:?} {found:?}");
    }
    // However many shells there are, it is read once for certain.
    let many = "bash;".repeat(800);
    let start = Instant::now();
    commands(&many, Some(&"x y z;".repeat(10_000)));
    assert!(start.elapsed() < Duration::from_secs(10));
}

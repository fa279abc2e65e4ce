//! What wrappers run, and who reads a script elsewhere or later.

use super::*;

/// Whether a deny rule on `rm *` would have something to say.
fn finds_rm(script: &str, input: Option<&str>) -> Option<bool> {
    let reading = read_with_input(script, input, &fence(20)).expect(script);
    let named = |command: &&Command| {
        let text = command.text().trim_start_matches("/bin/");
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
        "start-stop-daemon -S --exec /bin/sh -- -c 'rm -rf /x'",
        "start-stop-daemon -S -x /bin/rm -- -rf /x",
        "start-stop-daemon --start --startas=rm -- -rf /x",
        "sudo start-stop-daemon --start --exec rm -- -rf /x",
        "flatpak run --command=rm org.x.Y -rf /x",
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
    assert!(found.commands.iter().any(|one| one.text() == "rm -rf /x"));
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
        "git cherry-pick -x 'rm -rf /x'",
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
        "make DESTDIR=\"$PWD/x\" PREFIX=$HOME CFLAGS='$(OPT) -g' -j4",
        "gcc -Wl,-rf,/x x.c",
        "fzf --bind 'ctrl-a:select-all'",
    ] {
        assert_eq!(finds_rm(script, None), None, "{script}");
    }
}

#[test]
fn what_less_known_programs_run_is_found() {
    for script in [
        "cmake -E env rm -rf /x",
        "cmake -E chdir / rm -rf /x",
        "just --command rm -rf /x",
        "go test -exec 'rm -rf /x' ./...",
        "bazel run --run_under='rm -rf /x' //x",
        "keyctl session - rm -rf /x",
        "schroot -c x -- rm -rf /x",
        "timelimit -t 5 rm -rf /x",
        "execlineb -c 'rm -rf /x'",
        "with-lock-ex -w /l rm -rf /x",
        "cset shield --exec rm -- -rf /x",
        "newrole -- -c 'rm -rf /x'",
        "rustup run stable rm -rf /x",
        "nodemon --exec 'rm -rf /x'",
        "dmsetup ls --exec 'rm -rf /x'",
        "gpg --photo-viewer 'rm -rf /x' -k",
        "tcpdump -z 'rm -rf /x' -w f",
        "asciinema rec -c 'rm -rf /x'",
        "sbatch --wrap='rm -rf /x'",
        "op run -- rm -rf /x",
        "sops exec-env f 'rm -rf /x'",
        "xinit rm -rf /x",
        "pipesz -n 1 -- rm -rf /x",
        "enosys -s x rm -rf /x",
        "coresched exec -- rm -rf /x",
        "strace -f -s 200 start-stop-daemon -x /bin/rm -- -rf /x",
        "strace -s 200 start-stop-daemon -x /usr/bin/env -- rm -rf /x",
        "choom -n 0 -- strace -s 9 cset -e rm -- -rf /x",
        "userdbctl ssh-authorized-keys x --chain rm -rf /x",
        "coreutils --coreutils-prog=rm -rf /x",
        "sudo coreutils --coreutils-prog=rm -rf /x",
        "strace -s 9 coreutils --coreutils-prog=rm -rf /x",
        "fzf --bind 'start:execute(rm -rf /x)'",
        "fzf --bind='f1:execute-silent[rm -rf /x],f2:abort'",
        "fzf --bind 'f1:abort,f2:reload-sync(rm -rf /x)+abort'",
        "fzf --bind 'f1:become:rm -rf /x'",
        "fzf --bind 'f1:transform-query~rm -rf /x~'",
        "git grep -O'rm -rf /x' x",
        "git grep -nO'rm -rf /x' x",
        "git grep --open-files-in-pager='rm -rf /x' x",
        "gcc -wrapper rm,-rf,/x x.c",
        "x86_64-linux-gnu-g++-12 -wrapper rm,-rf,/x x.c",
        "make SHELL='rm -rf /x'",
        "make 'x!=rm -rf /x'",
        "make --eval='$(shell rm -rf /x)'",
        "make --eval='${shell rm -rf /x}'",
        "make --eval=$'$(shell\trm -rf /x)'",
        "make 'X=a${Y}${shell rm -rf /x}'",
        "make 'X = ${shell echo ${shell rm -rf /x}}'",
        "fzf --bind 'start:EXECUTE(rm -rf /x)'",
        "fzf --bind 'f1:Become:rm -rf /x'",
        "make --eval 'x:;rm -rf /x'",
        "make 'X=$(shell rm -rf /x)'",
        "gcloud compute ssh vm --command='rm -rf /x'",
        "gcloud compute ssh vm --command 'rm -rf /x'",
        "gcloud compute ssh vm -- rm -rf /x",
        "homectl with x rm -rf /x",
        "lckdo f rm -rf /x",
        "envuidgid u rm -rf /x",
        "tsocks rm -rf /x",
        "nq -q rm -rf /x",
        "tsp rm -rf /x",
        "apptainer exec i rm -rf /x",
        "singularity exec i rm -rf /x",
        "restic --password-command 'rm -rf /x' snapshots",
        "yt-dlp --exec 'rm -rf /x' u",
        "aria2c --on-download-complete='rm -rf /x' u",
    ] {
        assert!(finds_rm(script, None).is_some(), "{script}");
    }
}

/// What make runs is in its files; that it is `rm` which runs it, in its words.
#[test]
fn a_shell_for_make_may_be_given_anything() {
    for script in [
        "make SHELL=/bin/rm .SHELLFLAGS=-rf",
        "make 'SHELL := /bin/rm' '.SHELLFLAGS = -rf'",
    ] {
        let reading = read_shell(script, &fence(20)).expect("readable");
        let is_shell = |one: &Command| one.text() == "/bin/rm \u{3}";
        assert!(reading.commands.iter().any(is_shell), "{reading:?}");
    }
    let reading = read_shell("make CFLAGS='-O2 -g' CC=gcc -j4", &fence(20)).expect("readable");
    let mut commands = reading.commands.iter();
    assert!(commands.all(Command::is_known), "{reading:?}");
}

#[test]
fn no_number_of_words_hides_a_command_behind_a_wrapper() {
    for script in [
        format!("choom {}-- rm -rf /x", "-n 0 ".repeat(32)),
        format!("nice {}rm -rf /x", "--unknown 1 ".repeat(100)),
        format!("xterm -T {}-e rm -rf /x", "x ".repeat(200)),
    ] {
        assert!(finds_rm(&script, None).is_some(), "{script}");
    }
}

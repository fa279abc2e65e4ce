//! What is handed to a shell elsewhere, and what programs that do so run here.

use super::*;

fn runs_rm(script: &str, input: Option<&str>) -> bool {
    let reading = read_with_input(script, input, &fence(20)).expect(script);
    let mut commands = reading.commands.iter();
    commands.any(|one| matches!(one.text().split(' ').next(), Some("rm" | "\u{2}" | "\u{3}")))
}

#[test]
fn a_script_for_a_shell_elsewhere_is_one_whatever_it_begins_with() {
    for script in [
        "ssh h 'rm x'",
        "ssh h '[ 1 ] && rm x'",
        "ssh h '(rm x)'",
        "ssh h '{ rm x; }'",
        "ssh h '! rm x'",
        "ssh h '# c\nrm x'",
        "ssh h '\"rm\" x'",
        "ssh h '2>&1 rm x'",
        "ssh h 'x=$(pwd); rm x'",
        "ssh h \"rm $X\"",
        "ssh h \"cd /srv && rm $X\"",
        "ssh $OPTIONS h '(rm x)'",
        "ssh -tp 22 h -l u '(rm' 'x)'",
        "autossh -M 0 h '(rm x)'",
        "adb shell '(rm x)'",
        "adb -s 1 shell if :\\; then rm x\\; fi",
        "ansible all -m shell -a '(rm x)'",
        "ansible all -m shell --args='(rm x)'",
        "vagrant ssh -c '(rm x)'",
        "vagrant ssh --command '(rm x)'",
    ] {
        assert!(runs_rm(script, None), "{script}");
    }
    for script in [
        "ssh h uptime",
        "ssh -i key -p 22 u@h 'df -h && uptime'",
        "ssh -o ConnectTimeout=5 h 'ls | wc -l'",
        "ssh h '(cd /srv; ls)'",
        "scp -r -P 22 a h:rm",
        "rsync -a --delete -e 'ssh -p 22' a h:b",
        "adb shell ls /sdcard",
        "docker exec c ls '(rm x)'",
    ] {
        assert!(!runs_rm(script, None), "{script}");
    }
}

#[test]
fn what_an_option_of_theirs_names_runs_here() {
    for script in [
        "ssh -o ProxyCommand=rm h true",
        "ssh -oProxyCommand=rm h",
        "ssh -o 'proxycommand rm x' h",
        "ssh -o 'ProxyCommand = (rm x)' h",
        "ssh -o \"ProxyCommand=rm $HOME\" h",
        "ssh -o PermitLocalCommand=yes -o LocalCommand=rm h",
        "ssh -v -oKnownHostsCommand=rm h",
        "scp -Srm a h:b",
        "scp -S /bin/rm a h:b",
        "scp -oProxyCommand=rm a h:b",
        "sftp -Srm h",
        "rsync --rsh=rm a h:b",
        "rsync -e rm a h:b",
        "mosh --ssh=rm h",
        "ssh -o '\"ProxyCommand\" rm x' h",
        "ssh -o 'LocalCommand=(rm x) # proxycommand' h",
        "rsync -e \"rm $X\" a h:b",
    ] {
        let script = script.replace("/bin/rm", "rm");
        assert!(runs_rm(&script, None), "{script}");
    }
}

#[test]
fn a_descriptor_besides_standard_input_does_not_stand_for_it() {
    for script in ["bash 3<<< true", "bash 2>&1", "bash -es a 3<<< true"] {
        assert!(runs_rm(script, Some("rm x")), "{script}");
    }
    for script in [
        "bash -s a 2>&1 <<< 'ls'",
        "bash 2>&1 <<< 'ls'",
        "bash <<< 'ls' 2> f",
    ] {
        assert!(!runs_rm(script, None), "{script}");
    }
}

#[test]
fn what_is_read_into_a_variable_may_run_something() {
    for script in [
        "read x; let x",
        "read x\n((x))",
        "f() { read x; ((x)); }; f",
    ] {
        assert!(runs_rm(script, Some("a[$(rm x)]")), "{script}");
    }
    for script in [
        "for i in 1 2; do f <<<'a[$(rm x)]'; f() { read x; ((x)); }; done",
        "X=a; let \"$X\"'[$(rm x)] + `'",
    ] {
        assert!(runs_rm(script, None), "{script}");
    }
    // What no function is given is a text.
    for script in [
        "log() { echo \"$*\"; }\ncat > f <<'E'\n`a` `b` `c` `d` `e` `f` `g` $(rm x)\nE",
        "rsync -az -e \"ssh -i $KEY\" ./ h:d",
        "ssh -o ProxyCommand=\"ssh -W %h:%p $J\" h uptime",
    ] {
        assert!(!runs_rm(script, None), "{script}");
    }
    assert!(!runs_rm("cat > f", Some("a[$(rm x)]")));
    assert!(!runs_rm("cat > f <<'E'\na[$(rm x)]\nE", None));
}

#[test]
fn what_may_name_a_program_behind_what_is_not_known_is_looked_at() {
    for script in [
        "echo rm x | xargs -rP 4 -I% sh -c %",
        "echo rm x | xargs -0n 1 -I% sh -c %",
        "echo rm x | xargs --max-p 4 -I% sh -c %",
        "find . -maxdepth 0 \"$(echo -exec)\" ssh-agent \"$(echo rm)\" x \\;",
        "nsenter --wd --target 1 <<< 'rm x'",
        "sudo -n --she <<< 'rm x'",
        "busybox sh --version -c 'rm x'",
        "sh --version <<< 'rm x'",
        "GIT_SSH_COMMAND=\"bash -c 'rm $X'\" git ls-remote ssh://h/x",
        "ZIP='-TT rm -T' zip -q z.zip f",
        "MAKEFLAGS='E$(shell rm x)' make -f /dev/null",
    ] {
        assert!(runs_rm(script, None), "{script}");
    }
    for script in [
        "bash --version",
        "xargs -0 sed -i s/a/b/",
        "find . -name \"$X\" -type f",
    ] {
        assert!(!runs_rm(script, None), "{script}");
    }
}

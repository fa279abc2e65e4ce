//! What is on the list of hazards, and what is not.

use super::*;

fn of(command: &str) -> Option<Hazard> {
    let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
    hazard(&words)
}

#[test]
fn what_runs_other_programs_is_on_the_list() {
    for command in [
        "bash -c x",
        "/bin/sh x",
        "python3.11 x",
        "python x",
        "env x",
        "sudo x",
        "xargs x",
        "find . -exec x",
        "timeout 5 x",
        "ssh h x",
        "git -c a=b status",
        "git --exec-path=/x status",
        "git -C /x status",
        "git -p status",
        "git grep -Oless x",
        "git grep --open-files x",
        "git rebase -x y",
        "git clone -u x y",
        "git fetch --upload-p=x",
        "git clone ext::x",
        "git config alias.x y",
        "git --no-pager -c a=b log",
        "tar xf a --checkpoint-action=exec=x",
        "tar --to-c=x -xf a",
        "tar -xIx f",
        "tar xIf x a",
        "tar cf a --use=x",
        "sed s/a/b/e",
        "awk x",
        "gawk x",
        "sort --compress-prog=x",
        "vi -c x",
        "rsync -e x",
        "make",
        "ld-linux-x86-64.so.2 x",
        "perl5.36 x",
        "jobs -x a",
        "test -v a",
        "[ -v a ]",
        "rg --pre x y",
    ] {
        assert!(matches!(of(command), Some(Hazard::Runs(_))), "{command}");
    }
}

#[test]
fn abbreviations_and_second_dashes_are_no_way_around_it() {
    for command in [
        "ip netns exec x y",
        "ip netns e x y",
        "ip netns exe x y",
        "ip net e x y",
        "ip -n a net ex x y",
        "ip v e x y",
        "ip -b x",
        "ip -bat x",
        "ip --b x",
        "ip --batch x",
        "ip -force --batch x",
        "bridge -b x",
        "tc -batch x",
        "tc e bpf import x run y",
        "openssl x -engine y",
        "openssl x --engine y",
        "openssl x --provider y",
        "openssl x --provider-path y",
        "openssl x -config y",
        "openssl dgst --engine_impl -engine y",
        "openssl x509 -out y",
        "apt-cache -o Dir::Bin::x=y policy",
        "apt-cache -oDir::Bin::x=y policy",
        "apt-cache -qo=Dir::Bin::x=y policy",
        "apt-config --option x dump",
        "apt-config --OPTION=x dump",
        "apt-mark -c x showauto",
        "apt-file --config-file=x list y",
        "apt-key adv x",
        "nmap --script=x y",
        "nmap -script x y",
        "nmap -oN x y",
        "mysqldump --plugin_dir=x y",
        "mariadb-dump --plugin-dir=x y",
        "hg bis -c x",
        "curl --expand-output x y",
        "iptables --modp=x -L",
        "ip6tables-save -M x",
    ] {
        assert!(matches!(of(command), Some(Hazard::Runs(_))), "{command}");
    }
}

#[test]
fn what_loads_code_or_takes_settings_is_on_the_list() {
    for command in [
        "git archive --output=x HEAD",
        "git archive -o x HEAD",
        "git archive -ox HEAD",
        "git checkout-index --prefix=x -a",
        "git difftool -x y",
        "git fast-import --export-marks=x",
        "git filter-branch x",
        "git for-each-repo --config=x -c y status",
        "git format-patch -o x HEAD",
        "git format-patch --output-directory=x HEAD",
        "git merge-index x -a",
        "git merge-one-file x",
        "git submodule--helper x",
        "ar --plugin x t y",
        "batcat --pager x y",
        "cpp -wrapper x y",
        "curl --engine x y",
        "dc -e !x",
        "debugfs -R x y",
        "diff3 --diff-program=x a b c",
        "docker-compose exec a b",
        "g++-12 -B x y",
        "helm template --post-renderer x y",
        "helm plugin install x",
        "hg --config x=y log",
        "invoke-rc.d ../x start",
        "jar -J-agentpath:x y",
        "keytool -J-agentpath:x",
        "keytool -list --providerpath x -providerclass y",
        "ksh93 x",
        "ksh2020 x",
        "ld.gold -plugin x",
        "ldd x",
        "logsave x y",
        "mariadb x",
        "msgexec x",
        "msgfilter x",
        "nm --plugin=x y",
        "pidstat -e x",
        "podman-compose run x",
        "posh x",
        "prove x",
        "pylint --init-hook=x y",
        "ranlib --plug x y",
        "rustc -C linker=x y",
        "sdiff --diff-prog=x a b",
        "service ../../x start",
        "ssh-add -s x",
        "ssh-keygen -D x",
        "sshpass -p x y",
        "svn diff --diff-cmd=x",
        "svn log --config-option x",
        "systemd-cat x",
        "systemd-socket-activate -l 1 x",
        "timedatectl -H x",
        "wget --config=x y",
        "wget --use-askpass=x y",
        "xelatex -shell-escape x",
        "yash x",
    ] {
        assert!(matches!(of(command), Some(Hazard::Runs(_))), "{command}");
    }
}

#[test]
fn what_writes_where_its_words_say_is_on_the_list() {
    for command in [
        "curl -o x y",
        "curl -sSo x y",
        "curl -sO y",
        "curl --outp x y",
        "curl -D x y",
        "curl --cookie-jar x y",
        "curl -cx y",
        "curl --trace-ascii x y",
        "curl --create-dirs y",
        "date 010100002030",
        "date -u 010100002030",
        "date -Ins 010100002030",
        "date -d x 010100002030",
        "date -us x",
        "hostname x",
        "hostname -F x",
        "ptx -G x y",
        "shuf -o x y",
        "shuf -zox y",
        "sort -o x y",
        "sort -uo x y",
        "sort -ux --outp=y",
        "sort x -oy",
        "tar tvf x --index-file=y",
        "tcpdump -w x",
        "tree -o x",
        "tree -ao x",
        "uniq x y",
        "uniq -c - y",
        "uniq -f 1 x y",
        "uniq -- x y",
        "wget -O x y",
        "wget -qO- y",
        "wget -P x y",
        "wget --append-output=x y",
        "wget -ax y",
        "xxd x y",
        "xxd -r -s 1 x y",
        "xxd -- x -y",
        "yq -i x y",
    ] {
        assert!(matches!(of(command), Some(Hazard::Runs(_))), "{command}");
    }
    for command in [
        "curl -XPOST -H x y",
        "curl -fsSL y",
        "curl --cookie a=b y",
        "date",
        "date +%F",
        "date -Iseconds",
        "date -u -d yesterday +%s",
        "date --date yesterday",
        "hostname -I",
        "ip -br addr",
        "ip netns list",
        "ip route get 1.1.1.1",
        "openssl x509 -in x -outform PEM -noout",
        "apt-cache policy x",
        "service nginx status",
        "nm -C x",
        "nmap -sV -p 80 x",
        "sort -k 1,1 -to x",
        "ssh-keygen -l -f x",
        "uniq -c",
        "uniq -f 1 x",
        "xxd -l 16 x",
        "git archive HEAD",
        "git log --oneline -n 5",
    ] {
        assert_eq!(of(command), None, "{command}");
    }
}

#[test]
fn what_changes_the_shell_is_on_the_list() {
    for command in [
        "eval x",
        "source x",
        ". x",
        "exec x",
        "export A=b",
        "hash -p a b",
        "enable -f a b",
        "read a",
        "declare a",
        "mapfile -C a",
        "let a",
        "trap x EXIT",
        "set -x",
        "printf -v a b",
        "printf -va b",
        "printf %n PATH",
        "printf -- %s%-5.3ln a PATH",
    ] {
        assert!(matches!(of(command), Some(Hazard::Shell(_))), "{command}");
    }
}

#[test]
fn the_ordinary_is_not() {
    for command in [
        "git status",
        "git status --short -uno",
        "git log -1 --oneline",
        "git diff HEAD~1",
        "git --no-pager log",
        "git --version",
        "ls -la",
        "cat a",
        "grep -r x .",
        "cd /x",
        "echo x",
        "printf x",
        "printf %s\\n%% next",
        "test -f a",
        "tar tf a.tar",
        "sort -u a",
        "head -n 5 a",
        "df -h",
        "uname -a",
        "ps aux",
        "systemctl status ssh",
        "journalctl -u x",
        "systemctl restart nginx",
    ] {
        assert_eq!(of(command), None, "{command}");
    }
}

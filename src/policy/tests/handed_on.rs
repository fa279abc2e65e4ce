//! What programs are given that they run, or that a shell of theirs reads.

use super::hidden::{NONE, unlike};
use super::*;

#[test]
fn options_and_variables_that_run_a_program_are_looked_at() {
    let asked = [
        "strace -o '|marker x' true",
        "strace -o'|marker x' true",
        "strace -fo '!marker x' true",
        "strace --output='|marker x' true",
        "perf stat --pre 'marker x' true",
        "perf stat --post='marker x' true",
        "dbus-run-session --dbus-daemon=marker -- true",
        "zip -T -TTmarker z.zip f",
        "zip -qT '-TTmarker x' z.zip f",
        "git clone -umarker /tmp/x y",
        "git clone -qumarker /tmp/x y",
        "git -c protocol.ext.allow=always clone 'ext::sh -c marker% x' y",
        "git -c protocol.ext.allow=always -c remote.o.url='ext::marker x' ls-remote o",
        "git config remote.o.url 'ext::marker x'",
        "pip --python /path/marker list",
        "pip3 config edit --editor marker",
        "make '.SHELLFLAGS=-c marker;' --eval='x:;@y z;'",
        "make '.SHELLFLAGS := -ec marker;'",
        "service ../../path/marker x",
        "TAR_OPTIONS='-I marker' tar cf a b",
        "env TAR_OPTIONS='-I marker' tar cf a b",
        "export TAR_OPTIONS=\"-I marker $X\"; tar cf a b",
        "ZIPOPT='-TT marker -T' zip z.zip f",
        "MAKEFLAGS='--eval=$(shell marker)' make",
        "savelog -t -x marker f",
    ];
    let policy = policy("default = \"allow\"\ndeny = [\"bash(command:marker *)\"]");
    let allowed = asked
        .iter()
        .filter(|script| bash(&policy, script) == Verdict::Allow);
    assert_eq!(allowed.collect::<Vec<_>>(), [] as [&&str; 0]);
    let harmless = [
        "strace -o /tmp/marker.log true",
        "strace -f -o /tmp/x.log ls",
        "perf stat ls",
        "zip -r z.zip marker",
        "git clone -b marker /tmp/x y",
        "pip install -r marker",
        "make .SHELLFLAGS=-ec x",
        "service marker restart",
        "MAKEFLAGS=\"-j$(nproc)\" make",
        "TAR_OPTIONS='--exclude=marker' tar cf a b",
    ];
    assert_eq!(unlike("marker *", &harmless, Verdict::Allow), NONE);
}

/// In a policy that denies `marker`, each of these runs it.
#[test]
fn programs_that_run_others_are_known() {
    let asked = [
        "env -S 'sh -c (marker)'",
        "env -S 'sh -c marker;true'",
        "env -S \"sh -c '(marker)'\"",
        "env -S 'sh -c \"true;marker\\_x\"'",
        "env -S'A=1 marker\\_x' y",
        "env -S \"$X -c (marker)\"",
        "tar {-I,marker,-cf} x y",
        "tar {--use-compress-program=marker,-cf} x y",
        "tar {-Imarker,-cf} x y",
        "gdb -ex='!marker'",
        "gdb -ex $'shell\\tmarker'",
        "gdb -ex 'she marker'",
        "lldb -o 'pla she marker'",
        "gh alias set --shell=true x marker",
        "git -c user.name=$N commit",
        "consul lock -child-exit-code prefix 'marker x'",
        "consul exec marker",
        "git {-c,'alias.x=!marker'} x",
        "git -c\"$X\" x",
        "git -c \"$X\" x",
        "git -c \"$K=$V\" x",
        "gdb -ex run marker",
        "gdb -ex '!marker'",
        "gdb -batch -ex 'shell marker x'",
        "lldb -- marker",
        "lldb -o 'platform shell marker'",
        "jobs -xl marker",
        "ccache marker",
        "distcc marker x",
        "bear -- marker",
        "stack exec marker",
        "cabal exec -- marker",
        "cross-env A=1 marker",
        "concurrently 'marker x'",
        "pm2 start marker",
        "cargo watch -s 'marker x'",
        "cargo watch -- marker",
        "bun x marker",
        "tox -e x -- marker",
        "volta run marker",
        "fnm exec marker",
        "rvm 3.2 do marker",
        "ddev exec marker",
        "devcontainer exec marker",
        "lxc-start -n x -- marker",
        "nomad alloc exec id marker",
        "consul lock prefix marker",
        "rpm -E '%(marker)'",
        "hg clone --ssh marker x y",
        "hg bisect -c marker",
        "certbot renew --deploy-hook 'marker x'",
        "gh alias set -s x marker",
        "openvpn --up marker",
        "restic backup --stdin-from-command -- marker x",
        "clang --ld-path=marker x.c",
        "tmate new marker",
    ];
    let policy = policy("default = \"allow\"\ndeny = [\"bash(command:marker *)\"]");
    let allowed = asked
        .iter()
        .filter(|script| bash(&policy, script) == Verdict::Allow);
    assert_eq!(allowed.collect::<Vec<_>>(), [] as [&&str; 0]);
    let harmless = [
        "env -S 'ls # marker'",
        "env -S \"ls '; marker'\"",
        "mkdir -p src/{main,test}/java",
        "cp marker{,.bak}",
        "git -c user.name=\"$N\" commit -m marker",
        "git -c HTTP.proxy=\"$P\" clone marker",
        "git -c user.$K=\"$N\" commit -m marker",
        "gdb -p 12 -batch -ex 'bt marker'",
        "gdb -p \"$PID\"",
        "git switch -c \"$B\"",
        "git grep -c \"$PATTERN\" marker",
        "git branch -c \"$A\" \"$B\"",
        "gh issue list -s \"$S\"",
        "gh secret set -s \"$N\" marker",
        "cargo test watch -- marker",
        "jobs -l marker",
        "cargo build --package marker",
        "cargo test marker",
        "bun install marker",
        "rpm -q marker",
        "hg diff -c 1 marker",
        "gh alias list marker",
        "restic backup marker",
        "clang -c marker.c",
        "consul kv get marker",
    ];
    assert_eq!(unlike("marker *", &harmless, Verdict::Allow), NONE);
}

#[test]
fn what_is_found_is_asked_about_where_it_is_run() {
    let asked = [
        "find bin -name 'mark*' -exec env A=1 {} \\;",
        "find bin -name 'mark*' -exec sudo -n {} \\;",
        "find bin -exec flock l {} \\;",
        "find bin -exec flock l -c {} \\;",
        "find bin -exec tmux new -d {} \\;",
        "find bin -exec npm exec -c {} \\;",
        "find bin -exec perf stat {} \\;",
        "find bin -exec ssh-agent {} \\;",
        "find bin -exec split --filter={} f \\;",
        "find bin -exec tar -I {} -cf /dev/null . \\;",
        "find bin -exec git difftool -x {} \\;",
        "find bin -exec env A=1 nice {} \\;",
        "ls bin/marker | xargs ssh-agent",
        "ls bin/marker | xargs tar -cf /dev/null . -I",
        "xargs -I{} {} x",
        "xargs -0I% %",
        "xargs -i nice {}",
        "xargs --repl=% env % x",
        "xargs -I{} sh -c 'ls {}'",
        "xargs -I{} split --filter={} f",
        "xargs -I\"$X\" ls a",
        "xargs -I{} git -c {} log",
    ];
    assert_eq!(unlike("marker *", &asked, Verdict::Ask), NONE);
    let harmless = [
        "find bin -exec env A=1 ls {} \\;",
        "find bin -exec sudo rm {} +",
        "find bin -exec timeout 5 ls {} +",
        "find bin -exec git add {} \\;",
        "find bin -exec tar -rf x.tar {} +",
        "find bin -exec chmod 644 {} +",
        "xargs -0 sed -i s/a/b/",
        "xargs grep -i x",
        "xargs -I{} cp {} /tmp",
        "xargs -n1 -I % mv % %.bak",
        "xargs -i touch {}",
        "xargs rm",
        "xargs git add",
        "bash --version",
        "sh --version | head -1",
    ];
    assert_eq!(unlike("marker *", &harmless, Verdict::Allow), NONE);
    let denied = ["xargs -I{} marker {}", "xargs -I{} marker {} x <<< a"];
    assert_eq!(unlike("marker *", &denied, Verdict::Deny), NONE);
}

#[test]
fn options_in_a_group_and_settings_hide_no_command() {
    let asked = [
        "mapfile -tCmarker a",
        "compgen -aCmarker",
        "script -qcmarker f",
        "su -lcmarker",
        "hg --config alias.x='!marker y' x",
        "hg --config=alias.x='!marker y' x",
        "apt-cache -o Dir::Bin::dpkg=marker search x",
        "gpg --agent-program=marker -k",
        "svn --config-option config:helpers:diff-cmd=marker diff",
        "cargo --config target.x.runner=marker run",
        "socat - exec:marker",
        "socat - 'system:marker x'",
        ". -- marker",
        "make --eval='x:;@marker'",
        "make --eval='x:;-@+marker x'",
        "gpgtar --gpg=marker -t x",
        "mdadm --monitor --program=marker",
        "mlr --prepipe 'marker x' cat f",
        "pandoc --filter=marker x.md",
        "protoc --plugin=protoc-gen-x=marker x.proto",
        "rpmspec -E '%(marker x)'",
        "gh alias set x '!marker y'",
        "retry marker x",
        "fstab-decode marker x",
        "ssh-copy-id -o ProxyCommand=marker h",
    ];
    let policy = policy("default = \"allow\"\ndeny = [\"bash(command:marker*)\"]");
    let judged = asked.iter().map(|script| (*script, bash(&policy, script)));
    let allowed = judged.filter(|(_, verdict)| *verdict == Verdict::Allow);
    assert_eq!(allowed.collect::<Vec<_>>(), NONE);
    let git = [
        "/usr/lib/git-core/git-push x",
        "sudo /usr/lib/git-core/git-push x y",
    ];
    assert_eq!(unlike("git push *", &git, Verdict::Deny), NONE);
    let others = [
        "git-push x",
        "./git-push x",
        "git-push() { :; }; git-push x",
    ];
    assert_eq!(unlike("git push *", &others, Verdict::Ask), NONE);
    let lines = format!("make --eval='x:\n{}\t@git push x'", "\t@echo\n".repeat(20));
    let grouped = [
        "docker run --entrypoint=su img root \"-${c}git push x\"",
        "docker exec c foo -@'git push x'",
        "watch -é'git push x'",
        &lines,
    ];
    assert_eq!(unlike("git push *", &grouped, Verdict::Ask), NONE);
    let deep = "git-bisect run ".repeat(250) + "git-push x";
    assert_eq!(unlike("git push *", &[&deep], Verdict::Ask), NONE);
    let harmless = [
        "git-lfs pull",
        "socat - TCP:host:80",
        "make --eval='x:;@echo marker'",
        "cmake -DX=marker/y ..",
        "tar -xzf marker.tgz",
    ];
    assert_eq!(unlike("marker", &harmless, Verdict::Allow), NONE);
}

#[test]
fn patterns_that_are_passed_on_are_no_scripts_but_behind_an_option_for_one() {
    let asked = [
        "npx -c 'mark[e]r'",
        "npx --call='mark?r'",
        "npm exec -c 'm*'",
        "npm exec 'm*'",
        "npm explore p 'm*'",
        "npm pkg set 'scripts.x=m*'",
        "pnpm -c exec 'm*'",
        "pnpm -r --shell-mode exec x 'm*'",
        "yarn exec 'm*'",
        "npx -p x 'm*'",
    ];
    assert_eq!(unlike("marker *", &asked, Verdict::Ask), NONE);
    let harmless = [
        "npx eslint 'src/**/*.ts'",
        "npx prettier --write 'src/**/*.{js,ts,tsx}' '!dist/**'",
        "pnpm exec eslint --ext .ts 'src/**/[a-z]*.ts'",
        "npm run test -- 'tests/**/*.spec.js'",
        "yarn jest --testPathPattern 'a*'",
        "pnpm --filter './packages/*' build",
        "npx -y prettier --check 'src/**'",
        "npx --version",
        "npm run x; npm install exec",
    ];
    assert_eq!(unlike("marker *", &harmless, Verdict::Allow), NONE);
}

#[test]
fn what_a_program_elsewhere_is_given_to_read_is_a_script_where_a_shell_reads_it() {
    let asked = [
        "docker exec -i c sh <<< \"marker $X\"",
        "docker exec -i c env X=1 sh <<< \"marker $X\"",
        "docker exec -i c $SHELL <<< \"marker $X\"",
        "docker exec -i c \"$X\" <<E\nmarker $X\nE",
        "docker run -i --entrypoint sh psql -s <<< \"marker $X\"",
        "docker run -i alpine -s <<< \"marker $X\"",
        "docker attach c <<< \"marker $X\"",
        "docker start -i compose <<< \"marker $X\"",
        "docker build - <<< \"RUN marker $X\"",
        "ssh h bash '' <<< \"marker $X\"",
        "ssh h bash '' < f",
        "kubectl exec -i p -- bash <<< \"marker $X\"",
        "kubectl run p -i --image x <<< \"marker $X\"",
        "ssh h bash -s <<< \"marker $X\"",
        "ssh h bash",
        "ssh h bash -s < f",
        "docker exec -i c sh <<< 'marker x'",
        "ssh h bash -c \"'marker x'\"",
        "ssh h bash -s -- a <<'E'\ncd /srv\nmarker x\nE",
        "ssh h bash -s <<< 'marker x'",
        "ssh h psql <<< \"marker $X\"",
        "docker container start -i compose < f",
        "docker -c compose start -ai c < f",
        "kubectl run p -i --image=bash < f",
        "kubectl run -it --rm p --image=bash --restart=Never < f",
        "npx <<< \"marker $X\"",
        "npx -y -p ./p < f",
        "npm exec < f",
        "npm explore p < f",
        "npx -c \"$X\"",
        "npx concurrently 'ls; marker x'",
        "npx -y concurrently 'ls && marker x'",
        "npx nodemon@3 --exec 'ls; marker x'",
        "npx nodemon@3 -x \"$X marker x\"",
        "npx npm@latest exec -c 'ls; marker x'",
        "pnpx -c 'ls; marker x'",
        "uvx honcho run 'ls; marker x'",
        "npx -p x -c \"$X\"",
        "npx \"$X\" a",
        "npx \"$X\" marker x",
        "npx env \"$X\"",
    ];
    assert_eq!(unlike("marker *", &asked, Verdict::Ask), NONE);
    let denied = [
        "npx sh@1 -c 'ls; marker x'",
        "npx marker x",
        "npx -y marker \"$X\"",
        "npx env marker x",
    ];
    assert_eq!(unlike("marker *", &denied, Verdict::Deny), NONE);
    let harmless = [
        "ssh h bash -s <<'E'\nuptime\nE",
        "kubectl apply -f - <<E\nname: $NAME\nE",
        "docker exec -i db psql -U postgres <<E\nselect * from t where id = $ID;\nE",
        "kubectl exec -i db -- mysql <<E\nselect `a` from (select 1);\nE",
        "npx prettier --write \"$f\" $g",
        "npx -y prettier \"src/$x\"",
        "uvx ruff check \"$f\"",
    ];
    assert_eq!(unlike("marker *", &harmless, Verdict::Allow), NONE);
}

#[test]
fn what_reads_a_part_of_its_own_script_hides_no_command() {
    let asked = [
        "bash <<'E'\nread -n2\n: marker x\nE",
        "bash <<'E'\nhead -c 5\necho marker x\nE",
        "bash <<'E'\nread x\n: '\nmarker x\n: '\nE",
        "ssh h bash -s <<'E'\ndd bs=1 count=2\n: marker x\nE",
    ];
    assert_eq!(unlike("marker *", &asked, Verdict::Ask), NONE);
    let harmless = ["bash <<'E'\ncd /srv\nls\nE", "bash <<< 'head -1 f'"];
    assert_eq!(unlike("marker *", &harmless, Verdict::Allow), NONE);
}

#[test]
fn aliases_of_gits_and_dollars_of_makes_hide_no_command() {
    let asked = [
        "git -c alias.x='!nice' x marker x",
        "git -c alias.x='!sh -c' x 'marker x'",
        "git -c alias.x='grep -Omarker' x x",
        "git -c alias.x='!git -c' x 'alias.y=!marker x' y",
        "git -c ALIAS.x='!nice' x marker x",
        "git -c alias.X='!nice' x marker x",
        "git -c alias.x='!nice' -c alias.y=x y marker x",
        "git config alias.x '!nice'; git x marker x",
        "git config --global alias.x 'submodule foreach'; git x marker x",
        "gh alias set x '!nice'; gh x marker x",
        "make 'X=${call shell,marker x}' x",
        "make --eval='x:;: \"$$(marker x)\"'",
        "make --eval='x:;: $$(X=1 marker x)'",
        "make 'X=$$(marker x)' --eval='x:;: $(X)'",
        "make 'X=$(call shell,marker x)' x",
    ];
    assert_eq!(unlike("marker *", &asked, Verdict::Ask), NONE);
    let harmless = [
        "git -c alias.l='log --oneline' l -5",
        "git config --global alias.co checkout; git co main",
        "git config alias.up '!git pull --rebase && git push'",
        "gh alias set bugs 'issue list --label=bug'",
        "git -c alias.x='!ls' x \"a b\"",
        "make CFLAGS=-O2 X=$HOME/x all",
        "make install HOOK=callback",
    ];
    assert_eq!(unlike("marker *", &harmless, Verdict::Allow), NONE);
}

#[test]
fn what_only_another_shell_can_read_hides_no_command() {
    let asked = [
        "flock f -c '[[ a b & X=1 marker x'",
        "flock f -c '[[ a b & \"marker\" x'",
        "flock f -c '[[ a & time -p marker x'",
        "flock f -c 'a[ b & X=1 marker x'",
        "flock f -c 'echo $[ & X=1 marker x'",
        "flock f -c 'x=(& X=1 marker x'",
        "script -qc '[[ a b & X=1 marker x' /dev/null",
        "docker exec -i c sh <<< '[[ a b & env marker x'",
        "env GIT_PAGER='[[ a b & X=1 marker x' git log",
        "export 'GIT_SSH_COMMAND=[[ a || X=1 marker x ]]'; git fetch",
        "GIT_SSH_COMMAND='X=1 marker x '\"$Y\" git fetch",
        "GIT_SSH_COMMAND='>g marker x '\"$Y\" git fetch",
        "flock f -c 'f() X=1 marker x; f'",
        "flock f -c ']]; X=1 marker x'",
        "flock f -c ': `X=1 marker x)`'",
        "flock f -c ']]\nX='\\''\n'\\'' marker x'",
        "sh -c 'cat <<$\"E\"\n$E\nmarker x\nE'",
        "sh -c 'eval \": \"$\"#; marker x\"'",
    ];
    assert_eq!(unlike("marker *", &asked, Verdict::Ask), NONE);
    let harmless = ["docker exec c grep 'a(b' f", "git commit -m 'see [[a]] (b'"];
    assert_eq!(unlike("marker *", &harmless, Verdict::Allow), NONE);
}

#[test]
fn a_script_from_another_descriptor_is_not_what_the_input_says() {
    let asked = [
        ". <(echo marker x) <<< :",
        ". /dev/fd/3 3< f <<< :",
        "source \"$1\" <<< :",
        "bash /dev/fd/3 3< <(echo marker x) <<< :",
        "sh \"$x\" <<< :",
        "bash --rcfile /dev/fd/3 -i 3< f <<< :",
    ];
    assert_eq!(unlike("marker *", &asked, Verdict::Ask), NONE);
    let harmless = [
        "bash <<< ls",
        "bash -s a b <<< 'echo $1'",
        "bash - <<< ls",
        "sh /dev/stdin <<< ls",
        ". /dev/stdin <<< x=1",
        ". ./env.sh",
        "bash /srv/build.sh <<< yes",
    ];
    assert_eq!(unlike("marker *", &harmless, Verdict::Allow), NONE);
}

#[test]
fn makefiles_formats_and_settings_from_elsewhere_hide_no_command() {
    let asked = [
        "printf 'x:;@marker x' | make -f -",
        "cat f | make --file=-",
        "make -f <(cat f)",
        "make -f /dev/fd/3 3< f",
        "make -f- <<< $'x:;@mar\\\nker x'",
        "make --eval=$'x:;@mar\\\n\tker x'",
        "make -f - <<< 'X != marker x'",
        "make -f - <<< 'override SHELL := marker'",
        "make -f - <<< '.SHELLFLAGS = -c marker x;'",
        "make -f - <<< 'CC = marker x'",
        "tmux ls -F '#(marker x)'",
        "tmux set -g status-right '#(marker x)'",
        "tmux command-prompt 'run-shell \"marker x\"'",
        "tmux display-menu x x 'run-shell \"marker x\"'",
        "ssh -F /dev/stdin h <<< 'ProxyCommand marker x'",
        "scp -F- f h: <<< 'ProxyCommand marker x'",
        "git -c include.path=/dev/stdin -p x <<< '[alias]'",
        "git -c includeIf.gitdir:/.path=f x",
        "rustc -Clinker=marker f.rs > x",
        "foo A=marker\\ x",
    ];
    assert_eq!(unlike("marker *", &asked, Verdict::Ask), NONE);
    let harmless = [
        "make -f Makefile.dev all",
        "make -f - <<< $'all:\n\tgcc -o x x.c'",
        "make -C src -j4 CC=clang",
        "tmux set -g status-right '%H:%M'",
        "ssh -F ~/.ssh/work h uptime",
        "git -c user.name='A B' commit -m x",
        "rustc -C linker=lld f.rs",
        "dd if=/dev/zero of=/tmp/x bs=1M count=10",
        "tar \"$flags\" backup.tgz src",
    ];
    assert_eq!(unlike("marker *", &harmless, Verdict::Allow), NONE);
}

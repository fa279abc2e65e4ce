//! What hides a command from a rule, and what only looks so.

use super::*;

/// Those of `scripts` that are not judged so.
pub(super) fn unlike<'s>(
    rule: &str,
    scripts: &[&'s str],
    expected: Verdict,
) -> Vec<(&'s str, Verdict)> {
    let policy = policy(&format!(
        "default = \"allow\"\ndeny = [\"bash(command:{rule})\"]"
    ));
    let judged = scripts
        .iter()
        .map(|script| (*script, bash(&policy, script)));
    judged.filter(|(_, verdict)| *verdict != expected).collect()
}

pub(super) const NONE: [(&str, Verdict); 0] = [];

#[test]
fn words_that_may_be_none_hide_no_command() {
    let asked = [
        "$SUDO marker -rf /",
        "${SUDO:-} marker -rf /",
        "$(:) marker -rf /",
        "$A $B marker -rf /",
        "\"$@\" marker -rf /",
        "bash -c '$SUDO marker -rf /'",
        "$SUDO /bin/marker -rf /",
        "\"$SUDO\" -u root /bin/marker -rf /",
        "e\"$X\" marker -rf /",
        "\"$SHELL\" -c 'a; marker -rf /'",
        "\"$SHELL\" -c \"marker -rf $X\"",
        "marker \"$@\" -rf /",
        "a=(); marker \"${a[@]}\" -rf /",
        "marker -rf / \"$@\"",
        "marker -rf / \"${!p@}\"",
    ];
    assert_eq!(unlike("marker -rf /", &asked, Verdict::Ask), NONE);
    let harmless = [
        "$SUDO ls -rf /",
        "marker -rf \"$@\"x",
        "$CURL -H \"Authorization: Bearer $T\" -d 'a b' u",
        "$DIR/bin/ls marker",
        "ls \"$@\" marker -rf /",
        "for f in \"$@\"; do ls \"$f\"; done",
    ];
    assert_eq!(unlike("marker -rf /", &harmless, Verdict::Allow), NONE);
}

#[test]
fn escapes_and_broken_text_hide_no_command() {
    let asked = [
        r"x=$'a[\x{24}(marker x)]'; ((x))",
        r"let $'a[\x24(marker x)]+\z'",
        r"let $'a[\x24(marker x)]\0'",
        r"let $'a[\x24(marker x)]+\xff'",
        r"let $'a[\x24(marker x)]\c'",
        r"PS4=$'\x{24}(marker x)'; set -x; :",
        "PS4='$(marker x) `'; set -x; :",
        "let 'a[$(marker x)] + `'",
    ];
    assert_eq!(unlike("marker *", &asked, Verdict::Ask), NONE);
    let harmless = [
        r"printf '%s' $'\xff\xfe\z' $'a\0b'",
        "git commit -m 'it`s [ok] (x)'",
        "echo 'use `x` and [`y`'",
        "grep 'a`' f; sed 's/[`]//' f",
        "msg='it`s'",
    ];
    assert_eq!(unlike("marker *", &harmless, Verdict::Allow), NONE);
}

#[test]
fn quotes_and_joined_lines_hide_no_name_that_changes_what_others_mean() {
    let asked = [
        "shopt -s expand_aliases\nprintf -v BASH_ALIA''SES[ls] 'marker x'\nls",
        "shopt -s expand_aliases\nread BASH_ALIA\"\"SES[ls] <<< 'a x'\nls",
        "printf -v 'BASH_CM''DS[foo]' /tmp/a; foo x",
        "printf -v BASH_CM\\\nDS[foo] /tmp/a; foo x",
        "printf -v \\BASH_CMDS\\[foo] /tmp/a; foo x",
        "x=BASH_CM''DS; printf -v \"$x[foo]\" /tmp/a; foo x",
        "V='!a x' git --config''-env=alias.x=V x",
        "V='!a x' git --config\\\n-env=alias.x=V x",
        "env GIT_CON''FIG_COUNT=1 git x",
        "set -o hist''expand",
    ];
    assert_eq!(unlike("marker *", &asked, Verdict::Ask), NONE);
    let harmless = [
        "git config --list",
        "echo BASH",
        "git --config-x",
        "shopt -s extglob",
    ];
    assert_eq!(unlike("marker *", &harmless, Verdict::Allow), NONE);
}

#[test]
fn values_of_which_not_all_is_known_hide_no_command() {
    let long = format!(
        "GIT_EXTERNAL_DIFF='marker x #{}' git diff --no-index a b",
        "x".repeat(4200)
    );
    let asked = [
        "GIT_SSH_COMMAND=\"marker $X\" git ls-remote ssh://h/x",
        "GIT_SSH_COMMAND=\"cd /; marker $X\" git ls-remote ssh://h/x",
        "GIT_SSH_COMMAND=\"timeout 5 /bin/marker $X\" git ls-remote ssh://h/x",
        "export GIT_EXTERNAL_DIFF=\"marker $X\"; git diff --no-index a b",
        "LESSOPEN=\"|marker $X %s\" less f",
        "LESSOPEN=\"-marker $X %s\" less f",
        "PAGER=\"$ENV marker x\" man ls",
        "LESSOPEN=\"|:; f() { marker x; }; f $X %s\" less f",
        "PAGER=\"if marker x; then $X; fi\" man ls",
        &long,
    ];
    assert_eq!(unlike("marker *", &asked, Verdict::Ask), NONE);
    let long = format!("text='{}'; echo a", "x ".repeat(3000));
    let harmless = [
        "DIR=\"$(pwd)\"; ls",
        "PATH=\"$HOME/bin:$PATH\" ls",
        "URL=\"http://h/?a=$b&c=$d\"; curl -s -o /dev/null http://h",
        "MSG=\"Deploy $V; see (x) $Y\"; echo a",
        "CFLAGS=\"-O2 $CFLAGS\" ls",
        "OPTS=\"$OPTS -x marker\"; ls",
        "GIT_SSH_COMMAND=\"ssh -i $KEY\" git push",
        &long,
    ];
    assert_eq!(unlike("marker *", &harmless, Verdict::Allow), NONE);
}

#[test]
fn a_shell_that_reads_its_input_is_told_behind_all_its_options() {
    let starts = [
        "sudo VAR=1 -s",
        "sudo VAR=1 -i",
        "sudo -p x=y A=b -nu root B=c -s",
        "runuser - root",
        "runuser -s /bin/sh root",
        "runuser -l root",
        "chroot --userspec root:root /",
        "chroot --user root:root /",
        "chroot --groups 0 /",
        "unshare -R /",
        "unshare --root /",
        "unshare -w /tmp",
        "unshare --wd /tmp",
        "unshare --propagation private -m",
        "unshare --map-root-user --user",
        "nsenter --target 1 -m",
        "setarch x86_64 -R",
        "setarch -R x86_64 -3",
        "sg - root",
        "pkexec --user root",
    ]
    .map(|starts| format!("{starts} <<< '/bin/marker x'"));
    let starts: Vec<&str> = starts.iter().map(String::as_str).collect();
    assert_eq!(unlike("marker *", &starts, Verdict::Deny), NONE);
    let others = [
        "sudo VAR=1 cat",
        "sudo A=b -u root cat",
        "chroot --userspec root:root / cat",
        "unshare -R / cat",
        "unshare --wd /tmp -m cat",
        "setarch x86_64 -R cat",
        "runuser -u root -- cat -n",
    ]
    .map(|starts| format!("{starts} <<< '/bin/marker x'"));
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    assert_eq!(unlike("marker *", &others, Verdict::Allow), NONE);
    let contained = "docker run -i --name x --env A=b image <<< 'marker x'";
    assert_eq!(unlike("marker *", &[contained], Verdict::Ask), NONE);
}

#[test]
fn what_is_no_command_behind_a_wrapper_is_let_alone() {
    let harmless = [
        "sudo ls \"$DIR\"",
        "sudo -n -u root ls -l \"$DIR\"",
        "timeout 5 ls \"$DIR\"",
        "nice -n 5 ls \"$DIR/x\"",
        "env -i ls \"$DIR\"",
        "sudo timeout 5 ls \"$DIR\"",
        "find \"$DIR\" -type f",
        "find \"$DIR\" -name \"*.$EXT\" -type f",
        "find \"$DIR\" -exec rm {} +",
        "sudo find \"$DIR\" -type f",
    ];
    assert_eq!(unlike("marker *", &harmless, Verdict::Allow), NONE);
    let asked = [
        "sudo \"$CMD\" x",
        "sudo $OPTS ls \"$DIR\"",
        "sudo -u $USER ls \"$DIR\"",
        "sudo --odd 5 \"$CMD\"",
        "sudo -s \"$CMD\"",
        "sudo -ns \"$CMD\"",
        "sudo sh \"$FILE\"",
        "sudo su \"$USER\"",
        "timeout 5 \"$CMD\"",
        "timeout $T ls \"$DIR\"",
        "timeout \"$T\" 5 \"$CMD\"",
        "env \"$A=x\" ls \"$DIR\"",
        "find . -exec env \"$A=x\" ls \"$DIR\" \\;",
        "timeout 5 nice --odd 5 \"$CMD\"",
        "env \"$A\" \"$CMD\"",
        "env -S \"$CMD\"",
        "find $DIR -type f",
        "find \"$A\" \"$B\" x \\;",
        "find . -exec \"$CMD\" {} \\;",
        "find . -exec env \"$CMD\" {} \\;",
        "find . -exec sudo --odd 5 \"$CMD\" {} \\;",
        "find . -exec sh -c \"$CMD\" \\;",
        "docker exec web \"$CMD\"",
        "sudo docker exec web \"$CMD\"",
        "xargs sudo \"$CMD\"",
    ];
    assert_eq!(unlike("marker *", &asked, Verdict::Ask), NONE);
    let denied = ["sudo -u \"$X\" marker \"$DIR\"", "timeout 5 marker \"$A\""];
    assert_eq!(unlike("marker *", &denied, Verdict::Deny), NONE);
}

#[test]
fn a_call_that_has_bash_read_as_posix_says_is_asked_about() {
    let policy = policy("default = \"allow\"\ndeny = [\"bash(command:marker *)\"]");
    let env = BTreeMap::from([("POSIXLY_CORRECT".to_owned(), "1".to_owned())]);
    let judged = policy.judge(&Question {
        tool: "bash",
        input: &json!({ "command": ": \"${x-'}\"; marker x; : \"'}\"" }),
        paths: &[],
        caller: &Caller::this_process(),
        chain: &[],
        working_dir: Some(Path::new("/srv")),
        env: &env,
        stdin: None,
        shell: Path::new("/bin/bash"),
    });
    assert_eq!(judged.verdict, Verdict::Ask);
}

/// A call that has these variables, judged under a rule.
fn with_variables(rule: &str, variables: &[(&str, &str)], script: &str) -> Verdict {
    let policy = policy(&format!(
        "default = \"allow\"\ndeny = [\"bash(command:{rule})\"]"
    ));
    let variables = variables.iter();
    let variables = variables.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let judged = policy.judge(&Question {
        tool: "bash",
        input: &json!({ "command": script }),
        paths: &[],
        caller: &Caller::this_process(),
        chain: &[],
        working_dir: Some(Path::new("/srv")),
        env: &variables.collect(),
        stdin: None,
        shell: Path::new("/bin/bash"),
    });
    judged.verdict
}

#[test]
fn what_is_asked_about_for_certain_says_why() {
    let policy = policy(
        "default = \"allow\"\nask = [{ rule = \"bash(command:rm *)\", reason = \"it is gone\", match = [\"sudo rm x\"] }]",
    );
    for script in ["sudo rm x", "env rm x", "rm x", "ls; sudo rm x"] {
        let judged = judge(&policy, "bash", &json!({ "command": script }));
        assert_eq!(judged.verdict, Verdict::Ask);
        assert_eq!(judged.reason, "it is gone", "{script}");
    }
    let policy = self::policy(
        "default = \"allow\"\ndeny = [\"bash(command:git push *)\"]\nask = [\"bash(command:rm *)\"]",
    );
    let judged = judge(
        &policy,
        "bash",
        &json!({ "command": "rm x; $X git push x" }),
    );
    let rule = Some("bash(command:git push *)");
    assert_eq!(
        (judged.verdict, judged.rule.as_deref()),
        (Verdict::Ask, rule)
    );
}

#[test]
fn variables_of_a_call_hide_no_command() {
    let asked = [
        ("GIT_EXTERNAL_DIFF", "marker x", "git diff"),
        ("GIT_SSH_COMMAND", "cd /; marker x", "git fetch"),
        ("PAGER", "/bin/marker x", "man ls"),
        ("LESSOPEN", "|marker x %s", "less f"),
        ("TAR_OPTIONS", "-I 'marker x'", "tar cf a b"),
        ("n", "a[$(marker x)]", "((n))"),
        ("c", "marker x", "$c"),
        ("GIT_CONFIG_COUNT", "1", "git x"),
        ("X", "/dev/stdin", "ls"),
    ];
    for (name, value, script) in asked {
        let verdict = with_variables("marker *", &[(name, value)], script);
        assert_eq!(verdict, Verdict::Ask, "{name}={value} {script}");
        let value = value.replace("marker x", "git push x");
        let verdict = with_variables("git push *", &[(name, &value)], script);
        assert_eq!(verdict, Verdict::Ask, "{name}={value} {script}");
    }
    let harmless = [
        ("TERM", "xterm-marker"),
        ("RUST_LOG", "info"),
        ("DATABASE_URL", "postgres://u:p@h/db?a=b&c=d"),
        ("GREETING", "hello, it's marker x"),
        ("NODE_OPTIONS", "--max-old-space-size=4096"),
    ];
    for one in harmless {
        let verdict = with_variables("marker *", &[one], "ls && git status");
        assert_eq!(verdict, Verdict::Allow, "{one:?}");
    }
    let long = "x".repeat(70_000);
    let verdict = with_variables("marker *", &[("x", &long)], "ls");
    assert_eq!(verdict, Verdict::Ask, "nobody has looked");
}

#[test]
fn what_is_known_in_part_hides_no_command() {
    let asked = [
        "/bin/ba?h <<< 'git push x'",
        "\"$BASH\" <<< 'git push x'",
        "\"$BASH\" < f",
        "echo 'git push x' | \"$BASH\"",
        "echo 'git push x' | { ls; \"$BASH\"; }",
        "s${X}urce /dev/stdin <<< 'git push x'",
        "g${X}t -c alias.x='!git push x' x",
        "t${X}r --to-command='git push x' -xf a",
        "sudo \"$BASH\" <<< 'git push x'",
        "source \"$D/x\" <<< 'git push x'",
        "ln -s /dev/stdin l; bash l <<< 'git push x'",
        "ln -s /dev/stdin l; . ./l <<< 'git push x'",
        "cd /dev; BASH_ENV=stdin bash -c : <<< 'git push x'",
        "x=std; BASH_ENV=/dev/${x}in bash -c : <<< 'git push x'",
        "for BASH_ENV in stdin; do bash -c :; done",
        "printf -v PAGER '%s' 'git push x'; man ls",
        "printf -vPAGER 'git push x'; man ls",
        "read PAGER <<< 'git push x'; man ls",
        "for PAGER in 'git push x'; do man ls; done",
    ];
    assert_eq!(unlike("git push *", &asked, Verdict::Ask), NONE);
    let harmless = [
        "for f in git push x; do echo \"$f\"; done",
        "bash x.sh <<< y",
        "printf -v out '%s' x",
        "read line <<< 'git push x'",
        "BASH_ENV= bash -c ls",
        "ENV=prod ls",
        "for ENV in dev prod; do ls; done",
        "BASH_ENV=/etc/profile bash -c ls",
    ];
    assert_eq!(unlike("git push *", &harmless, Verdict::Allow), NONE);
}

#[test]
fn what_was_opened_to_be_read_is_not_written_unasked() {
    let policy = policy(
        "default = \"allow\"\ndeny = [\"write_file(file_path:/srv/keys/**)\", \"bash(command:git push *)\"]",
    );
    let asked = [
        "echo x 3<keys/x >/proc/self/fd/3",
        "echo x 3<keys/x >/dev/fd/3",
        "exec 1<keys/x; echo x >/dev/stdout",
        "echo x 3<keys/x 1>&3 >/dev/stdout",
        "echo x <keys/x >/dev/stdin",
        "echo x <keys/x >/dev/fd/0",
        "echo x 3<keys/x >/dev//fd/3",
        "$C$E keys; echo x >y",
        "make -C keys --eval='x:;echo > y'",
    ];
    let judged = asked.iter().map(|script| (*script, bash(&policy, script)));
    let allowed = judged.filter(|(_, verdict)| *verdict != Verdict::Ask);
    assert_eq!(allowed.collect::<Vec<_>>(), NONE);
    let harmless = [
        "echo x >/dev/stderr",
        "while read -u 3 x; do echo \"$x\"; done 3<keys/x",
        "echo x >&2 2>/dev/null",
    ];
    let judged = harmless
        .iter()
        .map(|script| (*script, bash(&policy, script)));
    let asked = judged.filter(|(_, verdict)| *verdict != Verdict::Allow);
    assert_eq!(asked.collect::<Vec<_>>(), NONE);
    for script in ["$X >keys/y", "make --eval='x:;echo > keys/y'"] {
        assert_eq!(bash(&policy, script), Verdict::Deny, "{script}");
    }
}

#[test]
fn what_the_parser_has_otherwise_hides_no_command() {
    let denied = [
        "a=(x)b marker",
        "a=(x)#; marker",
        "a+=(x)= marker",
        "a[0]=(x)\"\" marker",
        "a=()x marker y",
        "a=(x)\\\nb marker",
        "f() { a=(x)b marker; }; f",
    ];
    assert_eq!(unlike("marker *", &denied, Verdict::Deny), NONE);
    let asked = [
        "a=((x))b marker",
        "${SUDO~} marker",
        "${x@Z} marker",
        "${!} marker",
        "m${x~}arker",
        "\"m${x@}arker\"",
        "bash -c 'm${x~}arker'",
        "script -qc '<<E marker' /dev/null",
        "git -c alias.x='!<<E marker' x",
        "strace -o '|<<E marker x' true",
    ];
    assert_eq!(unlike("marker *", &asked, Verdict::Ask), NONE);
    assert_eq!(unlike("git push *", &asked[..4], Verdict::Ask), NONE);
    let harmless = [
        "a=(x y); echo \"${a[@]}\"",
        "a=(x) b=(y)\nls",
        "a=(x)>f",
        "(a=(x)); (cd x && ls)",
        "a=(\n  x # first\n  y\n)\nls",
        "[[ x =~ ^(a|b)$ ]] && ls",
        "echo \"\\${x}\" '${x~}'",
        "echo \"${x:-y}\" ${#x} ${x%.*} ${x//a/b} ${x^^} ${!x}",
    ];
    assert_eq!(unlike("marker *", &harmless, Verdict::Allow), NONE);
}

#[test]
fn another_encoding_hides_no_command_in_what_is_not_ascii() {
    let asked = [
        "LC_ALL=zh_CN.GBK\n: '中\u{6587}'",
        "export LANG=ja_JP.SJIS; echo '中'",
        "env LC_CTYPE=zh_TW.Big5 bash -c \"echo '中'\"",
        "LC_ALL=$x; echo '中'",
        "read LC_ALL <<< zh_CN.GBK; echo '中'",
    ];
    assert_eq!(unlike("marker *", &asked, Verdict::Ask), NONE);
    let harmless = [
        "LC_ALL=C sort '中'",
        "LANG=de_DE.UTF-8 echo 'ü'; LC_ALL=C.utf8 ls ä",
        "LC_ALL=de_DE.ISO-8859-1 sort f",
        "echo '中'; export LANG=",
    ];
    assert_eq!(unlike("marker *", &harmless, Verdict::Allow), NONE);
}

#[test]
fn names_of_what_bash_expands_itself_matter_only_where_variables_stand_for_others() {
    let harmless = [
        "export PS4='+ $LINENO: '; set -x; ls \"$ARG\"",
        "declare x='a $y'; sudo -u b X='c $D' ls; env 'E=f $G' ls",
        "declare -n ref=name; ref=x",
        "BASH_ENV=/etc/x bash -c 'ls'",
        "read x <<< 'a\\[1]'; echo 'costs \\$(5)'",
        "sed 's/\\(a\\)$\\|\\(b\\)/x/' f",
        "cp x{,.bak} {a,b}'$'c",
    ];
    assert_eq!(unlike("marker *", &harmless, Verdict::Allow), NONE);
}

#[test]
fn of_a_value_what_is_not_known_counts_where_programs_may_see_it() {
    let asked = [
        "x='ma?ker a'; $x",
        "x='ma?ker a'; eval \"$x\"",
        "X='ma?ker a'; export X; prog",
        "X='ma?ker a'; e\"x\"port X; prog",
        "X='ma?ker a'; exp{ort,} X; prog",
        "export X='ma?ker a'; prog",
        "set -a; X='ma?ker a'; prog",
        "set -euxa; X='ma?ker a'; prog",
        "set -o allexport; X='ma?ker a'; prog",
        "X='ma?ker a'; declare -x X; prog",
        "X='ma?ker a'; declare $y X; prog",
        "X='ma?ker a' prog",
        "x='ma?ker a' prog",
        "PAGER='ma?ker a'; git log",
        "bash -ac \"X='ma?ker a'; prog\"",
        "X='ma?ker a'; env X=\"$X\" prog",
        "X='ma?ker a'; Y=\"$X\" prog",
        "x='ma?ker a'; PAGER=\"$x\" git log",
        "printf -v X %s 'ma?ker a'; env X=\"$X\" prog",
        "for X in 'ma?ker a'; do export X; prog; done",
    ];
    assert_eq!(unlike("marker *", &asked, Verdict::Ask), NONE);
    let harmless = [
        "X='ma?ker a'; prog",
        "x='ma?ker (a)'; prog \"$x\"",
        "f() { local y=\"$1\"; x='ma?ker (a)'; prog --y=\"$x\"; }; f",
        "set -euo pipefail; X=\"it's $y (a)\"; prog",
    ];
    assert_eq!(unlike("marker *", &harmless, Verdict::Allow), NONE);
}

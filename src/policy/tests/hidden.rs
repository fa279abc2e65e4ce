//! What hides a command from a rule, and what only looks so.

use super::*;

/// Those of `scripts` that are not judged so.
fn unlike<'s>(rule: &str, scripts: &[&'s str], expected: Verdict) -> Vec<(&'s str, Verdict)> {
    let policy = policy(&format!(
        "default = \"allow\"\ndeny = [\"bash(command:{rule})\"]"
    ));
    let judged = scripts
        .iter()
        .map(|script| (*script, bash(&policy, script)));
    judged.filter(|(_, verdict)| *verdict != expected).collect()
}

const NONE: [(&str, Verdict); 0] = [];

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

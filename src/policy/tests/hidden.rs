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

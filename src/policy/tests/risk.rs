//! What rules say of trust: what runs in the sandbox, and what may write where.

use super::*;

#[test]
fn what_is_not_known_to_be_harmless_runs_in_the_sandbox() {
    let policy = policy(
        "default = \"untrusted\"\ndeny = [\"bash(command:rm *)\"]\nask = [\"bash(command:reboot*)\"]\n\
         allow = [\"bash(command:git status *)\", \"bash(command:ls *)\", \"read_file\"]\n",
    );
    let (trusted, untrusted) = (RiskLevel::Trusted, RiskLevel::Untrusted);
    for (command, verdict, risk) in [
        ("git status", Verdict::Allow, trusted),
        ("git status && ls -l", Verdict::Allow, trusted),
        ("git status && make", Verdict::Allow, untrusted),
        ("make; git status", Verdict::Allow, untrusted),
        ("ls > x", Verdict::Allow, untrusted),
        ("ls $(make)", Verdict::Allow, untrusted),
        ("if", Verdict::Ask, untrusted),
        ("reboot", Verdict::Ask, untrusted),
        ("rm x", Verdict::Deny, untrusted),
    ] {
        let judgement = judge(&policy, "bash", &json!({"command": command}));
        assert_eq!(
            (judgement.verdict, judgement.risk_level),
            (verdict, risk),
            "{command}"
        );
        assert_eq!(judgement.risk_rule, None);
    }
    let file = json!({"file_path": "/etc/hosts"});
    assert_eq!(judge(&policy, "read_file", &file).risk_level, trusted);
    assert_eq!(judge(&policy, "other", &file).risk_level, untrusted);
}

/// What refuses, asks about or confines commands does so by whatever name they are called.
#[test]
fn a_command_is_one_by_whatever_name() {
    let policy = policy(
        "deny = [\"bash(command:rm *)\"]\nask = [\"bash(command:reboot*)\"]\nuntrusted = [\"bash(command:curl *)\"]\n",
    );
    let judged = |command: &str| judge(&policy, "execute_command", &json!({"command": command}));
    assert_eq!(judged("true; rm -rf /").verdict, Verdict::Deny);
    assert_eq!(judged("reboot").verdict, Verdict::Ask);
    assert_eq!(judged("curl x").risk_level, RiskLevel::Untrusted);
    assert_eq!(judged("ls").verdict, Verdict::Allow);
    // To be allowed it has to be named.
    let text = "default = \"deny\"\nallow = [\"bash(command:ls *)\"]\n";
    let (policy, input) = (self::policy(text), json!({"command": "ls /"}));
    assert_eq!(judge(&policy, "bash", &input).verdict, Verdict::Allow);
    let judgement = judge(&policy, "execute_command", &input);
    assert_eq!(judgement.verdict, Verdict::Deny);
}

#[test]
fn rules_raise_the_risk_and_change_no_verdict() {
    let policy = policy(
        "ask = [\"bash(command:apt *)\"]\n\
         untrusted = [{ rule = \"bash(command:curl *)\", match = [\"curl x\", \"true; curl x\"], not_match = [\"ls\"] }, \"fetch\"]\n",
    );
    for (command, verdict, rule) in [
        ("ls", Verdict::Allow, None),
        ("ls && curl x", Verdict::Allow, Some("bash(command:curl *)")),
        (
            "bash -c 'curl x'",
            Verdict::Allow,
            Some("bash(command:curl *)"),
        ),
        ("$X y", Verdict::Ask, Some("bash(command:curl *)")),
        (
            "apt update; curl x",
            Verdict::Ask,
            Some("bash(command:curl *)"),
        ),
        ("apt update", Verdict::Ask, None),
    ] {
        let judgement = judge(&policy, "bash", &json!({"command": command}));
        assert_eq!(judgement.verdict, verdict, "{command}");
        assert_eq!(judgement.risk_rule.as_deref(), rule, "{command}");
        let untrusted = judgement.risk_level == RiskLevel::Untrusted;
        assert_eq!(untrusted, rule.is_some(), "{command}");
    }
    assert_eq!(
        judge(&policy, "fetch", &json!({})).risk_level,
        RiskLevel::Untrusted
    );
    let refused = refusal("untrusted = [{ reason = \"x\" }]");
    assert!(refused.contains("`untrusted`"), "{refused}");
    assert!(policy.rule_count() == 3);
}

#[test]
fn a_workspace_is_granted_to_what_a_rule_covers_whole() {
    let policy = policy(
        "workspace = [{ rule = \"bash(command:touch *)\", dir = \"/srv/build\", match = [\"touch all\"], not_match = [\"touch; ls\"] },\n\
         { rule = \"fetch\", dir = \"/srv/mail\", users = [\"0\"] }, { rule = \"f*\", dir = \"/srv/other\" }]\n",
    );
    for (command, dir) in [
        ("touch", Some("/srv/build")),
        ("touch a && touch b", Some("/srv/build")),
        ("touch; ls", None),
        ("touch $(ls)", None),
        ("touch > x", None),
        ("X=1 touch", None),
        ("ls", None),
    ] {
        let judgement = judge(&policy, "bash", &json!({"command": command}));
        assert_eq!(judgement.verdict, Verdict::Allow, "{command}");
        assert_eq!(judgement.risk_level, RiskLevel::Trusted, "{command}");
        let granted = judgement.workspace.as_deref();
        assert_eq!(granted, dir.map(Path::new), "{command}");
    }
    // The first that covers it.
    for (uid, dir) in [(0, "/srv/mail"), (1, "/srv/other")] {
        let judgement = judge_as(&policy, uid, "fetch", &json!({}));
        assert_eq!(judgement.workspace.as_deref(), Some(Path::new(dir)));
    }
    assert_eq!(policy.rule_count(), 3);
    for (text, parts) in [
        (
            "workspace = [\"bash\"]",
            &["`workspace`", "no table", "dir"][..],
        ),
        ("workspace = [{ rule = \"bash\" }]", &["without `dir`"]),
        ("workspace = [{ dir = \"/srv\" }]", &["without `rule`"]),
        (
            "workspace = [{ rule = \"bash\", dir = \"srv\" }]",
            &["`dir`", "\"srv\"", "absolute"],
        ),
        (
            "workspace = [{ rule = \"bash\", dir = \"/srv/../etc\" }]",
            &["\"/srv/../etc\"", "`..`"],
        ),
        (
            "workspace = [{ rule = \"bash\", dir = \"//\" }]",
            &["`dir`", "the whole machine"],
        ),
        (
            "workspace = [{ rule = \"bash(command:sh *)\", dir = \"/srv\" }]",
            &["never allow anything"],
        ),
        (
            "workspace = [{ rule = \"bash(command:touch*)\", dir = \"/srv\", match = [\"ls\"] }]",
            &["`match`", "ls"],
        ),
        ("allow = [{ rule = \"bash\", dir = \"/srv\" }]", &["`dir`"]),
    ] {
        let refused = refusal(text);
        for part in parts {
            assert!(refused.contains(part), "{refused:?} lacks {part:?}");
        }
    }
}

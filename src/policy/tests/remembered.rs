//! What approvals leave behind.

use std::time::SystemTime;

use super::*;
use crate::domain::ApprovalId;

const UID: u32 = 70_000;

fn caller() -> Caller {
    Caller {
        uid: UID,
        gid: 7,
        groups: Vec::new(),
    }
}

fn approved(rule: &str, uid: u32) -> Remembered {
    Remembered {
        rule: rule.to_owned(),
        uid,
        called_by: None,
        approval: ApprovalId::from_bytes([7; 16]),
        approved_by: 0,
        at: SystemTime::UNIX_EPOCH,
        source: None,
    }
}

fn with(text: &str, rules: &[&str]) -> Policy {
    let approved: Vec<Remembered> = rules.iter().map(|rule| approved(rule, UID)).collect();
    let policy = policy(text).with_remembered(&approved);
    policy.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_remembered_approval_outweighs_what_asks_and_nothing_else() {
    let policy = with(
        "default = \"deny\"\ndeny = [\"bash(command:git push *--force*)\"]\n\
         ask = [\"bash(command:git push *)\", \"bash(command:systemctl *)\", \"write_file(file_path:/etc/**)\"]\n\
         allow = [\"bash(command:git *)\", \"bash(command:ls *)\"]\n",
        &[
            "bash(command:git push origin*)",
            "bash(command:nice systemctl stop x)",
            "bash(command:sudo systemctl stop z)",
            "bash(command:./run)",
        ],
    );
    for (script, verdict) in [
        ("git push origin main", Verdict::Allow),
        ("ls; git push origin main | git log", Verdict::Allow),
        ("git push other", Verdict::Ask),
        ("git push origin; git push other", Verdict::Ask),
        ("git push origin; /usr/bin/git push other", Verdict::Deny),
        ("git push origin; make", Verdict::Deny),
        ("git push origin --force", Verdict::Deny),
        ("git push origin > /srv/x", Verdict::Deny),
        ("git push origin $X", Verdict::Deny),
        ("git push origin > /etc/x", Verdict::Deny),
        ("X=1 git push origin", Verdict::Deny),
        // What asks is within the command that was approved, or in another.
        ("sudo systemctl stop z", Verdict::Allow),
        ("sudo systemctl stop y", Verdict::Deny),
        ("nice systemctl stop x", Verdict::Allow),
        ("nice systemctl stop y", Verdict::Deny),
        ("nice systemctl stop x; git push origin", Verdict::Allow),
        ("nice systemctl stop x; systemctl stop x", Verdict::Deny),
        ("./run", Verdict::Allow),
        ("./run; cd /tmp", Verdict::Deny),
    ] {
        assert_eq!(bash(&policy, script), verdict, "{script}");
    }
    let other = judge_as(
        &policy,
        UID + 1,
        "bash",
        &json!({"command": "git push origin"}),
    );
    assert_eq!(other.verdict, Verdict::Ask, "it was another's approval");
}

#[test]
fn who_approved_a_call_has_not_let_it_out_of_the_sandbox() {
    let curl = json!({"command": "curl x"});
    for text in [
        "ask = [\"bash(command:curl *)\"]\nuntrusted = [\"bash(command:curl *)\"]\n",
        "default = \"untrusted\"\nask = [\"bash(command:curl *)\"]\n",
    ] {
        let asked = judge(&policy(text), "bash", &curl);
        assert_eq!(
            (asked.verdict, asked.risk_level),
            (Verdict::Ask, RiskLevel::Untrusted)
        );
        let approved = judge(&with(text, &["bash(command:curl x)"]), "bash", &curl);
        assert_eq!(
            (approved.verdict, approved.risk_level),
            (Verdict::Allow, RiskLevel::Untrusted),
            "{text}"
        );
    }
}

#[test]
fn what_nothing_asks_about_may_stand_beside_it() {
    let asks = "ask = [\"bash(command:git push *)\", \"bash(command:./x)\"]";
    let policy = with(
        asks,
        &["bash(command:git push origin)", "bash(command:./x)"],
    );
    for (script, verdict) in [
        ("make; git push origin", Verdict::Allow),
        ("make; git push other", Verdict::Ask),
        ("make; sudo git push origin", Verdict::Ask),
        ("cd x && git push origin", Verdict::Allow),
        ("./x; cd y; make", Verdict::Allow),
        ("./x; cd y; ./x", Verdict::Ask),
        ("git push origin; $X", Verdict::Ask),
        ("git push origin &", Verdict::Ask),
    ] {
        assert_eq!(bash(&policy, script), verdict, "{script}");
    }
    let all = with("ask = [\"bash\"]", &["bash(command:ls)"]);
    assert_eq!(bash(&all, "ls; ls"), Verdict::Allow);
    assert_eq!(bash(&all, "ls; true"), Verdict::Ask);
}

#[test]
fn a_variable_of_the_call_is_none_that_was_approved() {
    let policy = with("ask = [\"bash\"]", &["bash(command:ls)"]);
    let env = BTreeMap::from([("PATH".to_owned(), "/tmp".to_owned())]);
    let question = Question {
        tool: "bash",
        input: &json!({"command": "ls"}),
        paths: &[],
        caller: &caller(),
        chain: &[],
        working_dir: None,
        env: &env,
        stdin: None,
        shell: Path::new("/bin/bash"),
    };
    assert_eq!(policy.judge(&question).verdict, Verdict::Ask);
}

#[test]
fn what_was_approved_of_a_tools_calls_is_approved_of_those_alone() {
    let policy =
        policy("default = \"deny\"\nask = [{rule = \"bash(command:ls)\", called_by = [\"a\"]}]");
    let judge = |policy: &Policy, chain: &[&str]| {
        let chain: Vec<String> = chain.iter().map(|&name| name.to_owned()).collect();
        policy.judge(&Question {
            tool: "bash",
            input: &json!({"command": "ls"}),
            paths: &[],
            caller: &caller(),
            chain: &chain,
            working_dir: Some(Path::new("/")),
            env: &BTreeMap::new(),
            stdin: None,
            shell: Path::new("/bin/bash"),
        })
    };
    let asked = judge(&policy, &["a", "b"]);
    assert_eq!(
        (asked.verdict, asked.remember_rules),
        (Verdict::Ask, vec!["bash(command:ls)".to_owned()])
    );
    let remembered = Remembered {
        called_by: Some("b".to_owned()),
        ..approved("bash(command:ls)", UID)
    };
    let policy = policy.with_remembered(&[remembered]).expect("valid");
    for (chain, verdict) in [
        (&["a", "b"][..], Verdict::Allow),
        (&["a"], Verdict::Ask),
        (&["c"], Verdict::Deny),
        (&[], Verdict::Deny),
    ] {
        assert_eq!(judge(&policy, chain).verdict, verdict, "{chain:?}");
    }
}

#[test]
fn who_approved_a_path_has_not_approved_a_mode() {
    let policy = with(
        "ask = [\"write_file(mode:append)\", \"write_file(file_path:/srv/**)\"]",
        &["write_file(file_path:/srv/a)"],
    );
    for (input, verdict) in [
        (json!({"file_path": "a", "mode": "new"}), Verdict::Allow),
        (json!({"file_path": "b", "mode": "new"}), Verdict::Ask),
        (json!({"file_path": "a", "mode": "append"}), Verdict::Ask),
    ] {
        let judgement = judge(&policy, "write_file", &input);
        assert_eq!(judgement.verdict, verdict, "{input}");
    }
}

/// Whatever is offered lets the call pass, and its like no further.
#[test]
fn what_is_offered_to_remember_lets_the_call_pass() {
    let text = "default = \"ask\"\nask = [\"bash(command:git push *)\", \"write_file\", \"fetch(method:POST)\"]\n\
                deny = [\"bash(command:rm *)\"]\nallow = [\"bash(command:git *)\", \"bash(command:ls *)\"]";
    let script = |text: &str| ("bash", json!({ "command": text }));
    for ((tool, input), offered) in [
        (
            script("ls; git push 'a b'; touch x"),
            &["bash(command:git push a\\ b)", "bash(command:touch x)"][..],
        ),
        (
            script("/usr/bin/git push"),
            &["bash(command:/usr/bin/git push)"],
        ),
        (script("sudo git push"), &[]),
        (script("git push $X"), &[]),
        (script("ssh host rm x"), &[]),
        (
            ("write_file", json!({"file_path": "a", "content": "b"})),
            &["write_file(file_path:/srv/a)"],
        ),
        (
            ("fetch", json!({"url": "x", "method": "POST"})),
            &["fetch(method:POST)"],
        ),
        (("fetch", json!({"url": "x", "method": "GET"})), &[]),
    ] {
        let asked = judge(&policy(text), tool, &input);
        assert_eq!(asked.verdict, Verdict::Ask, "{input}");
        assert_eq!(asked.remember_rules, offered, "{input}");
        if offered.is_empty() {
            continue;
        }
        let policy = with(text, offered);
        let allowed = judge(&policy, tool, &input);
        assert_eq!(allowed.verdict, Verdict::Allow, "{input}");
        let other = judge_as(&policy, UID + 1, tool, &input);
        assert_eq!(other.verdict, Verdict::Ask, "{input}");
    }
}

#[test]
fn a_judgement_names_the_approval() {
    let ask = "ask = [\"bash(command:make *)\"]";
    let session = with(ask, &["bash(command:make x)"]);
    let input = json!({"command": "true; make x"});
    let judgement = judge(&session, "bash", &input);
    assert_eq!(
        judgement.reason,
        "a remembered approval allows `make x`: `bash(command:make x)`, approved for this session"
    );
    assert_eq!((judgement.source, judgement.suggest), (None, None));
    let lasting = Remembered {
        source: Some(RuleSource {
            file: "policy.d/a.toml".into(),
            line: 3,
        }),
        ..approved("bash(command:make x)", UID)
    };
    let lasting = policy(ask).with_remembered(&[lasting]).expect("valid");
    let judgement = judge(&lasting, "bash", &input);
    assert!(
        judgement
            .reason
            .ends_with("written down at policy.d/a.toml:3"),
        "{}",
        judgement.reason
    );
    assert_eq!(judgement.source.map(|source| source.line), Some(3));
    assert_eq!(judgement.rule.as_deref(), Some("bash(command:make x)"));
}

#[test]
fn what_is_remembered_adds_up_and_a_session_outlasts_a_reload() {
    let ask = "ask = [\"bash\"]";
    let mut written = approved("bash(command:b)", UID);
    written.source = Some(RuleSource {
        file: "f".into(),
        line: 1,
    });
    let first = with(ask, &["bash(command:a)"]);
    let both = first.with_remembered(&[written]).expect("valid");
    assert_eq!(bash(&both, "a; b"), Verdict::Allow);
    assert!(first.reads_like(&policy(ask)) && !both.reads_like(&first));
    let read_anew = policy(ask).with_session_of(&both);
    let rules: Vec<&str> = read_anew
        .remembered()
        .map(|one| one.rule.as_str())
        .collect();
    assert_eq!(rules, ["bash(command:a)"]);
    assert_eq!(read_anew.rule_count(), 2);
}

#[test]
fn no_more_is_remembered_than_anybody_was_asked_about() {
    for (rule, part) in [
        ("bash", "`Tool(param:pattern)`"),
        ("*", "`Tool(param:pattern)`"),
        ("bash(command:eval x)", "expected no rule"),
        ("bash(command:sudo *)", "the whole command"),
        ("bash(command", "expected `Tool`"),
    ] {
        let refused = policy("").with_remembered(&[approved(rule, UID)]);
        let said = refused.expect_err(rule).to_string();
        assert!(said.contains(part), "{said}");
        assert!(said.starts_with("approval 07070707-"), "{said}");
    }
}

/// Who was asked about one file was not asked about all that are written in that way.
#[test]
fn how_a_file_is_touched_is_not_remembered() {
    let policy =
        policy("default = \"allow\"\nask = [\"write_file(mode:w)\", \"fetch(method:POST)\"]");
    let input = json!({"file_path": "/srv/a", "content": "x", "mode": "w"});
    let asked = judge(&policy, "write_file", &input);
    assert_eq!(
        (asked.verdict, &asked.remember_rules[..]),
        (Verdict::Ask, &[][..])
    );
    // Where there is no path it says as much as can be said.
    let asked = judge(&policy, "fetch", &json!({"method": "POST", "to": "x"}));
    assert_eq!(asked.remember_rules, ["fetch(method:POST)"]);
}

//! Policies as a whole: text in, judgements out.

mod bounds;
mod everyday;
mod handed_on;
mod hidden;
mod neighbours;
mod refusals;
mod remembered;
mod risk;
mod substitutions;
mod told;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::domain::{Caller, RiskLevel};

/// As the default, but for time: a machine that is busy is no reason to fail.
fn patient() -> Fence {
    Fence {
        time_limit: Duration::from_secs(20),
        ..Fence::default()
    }
}

fn policy(text: &str) -> Policy {
    let source = Source {
        path: Path::new("p.toml"),
        text,
    };
    Policy::parse_with(&[source], patient()).unwrap_or_else(|error| panic!("{error}"))
}

fn refusal(text: &str) -> String {
    let source = Source {
        path: Path::new("p.toml"),
        text,
    };
    Policy::parse(&[source]).expect_err(text).to_string()
}

fn judge_as(policy: &Policy, uid: u32, tool: &str, input: &Value) -> Judgement {
    judge_in("/bin/bash", policy, uid, (tool, input))
}

fn judge_in(shell: &str, policy: &Policy, uid: u32, (tool, input): (&str, &Value)) -> Judgement {
    policy.judge(&Question {
        tool,
        input,
        paths: &[],
        caller: &Caller {
            uid,
            gid: 7,
            groups: vec![4242],
        },
        chain: &[],
        working_dir: Some(Path::new("/srv")),
        env: &BTreeMap::new(),
        stdin: None,
        shell: Path::new(shell),
    })
}

fn judge(policy: &Policy, tool: &str, input: &Value) -> Judgement {
    judge_as(policy, 70_000, tool, input)
}

fn bash(policy: &Policy, command: &str) -> Verdict {
    judge(policy, "bash", &json!({ "command": command })).verdict
}

#[test]
fn the_shipped_policies_are_valid() {
    for (text, default) in [
        (SHIPPED_POLICY, Verdict::Allow),
        (OPEN_POLICY, Verdict::Allow),
        (OBSERVE_POLICY, Verdict::Deny),
        (GUARDED_POLICY, Verdict::Ask),
    ] {
        assert_eq!(policy(text).default_verdict(), default);
    }
    // What is commented out is as valid, but for a group that need not be there.
    let (_, commented) = SHIPPED_POLICY.split_once("# deny").expect("an example");
    let uncommented = format!("# deny{commented}").replace("\n# ", "\n");
    let uncommented = uncommented
        .replacen("# ", "", 1)
        .replace("[\"shelly\"]", "[\"root\"]");
    assert_eq!(policy(&uncommented).rule_count(), 8, "{uncommented}");
    assert!(policy(OPEN_POLICY).examples().len() > 10);
    // A dry run changes nothing, and is no way around what is denied.
    for (path, dry_run, verdict) in [
        ("/srv/a", true, Verdict::Allow),
        ("/srv/a", false, Verdict::Ask),
        ("/etc/shelly-executor/policy.toml", true, Verdict::Deny),
    ] {
        let input = json!({"file_path": path, "dry_run": dry_run});
        for tool in ["write_file", "edit_file"] {
            let judged = judge(&policy(GUARDED_POLICY), tool, &input).verdict;
            assert_eq!(judged, verdict, "{tool} {input}");
        }
    }
}

/// Whoever tries it has not installed anything yet, and so has no group `shelly`.
#[test]
fn the_first_example_of_the_documentation_is_valid_on_any_machine() {
    let page = include_str!("../../docs/permissions.md");
    let (_, example) = page.split_once("```toml\n").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    assert_eq!(policy(example).rule_count(), 5, "{example}");
}

#[test]
fn the_strictest_rule_and_the_strictest_command_win() {
    let policy = policy(
        "default = \"ask\"\ndeny = [\"bash(command:rm *)\"]\nask = [\"bash(command:git push *)\"]\n\
         allow = [\"bash(command:git *)\", \"bash(command:ls *)\", \"bash(command:rm x)\"]\n",
    );
    for (command, verdict) in [
        ("git status", Verdict::Allow),
        ("git status && ls | ls", Verdict::Allow),
        ("git push", Verdict::Ask),
        ("git status; git push", Verdict::Ask),
        ("git status; make", Verdict::Ask),
        ("git push; rm -rf x", Verdict::Deny),
        ("rm x", Verdict::Deny),
        ("ls; for i in a; do rm $i; done", Verdict::Deny),
        ("/bin/rm a", Verdict::Deny),
        ("git -c a=b status", Verdict::Ask),
        ("A=b git status", Verdict::Ask),
        ("git status > x", Verdict::Ask),
        ("\"git status\"", Verdict::Ask),
    ] {
        assert_eq!(bash(&policy, command), verdict, "{command}");
    }
}

#[test]
fn what_cannot_be_read_is_asked_about_only_where_it_matters() {
    let open = policy("allow = [\"bash(command:ls *)\"]");
    let denies = policy("deny = [\"bash(command:rm *)\"]");
    let strict = policy("default = \"deny\"\ndeny = [\"bash(command:rm *)\"]");
    for script in [
        "if",
        "$X",
        "echo )",
        "bash",
        &"x ".repeat(40_000),
        "((((((((((((((((((((true); ); ); ); );",
    ] {
        assert_eq!(bash(&open, script), Verdict::Allow, "{script}");
        assert_eq!(bash(&denies, script), Verdict::Ask, "{script}");
        assert_eq!(bash(&strict, script), Verdict::Deny, "{script}");
    }
    assert_eq!(
        bash(&denies, "echo $X; for i in *; do ls $i; done"),
        Verdict::Allow
    );
}

#[test]
fn the_whole_tool_may_be_allowed_whatever_its_text() {
    for text in [
        "default = \"deny\"\nallow = [\"bash\"]",
        "default = \"deny\"\nallow = [\"*\"]",
    ] {
        assert_eq!(bash(&policy(text), "x=$(( 1 )) y <<E\nE"), Verdict::Allow);
    }
    let but = policy("default = \"deny\"\nallow = [\"bash\"]\ndeny = [\"bash(command:rm*)\"]");
    assert_eq!(bash(&but, "cat <(rm x)"), Verdict::Deny);
    assert_eq!(bash(&but, "cat <(ls x)"), Verdict::Allow);
    let asked = policy("ask = [\"bash\"]\nallow = [\"bash(command:ls)\"]");
    assert_eq!(bash(&asked, "ls"), Verdict::Ask);
}

#[test]
fn a_redirect_is_a_write() {
    let policy = policy("deny = [\"write_file(file_path:/etc/**)\"]");
    for (command, verdict) in [
        ("echo x > /etc/hosts", Verdict::Deny),
        ("echo x >> ../etc/hosts", Verdict::Deny),
        ("echo x &> /etc/x", Verdict::Deny),
        ("echo x >| /etc/x", Verdict::Deny),
        ("echo x >& /etc/x", Verdict::Deny),
        ("{ echo x; } > /etc/x", Verdict::Deny),
        ("f() { :; } > /etc/x", Verdict::Deny),
        ("cat <> /etc/x", Verdict::Deny),
        ("bash -c 'echo > /etc/x'", Verdict::Deny),
        ("echo x > $HOME/x", Verdict::Ask),
        ("echo x | bash", Verdict::Ask),
        ("bash < /tmp/x", Verdict::Ask),
        ("source <(echo x)", Verdict::Ask),
        ("sudo -i", Verdict::Ask),
        ("echo x | cat", Verdict::Allow),
        ("echo x > ~/x", Verdict::Ask),
        ("cd /etc && echo x > hosts", Verdict::Ask),
        ("cd /etc && echo x > /tmp/x", Verdict::Allow),
        ("echo x > y", Verdict::Allow),
        ("echo x > /dev/null 2>&1", Verdict::Allow),
        ("echo '> /etc/hosts'", Verdict::Allow),
        ("cat < /etc/hosts", Verdict::Allow),
        // A relative one where nobody knows from where.
        ("su - x -c 'echo > y'", Verdict::Ask),
        ("su -lc 'echo > y' x", Verdict::Ask),
        ("runuser -l x -c 'echo > y'", Verdict::Ask),
        ("su x -c 'echo > y'", Verdict::Allow),
        ("find . -execdir sh -c 'echo > y' \\;", Verdict::Ask),
        ("find . -exec sh -c 'echo > y' \\;", Verdict::Allow),
        ("machinectl shell x /bin/sh -c 'echo > y'", Verdict::Ask),
        (
            "start-stop-daemon -S -d /etc -x /bin/sh -- -c 'echo > y'",
            Verdict::Ask,
        ),
        ("git -C /etc rebase --exec 'echo > y'", Verdict::Ask),
        (
            "git -C /etc rebase --exec 'bash -c \"echo > y\"'",
            Verdict::Ask,
        ),
        ("ssh host 'echo > y'", Verdict::Ask),
        ("docker exec -w /etc c sh -c 'echo > y'", Verdict::Ask),
        ("docker exec c sh -c 'echo > /tmp/y'", Verdict::Allow),
        ("ssh host ls > y", Verdict::Allow),
        ("git log > y", Verdict::Allow),
        // And one whose text is not where it leads.
        ("echo x > /var/run/../etc/x", Verdict::Ask),
        ("echo x > /tmp/../etc/x", Verdict::Deny),
        ("echo x > ../tmp/x", Verdict::Ask),
        ("echo x > /proc/self/root/etc/x", Verdict::Ask),
        ("echo x > //proc/./self/cwd/x", Verdict::Ask),
        ("echo x > /proc/1/root/etc/x", Verdict::Ask),
        ("echo x > /proc/thread-self/root/etc/x", Verdict::Ask),
        ("echo x > /proc/self/task/1/root/etc/x", Verdict::Ask),
        ("echo x > /proc/1/fd/1", Verdict::Ask),
        ("echo x > /proc/self/fd/3/x", Verdict::Ask),
        ("echo x > /dev/fd/3/x", Verdict::Ask),
        ("echo x > /dev/fd/3", Verdict::Allow),
        ("echo x > /proc/self/fd/2", Verdict::Allow),
        ("echo x > /proc/sys/vm/x", Verdict::Allow),
    ] {
        assert_eq!(bash(&policy, command), verdict, "{command}");
    }
    let file = json!({"file_path": "/etc/x", "content": ""});
    assert_eq!(judge(&policy, "write_file", &file).verdict, Verdict::Deny);
}

#[test]
fn who_edits_writes_and_who_answers_a_diff_shows_what_there_was() {
    let policy = policy(
        "default = \"ask\"\ndeny = [\"write_file(file_path:/etc/**)\", \"read_file(file_path:/keys/**)\"]\n\
         allow = [\"write_file(file_path:/srv/**)\", \"bash\"]\n",
    );
    let on = |tool: &str, path: &str| judge(&policy, tool, &json!({"file_path": path})).verdict;
    assert_eq!(on("edit_file", "/etc/hosts"), Verdict::Deny);
    assert_eq!(on("edit_file", "/keys/a"), Verdict::Deny);
    assert_eq!(on("write_file", "/keys/a"), Verdict::Deny);
    assert_eq!(on("read_file", "/etc/hosts"), Verdict::Ask);
    // Who may write may not edit for that.
    assert_eq!(on("edit_file", "/srv/a"), Verdict::Ask);
    assert_eq!(on("write_file", "/srv/a"), Verdict::Allow);
    // A redirect shows nothing.
    assert_eq!(bash(&policy, "echo x > /keys/a"), Verdict::Allow);
    assert_eq!(bash(&policy, "echo x > /etc/a"), Verdict::Deny);
}

#[test]
fn parameters_and_paths() {
    let policy = policy(
        "default = \"ask\"\ndeny = [\"read_file(file_path:/etc/**)\", \"fetch(url:http://*)\", \"danger*\"]\n\
         allow = [\"read_file(file_path:/srv/**)\", \"fetch\"]\n",
    );
    for (tool, input, verdict) in [
        (
            "read_file",
            json!({"file_path": "/etc/shadow"}),
            Verdict::Deny,
        ),
        (
            "read_file",
            json!({"file_path": "/srv/../etc/shadow"}),
            Verdict::Deny,
        ),
        (
            "read_file",
            json!({"file_path": "../etc//./shadow"}),
            Verdict::Deny,
        ),
        ("read_file", json!({"file_path": "a/b"}), Verdict::Allow),
        (
            "read_file",
            json!({"file_path": "/srv/x/../y"}),
            Verdict::Ask,
        ),
        ("read_file", json!({"file_path": "/home/x"}), Verdict::Ask),
        (
            "read_file",
            json!({"file_path": ["/srv/a", "/etc/x"]}),
            Verdict::Deny,
        ),
        (
            "read_file",
            json!({"file_path": ["/srv/a", "/home/x"]}),
            Verdict::Ask,
        ),
        ("read_file", json!({}), Verdict::Ask),
        ("fetch", json!({"url": "https://x"}), Verdict::Allow),
        ("fetch", json!({"url": "http://x"}), Verdict::Deny),
        ("dangerous", json!({}), Verdict::Deny),
    ] {
        assert_eq!(
            judge(&policy, tool, &input).verdict,
            verdict,
            "{tool} {input}"
        );
    }
}

#[test]
fn rules_for_some_concern_only_them() {
    let policy = policy(
        "deny = [{rule = \"x\", users = [\"root\"], groups = [\"4243\"]}, {rule = \"y\", groups = [\"4242\"]}]",
    );
    let none = json!({});
    assert_eq!(judge_as(&policy, 0, "x", &none).verdict, Verdict::Deny);
    assert_eq!(judge(&policy, "x", &none).verdict, Verdict::Allow);
    assert_eq!(judge(&policy, "y", &none).verdict, Verdict::Deny);
}

#[test]
fn rules_for_what_some_tools_call_concern_only_that() {
    let policy = policy(
        "default = \"ask\"\ndeny = [{rule = \"x\", called_by = [\"a\", \"b?\"], users = [\"70000\"]}]\n\
         allow = [{rule = \"bash(command:ls *)\", called_by = [\"deploy\"], match = [\"ls\"]}]",
    );
    let caller = Caller {
        uid: 70_000,
        ..Caller::this_process()
    };
    let judge = |tool, chain: &[&str], uid| {
        let chain: Vec<String> = chain.iter().map(|&name| name.to_owned()).collect();
        let question = Question {
            tool,
            input: &json!({"command": "ls -l"}),
            paths: &[],
            caller: &Caller {
                uid,
                ..caller.clone()
            },
            chain: &chain,
            working_dir: None,
            env: &BTreeMap::new(),
            stdin: None,
            shell: Path::new("/bin/bash"),
        };
        policy.judge(&question).verdict
    };
    for (tool, chain, uid, verdict) in [
        ("x", &["a"][..], 70_000, Verdict::Deny),
        ("x", &["a", "z"], 70_000, Verdict::Deny),
        ("x", &["z", "b1"], 70_000, Verdict::Deny),
        ("x", &["a"], 70_001, Verdict::Ask),
        ("x", &["aa", "b"], 70_000, Verdict::Ask),
        ("x", &[], 70_000, Verdict::Ask),
        ("a", &[], 70_000, Verdict::Ask),
        ("bash", &["deploy"], 0, Verdict::Allow),
        ("bash", &["night", "deploy", "step"], 0, Verdict::Allow),
        ("bash", &["undeploy"], 0, Verdict::Ask),
        ("bash", &[], 0, Verdict::Ask),
    ] {
        assert_eq!(judge(tool, chain, uid), verdict, "{tool} {chain:?} {uid}");
    }
    for (called_by, part) in [
        ("[]", "names no tool"),
        ("\"a\"", "expected a list"),
        ("[1]", "expected a string"),
        ("[\"a b\"]", "\"a b\" is no tool's name"),
        ("[\"\"]", "expected a tool's name"),
    ] {
        let refused = refusal(&format!(
            "deny = [{{rule = \"x\", called_by = {called_by}}}]"
        ));
        assert!(
            refused.contains("p.toml:1: `called_by`") && refused.contains(part),
            "{refused}"
        );
    }
}

#[test]
fn a_variable_of_the_call_takes_the_script_out_of_every_pattern() {
    let judge = |policy: &Policy, variables: &[(&str, &str)]| {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        policy.judge(&Question {
            tool: "bash",
            input: &json!({"command": "ls"}),
            paths: &[],
            caller: &Caller::this_process(),
            chain: &[],
            working_dir: None,
            env: &variables.iter().map(owned).collect(),
            stdin: None,
            shell: Path::new("/bin/bash"),
        })
    };
    let asks = policy("default = \"ask\"\nallow = [\"bash(command:ls *)\"]");
    for (name, verdict) in [
        ("BASH_ENV", Verdict::Ask),
        ("PATH", Verdict::Ask),
        ("NO_COLOR", Verdict::Allow),
    ] {
        assert_eq!(judge(&asks, &[(name, "x")]).verdict, verdict, "{name}");
    }
    // One that decides what runs takes it from those that ask, too.
    let allows = policy("default = \"allow\"\nask = [\"bash(command:rm *)\"]");
    let judgement = judge(&allows, &[("PATH", "x")]);
    assert_eq!(judgement.verdict, Verdict::Ask);
    assert!(
        judgement.reason.contains("the call sets `PATH`"),
        "{judgement:?}"
    );
    assert!(
        judgement
            .would_change
            .starts_with("A call without `PATH` in `env`"),
        "{judgement:?}"
    );
    // What programs may run is told by the variable that it stands in.
    let (pager, settings) = (("PAGER", "rm x"), ("CFG", r#"{"a": 1, "b": [1, 2]}"#));
    for (variables, what, without) in [
        (vec![pager], "`PAGER` in `env` is", "`PAGER` in `env`"),
        (vec![settings], "`CFG` in `env` is", "`CFG` in `env`"),
        (
            vec![("A", "b"), settings],
            "`CFG` in `env` is",
            "`CFG` in `env`",
        ),
        (
            vec![("A", "{a,b}"), pager],
            "several variables in `env` are",
            "the variables in `env`",
        ),
    ] {
        let judgement = judge(&allows, &variables);
        assert_eq!(judgement.verdict, Verdict::Ask, "{variables:?}");
        let reason = format!("what {what} set to may be run by what reads it: ");
        assert!(judgement.reason.starts_with(&reason), "{judgement:?}");
        let change = format!("A call without {without}. With it: ");
        assert!(judgement.would_change.starts_with(&change), "{judgement:?}");
    }
    assert_eq!(judge(&allows, &[("A", "b")]).verdict, Verdict::Allow);
    // What no rule decides about names it by itself.
    let reason = judge(&asks, &[("CFG", "x")]).reason;
    assert!(reason.starts_with("no rule decides"), "{reason}");
}

#[test]
fn a_judgement_says_why_and_what_would_change_it() {
    let policy = policy(
        "default = \"ask\"\n\ndeny = [\n  {rule = \"bash(command:rm *)\", reason = \"No.\", suggest = \"mv\"},\n]\nallow = [\"bash(command:ls *)\"]",
    );
    let denied = judge(&policy, "bash", &json!({"command": "ls && sudo rm 'a b'"}));
    assert_eq!(denied.rule.as_deref(), Some("bash(command:rm *)"));
    assert_eq!(denied.source.map(|source| source.line), Some(4));
    assert_eq!(denied.segment.as_deref(), Some("rm a b"));
    assert_eq!(denied.reason, "No.");
    assert_eq!(denied.suggest.as_deref(), Some("mv"));
    let asked = judge(
        &policy,
        "bash",
        &json!({"command": "ls; git 'a b' '*' | ls x; true; git 'a b' '*'"}),
    );
    assert_eq!(
        asked.remember_rules,
        ["bash(command:git a\\ b \\*)", "bash(command:true)"]
    );
    assert!(
        asked.would_change.contains("bash(command:true)"),
        "{}",
        asked.would_change
    );
    for script in ["python3 x", "ls; make", "x $(y)", "eval x", "rm $x"] {
        let judgement = judge(&policy, "bash", &json!({ "command": script }));
        assert!(judgement.remember_rules.is_empty(), "{script}");
        assert!(!judgement.would_change.is_empty());
    }
    // Nobody reads so many, and each is held against each.
    let commands = |count: usize| {
        (0..count)
            .map(|n| format!("touch {n}\n"))
            .collect::<String>()
    };
    for (count, offered) in [(64, 64), (65, 0)] {
        let asked = judge(&policy, "bash", &json!({"command": commands(count)}));
        assert_eq!(asked.remember_rules.len(), offered, "{count}");
    }
    // What no key allows for good an operator may write down, where a rule can be written for it.
    for (script, would_change) in [
        ("python3 x", "In `allow`: `bash(command:python3 x)`."),
        (
            "ls; make -C 'a b'",
            "In `allow`: `bash(command:make -C a\\ b)`.",
        ),
        ("sed ''", "A simpler script, for `sed` "),
        // More than anybody writes down, and each would be held against each.
        (
            "make a; make b; make c; make d; make e; make f; make g; make h; make i",
            "A simpler script, for `make` ",
        ),
        ("eval x", "A simpler script, for `eval` "),
        ("x $(y)", "A simpler script, for "),
    ] {
        let judgement = judge(&policy, "bash", &json!({ "command": script }));
        let told = &judgement.would_change;
        assert!(told.starts_with(would_change), "{script}: {told}");
    }
    let file = judge(
        &policy,
        "read_file",
        &json!({"file_path": "a*", "limit": 3}),
    );
    assert_eq!(file.remember_rules, ["read_file(file_path:/srv/a\\*)"]);
}

#[test]
fn what_is_remembered_allows_it() {
    let text = "default = \"ask\"\n";
    for script in [
        "git status 'a  b' x=1; echo '[*?{\\' \"'\" 'a\nb'",
        "ls >/dev/null",
    ] {
        let asked = judge(&policy(text), "bash", &json!({ "command": script }));
        assert!(!asked.remember_rules.is_empty());
        let table = toml::Table::from_iter([("allow".to_owned(), asked.remember_rules.into())]);
        let with = policy(&format!("{text}{table}"));
        assert_eq!(bash(&with, script), Verdict::Allow, "{table}");
    }
}

#[test]
fn hazards_are_allowed_only_when_written_out() {
    let policy = policy(
        "default = \"ask\"\nallow = [\"bash(command:*)\", \"bash(command:python3 /opt/x.py)\"]",
    );
    for (script, verdict) in [
        ("ls", Verdict::Allow),
        ("python3 /opt/x.py", Verdict::Allow),
        ("python3 /opt/y.py", Verdict::Ask),
        ("export A=b", Verdict::Ask),
        ("cd x && ./y", Verdict::Ask),
        ("chdir x && ./y", Verdict::Ask),
        ("./y", Verdict::Allow),
    ] {
        assert_eq!(bash(&policy, script), verdict, "{script}");
    }
}

#[test]
fn patterns_allow_nothing_in_a_shell_with_a_grammar_of_its_own() {
    let allowing = "default = \"ask\"\nallow = [\"bash(command:echo*)\"]";
    let (policy, whole) = (policy(allowing), policy("allow = [\"bash\"]"));
    let input = json!({"command": "echo: uname -s"});
    let verdict = |shell, policy| judge_in(shell, policy, 70_000, ("bash", &input)).verdict;
    for (shell, expected) in [
        ("/bin/bash", Verdict::Allow),
        ("/bin/dash", Verdict::Allow),
        ("/bin/ksh93", Verdict::Ask),
        ("/usr/bin/mksh", Verdict::Ask),
        ("/bin/zsh", Verdict::Ask),
    ] {
        assert_eq!(verdict(shell, &policy), expected, "{shell}");
        assert_eq!(verdict(shell, &whole), Verdict::Allow, "{shell}");
    }
}

#[test]
fn files_are_read_one_after_the_other() {
    let source = |path, text| Source {
        path: Path::new(path),
        text,
    };
    let two = [
        source("a", "default = \"ask\""),
        source("b", "\nallow = [\"x\"]"),
    ];
    let policy = Policy::parse(&two).expect("valid");
    let judgement = judge(&policy, "x", &json!({}));
    assert_eq!(
        judgement.source.map(|source| (source.file, source.line)),
        Some(("b".into(), 2))
    );
    let error = Policy::parse(&[
        source("a", "default = \"ask\""),
        source("b", "\ndefault = \"ask\""),
    ]);
    assert_eq!(
        error.expect_err("twice").to_string(),
        "b:2: `default`: is already set at a:1: expected it once"
    );
}

#[test]
fn without_rules_that_refuse_no_script_is_read() {
    let input = json!({"command": "x".repeat(10 << 20)});
    let caller = Caller::this_process();
    let env = BTreeMap::new();
    let question = Question {
        tool: "bash",
        input: &input,
        paths: &[],
        caller: &caller,
        chain: &[],
        working_dir: None,
        env: &env,
        stdin: None,
        shell: Path::new("/bin/bash"),
    };
    for text in [
        SHIPPED_POLICY,
        "allow = [\"bash(command:ls *)\"]",
        "deny = [\"read_file\"]",
    ] {
        let policy = policy(text);
        assert!(!policy.reads_scripts(&question), "{text}");
        assert_eq!(policy.judge(&question).verdict, Verdict::Allow);
    }
    assert!(policy("ask = [\"write_file\"]").reads_scripts(&question));
}

#[test]
fn a_hundred_rules_take_microseconds() {
    let rules: Vec<String> = (0..100)
        .map(|n| format!("\"bash(command:tool{n} sub *--flag*)\""))
        .collect();
    let (deny, allow) = rules.split_at(50);
    let text = format!(
        "default = \"ask\"\ndeny = [{}]\nallow = [{}, \"bash(command:git *)\"]",
        deny.join(","),
        allow.join(",")
    );
    let policy = policy(&text);
    let start = std::time::Instant::now();
    let times = 1000;
    for _ in 0..times {
        assert_eq!(
            bash(
                &policy,
                "git status --short && git log -5 --oneline | git x"
            ),
            Verdict::Allow
        );
    }
    let each = start.elapsed() / times;
    println!("{each:?}");
    // A tenth of it, optimised; a machine that is busy may take its time.
    assert!(each < Duration::from_millis(2), "{each:?}");
}

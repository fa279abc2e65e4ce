//! What no policy may say.

use super::*;

#[test]
fn what_is_missing_is_told_with_every_word_that_would_do() {
    let missing = policy("deny = [\"bash\"]").with_default_set(Path::new("p.toml"));
    let told = missing.expect_err("there is no `default`").to_string();
    let expected =
        "p.toml:1: `default`: is missing: expected \"allow\", \"ask\", \"untrusted\" or \"deny\"";
    assert_eq!(told, expected);
    let set = policy("default = \"untrusted\"").with_default_set(Path::new("p.toml"));
    assert!(set.is_ok());
}

#[test]
fn refusals_name_file_line_key_and_what_was_expected() {
    for (text, parts) in [
        (
            "\ndefaults = \"ask\"",
            &[
                "p.toml:2: `defaults`: is no key of a policy (did you mean `default`?): ",
                "expected `default`, `deny`, `ask`, `untrusted`, `workspace` or `allow`",
            ][..],
        ),
        (
            "default = \"maybe\"",
            &[
                "p.toml:1: `default`",
                "\"allow\", \"ask\", \"untrusted\" or \"deny\"",
            ],
        ),
        ("default = 3", &["`default`", "integer", "\"untrusted\" or"]),
        ("deny = \"x\"", &["`deny`", "expected a list"]),
        ("deny = [\n\n3]", &["p.toml:3: `deny`", "expected a rule"]),
        (
            "ask = [\n\"bash(command\"]",
            &["p.toml:2: `ask`", "expected `Tool`"],
        ),
        (
            "ask = [\n\"x(path:etc)\"]",
            &["p.toml:2: `ask`", "begin with `/`"],
        ),
        (
            "ask = [\n\"bash(command:[a])\"]",
            &["p.toml:2: `ask`", "expected `\\[`"],
        ),
        (
            "ask = [\n{rule = \"x\", reasons = \"y\"}]",
            &["p.toml:2: `reasons`", "(did you mean `reason`?)"],
        ),
        (
            "ask = [\n{rule = \"x\", why = \"y\"}]",
            &["p.toml:2: `why`", "`reason`"],
        ),
        (
            "deny = [\n\"bash(command:cd /x && rm *)\"]",
            &["p.toml:2: `deny`", "`&` joins commands", "a rule for each"],
        ),
        (
            "deny = [\"bash(command:echo * > /etc/*)\"]",
            &["`>` is a redirect", "`write_file(file_path:…)`"],
        ),
        (
            "allow = [\"bash(command:git commit -m 'x*')\"]",
            &["`'` is gone", "without quotes"],
        ),
        (
            "allow = [\"bash(command:cat /srv/**)\"]",
            &["`**` means no more", "expected `*`"],
        ),
        (
            "deny = [\n\n\"write_file(path:/etc/**)\"]",
            &[
                "p.toml:3: `deny`",
                "expected `write_file(file_path:/etc/**)`",
            ],
        ),
        ("ask = [{reason = \"x\"}]", &["`ask`", "without `rule`"]),
        (
            "ask = [{rule = \"x\",\n users = [\"no-such-user\"]}]",
            &["p.toml:2: `users`", "no-such-user"],
        ),
        (
            "ask = [{rule = \"x\", groups = [\"no-such-group\"]}]",
            &["`groups`", "no-such-group"],
        ),
        (
            "deny = [{rule = \"x\", users = []}]",
            &["`users`", "would concern nobody"],
        ),
        (
            "deny = [{rule = \"x\",\n groups = []}]",
            &["p.toml:2: `groups`", "names no group"],
        ),
        (
            "ask = [{rule = \"bash(command:rm *)\", not_match = [\"sudo rm x\"]}]",
            &["`not_match`", "matches"],
        ),
        (
            "ask = [{rule = \"bash(command:a*)\",\n match = [\"b\"]}]",
            &["p.toml:2: `match`", "\"b\" does not match"],
        ),
        (
            "ask = [{rule = \"bash(command:a*)\",\n not_match = [\n\"x; a\"]}]",
            &["p.toml:3: `not_match`", "matches"],
        ),
        (
            "deny = [{rule = \"bash(command:a*)\", match = [\"a $(\"]}]",
            &["`match`", "does not match"],
        ),
        (
            "allow = [\"bash(command:python3 *)\"]",
            &["`allow`", "python3", "the whole command"],
        ),
        (
            "allow = [\"bash(command:eval x)\"]",
            &["`allow`", "expected no rule"],
        ),
        (
            "allow = [\"bash(command:printf -v x *)\"]",
            &["`printf` assigns", "expected no rule"],
        ),
        (
            "allow = [\"*(command:eval *)\"]",
            &["`allow`", "expected no rule"],
        ),
        (
            "allow = [\"bash(command:time ls)\"]",
            &["`time` is a word", "expected no rule"],
        ),
        (
            "allow = [\"bash(command:set -x)\"]",
            &["`set` ", "expected no rule"],
        ),
        ("x = [", &["p.toml:1: "]),
    ] {
        let refusal = refusal(text);
        for part in parts {
            assert!(
                refusal.contains(part),
                "{text:?} gave {refusal:?}, which lacks {part:?}"
            );
        }
    }
}

#[test]
fn a_rule_on_a_parameter_that_its_tool_lacks_is_refused() {
    let known = |tool: &str| (tool == "bash").then(|| vec!["command".to_owned()]);
    let check = |text: &str| policy(text).check_parameters(known);
    let refused = check("allow = [\"bash\"]\ndeny = [\"bash(working_dir:/etc/**)\"]");
    let said = refused.expect_err("no such parameter").to_string();
    assert!(said.starts_with("p.toml:2: "), "{said}");
    assert!(said.ends_with("expected one of `command`"), "{said}");
    for text in [
        "deny = [\"bash(command:rm *)\"]",
        "deny = [\"*(working_dir:/etc/**)\"]",
        "deny = [\"unknown(working_dir:/etc/**)\"]",
    ] {
        assert_eq!(check(text), Ok(()), "{text}");
    }
}

/// What begins no command of bash's may be the text of a tool that is no shell.
#[test]
fn a_pattern_for_tools_of_several_names_is_not_taken_for_one_of_commands() {
    let policy = policy(
        "default = \"deny\"\nallow = [\"db_*(command:select *)\", \"redis_*(command:set counter *)\"]",
    );
    for (tool, text, verdict) in [
        ("db_query", "select * from x", Verdict::Allow),
        ("db_query", "drop x", Verdict::Deny),
        ("redis_cmd", "set counter 1", Verdict::Allow),
    ] {
        let judgement = judge(&policy, tool, &json!({ "command": text }));
        assert_eq!(judgement.verdict, verdict, "{text}");
    }
}

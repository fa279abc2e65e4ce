//! Long scripts: what is looked at, and what is said of the rest.

use std::time::Instant;

use super::*;

#[test]
fn a_long_command_is_judged_by_what_it_runs() {
    let rules = policy(
        "default = \"allow\"\ndeny = [\"bash(command:rm -rf *)\", \"bash(command:*--no-preserve-root*)\", \"bash(command:shutdown*)\"]",
    );
    for count in [330, 2000] {
        let names: Vec<String> = (0..count).map(|at| format!("file{at:04}")).collect();
        let names = names.join(" ");
        for (command, expected) in [
            ("sudo rm", Verdict::Allow),
            ("bash x.sh", Verdict::Allow),
            ("sudo rm -rf", Verdict::Deny),
            ("sudo rm --no-preserve-root", Verdict::Deny),
            ("strace -s 200 rm -rf", Verdict::Ask),
            ("strace -s 200 rm $X", Verdict::Ask),
            (
                "strace -s 200 start-stop-daemon -x /bin/rm -- -rf",
                Verdict::Ask,
            ),
        ] {
            let script = format!("{command} {names}");
            assert_eq!(bash(&rules, &script), expected, "{command} {count}");
        }
    }
}

/// Where a rule begins as each command does, it would be held against the square of the script.
#[test]
fn a_rule_is_held_against_so_much_and_the_rest_is_asked_about() {
    let rules =
        policy("default = \"allow\"\ndeny = [\"bash(command:x*y)\", \"bash(command:rm -rf *)\"]");
    let words = "x ".repeat(5000);
    let start = Instant::now();
    let script = json!({ "command": format!("sudo {words}") });
    let judgement = judge(&rules, "bash", &script);
    assert_eq!(judgement.verdict, Verdict::Ask);
    let why = format!("{judgement:?}");
    assert!(why.contains("more than can be looked at"), "{why:.2000}");
    assert!(start.elapsed() < Duration::from_secs(10));
    // Other rules have their say.
    let script = format!("sudo {words}; rm -rf /");
    assert_eq!(bash(&rules, &script), Verdict::Deny);
}

/// Each of them is looked at with all that stand behind it.
#[test]
fn of_programs_that_may_have_others_run_each_word_so_many_are_looked_at() {
    let rules = policy("default = \"allow\"\ndeny = [\"bash(command:marker*)\"]");
    for program in ["docker", "salt", "ctr", "kubectl"] {
        let script = format!("{program} ").repeat(600);
        assert_eq!(bash(&rules, &script), Verdict::Ask, "{program}");
    }
    let volumes = " -v /a:/b".repeat(100);
    let script = format!("docker run --rm{volumes} image ls");
    assert_eq!(bash(&rules, &script), Verdict::Allow);
}

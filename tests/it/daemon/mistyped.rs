//! Names of tools that there are none of, where they are to guard something.

use std::fs;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::Signal;

use crate::support::{Daemon, scratch, wait_until};

const CONFIGURATION: &str = "\
[cgroup]
mode = \"group\"
[tools]
disabled = [\"check_conditions\"]
untrusted = [\"bsh\", \"raise_output\"]
[sandbox]
egress = { lst_dir = [\"crates.io:443\"], bash = [] }
[[hooks]]
name = \"gate\"
before = \"permission\"
command = [\"/bin/true\"]
tools = [\"Bash\", \"read_file\"]
[flow.tools.\"*\"]
max_running = 9
[flow.tools.serch_files]
max_running = 1
";

const POLICY: &str = "\
default = \"untrusted\"
deny = [
    \"bsh(command:rm *)\",
    \"raise_output\",
    { rule = \"write_file(file_path:/etc/**)\", called_by = [\"raise_*\", \"qqq\"] },
    { rule = \"zz*\" },
    \"*\",
    \"read_?ile\",
]
allow = [\"reed_file\"]
untrusted = [\"edit_fil\"]
workspace = [{ rule = \"exec_command\", dir = \"/srv/agent\" }]
";

const OF_CONFIGURATION: [&str; 5] = [
    "`disabled` in [tools]: there is no tool `check_conditions`; did you mean `check_condition`?",
    "`untrusted` in [tools]: there is no tool `bsh`; did you mean `bash`?",
    "`egress` in [sandbox]: there is no tool `lst_dir`; did you mean `list_dir`?",
    "`tools` of the hook `gate`: there is no tool `Bash`; did you mean `bash`?",
    "[flow.tools.serch_files]: there is no tool `serch_files`; did you mean `search_files`?",
];

const OF_POLICY: [&str; 6] = [
    "policy.toml:3: the rule `bsh(command:rm *)` concerns no call: there is no tool `bsh`; did you mean `bash`?",
    "policy.toml:5: `called_by` of the rule `write_file(file_path:/etc/**)` concerns no call: there is no tool `qqq`",
    "policy.toml:6: the rule `zz*` concerns no call: no tool is called like `zz*`",
    "policy.toml:10: the rule `reed_file` concerns no call: there is no tool `reed_file`; did you mean `read_file`?",
    "policy.toml:11: the rule `edit_fil` concerns no call: there is no tool `edit_fil`; did you mean `edit_file`?",
    "policy.toml:12: the rule `exec_command` concerns no call: there is no tool `exec_command`; did you mean `execute_command`?",
];

fn prepare(dir: &Path) {
    fs::write(dir.join("executor.toml"), CONFIGURATION).expect("written");
    fs::write(dir.join("policy.toml"), POLICY).expect("written");
    let skill = dir.join("skills/raise_output");
    fs::create_dir_all(&skill).expect("created");
    let shipped = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/config/skills/raise_output/skill.json"
    );
    fs::copy(shipped, skill.join("skill.json")).expect("copied");
}

/// What is warned of, and nothing else about tools.
#[track_caller]
fn assert_warned(told: &str, expected: &[&str]) {
    for part in expected {
        assert_eq!(told.matches(part).count(), 1, "{part} in:\n{told}");
    }
    let all = told.matches("no tool").count();
    assert_eq!(all, expected.len(), "{told}");
}

#[test]
fn a_check_warns_of_names_that_no_tool_has() {
    let dir = scratch();
    prepare(&dir);
    let check = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_shelly-executord"))
            .args(args)
            .current_dir(&dir)
            .output()
            .expect("it starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let both = [&OF_CONFIGURATION[..], &OF_POLICY].concat();
    let told = check(&["--check-config", "--config", "executor.toml"]);
    assert_warned(&told, &both);
    assert_warned(&check(&["--check-policy", "policy.toml"]), &OF_POLICY);
    let own = ["--check-policy", "--config", "executor.toml"];
    assert_warned(&check(&own), &OF_POLICY);
    let json = check(&["--check-policy", "policy.toml", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let warnings = json["warnings"].as_array().map(Vec::len);
    assert_eq!(warnings, Some(OF_POLICY.len()), "{json}");
    // And of a policy that there is none of.
    fs::remove_file(dir.join("policy.toml")).expect("removed");
    let path = dir.join("policy.toml");
    let told = check(&["--check-config", "--config", "executor.toml"]);
    let absence = format!(
        "warning: there is no `{}`: everything is allowed",
        path.display()
    );
    assert!(told.contains(&absence), "{told}");
    fs::remove_dir_all(dir).expect("ours");
}

#[test]
fn the_log_warns_at_the_start_and_at_every_reload() {
    let dir = scratch();
    prepare(&dir);
    let daemon = Daemon::launch(dir, None, |_| {});
    let told = |part: &str| daemon.log().matches(part).count();
    let both = [&OF_CONFIGURATION[..], &OF_POLICY].concat();
    wait_until("the start tells of all", || {
        both.iter().all(|part| told(part) > 0)
    });
    assert_warned(&daemon.log(), &both);
    assert!(daemon.log().contains(" WARN "), "{}", daemon.log());
    daemon.signal(Signal::SIGHUP);
    wait_until("a reload tells of all", || {
        both.iter().all(|part| told(part) > 1)
    });
    // Whoever takes the skill away is told what it had to do with.
    let gone = "there is no tool `raise_output`";
    assert_eq!(told(gone), 0, "{}", daemon.log());
    fs::remove_dir_all(daemon.dir().join("skills/raise_output")).expect("removed");
    wait_until("what became of the skill is told", || told(gone) > 1);
}

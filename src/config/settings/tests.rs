//! What a configuration comes to, and what is said of one that is none.

use super::*;

fn refusal(text: &str) -> String {
    Settings::parse(Path::new("e.toml"), text)
        .expect_err(text)
        .to_string()
}

#[test]
fn the_shipped_file_is_valid_and_sets_the_seeds_defaults() {
    let settings = Settings::shipped().expect("valid");
    assert_eq!(settings.executor.shell, Path::new("/bin/bash"));
    let library = ExecutorConfig::default();
    assert_eq!(settings.executor.default_timeout, library.default_timeout);
    assert_eq!(settings.executor.max_timeout, library.max_timeout);
    assert_eq!(settings.executor.max_output_bytes, library.max_output_bytes);
    assert_eq!(settings.executor.kill_grace, library.kill_grace);
    assert_eq!(settings.executor.kill_wait, library.kill_wait);
    assert_eq!(settings.executor.drain, library.drain);
    assert_eq!(settings.executor.tracing, library.tracing);
}

#[test]
fn the_longest_limit_can_be_lowered_by_itself() {
    let parse = |text| {
        Settings::parse(Path::new("e.toml"), text)
            .expect("valid")
            .executor
    };
    for (text, limits) in [
        ("max_timeout_secs = 5\n", (5, 5)),
        ("max_timeout_secs = 50\n", (30, 50)),
        ("default_timeout_secs = 50\n", (50, 3600)),
    ] {
        let executor = parse(text);
        let secs = (
            executor.default_timeout.as_secs(),
            executor.max_timeout.as_secs(),
        );
        assert_eq!(secs, limits, "{text}");
    }
}

#[test]
fn what_may_be_a_slip_of_the_pen_is_told() {
    let text = "shell = \"/bin/nosuch\"\nworking_dir = \"/nowhere\"\n\
                [access]\ncallers = [\"user:no-such-user\"]\n\
                [log]\nlevel = \"info, hyper=debug\"\n[cgroup]\npath = \"/nothing\"\n";
    let settings = Settings::parse(Path::new("e.toml"), text).expect("valid");
    let doubts = settings.doubts();
    let parts = ["no-such-user", "/bin/nosuch", "/nowhere", "`/nothing`"];
    assert_eq!(doubts.len(), parts.len(), "{doubts:?}");
    for (doubt, part) in doubts.iter().zip(parts) {
        assert!(doubt.contains(part), "{doubt}");
    }
}

#[test]
fn what_has_no_effect_is_told() {
    let text = "spool_max_bytes = 9\nspool_total_bytes = 8\n\
                [files]\nbase_dirs = [\"~\", \"/\", \"/nowhere\", \"/etc/passwd\"]\n\
                [secrets]\npatterns = [\"ab\", \"a+\", \"abc\"]\n\
                variables = [\"A-B\", \"C-D\", \"E_F\", \"1\"]\n[env]\nC-D = \"x\"\n\
                [sandbox]\nhidden = [\"/etc/hosts\", \"/root\", \"/nowhere\"]\n";
    let settings = Settings::parse(Path::new("e.toml"), text).expect("valid");
    let mut doubts = settings.doubts();
    // Whom this machine knows is another question.
    doubts.retain(|doubt| !doubt.starts_with("[access]"));
    let about = [
        "/nowhere",
        "/etc/passwd",
        "[sandbox] `hidden`: `/etc/hosts`",
        "\"ab\"",
        "\"1\"",
        "\"A-B\"",
        "spool_total_bytes = 8",
    ];
    for (doubt, part) in doubts.iter().zip(about) {
        assert!(doubt.contains(part), "{doubt} lacks {part}");
    }
    assert_eq!(doubts.len(), about.len(), "{doubts:?}");
    let shipped = Settings::shipped().expect("valid").doubts();
    assert!(!shipped.iter().any(|doubt| doubt.contains("spool")));
}

#[test]
fn only_what_is_not_there_at_all_is_absent() {
    let path = std::env::temp_dir().join(format!("absent-{}.toml", std::process::id()));
    assert!(Settings::read_if_there(&path).expect("none").is_none());
    std::os::unix::fs::symlink("/no/such/file", &path).expect("made");
    let dangling = Settings::read_if_there(&path);
    std::fs::remove_file(&path).expect("ours");
    assert!(
        matches!(dangling, Err(ConfigError::Unreadable { .. })),
        "{dangling:?}"
    );
}

/// Each shipped key and table in the place of which there is something of another type.
#[test]
fn no_refusal_names_what_only_the_source_knows() {
    fn keys(table: &Table, at: &str) -> Vec<String> {
        let own = table.iter().flat_map(|(key, value)| {
            let key = format!("{at}{key}");
            let below = value
                .as_table()
                .map(|table| keys(table, &format!("{key}.")));
            below.into_iter().flatten().chain([key])
        });
        own.collect()
    }
    let shipped: Table = toml::from_str(DEFAULT_EXECUTOR_TOML).expect("TOML");
    let commented = [
        "flow.caller_rate",
        "flow.tools",
        "flow.tools.a",
        "flow.tools.a.rate",
        "flow.tools.a.breaker",
        "flow.tools.a.retries",
        "hooks",
    ];
    let mut all = keys(&shipped, "");
    all.extend(commented.map(str::to_owned));
    for key in all {
        for value in ["5", "true", "[[]]", "{ x = 1 }", "1979-05-27"] {
            let text = format!("{key} = {value}");
            let Err(error) = Settings::parse(Path::new("e.toml"), &text) else {
                continue;
            };
            let told = error.to_string();
            let is_inner = ["struct ", "enum ", "File", "variant identifier", "newtype"];
            assert!(!is_inner.iter().any(|word| told.contains(word)), "{told}");
        }
    }
}

#[test]
fn every_shipped_key_is_known_also_the_commented_ones() {
    let uncommented: String = DEFAULT_EXECUTOR_TOML
        .lines()
        .filter(|line| !line.contains("path ="))
        .map(|line| match line.strip_prefix("# ") {
            Some(rest)
                if (rest.starts_with('[') && rest.ends_with(']'))
                    || rest
                        .split_once(" = ")
                        .is_some_and(|(k, _)| !k.contains(' ')) =>
            {
                rest
            }
            _ => line,
        })
        .map(|line| format!("{line}\n"))
        .collect();
    // Shared places are for who has a server.
    let memory = "backend = \"memory\"";
    assert!(uncommented.contains(memory));
    let uncommented = uncommented.replace(memory, "backend = \"redis://h\"");
    let settings = Settings::parse(Path::new("e.toml"), &uncommented).expect("valid");
    assert_eq!(settings.executor.limits.pids_max, Some(4096));
    assert_eq!(settings.executor.flow.max_running_shared, Some(200));
    assert_eq!(settings.executor.hooks.len(), 1);
}

#[test]
fn refusals_name_file_line_key_and_what_was_expected() {
    for (text, parts) in [
        (
            "\ndefault_timeout_secs = 0\n",
            &["e.toml:2: ", "default_timeout_secs", "from 1 to"][..],
        ),
        (
            "\n\nno_such_key = 1\n",
            &["e.toml:3: ", "no_such_key", "expected one of"],
        ),
        (
            "max_output_bytes = -5\n",
            &["e.toml:1: ", "max_output_bytes", "from 1 to"],
        ),
        (
            "[limits]\nmemory_max = 1048576\n",
            &["e.toml:2: ", "memory_max", "from 8388608 to"],
        ),
        (
            "default_timeout_secs = 9\nmax_timeout_secs = 5\n",
            &["e.toml:1: ", "above max_timeout_secs"],
        ),
        (
            "shell = \"bash\"\n",
            &["e.toml:1: ", "`shell`", "absolute path"],
        ),
        (
            "[access]\ncallers = [\"root\"]\n",
            &["e.toml:2: ", "user:NAME"],
        ),
        (
            "[access]\ncallers = []\napprovers = [\"root\"]\n",
            &["e.toml:3: ", "approvers", "user:NAME"],
        ),
        (
            "[cgroup]\nmode = \"group\"\npath = \"/x\"\n",
            &["e.toml:3: ", "`path`"],
        ),
        // Another table has a key of that name.
        (
            "[env]\nlevel = \"x\"\npath = \"x\"\n[log]\nlevel = \"inof\"\n",
            &["e.toml:5: `level`: ", "inof"],
        ),
        (
            "[env]\npath = \"x\"\n[cgroup]\nmode = \"group\"\npath = \"/x\"\n",
            &["e.toml:5: `path`: "],
        ),
        (
            "[env]\nuser = \"x\"\n[sandbox]\nuser = \"root\"\n",
            &["e.toml:4: `user`: "],
        ),
        ("log.level = \"inof\"\n", &["e.toml:1: `level`: ", "inof"]),
        (
            "\nlog = { level = \"inof\" }\n",
            &["e.toml:2: `level`: ", "inof"],
        ),
        (
            "[env]\nA = \"1\"\n\"A=B\" = \"x\"\n",
            &["e.toml:3: `A=B`: ", "no variable name"],
        ),
        ("[env]\n\n\"\" = \"x\"\n", &["e.toml:3: ", "a name"]),
        ("[env]\nA = 1\n", &["e.toml:2: ", "a string"]),
        ("[env]\n'A=B' = \"x\"\n", &["e.toml:2: `A=B`: "]),
        (
            "[access]\ncallers = [\n\"user:root\"\n\"user:daemon\"]\n",
            &["e.toml:4: m"],
        ),
        (
            "[env]\nA = \"1\"\nSHELLY_EXECUTION_ID = \"1\"\n",
            &["e.toml:3: ", "`SHELLY_EXECUTION_ID` is the daemon's own"],
        ),
        (
            "[env]\nSHELLY_SESSION_ID = \"1\"\n",
            &["e.toml:2: ", "`SHELLY_SESSION_ID` is the daemon's own"],
        ),
        (
            "default_timeout_sec = 5\n",
            &["e.toml:1: ", "did you mean `default_timeout_secs`?"],
        ),
        ("\n[hook]\n", &["e.toml:2: ", "did you mean `hooks`?"]),
        ("[acces]\n", &["e.toml:1: ", "did you mean `access`?"]),
        (
            "[cgroup]\nmode = \"grup\"\n",
            &["e.toml:2: ", "did you mean `group`?"],
        ),
        (
            "[flow]\ncaller_rate = 5\n",
            &["e.toml:2: ", "expected a table such as { calls = 10"],
        ),
        (
            "[flow]\ncaller_rate = { calls = 10, burst = 0 }\n",
            &["e.toml:2: `caller_rate.burst`: ", "from 1 to"],
        ),
        (
            "[flow]\ncaller_rate = { calls = \"a, b = \" }\n",
            &["e.toml:2: `caller_rate.calls`: ", "expected an integer"],
        ),
        (
            "[flow.tools]\na = { breaker = { failures = 0 } }\n",
            &["e.toml:2: `a`: ", "from 1 to"],
        ),
        (
            "[flow]\ncaller_rate = { calls = 10, bursts = 1 }\n",
            &["e.toml:2: `caller_rate`: ", "did you mean `burst`?"],
        ),
        (
            "[flow.tools.a]\nbreaker = true\n",
            &["e.toml:2: ", "expected a table such as { failures = 5"],
        ),
        ("[log]\nlevel = \"a=b=c\"\n", &["e.toml:2: ", "a=b=c"]),
        ("[log]\nlevel = \"inof\"\n", &["e.toml:2: ", "inof", "info"]),
        ("[log]\nlevel = \"warn,loud\"\n", &["e.toml:2: ", "trace"]),
        ("[log]\nlevel = \"\"\n", &["e.toml:2: ", "off"]),
        (
            "[secrets]\npatterns = [\"(\"]\n",
            &["e.toml:2: ", "patterns", "unclosed"],
        ),
        (
            "[tracing]\notlp_endpoint = \"https://h:4318\"\n",
            &[
                "e.toml:2: ",
                "`otlp_endpoint`",
                "https://h:4318",
                "on this host",
            ],
        ),
        (
            "[tracing]\nheaders = { Host = \"x\" }\n",
            &["e.toml:2: ", "`headers`", "\"host\""],
        ),
        (
            "[tracing]\nservice_name = \"\"\n",
            &["e.toml:2: ", "`service_name`", "expected 1 to"],
        ),
        (
            "truncate = \"head\"\n",
            &["e.toml:1: ", "truncate", "tail", "middle"],
        ),
        (
            "truncate = 5\n",
            &[
                "e.toml:1: ",
                "`truncate`",
                "integer `5`",
                "`tail` or `middle`",
            ],
        ),
        (
            "[ledger]\naudit = false\n",
            &["e.toml:2: ", "`audit`", "boolean `false`", "best_effort"],
        ),
        (
            "[cgroup]\nmode = []\n",
            &["e.toml:2: ", "`mode`", "sequence", "`auto`"],
        ),
        ("x = [", &["e.toml:1: "]),
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

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::*;
use crate::domain::ExecutionId;

fn scratch() -> PathBuf {
    let dir = std::env::temp_dir().join(format!("shelly-intent-{}", ExecutionId::new()));
    fs::create_dir(&dir).expect("writable");
    dir
}

#[test]
fn all_of_a_long_call_is_meant_and_little_of_it_kept() {
    let config = ExecutorConfig::default();
    let intent = |command: &str, stdin: &str| {
        let mut call = Call::new("bash", json!({"command": command}));
        call.options.stdin = Some(stdin.to_owned());
        Intent::of(&call, &Caller::this_process(), &config, &Means::default())
    };
    let long = "a b\n".repeat(1 << 20);
    let mut other = long.clone();
    other.pop();
    let meant = intent("cat", &long);
    assert_ne!(meant.digest(), intent("cat", &other).digest());
    assert!(serde_json::to_vec(&meant).expect("JSON").len() < 4096);
    // As data it may be as long as it likes; as what decides, it is to be looked through.
    assert!(meant.is_whole());
    assert!(!intent("python3 -", &long).is_whole());
    assert!(!intent(&long, "").is_whole());
    assert!(intent(&"x y\n".repeat(1000), "").is_whole());
}

#[test]
fn any_number_of_directories_is_one_where_they_are_one() {
    let dir = scratch();
    let names: Vec<String> = (0..30).map(|n| format!("d{n}")).collect();
    names
        .iter()
        .for_each(|name| fs::create_dir(dir.join(name)).expect("writable"));
    let config = ExecutorConfig {
        working_dir: Some(dir.clone()),
        ..ExecutorConfig::default()
    };
    let is_whole = |command: &str, stdin: &str| {
        let mut call = Call::new("bash", json!({"command": command}));
        call.options.stdin = Some(stdin.to_owned());
        Intent::of(&call, &Caller::this_process(), &config, &Means::default()).is_whole()
    };
    let all = names.join(" ");
    assert!(is_whole("cd .. && cd ./ && cd ../.. && make", ""));
    assert!(is_whole(&format!("cd .. && ls {all} && sh x"), ""));
    // Many words and many directories: as data nobody cares, as a script nobody could tell.
    let words: String = (0..10_000).map(|n| format!("word{n} ")).collect();
    assert!(is_whole(&format!("ls {all}; cat"), &words));
    assert!(!is_whole(&format!("ls {all}; sh"), &words));
    fs::remove_dir_all(&dir).expect("ours");
}

#[test]
fn what_a_word_names_is_part_of_it() {
    let dir = scratch();
    let script = dir.join("deploy.sh");
    fs::write(&script, "echo one\n").expect("writable");
    fs::write(dir.join("log"), "1\n").expect("writable");
    let config = ExecutorConfig {
        working_dir: Some(dir.clone()),
        env: BTreeMap::from([("HOME".to_owned(), dir.display().to_string())]),
        ..ExecutorConfig::default()
    };
    let intent = |command: &str| {
        let call = Call::new("bash", json!({"command": command}));
        Intent::of(&call, &Caller::this_process(), &config, &Means::default())
    };
    fs::create_dir(dir.join("sub")).expect("writable");
    fs::write(dir.join("sub/inner"), "").expect("writable");
    fs::copy(&script, dir.join("a b.sh")).expect("writable");
    let parent = dir.parent().expect("one").display().to_string();
    let name = dir.file_name().expect("one").to_string_lossy().into_owned();
    for command in [
        "bash deploy.sh",
        ". ./deploy.sh",
        "python3.11 'deploy.sh'",
        "bash deploy\\\n.sh",
        "bash \"deploy\\\n.sh\"",
        "make -fdeploy.sh",
        "make -kfdeploy.sh",
        "awk -fdeploy.sh x",
        "gawk -f deploy.sh",
        "/usr/bin/tclsh8.6 deploy.sh",
        "dpkg -i deploy.sh",
        "bash de'pl'oy.\\sh",
        "bash $'deploy\\x2esh'",
        "eval \"$(cat deploy.sh)\"",
        "$SHELL deploy.sh prod",
        "\"${SHELL}\" deploy.sh",
        "cd ~ && bash deploy.sh",
        "cd; bash deploy.sh",
        "bash ~/deploy.sh",
        "cd sub; bash ../deploy.sh",
        "cd sub && cd .. && cd ./ && bash deploy.sh",
        &format!("cd {parent} && cd {name} && bash deploy.sh"),
    ] {
        fs::write(&script, "echo one\n").expect("writable");
        let before = intent(command);
        assert_eq!(before.digest(), intent(command).digest(), "{command}");
        assert!(before.is_whole(), "{command}");
        // As long, and as old: the kernel's own time of change tells.
        fs::write(&script, "echo two\n").expect("writable");
        let after = intent(command);
        assert_ne!(before.digest(), after.digest(), "{command}");
        assert!(after.difference(&before).contains("deploy.sh"), "{command}");
    }
    for command in [
        "bash 'a b.sh'",
        "bash a\\ b.sh",
        "bash -c 'bash \"a b.sh\"'",
        "cd sub && sh inner",
    ] {
        let before = intent(command);
        for file in ["a b.sh", "sub/inner"] {
            let more = fs::read_to_string(dir.join(file)).expect("there") + "echo more\n";
            fs::write(dir.join(file), more).expect("writable");
        }
        assert_ne!(before, intent(command), "{command}");
    }
    // What a program reads without being told, there or not.
    for (command, file) in [
        ("make", "Makefile"),
        ("cd . && /usr/bin/make all", "GNUmakefile"),
        ("make -C sub", "sub/makefile"),
        ("make -Csub", "sub/Makefile"),
        ("nice just x", "justfile"),
        ("npm test", "package.json"),
    ] {
        for text in ["a:\n", "another:\n"] {
            let before = intent(command);
            fs::write(dir.join(file), text).expect("writable");
            assert_ne!(before, intent(command), "{command}");
        }
        fs::remove_file(dir.join(file)).expect("ours");
    }
    let before = intent("./deploy.sh");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("ours");
    assert_ne!(before, intent("./deploy.sh"));

    let before = intent("tail log");
    fs::write(dir.join("log"), "1\n2\n").expect("writable");
    assert_eq!(before, intent("tail log"));
    fs::remove_dir_all(&dir).expect("ours");
    assert!(intent("tail log").difference(&before).contains("directory"));
}

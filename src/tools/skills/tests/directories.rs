use super::*;

#[test]
fn a_directory_that_is_not_there_holds_no_skills() {
    let loaded = load(Path::new("/nowhere/skills"), &Builtin::new());
    assert!(loaded.skills.is_empty() && loaded.problems.is_empty());
    let skills = Skills::new();
    skills.write("file", "");
    let loaded = load(&skills.0.join("file"), &Builtin::new());
    assert!(
        loaded.problems[0].detail.starts_with("cannot be read: "),
        "{:?}",
        loaded.problems
    );
}

#[test]
fn what_is_no_skill_is_passed_over() {
    let skills = Skills::new();
    skills.skill("a", &composite("a", "bash")).write(
        "a/skill.json",
        &format!("{:#}", {
            let mut skill = composite("a", "mystery");
            skill["category"] = json!("x");
            skill
        }),
    );
    for name in [".git", "b~", "c.tmp"] {
        skills.write(&format!("{name}/skill.json"), "garbage");
    }
    skills.write("lib/shelly.py", "").write("README.md", "");
    assert_eq!(skills.names(), ["a@1.0.0"]);
    assert_eq!(skills.problems(), [""; 0]);
}

#[test]
fn one_that_is_wrong_leaves_the_others() {
    let skills = Skills::new();
    skills
        .skill("a", &composite("a", "mystery"))
        .write("b/skill.json", "{")
        .skill("c", &composite("c", "b"));
    assert_eq!(skills.names(), ["a@1.0.0"]);
    let problems = skills.problems();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert_eq!(
        problems[0],
        "b/skill.json:1: is no JSON: EOF while parsing an object"
    );
    assert!(
        problems[1].ends_with("`tool` is \"b\", which is unknown"),
        "{problems:?}"
    );
}

#[test]
fn versions_stand_side_by_side_once() {
    let skills = Skills::new();
    let mut two = composite("a", "mystery");
    two["version"] = json!("2.0.0");
    skills
        .skill("a", &two)
        .skill("a@1.0.0", &composite("a", "mystery"));
    assert_eq!(skills.names(), ["a@2.0.0", "a@1.0.0"]);
    skills.skill("a@2.0.0", &two);
    assert_eq!(skills.names(), ["a@1.0.0"]);
    let problems = skills.problems();
    let other = |name: &str| {
        format!("`version` 2.0.0 of \"a\" is in `{name}/skill.json` as well: expected it once")
    };
    assert!(
        problems[0].starts_with("a/skill.json:") && problems[0].ends_with(&other("a@2.0.0")),
        "{problems:?}"
    );
    assert!(
        problems[1].starts_with("a@2.0.0/skill.json:") && problems[1].ends_with(&other("a")),
        "{problems:?}"
    );
}

#[test]
fn the_name_of_a_tool_that_is_built_in_is_taken() {
    let skills = Skills::new();
    skills.skill("bash", &composite("bash", "mystery"));
    let problems = skills.problems();
    assert!(
        problems[0]
            .ends_with("`name` is \"bash\", which is a tool that is built in: expected another"),
        "{problems:?}"
    );
}

#[test]
fn no_link_leads_out_and_nothing_hangs() {
    let (skills, elsewhere) = (Skills::new(), Skills::new());
    let text = format!("{:#}", composite("a", "mystery"));
    elsewhere
        .write("a/skill.json", &text)
        .write("file.json", &text);
    skills.write("good/skill.json", &text.replace("\"a\"", "\"good\""));
    symlink(elsewhere.0.join("a"), skills.0.join("linked")).expect("a link");
    symlink("good", skills.0.join("inner")).expect("a link");
    symlink("nowhere", skills.0.join("dangling")).expect("a link");
    fs::create_dir(skills.0.join("b")).expect("a directory");
    symlink(elsewhere.0.join("file.json"), skills.0.join("b/skill.json")).expect("a link");
    for (name, kind) in [
        ("fifo", nix::sys::stat::SFlag::S_IFIFO),
        ("dir", nix::sys::stat::SFlag::S_IFDIR),
    ] {
        let dir = skills.0.join(name);
        fs::create_dir(&dir).expect("a directory");
        match kind {
            nix::sys::stat::SFlag::S_IFIFO => {
                nix::unistd::mkfifo(&dir.join("skill.json"), nix::sys::stat::Mode::S_IRWXU)
                    .expect("a FIFO");
            }
            _ => fs::create_dir(dir.join("skill.json")).expect("a directory"),
        }
    }
    nix::unistd::mkfifo(&skills.0.join("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    assert_eq!(skills.names(), ["good@1.0.0"]);
    let line = text
        .lines()
        .position(|line| line.contains("\"name\""))
        .expect("there")
        + 1;
    assert_eq!(
        skills.problems(),
        [
            "b/skill.json: leads out of its directory: expected no link to elsewhere".to_owned(),
            "dangling: is not there".to_owned(),
            "dir/skill.json: is a directory: expected a regular file".to_owned(),
            "fifo/skill.json: is a FIFO: expected a regular file".to_owned(),
            format!(
                "inner/skill.json:{line}: `name` is \"good\" in the directory \"inner\": expected that to be called \"good\" or \"good@1.0.0\""
            ),
            "linked: leads out of its directory: expected no link to elsewhere".to_owned(),
        ]
    );
}

#[test]
fn a_directory_that_is_not_there_holds_none_and_a_link_to_nothing_is_told() {
    let skills = Skills::new();
    let dir = skills.0.join("none");
    assert_eq!(load(&dir, &Builtin::new()).problems, []);
    symlink("nowhere", &dir).expect("a link");
    let problems = load(&dir, &Builtin::new()).problems;
    assert_eq!(
        (problems.len(), problems[0].path.as_path()),
        (1, dir.as_path())
    );
}

#[test]
fn no_more_than_a_thousand_are_read() {
    let skills = Skills::new();
    for n in 0..1_001 {
        fs::create_dir(skills.0.join(format!("s{n}"))).expect("a directory");
    }
    let problems = skills.load().problems;
    assert_eq!(problems.len(), 1);
    assert_eq!(
        problems[0].detail,
        "holds more than 1000 skills: the 1 behind `s998` are left out"
    );
}

#[test]
fn of_many_skills_that_are_wrong_the_first_are_told() {
    let skills = Skills::new();
    for number in 100..210 {
        skills.write(&format!("{number}/skill.json"), "{");
    }
    let problems = skills.problems();
    assert_eq!(problems.len(), 101, "{problems:#?}");
    assert!(
        problems[99].starts_with("199/skill.json:1: "),
        "{problems:#?}"
    );
    let more = skills
        .load()
        .problems
        .pop()
        .expect("what is said of the others");
    assert_eq!(
        more.to_string(),
        format!(
            "{}: and 10 things more are wrong: mend those that are told first",
            skills.0.display()
        )
    );
}

#[test]
fn one_is_checked_by_itself() {
    let skills = Skills::new();
    skills.skill("a", &composite("a", "other"));
    let problems = checked(&skills.0.join("a"));
    assert!(
        problems[0]
            .detail
            .ends_with("`tool` is \"other\", which is unknown"),
        "{problems:?}"
    );
    skills.skill("a", &composite("a", "mystery"));
    assert_eq!(checked(&skills.0.join("a")), []);
    let mut wrong = composite("a", "other");
    wrong["steps"][0]["condition"] = json!("x ==");
    wrong["version"] = json!("one");
    wrong["steps"][0]["tool_version"] = json!("1");
    skills.skill("a", &wrong);
    assert_eq!(checked(&skills.0.join("a")).len(), 3);
    wrong["version"] = json!("1.0.0");
    skills.skill("a", &wrong);
    let problems = checked(&skills.0.join("a"));
    let told: Vec<&str> = problems
        .iter()
        .map(|problem| &problem.detail[..13])
        .collect();
    assert_eq!(
        told,
        ["`condition` i", "`tool` is \"ot", "`tool_version"],
        "{problems:?}"
    );
    skills.write("b/x", "");
    assert_eq!(checked(&skills.0.join("b"))[0].detail, "is not there");
    assert_eq!(checked(&skills.0.join("c"))[0].detail, "is not there");
}

#[test]
fn a_skill_is_checked_as_if_it_stood_among_others() {
    let (here, there) = (Skills::new(), Skills::new());
    here.skill("a", &composite("a", "b"));
    assert_eq!(checked(&here.0.join("a")).len(), 1, "there is no `b`");
    there.skill("b", &composite("b", "bash"));
    there.skill("broken", &json!({}));
    let others = [there.0.clone()];
    let among = || check(&here.0.join("a"), &others, &Builtin::new());
    let told = || -> Vec<String> {
        let problems = among().problems.into_iter();
        problems.map(|problem| problem.detail).collect()
    };
    // `b` passes no command to `bash`, which is its own fault and not that of `a`.
    assert_eq!(told(), Vec::<String>::new());
    assert_eq!(
        (among().name.as_deref(), among().version.as_deref()),
        (Some("a"), Some("1.0.0"))
    );
    // It would take the place of one that is called the same, and clash with another of its version.
    there.skill("a", &composite("a", "bash"));
    assert_eq!(told(), Vec::<String>::new());
    there.skill("a@1.0.0", &composite("a", "bash"));
    assert!(told()[0].contains("is in `"), "{:?}", told());
    std::fs::remove_dir_all(there.0.join("a@1.0.0")).expect("removed");
    // One that is called like a tool of the daemon's own is refused, and is not what `a` calls.
    let mut namesake = composite("mystery", "bash");
    namesake["input"]["required"] = json!(["x"]);
    there.skill("mystery", &namesake);
    here.skill("a", &composite("a", "mystery"));
    assert_eq!(told(), Vec::<String>::new());
    here.skill("a", &composite("a", "b"));
    there.skill("b", &composite("b", "a"));
    assert!(told()[0].contains("a -> b -> a"), "{:?}", told());
}

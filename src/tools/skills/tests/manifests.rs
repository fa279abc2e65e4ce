use proptest::prelude::*;

use super::*;

const CODE: &str = r#"{
  "name": "a",
  "version": "1.2.3",
  "description": "Does it.",
  "mode": "code",
  "input": {"type": "object", "properties": {"x": {"type": "string"}}},
  "output": {"type": "object"},
  "category": "files",
  "risk_level": "untrusted",
  "timeout_secs": 2.5,
  "calls": ["bash"],
  "command": ["./bin/run", "--fast", "../data"]
}"#;

#[test]
fn a_program_has_all_its_values() {
    let skills = Skills::new();
    skills.write("a/skill.json", CODE).executable("a/bin/run");
    let skill = only(skills.load());
    assert_eq!(skill.name, "a");
    assert_eq!(skill.version.to_string(), "1.2.3");
    assert_eq!(skill.description, "Does it.");
    assert_eq!(skill.category, "files");
    assert_eq!(skill.risk_level, RiskLevel::Untrusted);
    assert_eq!(skill.timeout, Some(Duration::from_millis(2500)));
    assert_eq!(skill.calls.into_iter().collect::<Vec<_>>(), ["bash"]);
    assert_eq!(skill.dir, skills.0.join("a"));
    assert_eq!(skill.input.violations(&json!({"x": 1})).len(), 1);
    assert_eq!(skill.output.expect("one").violations(&json!([])).len(), 1);
    let Mode::Code(command) = skill.mode else {
        panic!("a program")
    };
    assert_eq!(command.program, skills.0.join("a/bin/run"));
    assert_eq!(command.args, ["--fast", "../data"]);
}

#[test]
fn what_is_not_said_has_a_default() {
    let skills = Skills::new();
    skills.skill(
        "a",
        &json!({
            "name": "a", "version": "0.1.0", "description": "x", "mode": "code",
            "input": {"type": "object"}, "command": ["/bin/sh", "run.sh"],
        }),
    );
    let skill = only(skills.load());
    assert_eq!(
        (skill.category.as_str(), skill.risk_level),
        ("skill", RiskLevel::Trusted)
    );
    assert_eq!(
        (skill.timeout, skill.output.is_none(), skill.calls.len()),
        (None, true, 0)
    );
    let Mode::Code(command) = skill.mode else {
        panic!("a program")
    };
    assert_eq!(
        (command.program.as_path(), command.args),
        (Path::new("/bin/sh"), vec!["run.sh".to_owned()])
    );
}

#[test]
fn a_prompt_is_a_template_over_the_input() {
    let skills = Skills::new();
    let llm = json!({
        "name": "a", "version": "1.0.0", "description": "x", "mode": "llm", "input": {"type": "object"},
        "prompt": "prompt.md",
        "model": {"name": "m", "max_tokens": 100, "temperature": 0.5, "top_p": 1, "stop": ["END"]},
    });
    skills
        .skill("a", &llm)
        .write("a/prompt.md", "Sum up:\n\n{{ input.text }}\n");
    let Mode::Llm { prompt, model } = only(skills.load()).mode else {
        panic!("a prompt")
    };
    let scope = json!({"input": {"text": "much"}});
    let rendered = prompt.render(scope.as_object().expect("an object"));
    assert_eq!(rendered, Ok(json!("Sum up:\n\nmuch\n")));
    let expected = Model {
        name: Some("m".to_owned()),
        max_tokens: Some(100),
        temperature: Some(0.5),
        top_p: Some(1.0),
        stop: vec!["END".to_owned()],
    };
    assert_eq!(model, expected);

    skills.write(
        "a/prompt.md",
        "Sum up\n{{ text }} and {{ input }}\n{{ memory }}",
    );
    assert_eq!(
        skills.problems(),
        [
            "a/prompt.md:2: `text` is a missing value: there is `input`",
            "a/prompt.md:3: `memory` is a missing value: there is `input`",
        ]
    );
    skills.write("a/prompt.md", "one\ntwo {{ input. }}");
    assert_eq!(
        skills.problems(),
        [
            "a/prompt.md:2: found the end, expected a name after `.` (line 2, column 9 of ` input. `)",
        ]
    );
    skills.write("a/prompt.md", &"x".repeat((256 << 10) + 1));
    assert_eq!(
        skills.problems(),
        ["a/skill.json:13: `prompt` names \"prompt.md\", which is larger than 256 KiB"]
            .map(|told| told.replace(":13:", &format!(":{}:", line(&llm, "\"prompt\""))))
    );
    fs::write(skills.0.join("a/prompt.md"), b"ab\xff").expect("written");
    assert!(
        skills.problems()[0].ends_with("which is no UTF-8 from byte 2 on"),
        "{:?}",
        skills.problems()
    );
}

/// The line of the pretty text of `value` on which `part` is.
fn line(value: &Value, part: &str) -> usize {
    let text = format!("{value:#}");
    text.lines()
        .position(|line| line.contains(part))
        .expect("there")
        + 1
}

#[test]
fn everything_wrong_is_told_with_its_line() {
    assert_eq!(
        told(
            "{\n  \"name\": \"a b\",\n  \"version\": \"1.0\",\n  \"description\": \" \",\n  \"mode\": \"python\",\n  \"input\": {\"type\": \"string\"},\n  \"risk_level\": 3,\n\n  \"timeout_secs\": 0,\n  \"calls\": [1],\n  \"extra\": {}\n}"
        ),
        [
            "a/skill.json:2: `name` is \"a b\": expected up to 64 of a-z, A-Z, 0-9, _ and -",
            "a/skill.json:3: `version` is \"1.0\": expected a version such as \"1.0.0\"",
            "a/skill.json:4: `description` is \" \": expected a text that is not empty",
            "a/skill.json:5: `mode` is \"python\": expected \"code\" or \"composite\" or \"llm\"",
            "a/skill.json:6: `input` is no schema of an object: expected \"type\": \"object\" in it",
            "a/skill.json:7: `risk_level` is 3: expected \"trusted\" or \"untrusted\"",
            "a/skill.json:9: `timeout_secs` is 0: expected a number above 0, at most 604800",
            "a/skill.json:10: `calls` holds other things than texts",
            "a/skill.json:11: `extra` is no member of a skill of this mode: expected calls, category, description, input, mode, name, output, risk_level, timeout_secs, version",
        ]
    );
    assert_eq!(
        told("\n{}"),
        [
            "a/skill.json:2: `name` is missing",
            "a/skill.json:2: `version` is missing",
            "a/skill.json:2: `description` is missing",
            "a/skill.json:2: `input` is missing",
            "a/skill.json:2: `mode` is missing",
        ]
    );
    for (text, expected) in [
        ("", "a/skill.json:1: is no JSON: EOF while parsing a value"),
        (
            "{\n\"name\": }",
            "a/skill.json:2: is no JSON: expected value",
        ),
        (
            "{\n\"a\": 1,\n\"a\": 2}",
            "a/skill.json:3: `/a` is there twice",
        ),
        ("[]", "a/skill.json:1: is no object"),
        ("{} x", "a/skill.json:1: is no JSON: trailing characters"),
    ] {
        assert_eq!(told(text), [expected], "{text}");
    }
}

/// To look each of them up in the text took the daemon minutes, before it had a socket.
#[test]
fn of_many_faults_the_first_are_told_soon() {
    let members: Vec<String> = (0..80_000).map(|n| format!("\n\"{n:05}\":0")).collect();
    let lines = told(&format!("{{{}}}", members.join(",")));
    assert_eq!(lines.len(), 21, "{lines:#?}");
    let missing = "a/skill.json:1: `name` is missing";
    assert_eq!(lines[0], missing);
    let unknown = lines.iter().find(|line| line.contains("`00000`"));
    let unknown = unknown.expect("the first of those that are unknown");
    assert!(unknown.starts_with("a/skill.json:2: "), "{unknown}");
    let more = format!(
        "a/skill.json: and {} things more are wrong: mend those that are told first",
        80_000 + 5 - 20
    );
    assert_eq!(lines[20], more);
}

#[test]
fn a_long_name_is_not_repeated_whole() {
    let lines = told(&format!("{{\"{}\":0}}", "x".repeat(900_000)));
    let longest = lines.iter().map(String::len).max();
    assert!(longest < Some(5_000), "{longest:?}");
}

#[test]
fn a_program_is_one_that_the_kernel_can_execute() {
    let skills = Skills::new();
    let code = json!({
        "name": "a", "version": "1.0.0", "description": "x", "mode": "code",
        "input": {"type": "object"}, "command": ["./run"],
    });
    skills.skill("a", &code).executable("a/run");
    assert_eq!(skills.problems(), Vec::<String>::new());
    for (text, told) in [
        (
            "echo 1\n",
            "is text whose first line does not name what runs it: expected one such as `#!/bin/sh`",
        ),
        (
            "",
            "is text whose first line does not name what runs it: expected one such as `#!/bin/sh`",
        ),
        (
            "#!\necho 1\n",
            "begins with `#!` and names nothing: expected `#!/bin/sh`",
        ),
        (
            "#! /nowhere/python3 -B\n",
            "is run by \"/nowhere/python3\", which is not there",
        ),
        ("#!/etc\n", "is run by \"/etc\", which is no program"),
    ] {
        skills.write("a/run", text);
        let problems = skills.problems();
        let told = format!("`command` names \"./run\", which {told}");
        assert!(problems[0].ends_with(&told), "{text}: {problems:?}");
    }
    for bytes in [
        &b"\x7fELF\x02\x01\x01\0"[..],
        b"#!/usr/bin/env python3",
        b"MZ\0\0",
    ] {
        fs::write(skills.0.join("a/run"), bytes).expect("written");
        assert_eq!(skills.problems(), Vec::<String>::new());
    }
}

#[test]
fn a_default_fits_its_own_schema() {
    let skills = Skills::new();
    let mut skill = composite("a", "mystery");
    skill["input"] = json!({
        "type": "object", "required": ["x"],
        "properties": {
            "n": {"type": "integer", "default": "five"}, "m": {"type": "integer", "default": 5},
            "x": {"type": "string"}, "deep": {"default": {}, "properties": {"k": {"maximum": 3, "default": 4}}},
        },
    });
    skills.skill("a", &skill);
    let problems = skills.problems();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems
            .iter()
            .any(|told| told.contains("the `default` of `n` ")),
        "{problems:?}"
    );
    assert!(
        problems
            .iter()
            .any(|told| told.contains("the `default` of `deep/k` ")),
        "{problems:?}"
    );
}

#[test]
fn a_name_is_that_of_the_directory() {
    let skills = Skills::new();
    skills.skill("b", &composite("a", "bash"));
    let expected =
        "`name` is \"a\" in the directory \"b\": expected that to be called \"a\" or \"a@1.0.0\"";
    assert!(
        skills.problems()[0].ends_with(expected),
        "{:?}",
        skills.problems()
    );
}

#[test]
fn schemas_are_compiled_and_read_nothing_else() {
    let with = |input: &str| {
        CODE.replace(
            "{\"type\": \"object\", \"properties\": {\"x\": {\"type\": \"string\"}}}",
            input,
        )
    };
    let skills = Skills::new();
    skills.executable("a/bin/run");
    let told = |input: &str| {
        skills.write("a/skill.json", &with(input));
        skills.problems()
    };
    assert_eq!(
        told("{\"type\": \"object\", \"$ref\": \"#/$defs/x\", \"$defs\": {\"x\": {}}}"),
        [""; 0]
    );
    let problems =
        told("{\"type\": \"object\",\n\"properties\":\n{\"x\": {\"type\": \"nothing\"}}}");
    assert!(
        problems[0].starts_with("a/skill.json:8: `input` is no JSON Schema: "),
        "{problems:?}"
    );

    // Whoever asks for it is heard.
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    server.set_nonblocking(true).expect("set");
    let address = server.local_addr().expect("bound");
    let file = skills.0.join("schema.json");
    skills.write("schema.json", "{}");
    for reference in [
        format!("http://{address}/x"),
        format!("file://{}", file.display()),
        "other.json".to_owned(),
    ] {
        let problems = told(&format!(
            "{{\"type\": \"object\", \"$ref\": \"{reference}\"}}"
        ));
        assert!(
            problems[0].starts_with("a/skill.json:6: `input` is no JSON Schema: "),
            "{problems:?}"
        );
    }
    assert!(server.accept().is_err(), "nobody asked");
}

#[test]
fn programs_stay_where_they_belong() {
    let skills = Skills::new();
    skills
        .executable("elsewhere")
        .executable("a/run")
        .write("a/text", "")
        .write("a/dir/x", "");
    symlink("../elsewhere", skills.0.join("a/out")).expect("a link");
    symlink("run", skills.0.join("a/in")).expect("a link");
    for (program, expected) in [
        ("./run", None),
        ("./in", None),
        (
            "./out",
            Some("leads out of its directory: expected no link to elsewhere"),
        ),
        (
            "./../elsewhere",
            Some("leads out of its directory: expected no `..`"),
        ),
        ("./missing", Some("is not there")),
        ("./dir", Some("is a directory: expected a regular file")),
        ("./text", Some("is not executable: expected `chmod +x`")),
        (
            "run",
            Some("is no path: expected \"./name\" in the skill's directory, or an absolute path"),
        ),
        ("/nowhere/python3", Some("is not there")),
        ("/dev/null", Some("is a device: expected a regular file")),
    ] {
        skills.write("a/skill.json", &CODE.replace("./bin/run", program));
        let expected = expected
            .map(|why| format!("a/skill.json:12: `command` names {program:?}, which {why}"));
        assert_eq!(skills.problems(), Vec::from_iter(expected), "{program}");
    }
    skills.write(
        "a/skill.json",
        &CODE.replace("\"./bin/run\", \"--fast\", \"../data\"", ""),
    );
    assert_eq!(
        skills.problems(),
        ["a/skill.json:12: `command` is empty: expected a program and its arguments"]
    );
}

#[test]
fn models_take_what_is_known_of_them() {
    let skills = Skills::new();
    skills.write("a/p.md", "x").write("a/skill.json", "{\"name\": \"a\", \"version\": \"1.0.0\", \"description\": \"x\", \"mode\": \"llm\", \"prompt\": \"p.md\",\n\"input\": {\"type\": \"object\"}, \"model\": {\n\"max_tokens\": 0.5,\n\"temperature\": 3,\n\"top\": 1}}");
    assert_eq!(
        skills.problems(),
        [
            "a/skill.json:3: `max_tokens` is out of range: expected a whole number from 1 to 10000000",
            "a/skill.json:4: `temperature` is 3: expected a number from 0 to 2",
            "a/skill.json:5: `top` is no member of `model` (did you mean `stop`?): expected max_tokens, name, stop, temperature, top_p",
        ]
    );
}

#[test]
fn deep_and_large_files_are_refused() {
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(
        told(&deep),
        ["a/skill.json:1: is no JSON: recursion limit exceeded"]
    );
    let garbage: String = (0..1_000_000_u32)
        .map(|n| char::from(b' ' + (n.wrapping_mul(2_654_435_761) >> 25) as u8 % 95))
        .collect();
    assert_eq!(told(&garbage).len(), 1);
    assert_eq!(
        told(&" ".repeat((1 << 20) + 1)),
        ["a/skill.json: is larger than 1024 KiB"]
    );
    let list = "{},".repeat(300_000);
    let (open, close) = ("{\"a\":".repeat(120), "}".repeat(120));
    let deepest = format!("{open}[{list}0]{close}");
    assert!(!told(&deepest).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_file_is_read_or_refused(
        at in 0..CODE.len(), length in 0_usize..20, with in "[\\PC\\n]{0,8}", is_steps in any::<bool>()
    ) {
        let text = if is_steps { super::composites::ALL.to_owned() } else { CODE.to_owned() };
        let start = text.floor_char_boundary(at.min(text.len()));
        let end = text.floor_char_boundary((start + length).min(text.len()));
        let mut text = text;
        text.replace_range(start..end, &with);
        let skills = Skills::new();
        skills.write("a/skill.json", &text).executable("a/bin/run");
        let loaded = skills.load();
        prop_assert!(loaded.skills.len() + loaded.problems.len() >= 1);
        let lines = text.lines().count().max(1);
        for problem in &loaded.problems {
            prop_assert!(problem.line.is_some_and(|line| (1..=lines + 1).contains(&line)), "{}", problem);
        }
    }
}

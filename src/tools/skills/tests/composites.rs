use super::*;

/// Everything a composite can say.
pub(super) const ALL: &str = r#"{
  "name": "a", "version": "1.0.0", "description": "x", "mode": "composite",
  "input": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
  "steps": [
    {"tool": "bash", "description": "Runs it.", "parameters": {"command": "sh {{ input.path }}"},
     "save_output_as": "script_output", "timeout_secs": 5, "tool_version": "0.1.0"},
    {"parallel": [
      {"tool": "bash", "parameters": {"command": "one {{ script_output.strip() }}"}, "save_output_as": "one"},
      {"tool": "mystery", "condition": "script_output.return_code == 0", "save_output_as": "two"}
    ], "description": "Both."},
    {"tool": "mystery", "parameters": {"n": "{{ one }}", "m": ["{{ two }}"]}, "on_error": "continue"}
  ],
  "result": {"one": "{{ one }}", "all": "{{ one }} and {{ two }}"}
}"#;

fn with_steps(steps: &str) -> String {
    format!(
        "{{\"name\": \"a\", \"version\": \"1.0.0\", \"description\": \"x\", \"mode\": \"composite\", \"input\": {{\"type\": \"object\"}},\n\"steps\": {steps}}}"
    )
}

#[test]
fn a_composite_has_all_its_values() {
    let skills = Skills::new();
    skills.write("a/skill.json", ALL);
    let skill = only(skills.load());
    assert_eq!(
        skill.calls.into_iter().collect::<Vec<_>>(),
        ["bash", "mystery"]
    );
    let Mode::Composite { items, result } = skill.mode else {
        panic!("a composite")
    };
    let [
        Item::One(first),
        Item::Parallel { description, steps },
        Item::One(last),
    ] = &items[..]
    else {
        panic!("three items")
    };
    assert_eq!(first.tool, "bash");
    assert_eq!(
        first.version.as_ref().map(ToString::to_string),
        Some("0.1.0".to_owned())
    );
    assert_eq!(first.description.as_deref(), Some("Runs it."));
    assert_eq!(first.save_output_as.as_deref(), Some("script_output"));
    assert_eq!(
        (first.timeout, first.on_error),
        (Some(Duration::from_secs(5)), OnError::Stop)
    );
    assert_eq!(first.given, json!({"command": "sh {{ input.path }}"}));
    assert_eq!(description.as_deref(), Some("Both."));
    assert_eq!(
        (steps.len(), steps[1].pointer.as_str()),
        (2, "/steps/1/parallel/1")
    );
    assert!(steps[1].condition.is_some());
    assert_eq!(
        (last.on_error, last.condition.is_none()),
        (OnError::Continue, true)
    );
    assert_eq!(result.expect("one").names().len(), 2);
}

#[test]
fn every_fault_of_a_step_has_its_line() {
    for (steps, expected) in [
        ("[]", &["2: `steps` holds 0 steps: expected 1 to 100"][..]),
        ("3", &["2: `steps` is 3: expected a list"]),
        ("[1]", &["2: is no object"]),
        (
            "[{\n\"parameters\": 3}]",
            &["2: `tool` is missing", "3: `parameters` is no object"],
        ),
        (
            "[{\"tool\": \"mystery\",\n\"parametres\": {}}]",
            &[
                "3: `parametres` is no member of a step (did you mean `parameters`?): expected condition, description, on_error, parameters, save_output_as, timeout_secs, tool, tool_version",
            ],
        ),
        (
            "[\n{\"tool\": \"bsh\"}]",
            &["3: `tool` is \"bsh\", which is unknown"],
        ),
        (
            "[\n{\"tool\": \"a\"}]",
            &["3: `tool` is \"a\": a skill cannot call itself"],
        ),
        (
            "[{\"tool\": \"mystery\",\n\"condition\": \"x == 1\"}]",
            &["3: `x` is a missing value: there is `input` by then"],
        ),
        (
            "[{\"tool\": \"mystery\",\n\"condition\": \"1 +\"}]",
            &[
                "3: `condition` is no expression: found the end, expected an expression (line 1, column 4 of `1 +`)",
            ],
        ),
        (
            "[{\"tool\": \"mystery\", \"parameters\": {\n\"a\": \"{{ later }}\",\n\"b\": [\"{{ 1 + }}\"]}}, {\"tool\": \"mystery\", \"save_output_as\": \"later\"}]",
            &[
                "4: a template is no expression: found the end, expected an expression (line 1, column 6 of ` 1 + `)",
            ],
        ),
        (
            "[{\"tool\": \"mystery\", \"parameters\": {\n\"a\": \"{{ later }}\"}},\n{\"tool\": \"mystery\", \"save_output_as\": \"later\"}]",
            &["3: `later` is a missing value: there is `input` by then"],
        ),
        (
            "[{\"tool\": \"mystery\", \"save_output_as\": \"x\"},\n{\"tool\": \"mystery\", \"save_output_as\": \"x\"}]",
            &["3: `save_output_as` is \"x\", which is already a value: expected another name"],
        ),
        (
            "[{\"tool\": \"mystery\", \"save_output_as\": \"input\"}]",
            &["2: `save_output_as` is \"input\", which is already a value: expected another name"],
        ),
        (
            "[{\"tool\": \"mystery\", \"save_output_as\": \"a-b\"}]",
            &[
                "2: `save_output_as` is \"a-b\": expected letters, digits and _, and no word of expressions",
            ],
        ),
        (
            "[{\"parallel\": [{\"tool\": \"mystery\", \"save_output_as\": \"x\"},\n{\"tool\": \"mystery\", \"condition\": \"x\"}]}]",
            &["3: `x` is a missing value: there is `input` by then"],
        ),
        (
            "[{\"parallel\": []}]",
            &[
                "2: `steps` holds 0 steps: expected 1 to 100",
                "2: `parallel` holds no steps: expected some",
            ],
        ),
        (
            "[{\"parallel\": [{\"tool\": \"mystery\"},\n{\"parallel\": []}]}]",
            &["3: is a group in a group: expected steps"],
        ),
        (
            "[{\"parallel\": [{\"tool\": \"mystery\"}],\n\"tool\": \"mystery\"}]",
            &["3: `tool` is no member of a group: expected description, parallel"],
        ),
        (
            "[{\"tool\": \"bash\", \"parameters\": {\n\"command\": 3}}]",
            &["3: `parameters/command` value is not of type \"string\": got 3"],
        ),
        (
            "[{\"tool\": \"bash\",\n\"parameters\": {}}]",
            &["3: `parameters/command` is required"],
        ),
        (
            "[{\"tool\": \"bash\", \"parameters\": {\"command\": \"{{ input.c }}\", \"n\": \"{{ input.n }}\",\n\"cmd\": 1}}]",
            &["3: `parameters/cmd` is not a member of this input"],
        ),
        (
            "[{\"tool\": \"mystery\", \"parameters\": {\n\"word\": \"wrong\"}}]",
            &["3: `parameters/word` is the wrong one"],
        ),
        (
            "[{\"tool\": \"mystery\", \"on_error\": \"retry\",\n\"tool_version\": \"one\"}]",
            &[
                "2: `on_error` is \"retry\": expected \"stop\" or \"continue\"",
                "3: `tool_version` is \"one\": expected a version such as \"1.0.0\"",
            ],
        ),
        (
            "[{\"tool\": \"mystery\"}],\n\"result\": \"{{ x }}\"",
            &["3: `x` is a missing value: there is `input` by then"],
        ),
        (
            "[{\"tool\": \"mystery\"}],\n\"calls\": []",
            &["3: `calls` does not name \"mystery\", which a step calls"],
        ),
        (
            "[{\"tool\": \"mystery\"}],\n\"calls\": [\"mystery\", \"what\"]",
            &["3: `calls` names the tool \"what\", which is unknown"],
        ),
    ] {
        let expected: Vec<String> = expected
            .iter()
            .map(|told| format!("a/skill.json:{told}"))
            .collect();
        assert_eq!(told(&with_steps(steps)), expected, "{steps}");
    }
    let many = format!(
        "[{}{{\"tool\": \"mystery\"}}]",
        "{\"tool\": \"mystery\"},".repeat(100)
    );
    assert_eq!(
        told(&with_steps(&many)),
        ["a/skill.json:2: `steps` holds 101 steps: expected 1 to 100"]
    );
}

#[test]
fn parameters_of_skills_are_held_against_their_schema() {
    let skills = Skills::new();
    let mut inner = composite("inner", "mystery");
    inner["input"] =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let mut outer = composite("outer", "inner");
    skills.skill("inner", &inner).skill("outer", &outer);
    assert!(
        skills.problems()[0].ends_with("`parameters/n` is required"),
        "{:?}",
        skills.problems()
    );
    outer["steps"][0]["parameters"] = json!({"n": "{{ input.n }}"});
    skills.skill("outer", &outer);
    assert_eq!(skills.problems(), [""; 0]);
    outer["steps"][0]["tool_version"] = json!("2.0.0");
    skills.skill("outer", &outer);
    assert!(
        skills.problems()[0].ends_with("`tool_version` of \"inner\" is 2.0.0: there is 1.0.0"),
        "{:?}",
        skills.problems()
    );
}

#[test]
fn cycles_are_told_and_the_others_load() {
    let skills = Skills::new();
    for (name, tool) in [
        ("a", "b"),
        ("b", "c"),
        ("c", "a"),
        ("into", "a"),
        ("fine", "bottom"),
        ("bottom", "mystery"),
    ] {
        skills.skill(name, &composite(name, tool));
    }
    let line = format!("{:#}", composite("a", "b"))
        .lines()
        .position(|line| line.contains("\"tool\""))
        .expect("there")
        + 1;
    assert_eq!(
        skills.problems(),
        [
            format!("a/skill.json:{line}: the skills call each other in a cycle: a -> b -> c -> a"),
            format!("b/skill.json:{line}: the skills call each other in a cycle: b -> c -> a -> b"),
            format!("c/skill.json:{line}: the skills call each other in a cycle: c -> a -> b -> c"),
            format!("into/skill.json:{line}: `tool` is \"a\", which is unknown"),
        ]
    );
    assert_eq!(skills.names(), ["bottom@1.0.0", "fine@1.0.0"]);
}

#[test]
fn another_version_of_itself_may_be_called() {
    let skills = Skills::new();
    let mut two = composite("a", "a");
    two["version"] = json!("2.0.0");
    two["steps"][0]["tool_version"] = json!("1.0.0");
    skills
        .skill("a@1.0.0", &composite("a", "mystery"))
        .skill("a@2.0.0", &two);
    assert_eq!(skills.problems(), [""; 0]);
    assert_eq!(skills.names(), ["a@1.0.0", "a@2.0.0"]);
}

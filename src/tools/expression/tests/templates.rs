use super::*;

fn rendered(value: &Value) -> Value {
    let template = Template::parse(value).unwrap_or_else(|errors| panic!("{value}: {errors:?}"));
    let rendered = template.render(&scope());
    rendered.unwrap_or_else(|error| panic!("{value}: {error}"))
}

#[test]
fn a_text_that_is_one_expression_is_its_value_and_any_other_a_text() {
    for (value, expected) in [
        (json!("{{ n }}"), json!(3)),
        (json!("{{n}}"), json!(3)),
        (json!("{{ list }}"), json!([3, 1, 2])),
        (json!("{{ nothing }}"), json!(null)),
        (json!(" {{ n }}"), json!(" 3")),
        (json!("{{ n }}{{ n }}"), json!("33")),
        (
            json!("n={{ n }}, {{ condition_result }}, {{ nothing }}!"),
            json!("n=3, True, None!"),
        ),
        (
            json!("{{ list }} of {{ dict.b }}"),
            json!("[3,1,2] of {\"c\":[10,20]}"),
        ),
        (json!("{{ {'a': {'b': n}} }}"), json!({"a": {"b": 3}})),
        (json!("{{ {'a': {'b': n}}.a.b }}x"), json!("3x")),
        (json!("{{ '}}' + \"\\\"}}\" }}"), json!("}}\"}}")),
        (
            json!("docker ps --format '{{ '{{' }}.Names}}'"),
            json!("docker ps --format '{{.Names}}'"),
        ),
        (
            json!("${x%y} ${#a[@]} {#no comment#} {% no statement %} }} { {"),
            json!("${x%y} ${#a[@]} {#no comment#} {% no statement %} }} { {"),
        ),
        (json!(""), json!("")),
        (
            json!({"{{ n }}": ["a", {"b": "{{ n + 1 }}"}], "c": 1.5}),
            json!({"{{ n }}": ["a", {"b": 4}], "c": 1.5}),
        ),
        (json!("{{ script_output.strip() }}{{ '' }}"), json!("1")),
    ] {
        assert_eq!(rendered(&value), expected, "{value}");
    }
}

#[test]
fn everything_wrong_with_a_template_is_told_by_pointer() {
    let value =
        json!({"a/b": "{{ n +", "c": ["fine {{ n }}", "x {{ }} y"], "d": "{{ f | lower }}"});
    let errors = Template::parse(&value).expect_err("three");
    let told: Vec<String> = errors
        .iter()
        .map(|error| format!("{}: {error}", error.pointer))
        .collect();
    assert_eq!(
        told,
        [
            "/a~1b: `{{` has no end: expected `}}` behind an expression (line 1, column 1 of `{{ n +`)",
            "/c/1: found the end, expected an expression (line 1, column 2 of ` `)",
            "/d: found `|`, expected an operator or the end: there are no filters, write `x.strip()` for `x | trim` (line 1, column 4 of ` f | lower `)",
        ]
    );
    let template = Template::parse(&json!({"a": ["{{ n }}", "{{ z }}"]})).expect("reads");
    let error = template.render(&scope()).expect_err("no z");
    assert_eq!(error.pointer, "/a/1");
    assert!(
        error
            .to_string()
            .starts_with("`z` is not there: there is `condition_result`, "),
        "{error}"
    );
}

#[test]
fn a_template_tells_its_names_and_what_is_constant() {
    let template = Template::parse(&json!({"a": "{{ x.y }} {{ z }}", "b": ["{{ x }}"], "c": 1}));
    let template = template.expect("reads");
    assert_eq!(template.names().into_iter().collect::<Vec<_>>(), ["x", "z"]);
    let pointers: Vec<String> = template
        .expressions()
        .into_iter()
        .map(|(pointer, _)| pointer)
        .collect();
    assert_eq!(pointers, ["/a", "/a", "/b/0"]);
    assert_eq!(template.constant(), None);
    let constant = json!({"a": ["x", 1]});
    let template = Template::parse(&constant).expect("reads");
    assert_eq!(template.constant(), Some(&constant));
    assert!(template.names().is_empty());
}

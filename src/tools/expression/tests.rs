use proptest::prelude::*;
use serde_json::json;

use super::*;

mod hostile;
mod python;
mod templates;

fn scope() -> Map<String, Value> {
    let scope = json!({
        "script_output": "1\n",
        "condition_result": true,
        "n": 3,
        "f": 2.5,
        "word": "Grüße",
        "list": [3, 1, 2],
        "dict": {"a": 1, "b": {"c": [10, 20]}, "get": "own"},
        "nothing": null,
    });
    scope.as_object().expect("an object").clone()
}

/// The message of what goes wrong with an expression, in reading or later.
fn error(expression: &str) -> String {
    match check(expression, &scope()) {
        Ok((_, value)) => panic!("{expression} is {value}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_conditions_of_the_design_work_as_written() {
    for condition in ["script_output.strip() == '1'", "condition_result == True"] {
        let checked = check(condition, &scope());
        assert_eq!(checked, Ok((true, json!(true))), "{condition}");
    }
    let mut values = Values::default();
    let members = json!({"return_code": 0, "stderr": ""});
    let members = members.as_object().expect("an object").clone();
    let value = json!("2\n");
    values.insert("var", Saved { value, members });
    for condition in [
        "var.strip() == '2'",
        "var.return_code == 0",
        "var['return_code'] == 0",
        "var == '2\\n' and not var.stderr",
        "'2' in var and var[0] == '2' and len(var) == 2",
    ] {
        let expression = Expression::parse(condition).expect(condition);
        assert_eq!(expression.truth(&values), Ok(true), "{condition}");
    }
    let error = Expression::parse("var.code").expect("reads").value(&values);
    assert_eq!(
        error.expect_err("no such member").to_string(),
        "a text has no member `code`: there is `return_code`, `stderr` (line 1, column 4 of `var.code`)"
    );
}

#[test]
fn names_are_those_that_a_scope_is_asked_for() {
    let expression = Expression::parse("a.b + c['d'] + len(e) + f.strip(g) if h else True or i");
    let names: Vec<String> = expression.expect("reads").names().iter().cloned().collect();
    assert_eq!(names, ["a", "c", "e", "f", "g", "h", "i"]);
    for name in ["output", "_x1", "größe"] {
        assert!(is_name(name), "{name}");
    }
    for name in ["", "1x", "a-b", "True", "null", "len", "in", "a b"] {
        assert!(!is_name(name), "{name}");
    }
}

#[test]
fn of_a_long_line_no_word_and_no_text_is_shown_in_part() {
    let name = "x".repeat(40);
    let value = "correct-horse battery-staple-0123456789";
    for (expression, expected) in [
        (format!("{name} == '{value}' )"), format!("of `{name} ==…`")),
        (
            format!("{name} == '\\' {value}' )"),
            format!("of `{name} ==…`"),
        ),
        (
            format!("{name} == correct-horse-battery-staple )"),
            format!("of `{name} ==…`"),
        ),
        (
            format!("n == 'a b' and {value} {name} )"),
            format!("of `n == 'a b' and {value}…`"),
        ),
        (
            format!("n == {name} {}", "x".repeat(14)),
            format!("of `n == {name} {}`", "x".repeat(14)),
        ),
    ] {
        let error = error(&expression);
        assert!(error.contains(&expected), "{expression} gave {error:?}");
    }
}

#[test]
fn errors_say_where_and_what_was_expected() {
    for (expression, expected) in [
        (
            "n ==",
            "found the end, expected an expression (line 1, column 5 of `n ==`)",
        ),
        (
            "n +\n\n (3 4)",
            "found a number, expected `,` or `)` (line 3, column 5 of ` (3 4)`)",
        ),
        (
            "word | trim",
            "found `|`, expected an operator or the end: there are no filters, write `x.strip()` for `x | trim` (line 1, column 6 of `word | trim`)",
        ),
        (
            "n = 3",
            "found `=`, expected an operator or the end: values are compared with `==` (line 1, column 3 of `n = 3`)",
        ),
        (
            "outptu == 1",
            "`outptu` is not there: there is `condition_result`, `dict`, `f`, `list`, `n`, `nothing`, `script_output`, `word` (line 1, column 1 of `outptu == 1`)",
        ),
        (
            "dict.z",
            "a dict has no member `z`: there is `a`, `b`, `get` (line 1, column 5 of `dict.z`)",
        ),
        (
            "word.trim()",
            "there is no method `trim`: expected capitalize, count, endswith, find, get, index, isalnum, isalpha, isdigit, islower, isspace, isupper, items, join, keys, lower, lstrip, partition, removeprefix, removesuffix, replace, rfind, rsplit, rstrip, split, splitlines, startswith, strip, upper, values (line 1, column 6 of `word.trim()`)",
        ),
        (
            "n.strip()",
            "a number has no method `strip` (line 1, column 2 of `n.strip()`)",
        ),
        (
            "word.replace('a')",
            "`replace` is given 1 arguments: expected 2 to 3 (line 1, column 6 of `word.replace('a')`)",
        ),
        (
            "n + word",
            "`+` does not go with a number and a text: expected two texts, as of `str(x)` (line 1, column 3 of `n + word`)",
        ),
        (
            "word > 3",
            "`>` does not go with a text and a number: expected two numbers or two texts, as of `int(x)` (line 1, column 6 of `word > 3`)",
        ),
        (
            "word is 'x'",
            "`is` goes with None, True and False only: expected `==` (line 1, column 6 of `word is 'x'`)",
        ),
        (
            "list[7]",
            "there is no item 7: there are 3 (line 1, column 5 of `list[7]`)",
        ),
        (
            "'abc",
            "the text has no end: expected ' (line 1, column 1 of `'abc`)",
        ),
        (
            "f'{n}'",
            "a text with `f` before it is not known: expected `'` or `r'` (line 1, column 1 of `f'{n}'`)",
        ),
        (
            "n(3)",
            "there is no function `n`: expected abs, all, any, bool, float, fromjson, int, len, max, min, quote, round, sorted, str, sum, tojson (line 1, column 1 of `n(3)`)",
        ),
        (
            "word(1)(2)",
            "there is no function `word`: expected abs, all, any, bool, float, fromjson, int, len, max, min, quote, round, sorted, str, sum, tojson (line 1, column 1 of `word(1)(2)`)",
        ),
        (
            "len(word)(2)",
            "only functions and methods are called (line 1, column 10 of `len(word)(2)`)",
        ),
        (
            "[x for x in list]",
            "found `for`, expected `,` or `]` (line 1, column 4 of `[x for x in list]`)",
        ),
        (
            "lambda: 1",
            "found `lambda`, expected an expression (line 1, column 1 of `lambda: 1`)",
        ),
        (
            "n / 0",
            "nothing can be divided by zero (line 1, column 3 of `n / 0`)",
        ),
        (
            "int('x')",
            "int() of a text that is no whole number (line 1, column 1 of `int('x')`)",
        ),
        (
            "",
            "found the end, expected an expression (line 1, column 1)",
        ),
        (
            "n § 2",
            "'§' has no meaning here: expected an expression (line 1, column 3 of `n § 2`)",
        ),
    ] {
        assert_eq!(error(expression), expected, "{expression}");
    }
}

#[test]
fn values_are_in_no_error() {
    let mut scope = Map::new();
    scope.insert("token".into(), json!("hunter2"));
    for expression in [
        "token + 1",
        "int(token)",
        "float(token)",
        "token.foo",
        "token[99]",
        "fromjson(token)",
        "token < 1",
        "1 in token",
        "{token: 1}[token + 'x']",
        "[].index(token)",
        "-token",
        "{'a': 1}['b' + token[:0]] + token",
    ] {
        let error = check(expression, &scope).expect_err(expression).to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        let _ = check(&text, &scope());
        let _ = Template::text(&text).map(|template| template.render(&scope()));
    }

    #[test]
    fn any_pieces_are_read_or_refused(pieces in proptest::collection::vec(
        proptest::sample::select(vec![
            "n", "f", "word", "list", "dict", "nothing", "script_output", "True", "None", "1", "2.5",
            "-1", "'ab'", "''", "99999999999", "(", ")", "[", "]", "{", "}", ",", ":", ".", "+", "-",
            "*", "/", "//", "%", "**", "==", "!=", "<", "<=", " in ", " not ", " and ", " or ",
            " if ", " else ", " is ", "len(", "str(", "int(", "sorted(", ".split(", ".join(",
            ".replace(", ".strip(", ".get(", "fromjson(", "tojson(", "round(", "max(", "sum(",
        ]), 0..40)) {
        let text = pieces.concat();
        let started = std::time::Instant::now();
        let _ = check(&text, &scope());
        let _ = Template::text(&format!("{{{{{text}}}}}")).map(|template| template.render(&scope()));
        prop_assert!(started.elapsed().as_secs() < 5);
    }
}

/// A comparison that fails is no order, for which the standard library may panic.
#[test]
fn a_long_list_that_cannot_be_sorted_is_refused() {
    let number = |at: i64| at * 7919 % 1009;
    let mixed = (0..3000).map(|at| match at % 5 {
        0 => json!(number(at).to_string()),
        1 => json!([number(at), "x"]),
        2 => json!([number(at), [1.5]]),
        3 => Value::Null,
        _ => json!(number(at)),
    });
    let mut scope = Map::new();
    scope.insert("mixed".into(), mixed.collect());
    let error = check("sorted(mixed)", &scope).expect_err("no order");
    assert!(error.detail.contains("does not go with"), "{error}");
    // Equals stay as they were: 1 before 1.0, and the other way round.
    let numbers: Vec<Value> = (0..3000)
        .map(|at| match at % 2 {
            0 => json!(number(at)),
            #[expect(clippy::cast_precision_loss, reason = "it is small")]
            _ => json!(number(at) as f64),
        })
        .collect();
    let mut sorted = numbers.clone();
    sorted.sort_by(|a, b| {
        let (a, b) = (a.as_f64().expect("number"), b.as_f64().expect("number"));
        a.total_cmp(&b)
    });
    scope.insert("numbers".into(), numbers.into());
    let checked = check("sorted(numbers)", &scope).expect("an order");
    assert_eq!(checked.1, Value::Array(sorted));
}

//! Any text as a condition and as a template.
#![no_main]

use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};
use shelly_executor::tools::expression::{Expression, Template, check};

fuzz_target!(|text: &str| {
    let scope =
        json!({"a": "1\n", "b": [1, 2.5, null, true], "c": {"d": "x y", "e": [[]]}, "n": 3});
    let Value::Object(scope) = scope else { return };
    let started = Instant::now();
    let checked = check(text, &scope);
    let template = Template::text(text).map(|template| template.render(&scope));
    assert!(started.elapsed() < Duration::from_secs(4));
    if let Ok(Ok(value)) = template {
        // Within what other readers take.
        assert!(value.to_string().len() < 128 << 20);
    }
    let Ok(expression) = Expression::parse(text) else {
        return;
    };
    assert_eq!(
        expression.value(&scope).ok(),
        checked.ok().map(|(_, value)| value)
    );
    // Whatever it wants is in its names.
    if expression.names().is_empty() {
        assert_eq!(expression.value(&Map::new()), expression.value(&scope));
    }
});

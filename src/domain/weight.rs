//! How much memory a JSON text takes when it is read, told before it is, and how much of it there is once it was.

use serde_json::Value;

/// What may be read: some 65,000 objects, or a million numbers, which is more than a tool call ever
/// has. Each copy of so much takes 40 MiB, and there are a few on a call's way.
const MOST: usize = 1 << 20;

/// What is said of a text that holds more than that.
pub(crate) const TOO_HEAVY: &str = "more than 65,000 objects or a million values";

/// What an object weighs: a map takes 600 bytes, however little is in it, and a value 32.
const OBJECT: usize = 16;

/// Whether a text is one whose values would take more memory than any call is worth. Looks at every
/// byte once; what is no JSON is for the reader to refuse.
pub(crate) fn is_too_heavy(text: &[u8]) -> bool {
    // As many values as bytes, at the most.
    if text.len() < MOST / OBJECT {
        return false;
    }
    let (mut weight, mut is_text, mut is_escaped) = (0_usize, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            _ if is_text => {}
            b'{' => weight += OBJECT,
            b'[' | b',' => weight += 1,
            _ => {}
        }
        if weight > MOST {
            return true;
        }
    }
    false
}

/// How deeply an input or an answer may nest, so that a record or another answer around it is still read: readers of
/// JSON stop at [`DEPTH_LIMIT`](super::DEPTH_LIMIT).
pub(crate) const NESTS_AT_MOST: usize = 120;

/// Whether a value nests more deeply than that: a value in nothing is on the first level.
pub(crate) fn nests_too_deeply(value: &Value) -> bool {
    nests_deeper(value, NESTS_AT_MOST)
}

/// Whether a value nests more deeply than so many levels.
pub(crate) fn nests_deeper(value: &Value, levels: usize) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        Value::Array(_) | Value::Object(_) if levels == 0 => true,
        Value::Array(items) => items.iter().any(|item| nests_deeper(item, levels - 1)),
        Value::Object(members) => members
            .values()
            .any(|member| nests_deeper(member, levels - 1)),
    }
}

/// About how many bytes a value has as JSON, without looking through its texts.
pub(crate) fn json_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| json_bytes(item) + 1).sum(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| name.len() + 4 + json_bytes(value))
            .sum(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_nests_more_deeply_than_is_kept_is_found() {
        let nested = |levels| (0..levels).fold(json!(1), |value, _| json!({"a": [1], "b": value}));
        assert!(!nests_too_deeply(&nested(NESTS_AT_MOST - 1)));
        assert!(!nests_too_deeply(&nested(0)));
        assert!(nests_too_deeply(&nested(NESTS_AT_MOST + 1)));
    }

    #[test]
    fn what_is_read_has_about_as_many_bytes_as_its_json() {
        let value = json!({"text": "x".repeat(1000), "items": [12_345_678, {"a": vec!["b"; 100]}]});
        let (told, is) = (json_bytes(&value), value.to_string().len());
        assert!(told.abs_diff(is) < is / 20, "{told} of {is}");
    }

    #[test]
    fn values_weigh_and_texts_do_not() {
        let many = |value: &str, count: usize| format!("[{}]", vec![value; count].join(","));
        assert!(!is_too_heavy(many("1", 1_000_000).as_bytes()));
        assert!(is_too_heavy(many("1", 1_100_000).as_bytes()));
        assert!(!is_too_heavy(many("{}", 60_000).as_bytes()));
        assert!(is_too_heavy(many(r#"{"":1}"#, 65_000).as_bytes()));
        let text = format!(r#"{{"a": "\\\"{}"}}"#, "{,[".repeat(1 << 20));
        assert!(!is_too_heavy(text.as_bytes()));
    }
}

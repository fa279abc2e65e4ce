//! What a value takes in memory, as an upper bound.

use serde_json::Value;

/// How deeply a value may nest: what every reader of JSON takes (serde_json stops there too).
const DEPTH_LIMIT: usize = crate::domain::DEPTH_LIMIT;

/// A value in a list, with what the list holds in reserve.
pub(super) const ITEM_BYTES: usize = 2 * size_of::<Value>();
/// A text beside its bytes: itself, and what an allocation costs.
pub(super) const TEXT_BYTES: usize = ITEM_BYTES + 16;
/// An object beside its members: one node of a B-tree has room for eleven.
pub(super) const OBJECT_BYTES: usize = 768;
/// A member beside its name and value: nodes are at least half full.
pub(super) const MEMBER_BYTES: usize = 128;

/// What `value` takes, in bytes.
pub(super) fn cost(value: &Value) -> Result<usize, String> {
    cost_at(value, 0)
}

/// Refuses what is so many levels deep within a value.
pub(super) fn check_depth(depth: usize) -> Result<(), String> {
    match depth > DEPTH_LIMIT {
        true => Err(format!("a value nests more than {DEPTH_LIMIT} levels deep")),
        false => Ok(()),
    }
}

fn cost_at(value: &Value, depth: usize) -> Result<usize, String> {
    check_depth(depth)?;
    Ok(match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => ITEM_BYTES,
        Value::String(text) => TEXT_BYTES + text.len(),
        Value::Array(items) => {
            let mut sum = TEXT_BYTES;
            for item in items {
                sum += cost_at(item, depth + 1)?;
            }
            sum
        }
        Value::Object(members) => {
            let mut sum = OBJECT_BYTES;
            for (name, member) in members {
                sum += MEMBER_BYTES + name.len() + cost_at(member, depth + 1)?;
            }
            sum
        }
    })
}

/// What the value written in `text` takes at most, whatever is written.
pub(super) fn cost_of_json(text: &str) -> usize {
    let each = text.bytes().map(|byte| match byte {
        b'{' => OBJECT_BYTES + TEXT_BYTES,
        b':' => MEMBER_BYTES + TEXT_BYTES,
        b',' | b'[' => TEXT_BYTES,
        _ => 1,
    });
    each.sum::<usize>() + TEXT_BYTES
}

//! A JSON text of which every value's line can be found again.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// Something wrong with what `pointer` (RFC 6901) points to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub pointer: String,
    pub detail: String,
}

/// What `text` says; else the line on which it goes wrong, and how.
pub(super) fn parse(text: &str) -> Result<Value, (usize, String)> {
    let value = serde_json::from_str(text).map_err(|error| {
        let told = error.to_string();
        let why = told
            .split(" at line ")
            .next()
            .unwrap_or_default()
            .to_owned();
        (error.line().max(1), format!("is no JSON: {why}"))
    })?;
    match repeated("", text) {
        Some(pointer) => Err((
            line_of(text, &pointer),
            format!("`{pointer}` is there twice"),
        )),
        None => Ok(value),
    }
}
/// The first member that is there twice.
fn repeated(pointer: &str, here: &str) -> Option<String> {
    match here.trim_start().as_bytes().first() {
        Some(b'{') => {
            let mut seen = BTreeSet::new();
            members(here).into_iter().find_map(|(name, raw)| {
                let pointer = member(pointer, &name);
                if seen.insert(name) {
                    repeated(&pointer, raw)
                } else {
                    Some(pointer)
                }
            })
        }
        Some(b'[') => items(here)
            .into_iter()
            .enumerate()
            .find_map(|(at, raw)| repeated(&format!("{pointer}/{at}"), raw)),
        _ => None,
    }
}

/// The line of what `pointer` points to, counted from 1; what is not there is where the
/// nearest thing around it begins.
pub(super) fn line_of(text: &str, pointer: &str) -> usize {
    let mut here = text;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        let next = match here.trim_start().as_bytes().first() {
            // The last one: of two, the second is the surprise.
            Some(b'{') => members(here)
                .into_iter()
                .rfind(|(name, _)| *name == step)
                .map(|(_, raw)| raw),
            Some(b'[') => step
                .parse::<usize>()
                .ok()
                .and_then(|at| items(here).get(at).copied()),
            _ => None,
        };
        let Some(next) = next else { break };
        here = next;
    }
    let start = here.trim_start();
    let offset = (start.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    let before = text.as_bytes().get(..offset).unwrap_or_default();
    before.iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// A pointer to a member of what `at` points to.
pub(super) fn member(at: &str, name: &str) -> String {
    format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"))
}

fn items(text: &str) -> Vec<&str> {
    let items: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
    items.into_iter().map(RawValue::get).collect()
}

fn members(text: &str) -> Vec<(String, &str)> {
    struct Members<'t>(Vec<(String, &'t str)>);
    struct Collect;
    impl<'t> Visitor<'t> for Collect {
        type Value = Members<'t>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some((name, raw)) = map.next_entry::<String, &'t RawValue>()? {
                members.push((name, raw.get()));
            }
            Ok(Members(members))
        }
    }
    impl<'t> Deserialize<'t> for Members<'t> {
        fn deserialize<D: Deserializer<'t>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_map(Collect)
        }
    }
    let members: Result<Members<'_>, _> = serde_json::from_str(text);
    members.map_or_else(|_| Vec::new(), |Members(members)| members)
}

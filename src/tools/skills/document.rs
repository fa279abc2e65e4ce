//! A JSON text of which every value's line can be found again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

pub(super) use crate::tools::schema::member;

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
            lines_of(text, &[&pointer])[0],
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

/// The line of what each of `pointers` points to, counted from 1; what is not there is where the nearest thing
/// around it begins. All are looked for together: each level of the text is read once, however many there are.
pub(super) fn lines_of(text: &str, pointers: &[&str]) -> Vec<usize> {
    let mut found = vec![text; pointers.len()];
    let wanted = pointers.iter().enumerate();
    let wanted = wanted.map(|(at, pointer)| (at, pointer.split('/').skip(1)));
    seek(text, wanted.collect(), &mut found);
    let newlines: Vec<usize> = memchr::memchr_iter(b'\n', text.as_bytes()).collect();
    let line = |found: &str| {
        let start = found.trim_start().as_ptr() as usize;
        let offset = start.saturating_sub(text.as_ptr() as usize);
        newlines.partition_point(|newline| *newline < offset) + 1
    };
    found.into_iter().map(line).collect()
}

/// Puts into `found` the deepest thing in `here` that the rest of each pointer leads to.
fn seek<'t, 'p>(
    here: &'t str,
    wanted: Vec<(usize, impl Iterator<Item = &'p str>)>,
    found: &mut [&'t str],
) {
    let mut steps: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for (at, mut rest) in wanted {
        found[at] = here;
        if let Some(step) = rest.next() {
            let step = step.replace("~1", "/").replace("~0", "~");
            steps.entry(step).or_default().push((at, rest));
        }
    }
    if steps.is_empty() {
        return;
    }
    let next: Vec<(String, &str)> = match here.trim_start().as_bytes().first() {
        Some(b'{') => members(here),
        Some(b'[') => (0..)
            .map(|at: usize| at.to_string())
            .zip(items(here))
            .collect(),
        _ => Vec::new(),
    };
    // The last one first: of two members of a name, the second is the surprise.
    for (name, raw) in next.into_iter().rev() {
        if let Some(wanted) = steps.remove(&name) {
            seek(raw, wanted, found);
        }
    }
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

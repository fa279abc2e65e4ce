//! What deny.toml demands of the dependencies, as far as that can be said without a network.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn read(file: &str) -> toml::Table {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = fs::read_to_string(path).expect("there");
    text.parse().expect("TOML")
}

fn strings(value: &toml::Value) -> BTreeSet<&str> {
    let array = value.as_array().expect("a list");
    array
        .iter()
        .map(|item| item.as_str().expect("text"))
        .collect()
}

#[test]
fn every_dependency_says_which_version_it_wants() {
    let manifest = read("Cargo.toml");
    let dependencies = manifest["dependencies"].as_table().expect("a table");
    let any = dependencies.iter().find(|(_, spec)| {
        let version = spec.get("version").unwrap_or(spec);
        version.as_str() == Some("*")
    });
    assert_eq!(any, None, "deny.toml denies wildcards");
}

/// The crates that can end up in a build for one of deny.toml's targets.
fn crates(deny: &toml::Table) -> Vec<Value> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["metadata", "--format-version=1", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    for target in strings(&deny["graph"]["targets"]) {
        cargo.args(["--filter-platform", target]);
    }
    let output = cargo.output().expect("cargo is there");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("a list").iter();
    packages
        .filter(|package| !package["source"].is_null())
        .cloned()
        .collect()
}

#[test]
fn dependencies_are_what_deny_toml_allows() {
    let deny = read("deny.toml");
    let licences = strings(&deny["licenses"]["allow"]);
    let registries = strings(&deny["sources"]["allow-registry"]);
    let banned = deny["bans"]["deny"].as_array().expect("a list").iter();
    let banned: BTreeSet<&str> = banned
        .map(|ban| ban["crate"].as_str().expect("text"))
        .collect();
    let crates = crates(&deny);
    assert!(
        crates.len() > 50,
        "only {} crates: is this the whole graph?",
        crates.len()
    );
    let mut wrong = Vec::new();
    for package in &crates {
        let text = |member: &str| package[member].as_str().unwrap_or_default();
        let name = text("name");
        if !allowed(text("license"), &licences) {
            wrong.push(format!("{name}: the licence {:?}", text("license")));
        }
        let registry = text("source").strip_prefix("registry+").unwrap_or_default();
        if !registries.contains(registry) {
            wrong.push(format!("{name}: the source {:?}", text("source")));
        }
        if banned.contains(name) {
            wrong.push(format!("{name}: is banned"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Whether a licence expression (SPDX, annex D; older crates write `/` for OR) can be satisfied
/// with `licences`.
fn allowed(expression: &str, licences: &BTreeSet<&str>) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut words = words.as_slice();
    any_of(&mut words, licences) && words.is_empty()
}

fn any_of(words: &mut &[&str], licences: &BTreeSet<&str>) -> bool {
    let mut holds = all_of(words, licences);
    while let ["OR", rest @ ..] = words {
        *words = rest;
        holds |= all_of(words, licences);
    }
    holds
}

fn all_of(words: &mut &[&str], licences: &BTreeSet<&str>) -> bool {
    let mut holds = one(words, licences);
    while let ["AND", rest @ ..] = words {
        *words = rest;
        holds &= one(words, licences);
    }
    holds
}

fn one(words: &mut &[&str], licences: &BTreeSet<&str>) -> bool {
    match *words {
        ["(", rest @ ..] => {
            *words = rest;
            let holds = any_of(words, licences);
            let [")", rest @ ..] = words else {
                return false;
            };
            *words = rest;
            holds
        }
        // An exception to a licence allows more than the licence.
        [licence, "WITH", _, rest @ ..] | [licence, rest @ ..] => {
            *words = rest;
            licences.contains(licence)
        }
        [] => false,
    }
}

#[test]
fn licence_expressions_are_read_as_they_are_meant() {
    let licences = BTreeSet::from(["MIT", "Unicode-3.0"]);
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("MIT OR GPL-3.0", true),
        ("GPL-3.0/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("GPL-3.0 OR MIT AND GPL-3.0", false),
        ("(GPL-3.0 OR MIT) AND Unicode-3.0", true),
        ("(GPL-3.0 OR Zlib) AND Unicode-3.0", false),
        ("Apache-2.0 WITH LLVM-exception OR MIT", true),
        ("MIT OR", true),
        ("", false),
        ("(MIT", false),
        ("MIT GPL-3.0", false),
    ] {
        assert_eq!(allowed(expression, &licences), expected, "{expression:?}");
    }
}

//! The notices that the licences of the crates in our programs ask to be handed on with them.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// What packages are made for; crates for other systems are not in them.
const PLATFORMS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// Names every crate that is linked into the programs, then gives each licence text once, with the
/// crates that it belongs to.
pub fn notices() -> Result<String, Box<dyn Error>> {
    let metadata = metadata()?;
    let packages: BTreeMap<&str, &Value> = list(&metadata["packages"])
        .map(|p| (text(&p["id"]), p))
        .collect();
    let mut out = String::from(
        "The programs contain the Rust standard library (MIT or Apache-2.0) and these crates:\n\n",
    );
    let mut crates_by_licence: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for id in linked(&metadata, &packages) {
        let package = packages[id];
        let name = format!("{} {}", text(&package["name"]), text(&package["version"]));
        writeln!(out, "{name}  ({})", text(&package["license"]))?;
        let Some(dir) = Path::new(text(&package["manifest_path"])).parent() else {
            continue;
        };
        for licence in licence_texts(dir, text(&package["license"]))? {
            crates_by_licence
                .entry(licence)
                .or_default()
                .push(name.clone());
        }
    }
    for (licence, crates) in crates_by_licence {
        writeln!(
            out,
            "\n{}\n{}\n\n{}",
            "-".repeat(80),
            crates.join(", "),
            licence.trim_end()
        )?;
    }
    Ok(out)
}

fn metadata() -> Result<Value, Box<dyn Error>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["metadata", "--format-version=1", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    for platform in PLATFORMS {
        command.arg(format!("--filter-platform={platform}"));
    }
    let output = command.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The ids of the crates that end up in the programs: reached over normal dependencies, and not
/// compiler plugins.
fn linked<'a>(metadata: &'a Value, packages: &BTreeMap<&str, &Value>) -> BTreeSet<&'a str> {
    let nodes: BTreeMap<&str, &Value> = list(&metadata["resolve"]["nodes"])
        .map(|n| (text(&n["id"]), n))
        .collect();
    let root = text(&metadata["resolve"]["root"]);
    let mut found = BTreeSet::new();
    let mut open = vec![root];
    while let Some(id) = open.pop() {
        for dependency in list(&nodes[id]["deps"]) {
            let is_normal = list(&dependency["dep_kinds"]).any(|kind| kind["kind"].is_null());
            let id = text(&dependency["pkg"]);
            let is_plugin =
                list(&packages[id]["targets"]).any(|t| list(&t["kind"]).any(|k| k == "proc-macro"));
            if is_normal && !is_plugin && found.insert(id) {
                open.push(id);
            }
        }
    }
    found
}

/// The texts that come with a crate; where there is a choice, the MIT licence's, the shortest.
fn licence_texts(dir: &Path, expression: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        let is_licence = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"]
            .iter()
            .any(|p| name.starts_with(p));
        if is_licence && entry.file_type()?.is_file() {
            files.push((name, entry.path()));
        }
    }
    files.sort();
    // Only the separators of a choice; `MIT AND BSD-3-Clause` is none.
    let is_choice = expression
        .split(" OR ")
        .flat_map(|part| part.split('/'))
        .any(|licence| licence == "MIT");
    if is_choice && files.iter().any(|(name, _)| name.contains("MIT")) {
        files.retain(|(name, _)| name.contains("MIT"));
    }
    files
        .iter()
        .map(|(_, path)| Ok(fs::read_to_string(path)?))
        .collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

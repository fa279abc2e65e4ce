//! `shellyctl tools remove`: gone at once, then deleted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use shelly_executor::client;

use super::error::{ToolsError, cannot, is_name};
use super::install::{Staging, name_of, sync, version_of};
use crate::args::tools::RemoveArgs;
use crate::failure::Failure;
use crate::print;

/// Removes a skill and says which.
pub fn run(args: RemoveArgs, json: bool) -> Result<ExitCode, Failure> {
    let skills = args
        .place
        .skills_dir
        .unwrap_or_else(client::default_skills_dir);
    let path = find(&skills, &called(&args.skill)?)?;
    let version = version_of(&path);
    let staging = Staging::make(&skills)?;
    fs::rename(&path, staging.0.join("gone")).map_err(cannot("remove", &path))?;
    sync(&skills)?;
    drop(staging);
    if json {
        let done = json!({"done": true, "path": path.display().to_string(), "version": version});
        print::line(&done.to_string())?;
    } else {
        print::line(&format!("removed {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What the skill is called: a directory of one stands for that which was installed from it.
fn called(given: &Path) -> Result<String, ToolsError> {
    let is_name = given.components().count() == 1 && given.file_name().is_some();
    if is_name {
        return Ok(given.to_string_lossy().trim_end_matches('/').to_owned());
    }
    let dir = given.canonicalize().map_err(cannot("find", given))?;
    let called = dir.file_name().unwrap_or_default().to_string_lossy();
    let name = called.split('@').next().unwrap_or_default();
    match name_of(&dir) {
        Some(found) if found == name => Ok(called.into_owned()),
        Some(_) | None => Err(ToolsError::Refused {
            why: format!("is no directory of a skill called {name:?}"),
            path: dir,
        }),
    }
}

/// The directory of the skill that is named. Without a version it is the one called like it.
fn find(skills: &Path, given: &str) -> Result<PathBuf, ToolsError> {
    let (name, version) = match given.split_once('@') {
        Some((name, version)) => (name, Some(version)),
        None => (given, None),
    };
    if !is_name(name) {
        let name = name.to_owned();
        return Err(ToolsError::Name { name });
    }
    let plain = skills.join(name);
    let is_skill = |path: &Path| path.join("skill.json").exists();
    let found = match version {
        None => is_skill(&plain).then_some(plain),
        Some(version) => versions(skills, name)
            .into_iter()
            .find(|entry| *entry == given)
            .map(|entry| skills.join(entry))
            .or_else(|| (version_of(&plain).as_deref() == Some(version)).then_some(plain)),
    };
    found.ok_or_else(|| ToolsError::Unknown {
        name: given.to_owned(),
        dir: skills.to_owned(),
        found: versions(skills, name),
    })
}

/// The directories called `NAME@…`.
fn versions(skills: &Path, name: &str) -> Vec<String> {
    let entries = fs::read_dir(skills).into_iter().flatten().flatten();
    let mut found: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|entry| {
            entry
                .split_once('@')
                .is_some_and(|(begin, _)| begin == name)
        })
        .collect();
    found.sort();
    found
}

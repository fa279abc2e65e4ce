//! `shellyctl tools new`: a skill that works, to be made into another.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use shelly_executor::client;

use super::error::{ToolsError, cannot, is_name};
use crate::args::tools::{Lang, NewArgs};
use crate::failure::Failure;
use crate::print;

/// What stands for the skill's name in a template.
const NAME: &str = "@NAME@";

/// Whether a file is run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Program,
}

/// A file of a new skill: its path, what it is, and its text.
type Template = (&'static str, Kind, &'static str);

#[rustfmt::skip]
const ALL: &[Template] = &[
    ("skill.json",          Kind::Text,    include_str!("templates/all/skill.json")),
    ("README.md",           Kind::Text,    include_str!("templates/all/README.md")),
    ("test",                Kind::Program, include_str!("templates/all/test")),
    ("example/input.json",  Kind::Text,    include_str!("templates/all/example/input.json")),
    ("example/output.json", Kind::Text,    include_str!("templates/all/example/output.json")),
];

#[rustfmt::skip]
const SH: &[Template] = &[
    ("run",             Kind::Program, include_str!("templates/sh/run")),
    ("shelly_skill.sh", Kind::Text,    include_str!("../../../../config/skills/lib/shelly_skill.sh")),
];

#[rustfmt::skip]
const PYTHON: &[Template] = &[
    ("run",             Kind::Program, include_str!("templates/python/run")),
    ("shelly_skill.py", Kind::Text,    include_str!("../../../../config/skills/lib/shelly_skill.py")),
];

#[rustfmt::skip]
const RUST: &[Template] = &[
    ("main.rs",        Kind::Text, include_str!("templates/rust/main.rs")),
    ("shelly_json.rs", Kind::Text, include_str!("../../../../config/skills/lib/shelly_json.rs")),
    ("Makefile",       Kind::Text, include_str!("templates/rust/Makefile")),
];

/// Makes the skill and says what to do next.
pub fn run(args: NewArgs, json: bool) -> Result<ExitCode, Failure> {
    let NewArgs { name, lang, dir } = args;
    if !is_name(&name) {
        return Err(ToolsError::Name { name }.into());
    }
    if client::is_built_in(&name) {
        return Err(ToolsError::BuiltIn { name }.into());
    }
    let path = dir.join(&name);
    match fs::create_dir(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(ToolsError::Exists { path }.into());
        }
        made => made.map_err(cannot("make", &path))?,
    }
    let own = match lang {
        Lang::Sh => SH,
        Lang::Python => PYTHON,
        Lang::Rust => RUST,
    };
    let mut files = Vec::new();
    for template in ALL.iter().chain(own) {
        write(&path, template, &name)?;
        files.push(template.0);
    }
    if json {
        let done =
            json!({"done": true, "name": name, "path": path.display().to_string(), "files": files});
        print::line(&done.to_string())?;
    } else {
        print::text(&next_steps(&path, &name))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write(dir: &Path, (file, kind, text): &Template, name: &str) -> Result<(), ToolsError> {
    let path = dir.join(file);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(cannot("make", parent))?;
    }
    fs::write(&path, text.replace(NAME, name)).map_err(cannot("write", &path))?;
    if *kind == Kind::Program {
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&path, mode).map_err(cannot("write", &path))?;
    }
    Ok(())
}

fn next_steps(path: &Path, name: &str) -> String {
    let path = path.display();
    let mut text = format!("made {path}: skill.json says what it takes and gives\n\nNext:\n");
    for (command, why) in [
        (format!("{path}/test"), "does it answer what it should?"),
        (
            format!("shellyctl tools check {path}"),
            "is everything right with it?",
        ),
        (
            format!("shellyctl tools install {path}"),
            "put it where the installed daemon finds it (as root); --skills-dir for another's",
        ),
        (
            format!("shellyctl call {name} '{{\"name\": \"Ada\"}}'"),
            "call it",
        ),
    ] {
        text += &format!("  {command}\n      {why}\n");
    }
    text
}

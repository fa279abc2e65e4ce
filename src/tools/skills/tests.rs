use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::check::check;
use super::load::{Loaded, SkillProblem, load};
use super::set::{Found, Known};
use super::skill::{Item, Mode, Model, OnError, Skill};
use crate::domain::{RiskLevel, Violation};
use crate::tools::InputSchema;

mod composites;
mod directories;
mod manifests;

/// A directory of skills that is removed at the end.
struct Skills(PathBuf);

impl Skills {
    fn new() -> Self {
        let dir = std::env::temp_dir().join(format!("skills-{}", uuid::Uuid::now_v7()));
        fs::create_dir(&dir).expect("a directory");
        Self(dir)
    }

    fn write(&self, path: &str, text: &str) -> &Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("in it")).expect("a directory");
        fs::write(path, text).expect("written");
        self
    }

    /// A skill as JSON, in the directory of that name.
    fn skill(&self, dir: &str, value: &Value) -> &Self {
        self.write(&format!("{dir}/skill.json"), &format!("{value:#}"))
    }

    fn executable(&self, path: &str) -> &Self {
        self.write(path, "#!/bin/sh\n");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.0.join(path), mode).expect("changed");
        self
    }

    fn load(&self) -> Loaded {
        load(&self.0, &Builtin::new())
    }

    fn names(&self) -> Vec<String> {
        let skills = self.load().skills.into_iter();
        skills
            .map(|skill| format!("{}@{}", skill.name, skill.version))
            .collect()
    }

    /// Its problems, as paths in it.
    fn problems(&self) -> Vec<String> {
        let prefix = format!("{}/", self.0.display());
        let problems = self.load().problems.into_iter();
        problems
            .map(|problem| problem.to_string().replace(&prefix, ""))
            .collect()
    }
}

/// What is wrong with one directory, with none beside it.
fn checked(dir: &Path) -> Vec<SkillProblem> {
    check(dir, &[], &Builtin::new()).problems
}

impl Drop for Skills {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The tools `bash`, which takes a command, and `mystery`, which takes anything.
struct Builtin(InputSchema, InputSchema);

impl Builtin {
    fn new() -> Self {
        let command = InputSchema::new(json!({
            "type": "object",
            "properties": {"command": {"type": "string"}, "n": {"type": "integer"}},
            "required": ["command"],
            "additionalProperties": false
        }));
        Self(command, InputSchema::new(json!({"type": "object"})))
    }
}

impl Known for Builtin {
    fn find(&self, tool: &str) -> Found<'_> {
        match tool {
            "bash" => Found::Takes(&self.0),
            "mystery" => Found::Takes(&self.1),
            _ => Found::Nothing,
        }
    }

    fn wrong_with(&self, tool: &str, input: &Value) -> Vec<Violation> {
        let is_wrong = tool == "mystery" && input["word"] == "wrong";
        let violation = is_wrong.then(|| Violation {
            pointer: "/word".to_owned(),
            detail: "is the wrong one".to_owned(),
        });
        violation.into_iter().collect()
    }
}

/// A skill of one step.
fn composite(name: &str, tool: &str) -> Value {
    json!({
        "name": name, "version": "1.0.0", "description": "A skill.", "mode": "composite",
        "input": {"type": "object"}, "steps": [{"tool": tool, "parameters": {}}],
    })
}

/// The problems of one skill with the file `text`.
fn told(text: &str) -> Vec<String> {
    let skills = Skills::new();
    skills.write("a/skill.json", text);
    skills.problems()
}

fn only(loaded: Loaded) -> Skill {
    assert_eq!(loaded.problems, []);
    loaded.skills.into_iter().next().expect("one skill")
}

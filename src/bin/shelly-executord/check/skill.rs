use std::path::PathBuf;

use serde_json::{Value, json};
use shelly_executor::daemon::{self, CheckedSkill, Options, SkillProblem};

use super::Found;

/// What is wrong with one skill: every problem on a line of its own, or that there is none.
pub fn skill(options: &Options, path: PathBuf, among: Option<PathBuf>, json: bool) -> Found {
    let checked = daemon::check_skill(options, path, among);
    let problems = &checked.found.problems;
    let said = if json {
        format!("{}\n", as_json(&checked))
    } else if problems.is_empty() {
        "ok\n".to_owned()
    } else {
        problems
            .iter()
            .map(|problem| format!("{problem}\n"))
            .collect()
    };
    Found {
        code: u8::from(!problems.is_empty()),
        ..Found::valid(said)
    }
}

fn as_json(checked: &CheckedSkill) -> Value {
    let others = checked.others.iter().map(|dir| dir.display().to_string());
    json!({
        "path": checked.path.display().to_string(),
        "name": checked.found.name,
        "version": checked.found.version,
        "valid": checked.found.problems.is_empty(),
        "problems": checked.found.problems.iter().map(problem).collect::<Vec<_>>(),
        "others": others.collect::<Vec<_>>(),
    })
}

fn problem(problem: &SkillProblem) -> Value {
    json!({
        "path": problem.path.display().to_string(),
        "line": problem.line,
        "detail": problem.detail,
    })
}

//! `--check-skill`: what is wrong with one skill.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};
use shelly_executor::daemon::{self, CheckedSkill, Options, SkillProblem};

/// Prints every problem on a line of its own, or that there is none.
pub fn check(options: &Options, path: PathBuf, among: Option<PathBuf>, json: bool) -> ExitCode {
    let checked = daemon::check_skill(options, path, among);
    let problems = &checked.found.problems;
    if json {
        println!("{}", as_json(&checked));
    } else if problems.is_empty() {
        println!("ok");
    } else {
        for problem in problems {
            println!("{problem}");
        }
    }
    ExitCode::from(u8::from(!problems.is_empty()))
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

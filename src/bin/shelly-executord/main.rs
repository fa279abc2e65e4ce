//! The daemon's program: arguments, configuration, daemon, exit code.

mod args;
mod skill;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use serde_json::{Value, json};
use shelly_executor::daemon::{self, ConfigCheck, DaemonError, Options, PolicyCheck};
use shelly_executor::domain::counted;

use args::Args;

/// `EX_CONFIG` of sysexits.h, which systemd knows by that name (systemd.exec(5)).
const INVALID_CONFIGURATION: u8 = 78;

fn main() -> ExitCode {
    let Args {
        config,
        socket,
        state,
        check_config,
        check_policy,
        check_skill,
        skills_dir,
        json,
    } = Args::parse();
    let options = Options {
        config,
        socket,
        state,
    };
    if check_config {
        return check(&options, json);
    }
    if let Some(path) = check_policy {
        return check_policy_file(&options, path, json);
    }
    if let Some(path) = check_skill {
        return skill::check(&options, path, skills_dir, json);
    }
    match daemon::run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ (DaemonError::Config(_) | DaemonError::Policy(_))) => {
            fail(&error, INVALID_CONFIGURATION)
        }
        Err(error) => fail(&error, 1),
    }
}

/// Says what a check of the configuration found; on standard error too, when it is not valid.
fn check(options: &Options, json: bool) -> ExitCode {
    let found = daemon::check_config(options);
    if json {
        println!("{}", as_json(&found));
    }
    match &found.verdict {
        Err(error) => return fail(error, INVALID_CONFIGURATION),
        Ok(warnings) if !json => {
            let found_there = match found.exists {
                true => "valid",
                false => "not there; the built-in configuration is used",
            };
            println!("{}: {found_there}", found.path.display());
            warn(warnings);
        }
        Ok(_) => {}
    }
    ExitCode::SUCCESS
}

/// Says what a check of the policy found, and which examples hold.
fn check_policy_file(options: &Options, path: Option<PathBuf>, json: bool) -> ExitCode {
    let PolicyCheck {
        path,
        verdict,
        warnings,
    } = daemon::check_policy(options, path);
    let at = path.display().to_string();
    match verdict {
        Ok(policy) if json => {
            println!(
                "{}",
                json!({"path": at, "valid": true, "rules": policy.rule_count(), "remembered": policy.remembered().count(), "examples": policy.examples().len(), "warnings": warnings, "error": null})
            );
        }
        Ok(policy) => {
            for approval in policy.remembered() {
                if let Some(source) = &approval.source {
                    println!(
                        "remembered: {}:{}: `{}` for uid {}",
                        source.file.display(),
                        source.line,
                        approval.rule,
                        approval.uid
                    );
                }
            }
            for example in policy.examples() {
                let word = if example.matches {
                    "matches"
                } else {
                    "does not match"
                };
                println!(
                    "ok: {}:{}: `{}` {word} {:?}",
                    at, example.source.line, example.rule, example.text
                );
            }
            match path.exists() {
                true => println!(
                    "{at}: valid: {}, {}",
                    counted(policy.rule_count() as u64, "rule", "rules"),
                    counted(
                        policy.examples().len() as u64,
                        "example holds",
                        "examples hold"
                    )
                ),
                false => println!(
                    "{at}: not there; the built-in policy is used, which allows everything"
                ),
            }
            warn(&warnings);
        }
        Err(error) => {
            if json {
                println!(
                    "{}",
                    json!({"path": at, "valid": false, "rules": null, "remembered": null, "examples": null, "warnings": warnings, "error": chain(&error)})
                );
            }
            return fail(&error, INVALID_CONFIGURATION);
        }
    }
    ExitCode::SUCCESS
}

fn warn(warnings: &[String]) {
    for warning in warnings {
        println!("warning: {warning}");
    }
}

fn as_json(found: &ConfigCheck) -> Value {
    let (warnings, error) = match &found.verdict {
        Ok(warnings) => (warnings.as_slice(), None),
        Err(error) => (Default::default(), Some(chain(error))),
    };
    json!({
        "path": found.path.display().to_string(),
        "exists": found.exists,
        "valid": error.is_none(),
        "warnings": warnings,
        "error": error,
    })
}

/// Prints an error with its causes.
fn fail(error: &dyn Error, code: u8) -> ExitCode {
    eprintln!("{}: {}", program(), chain(error));
    ExitCode::from(code)
}

/// What was called: `shellyctl`, too, becomes this program, under its own name.
fn program() -> String {
    let called = std::env::args_os().next().map(PathBuf::from);
    let name = called.as_deref().and_then(Path::file_name);
    name.map_or_else(
        || "shelly-executord".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

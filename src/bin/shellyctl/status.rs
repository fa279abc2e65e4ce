//! `shellyctl status`: how the daemon is.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use shelly_executor::client::{self, Client, Health, PolicyHealth, SandboxHealth};

use crate::failure::Failure;
use crate::print::{self, Look, Page};

const DEGRADED: u8 = 1;
/// What `systemctl status` says of a unit that does not run.
const NOT_RUNNING: u8 = 3;

/// How long the daemon may take to answer what needs no work.
///
/// It answers within milliseconds, also under load; one that has not after this long is stuck, and
/// an operator who looks at a stuck daemon wants to be told so.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits for an answer that needs no work, and not for ever.
pub async fn patiently<T>(
    client: &Client,
    asked: impl Future<Output = Result<T, shelly_executor::client::ClientError>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(answered) => Ok(answered?),
        Err(_) => {
            let socket = client.socket().to_owned();
            Err(Failure::Silent {
                socket,
                seconds: PATIENCE.as_secs(),
            })
        }
    }
}

/// Prints the daemon's health.
pub async fn run(client: &Client, json: bool) -> Result<ExitCode, Failure> {
    let health = match patiently(client, client.health()).await {
        Ok(health) => health,
        Err(failure) if failure.is_unreachable() => {
            if json {
                let unreachable = json!({ "status": "unreachable", "detail": failure.to_string() });
                print::line(&unreachable.to_string())?;
            }
            return Ok(failure.report_as(json, NOT_RUNNING));
        }
        Err(failure) => return Err(failure),
    };
    if json {
        print::line(&health.json)?;
    } else {
        print::text(&render(&health, client.socket(), Page::stdout()))?;
    }
    Ok(ExitCode::from(if health.status == "ok" {
        0
    } else {
        DEGRADED
    }))
}

fn policy_line(policy: &PolicyHealth) -> String {
    match &policy.file {
        None => "none: there is no policy.toml, so that everything is allowed".to_owned(),
        Some(file) => {
            let rules = client::counted(policy.rules as u64, "rule", "rules");
            let remembered = match policy.remembered {
                0 => String::new(),
                approvals => format!(", {approvals} of them remembered approvals"),
            };
            format!("{file}, {rules}{remembered}")
        }
    }
}

fn sandbox_line(sandbox: &SandboxHealth) -> String {
    let version = sandbox
        .version
        .as_deref()
        .map(|version| format!(" {version}"));
    let tested = match (sandbox.self_test.as_str(), sandbox.self_test_ms) {
        ("untested", _) => "not tested, for nothing is configured to run in it".to_owned(),
        ("passed", Some(ms)) => format!("self-test passed in {ms} ms"),
        ("failed", _) => match &sandbox.detail {
            Some(detail) => format!("self-test failed: {detail}"),
            None => "self-test failed".to_owned(),
        },
        (other, _) => format!("self-test {other}"),
    };
    let ready = match sandbox.ready {
        0 => String::new(),
        many => format!(", {many} ready"),
    };
    format!(
        "{}{}, {tested}{ready}",
        sandbox.runtime,
        version.unwrap_or_default()
    )
}

fn render(health: &Health, socket: &Path, page: Page) -> String {
    let look = if health.status == "ok" {
        Look::Good
    } else {
        Look::Bad
    };
    let up = Duration::try_from_secs_f64(health.uptime_secs.trunc()).unwrap_or_default();
    let running = match health.running {
        1 => "1 execution".to_owned(),
        many => format!("{many} executions"),
    };
    let mut text = format!(
        "{} shelly-executor {}\n    Status: {}\n    Socket: {}\n        Up: {}\n   Running: {running}\n",
        page.look(look, "●"),
        print::one_line(&health.version),
        page.look(look, &print::one_line(&health.status)),
        socket.display(),
        humantime::format_duration(up),
    );
    if let Some(policy) = &health.policy {
        let line = policy_line(policy);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "    Policy: {}", print::one_line(&line));
    }
    if let Some(sandbox) = &health.sandbox {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "   Sandbox: {}",
            print::one_line(&sandbox_line(sandbox))
        );
    }
    for (index, problem) in health.problems.iter().enumerate() {
        let label = if index == 0 {
            "  Problems: "
        } else {
            "            "
        };
        let source = problem
            .source
            .as_ref()
            .map(|source| format!(" ({source})"))
            .unwrap_or_default();
        let line = print::one_line(&format!("{}: {}{source}", problem.code, problem.detail));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{label}{line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_were_remembered_are_told_apart_and_a_failed_test_says_why() {
        let health = r#"{"status": "ok", "version": "1", "uptime_secs": 5, "running": 0, "problems": [],
            "policy": {"file": "/p.toml", "rules": 3, "remembered": 1},
            "sandbox": {"runtime": "runsc", "version": null, "self_test": "failed", "self_test_ms": 9, "detail": "no such\nfile"}}"#;
        let health = serde_json::from_str(health).expect("a health");
        let text = render(&health, Path::new("/s"), Page::plain());
        for line in [
            "    Policy: /p.toml, 3 rules, 1 of them remembered approvals\n",
            "   Sandbox: runsc, self-test failed: no such file\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn a_problem_says_where_it_comes_from() {
        let health = r#"{"status": "degraded", "version": "1", "uptime_secs": 5.2, "running": 1, "problems": [
            {"code": "sandbox_unavailable", "detail": "there is no runtime", "source": "[sandbox]"},
            {"code": "other", "detail": "x", "source": null}]}"#;
        let health = serde_json::from_str(health).expect("a health");
        let text = render(&health, Path::new("/s"), Page::plain());
        assert!(
            text.ends_with(
                "  Problems: sandbox_unavailable: there is no runtime ([sandbox])\n            other: x\n"
            ),
            "{text}"
        );
    }
}

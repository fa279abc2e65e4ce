//! `shellyctl approvals`, `approve` and `deny`: what waits for a person's word, and giving it.

use std::process::ExitCode;

use shelly_executor::client::{
    Approval, Client, ClientError, Decision, Received, Remember, Resolution,
};

use crate::args::approvals::{ApprovalsArgs, ApproveArgs, DenyArgs, HowLong};
use crate::failure::Failure;
use crate::print::{self, Fields, Look, Page};
use crate::{clock, ids, show, watch};

/// Lists approvals.
pub async fn run(client: &Client, args: ApprovalsArgs, json: bool) -> Result<ExitCode, Failure> {
    if args.watch {
        return watch::run(client, json).await;
    }
    let list = if args.all {
        client.all_approvals().await?
    } else {
        client.approvals().await?
    };
    if json {
        print::line(&list.json)?;
    } else {
        print::text(&render(&list.approvals, Page::stdout()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Lets a call run.
pub async fn approve(client: &Client, args: ApproveArgs, json: bool) -> Result<ExitCode, Failure> {
    let mut resolution = Resolution::new(Decision::Approve);
    resolution.reason = args.reason;
    resolution.remember = args.remember.map(|how_long| match how_long {
        HowLong::Once => Remember::Once,
        HowLong::Session => Remember::Session,
        HowLong::Always => Remember::Always,
    });
    resolve(client, &args.id, &resolution, json).await
}

/// Refuses a call.
pub async fn deny(client: &Client, args: DenyArgs, json: bool) -> Result<ExitCode, Failure> {
    let mut resolution = Resolution::new(Decision::Deny);
    resolution.reason = args.reason;
    resolve(client, &args.id, &resolution, json).await
}

async fn resolve(
    client: &Client,
    given: &str,
    resolution: &Resolution,
    json: bool,
) -> Result<ExitCode, Failure> {
    let approval = match ids::is_whole(given) {
        true => client.resolve(given, resolution).await,
        false => {
            client
                .resolve(&pending(client, given).await?, resolution)
                .await
        }
    };
    let approval = match approval {
        // It may be the execution's.
        Err(error) if ids::is_whole(given) && is_unknown(&error) => {
            match pending(client, given).await? {
                id if id == given => Err(error),
                id => client.resolve(&id, resolution).await,
            }
        }
        decided => decided,
    };
    let approval = approval.map_err(|error| match is_unknown(&error) {
        true => Failure::NoApproval(error),
        false => Failure::Client(error),
    })?;
    if json {
        print::line(&approval.json)?;
    } else {
        print::text(&decided(&approval))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether the daemon knows of no such approval.
fn is_unknown(error: &ClientError) -> bool {
    let ClientError::Refused { answer } = error else {
        return false;
    };
    let problem = answer.problem.as_ref();
    problem.is_some_and(|problem| problem.code == "not_found")
}

/// The id that is meant: a whole one, or the beginning or end of a single pending one, or that of the execution
/// which waits for it.
async fn pending(client: &Client, given: &str) -> Result<String, Failure> {
    let list = client.approvals().await?;
    meant(given, &list.approvals)
}

fn meant(given: &str, pending: &[Received<Approval>]) -> Result<String, Failure> {
    let names =
        |approval: &Received<Approval>| [approval.id.clone(), approval.execution_id.clone()];
    let is = |approval: &&Received<Approval>| names(approval).iter().any(|id| id == given);
    if let Some(one) = pending.iter().find(is) {
        return Ok(one.id.clone());
    }
    let may_be =
        |approval: &&Received<Approval>| names(approval).iter().any(|id| ids::may_be(given, id));
    let found: Vec<_> = pending.iter().filter(may_be).collect();
    match found.as_slice() {
        [one] => Ok(one.id.clone()),
        others => ids::pick_of(given, others.iter().map(|approval| approval.id.as_str())),
    }
}

/// An approval out of a list with all that is too long for one, as far as it can still be had: people decide by it.
pub async fn whole(client: &Client, listed: Approval) -> Approval {
    if !listed.truncated {
        return listed;
    }
    match client.approval(&listed.id).await {
        Ok(whole) => whole.value,
        Err(_) => listed,
    }
}

/// What became of an approval, and what is remembered of it.
pub fn decided(approval: &Approval) -> String {
    let Approval {
        id, tool, summary, ..
    } = approval;
    let word = match approval.status.as_str() {
        "used" => "approved",
        other => other,
    };
    let by = approval
        .decided_by
        .map(|uid| format!(" by {}", print::user(uid)));
    let by = by.unwrap_or_default();
    let mut text = print::one_line(&format!("{word}{by}: {id} {tool}: {summary}")) + "\n";
    let remembered = approval
        .remember
        .as_deref()
        .filter(|how_long| *how_long != "once");
    if let (Some(how_long), "approved") = (remembered, word) {
        for rule in &approval.remember_rules {
            text += &format!(
                "remembered {}: {}\n",
                print::one_line(how_long),
                print::one_line(rule)
            );
        }
    }
    text
}

fn render(approvals: &[Received<Approval>], page: Page) -> String {
    let row = |approval: &Received<Approval>| {
        let expires = approval
            .expires_at
            .as_deref()
            .filter(|_| approval.is_pending());
        [
            page.id(&approval.id),
            print::one_line(&approval.status),
            expires.map(clock::left).unwrap_or_default(),
            approval.caller_uid.map(print::user).unwrap_or_default(),
            print::one_line(&path_to(approval)),
            print::one_line(&approval.summary),
        ]
    };
    let rows: Vec<[String; 6]> = approvals.iter().map(row).collect();
    page.table(["ID", "STATUS", "LEFT", "CALLER", "TOOL", "SUMMARY"], &rows)
}

/// The tools that led to the call, and the one that is called.
fn path_to(approval: &Approval) -> String {
    let chain = approval.chain.iter().chain([&approval.tool]);
    chain.map(String::as_str).collect::<Vec<_>>().join(" → ")
}

/// Everything a person needs to know to decide.
pub fn card(approval: &Approval, page: Page) -> String {
    let heading = print::one_line(&format!("approval {} for {}", approval.id, approval.tool));
    let mut fields = Fields::default();
    fields.add(
        "Cut",
        approval
            .truncated
            .then_some("not all of it is here: look at the execution before you decide"),
    );
    fields.add("Version", Some(&approval.tool_version));
    fields.add("Caller", approval.caller_uid.map(print::user));
    fields.add("Called by", Some(approval.chain.join(" → ")));
    fields.add("Execution", Some(&approval.execution_id));
    fields.add("Directory", approval.working_dir.as_ref());
    fields.add("Variables", Some(approval.env_names.join(" ")));
    fields.add("Time limit", approval.timeout_secs.map(show::secs));
    fields.add(
        "Background",
        approval.background.as_deref().filter(show::is_kept),
    );
    let risk = approval.risk_level.as_deref();
    fields.add("Trust", risk.filter(|risk| *risk != "trusted"));
    fields.add("Workspace", approval.workspace.as_ref());
    fields.add("Policy", approval.judgement.as_ref().map(show::judgement));
    fields.all("Always", &approval.remember_rules);
    fields.add("Expires", approval.expires_at.as_deref().map(clock::full));
    format!(
        "{} {heading}\n{}{}\n",
        page.look(Look::Heading, "●"),
        fields.render(),
        input(approval)
    )
}

/// The input and what would be read from standard input, as they read, for people decide by it.
fn input(approval: &Approval) -> String {
    let members = approval.input.as_object().into_iter().flatten();
    let texts = members.map(|(name, value)| {
        let text = value.as_str().map(str::to_owned);
        let text = text.unwrap_or_else(|| format!("{value:#}"));
        (print::one_line(name), text)
    });
    let stdin = approval.stdin.iter();
    let stdin = stdin.map(|text| ("standard input".to_owned(), text.clone()));
    let has_context = approval
        .context
        .as_object()
        .is_some_and(|all| !all.is_empty());
    let context = has_context.then(|| ("context".to_owned(), format!("{:#}", approval.context)));
    let mut text = String::new();
    for (name, value) in texts.chain(stdin).chain(context) {
        text += &format!("\n{name}:\n");
        for line in print::plain(&value).lines() {
            text += &format!("    {line}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approval(more: &str) -> Approval {
        let json = format!(
            r#"{{"id": "7", "execution_id": "8", "tool": "bash", "summary": "git push", "caller_uid": 4294967{more}}}"#
        );
        serde_json::from_str(&json).expect("an approval")
    }

    /// Questions of these ids, each about an execution.
    fn asked(ids: &[(&str, &str)]) -> Vec<Received<Approval>> {
        let asked = ids.iter().map(|(id, execution)| {
            let json =
                format!(r#"{{"id": "{id}", "execution_id": "{execution}", "status": "pending"}}"#);
            serde_json::from_str(&json).expect("an approval")
        });
        asked.collect()
    }

    #[test]
    fn an_approval_is_found_by_its_execution_too() {
        let pending = asked(&[("a1-7", "e1-8"), ("a2-9", "e2-8")]);
        for (given, id) in [
            ("a1", "a1-7"),
            ("-9", "a2-9"),
            ("e2", "a2-9"),
            ("e1-8", "a1-7"),
            ("x", "x"),
        ] {
            assert_eq!(meant(given, &pending).expect("one"), id, "{given}");
        }
        assert!(meant("-8", &pending).is_err());
        // By one the execution, by the other its approval.
        let crossed = asked(&[("b1-1", "c1-1"), ("c1-2", "d1-1")]);
        assert!(meant("c1", &crossed).is_err());
        assert_eq!(meant("c1-1", &crossed).expect("whole"), "b1-1");
    }

    #[test]
    fn what_is_remembered_is_told_with_its_rules() {
        let rules = r#", "remember_rules": ["bash(command:git push)"], "decided_by": 4294968"#;
        let always = approval(&format!(
            r#"{rules}, "status": "approved", "remember": "always""#
        ));
        assert_eq!(
            decided(&always),
            "approved by 4294968: 7 bash: git push\nremembered always: bash(command:git push)\n"
        );
        for once in [
            r#", "status": "used", "remember": "once""#,
            r#", "status": "approved""#,
        ] {
            let once = approval(&format!("{rules}{once}"));
            assert_eq!(decided(&once), "approved by 4294968: 7 bash: git push\n");
        }
        let denied = approval(&format!(
            r#"{rules}, "status": "denied", "remember": "always""#
        ));
        assert_eq!(decided(&denied), "denied by 4294968: 7 bash: git push\n");
    }

    #[test]
    fn a_card_has_the_script_as_it_reads() {
        let approval = approval(
            r#", "status": "pending", "input": {"command": "cd /srv\ngit\u001b push", "n": 1}, "remember_rules": ["a", "b"],
            "expires_at": "soon", "judgement": {"verdict": "ask", "rule": null, "source": null}"#,
        );
        assert_eq!(
            card(&approval, Page::plain()),
            "● approval 7 for bash\n     Caller: 4294967\n  Execution: 8\n     Policy: ask by default\n     Always: a\n             b\n    \
             Expires: soon\n\ncommand:\n    cd /srv\n    git  push\n\nn:\n    1\n\n"
        );
    }
}

use serde_json::Value;

use super::*;
use crate::domain::{ApprovalId, RiskLevel};

fn asking(execution_id: ExecutionId, expires_at: SystemTime) -> Approval {
    Approval {
        id: ApprovalId::new(),
        execution_id,
        chain: vec!["deploy".to_owned()],
        tool: "bash".to_owned(),
        tool_version: "1.2.3".to_owned(),
        input: json!({"command": "rm x"}),
        working_dir: Some(PathBuf::from("/srv")),
        env_names: vec!["A".to_owned()],
        stdin: Some("y\n".to_owned()),
        timeout: Some(Duration::from_millis(1500)),
        keeps_background: true,
        risk_level: RiskLevel::Untrusted,
        workspace: Some(PathBuf::from("/srv/w")),
        context: json!({"config": {"target": "staging"}}),
        caller_uid: 1000,
        digest: Digest::of(b"rm x"),
        created_at: at(0),
        expires_at,
        status: ApprovalStatus::Pending,
        decided: None,
        remember: None,
        remember_rules: vec!["bash(command:rm x)".to_owned()],
    }
}

fn decision(id: ApprovalId, status: ApprovalStatus, at: SystemTime) -> Decision {
    Decision {
        id,
        status,
        by: Some(0),
        reason: Some("why not".to_owned()),
        remember: Some("once".to_owned()),
        at,
    }
}

fn far() -> SystemTime {
    at(0) + Duration::from_secs(20 * 365 * 86400)
}

#[test]
fn an_approval_is_decided_once_and_used_once_for_what_it_was_given() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let approval = asking(ExecutionId::new(), far());
    ledger.ask_approval(approval.clone()).wait().expect("asked");
    assert_eq!(
        block_on(ledger.approvals(Approvals::Pending)).expect("read"),
        std::slice::from_ref(&approval)
    );
    let (id, digest) = (approval.id, approval.digest);
    let not_yet = ledger.use_approval(id, digest).wait().expect("answered");
    assert_eq!(not_yet, Verdicted::TooLate(Box::new(approval.clone())));
    let decided = ledger
        .decide(decision(id, ApprovalStatus::Approved, at(5)))
        .wait()
        .expect("answered");
    let expected = Approval {
        status: ApprovalStatus::Approved,
        decided: Some(Decided {
            by: Some(0),
            at: at(5),
            reason: Some("why not".to_owned()),
        }),
        remember: Some("once".to_owned()),
        ..approval
    };
    assert_eq!(decided, Verdicted::Done(Box::new(expected.clone())));
    let again = ledger
        .decide(decision(id, ApprovalStatus::Denied, at(6)))
        .wait()
        .expect("answered");
    assert_eq!(again, Verdicted::TooLate(Box::new(expected)));
    assert!(matches!(
        ledger.use_approval(id, Digest::of(b"rm y")).wait(),
        Ok(Verdicted::TooLate(_))
    ));
    assert!(matches!(
        ledger.use_approval(id, digest).wait(),
        Ok(Verdicted::Done(_))
    ));
    assert!(matches!(
        ledger.use_approval(id, digest).wait(),
        Ok(Verdicted::TooLate(_))
    ));
    let unknown = decision(ApprovalId::new(), ApprovalStatus::Denied, at(6));
    assert_eq!(
        ledger.decide(unknown).wait().expect("answered"),
        Verdicted::Unknown
    );
    assert_eq!(
        block_on(ledger.approvals(Approvals::Pending)).expect("read"),
        []
    );
    assert_eq!(
        block_on(ledger.approvals(Approvals::One(id)))
            .expect("read")
            .len(),
        1
    );
}

#[test]
fn an_approval_lapses() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let soon = asking(ExecutionId::new(), at(10));
    let late = asking(ExecutionId::new(), far());
    for approval in [&soon, &late] {
        ledger.ask_approval(approval.clone()).wait().expect("asked");
    }
    let too_late = ledger
        .decide(decision(soon.id, ApprovalStatus::Approved, at(10)))
        .wait();
    assert!(matches!(too_late, Ok(Verdicted::TooLate(_))));
    let lapsed = ledger
        .decide(decision(soon.id, ApprovalStatus::Expired, at(10)))
        .wait();
    assert!(
        matches!(&lapsed, Ok(Verdicted::Done(one)) if one.status == ApprovalStatus::Expired),
        "{lapsed:?}"
    );
    let approved = ledger
        .decide(decision(late.id, ApprovalStatus::Approved, at(10)))
        .wait();
    assert!(matches!(approved, Ok(Verdicted::Done(_))));
}

#[test]
fn only_what_nobody_waits_for_goes_on_waiting_after_a_restart() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let mut cases = Vec::new();
    for (asynchronous, expires_at, decided) in [
        (true, far(), None),
        (true, far(), Some(ApprovalStatus::Approved)),
        (true, at(1), None),
        (true, far(), Some(ApprovalStatus::Denied)),
        (false, far(), None),
        (false, far(), Some(ApprovalStatus::Approved)),
        (false, at(1), None),
    ] {
        let record = OpenRecord {
            asynchronous,
            status: Status::Waiting,
            ..opening("bash", 1, at(0))
        };
        let approval = asking(record.id, expires_at);
        cases.push((record.id, approval.id));
        drop(ledger.open_execution(record, None));
        ledger.ask_approval(approval.clone()).wait().expect("asked");
        if let Some(status) = decided {
            drop(
                ledger
                    .decide(decision(approval.id, status, at(0)))
                    .wait()
                    .expect("decided"),
            );
        }
    }
    drop(ledger);
    let Opened { ledger, recovered } = open(&scratch.file());
    let waiting: Vec<_> = recovered
        .waiting
        .iter()
        .map(|one| (one.record.open.id, one.approval.id))
        .collect();
    // What was denied, or has lapsed, has yet to be told so.
    assert_eq!(waiting, cases[..4]);
    assert_eq!(recovered.lost_ids(), [cases[4].0, cases[5].0, cases[6].0]);
    let statuses: Vec<_> = cases
        .iter()
        .map(|(id, approval)| {
            let record = block_on(ledger.get(*id)).expect("read").expect("there");
            let approvals = block_on(ledger.approvals(Approvals::One(*approval))).expect("read");
            (record.status(), approvals[0].status)
        })
        .collect();
    use ApprovalStatus::{Approved, Denied, Expired, Pending, Withdrawn};
    use Status::{Lost, Waiting};
    assert_eq!(
        statuses,
        [
            (Waiting, Pending),
            (Waiting, Approved),
            (Waiting, Pending),
            (Waiting, Denied),
            (Lost, Withdrawn),
            (Lost, Withdrawn),
            (Lost, Expired)
        ]
    );
    let events = block_on(ledger.events(0, EventFilter::default(), 100)).expect("read");
    let told: Vec<_> = events
        .events
        .iter()
        .map(|event| {
            let known = |name: &str| event.body.get(name).and_then(Value::as_str);
            let which = known("decision").or(known("summary")).unwrap_or_default();
            (&*event.kind, which.to_owned())
        })
        .collect();
    let started = || ("executionStarted", "git status".to_owned());
    let lost = || ("executionAborted", "git status".to_owned());
    let withdrawn = || ("confirmationDecided", "withdrawn".to_owned());
    let expired = ("confirmationExpired", String::new());
    assert_eq!(
        told,
        [
            started(),
            withdrawn(),
            lost(),
            started(),
            withdrawn(),
            lost(),
            started(),
            expired,
            lost()
        ]
    );
    assert_eq!(
        verified(&ledger, vec![ledger.head()]),
        Chain::Holds(ledger.head())
    );
}

#[test]
fn what_nobody_waits_for_is_not_asked_any_more_after_a_restart() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let record = opening("bash", 1, at(0));
    let approval = asking(record.id, far());
    let ended = closing(record.id, Status::Cancelled);
    drop(ledger.open_execution(record, None));
    ledger.ask_approval(approval.clone()).wait().expect("asked");
    ledger.close_execution(ended, None).wait().expect("ended");
    drop(ledger);
    let Opened { ledger, recovered } = open(&scratch.file());
    assert!(recovered.waiting.is_empty() && recovered.lost.is_empty());
    let found = block_on(ledger.approvals(Approvals::One(approval.id))).expect("read");
    assert_eq!(found[0].status, ApprovalStatus::Withdrawn);
    let events = block_on(ledger.events(0, EventFilter::default(), 100)).expect("read");
    let told: Vec<_> = events.events.iter().map(|event| &*event.kind).collect();
    assert_eq!(told, ["confirmationDecided"]);
}

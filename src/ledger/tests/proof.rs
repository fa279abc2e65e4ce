//! What is kept of executions, held against the trail.

use rusqlite::Connection;

use super::*;
use crate::domain::ApprovalId;

/// An execution of which everything is known that the trail tells.
fn enter_whole(ledger: &Ledger, created_at: SystemTime) -> ExecutionId {
    let open = OpenRecord {
        ruling: Some(Ruling {
            verdict: Verdict::Allow,
            rule: Some("bash".to_owned()),
            source: Some("policy.toml:3".to_owned()),
        }),
        ..opening("bash", 7, created_at)
    };
    let text = |text: &str| Output {
        bytes: text.len() as u64,
        digest: None,
        place: Place::Inline(text.as_bytes().to_vec()),
    };
    let close = CloseRecord {
        approved: Some((ApprovalId::new(), 7)),
        content: text("hello"),
        stdout: Output {
            digest: Some(Digest::of(b"out")),
            ..text("out")
        },
        ..closing(open.id, Status::Error)
    };
    let id = open.id;
    assert!(ledger.begin_execution(open, None).is_none());
    ledger.close_execution(close, None).wait().expect("closed");
    id
}

/// As the pipeline computes it of what is in the file.
fn hash(close: &CloseRecord) -> [Option<Digest>; 2] {
    [&close.stdout, &close.stderr].map(|output| match &output.place {
        Place::Inline(bytes) => Some(Digest::of(bytes)),
        Place::Nowhere | Place::InContent { .. } | Place::Spool { .. } => None,
    })
}

fn verify(ledger: &Ledger) -> Verified {
    block_on(ledger.verify_audit(Vec::new(), hash)).expect("read")
}

#[test]
fn what_is_kept_otherwise_than_the_trail_says_is_found() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let first = enter_whole(&ledger, at(1));
    let second = enter_whole(&ledger, at(2));
    // One that runs, and one that was refused.
    drop(ledger.open_execution(opening("bash", 7, at(3)), None));
    enter(&ledger, opening("bash", 7, at(4)), Status::Denied);
    let whole = verify(&ledger);
    assert_eq!((whole.proven, whole.altered), (3, 0));
    assert_eq!(whole.chain, Chain::Holds(ledger.head()));

    let connection = Connection::open(scratch.file()).expect("a file");
    connection
        .execute_batch("CREATE TABLE before AS SELECT * FROM executions")
        .expect("copied");
    let changes = [
        ("tool = 'sh'", "`tool`"),
        ("caller_uid = 8", "`caller_uid`"),
        ("call = replace(call, 'status', 'push')", "`call_sha256`"),
        ("verdict = 'ask'", "`verdict`"),
        ("verdict = NULL", "`rule`"),
        ("rule = 'bash(command:*)'", "`rule`"),
        ("rule_source = 'policy.toml:4'", "`rule_source`"),
        ("approver_uid = 8", "`approver"),
        ("approval_id = randomblob(16)", "`approval_id`"),
        ("approval_id = NULL", "`appro"),
        ("status = 'success'", "`status`"),
        ("ending = '{\"exit_code\":1}'", "`ending`"),
        ("content = 'hallo'", "content"),
        (
            "content = 'hallo', content_sha256 = NULL",
            "`content_sha256`",
        ),
        ("stdout = x'00'", "standard output"),
        ("stdout_sha256 = randomblob(32)", "`stdout_sha256`"),
        ("ended_at = ended_at + 1", "its end"),
        ("ended_at = NULL", "not ended"),
        ("created_at = 'x'", ""),
        ("caller_gid = -1", "none that was written"),
    ];
    for (change, part) in changes {
        let set = format!("UPDATE executions SET {change} WHERE id = ?");
        let is_set = connection.execute(&set, [second.as_bytes()]);
        if part.is_empty() {
            // SQLite itself knows what is a time.
            is_set.expect_err(change);
            continue;
        }
        assert_eq!(is_set.expect("changed"), 1);
        let found = verify(&ledger);
        let altered = found.first.expect(change);
        assert_eq!((found.proven, found.altered), (2, 1), "{change}");
        assert_eq!(altered.id, second, "{change}");
        assert!(
            altered.detail.contains(part),
            "{change}: {}",
            altered.detail
        );
        assert_eq!(found.chain, Chain::Holds(ledger.head()));
        connection
            .execute_batch("DELETE FROM executions; INSERT INTO executions SELECT * FROM before")
            .expect("as before");
    }
    let set = "UPDATE executions SET caller_uid = caller_uid + 1 WHERE ended_at IS NOT NULL";
    connection.execute_batch(set).expect("changed");
    let found = verify(&ledger);
    assert_eq!((found.proven, found.altered), (0, 3));
    assert_eq!(found.first.expect("one").id, first);
}

#[test]
fn what_nobody_executed_is_found_and_what_is_forgotten_is_not_missed() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let id = enter_whole(&ledger, at(1));
    let connection = Connection::open(scratch.file()).expect("a file");
    let forged = ExecutionId::new();
    connection
        .execute_batch(
            "CREATE TABLE forged AS SELECT * FROM executions; UPDATE forged SET number = number + 1",
        )
        .expect("copied");
    connection
        .execute("UPDATE forged SET id = ?", [forged.as_bytes()])
        .expect("forged");
    connection
        .execute_batch("INSERT INTO executions SELECT * FROM forged")
        .expect("entered");
    let found = verify(&ledger);
    assert_eq!((found.proven, found.altered), (1, 1));
    let altered = found.first.expect("one");
    assert_eq!(altered.id, forged);
    assert!(altered.detail.contains("no ending"), "{}", altered.detail);

    connection
        .execute("DELETE FROM executions WHERE id = ?", [forged.as_bytes()])
        .expect("gone");
    assert_eq!(cleared(&ledger, 0), [id]);
    let found = verify(&ledger);
    assert_eq!((found.proven, found.altered), (0, 0));
    assert!(matches!(found.chain, Chain::Holds(_)));
}

/// Where the trail does not hold, it proves nothing.
#[test]
fn nothing_is_held_against_a_broken_trail() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    for n in 0..3 {
        enter_whole(&ledger, at(n));
    }
    let connection = Connection::open(scratch.file()).expect("a file");
    connection
        .execute_batch("UPDATE audit SET body = '{}' WHERE number = 4")
        .expect("changed");
    let found = verify(&ledger);
    assert!(matches!(found.chain, Chain::Broken { at: 4, .. }));
    assert_eq!((found.proven, found.altered), (1, 0));
}

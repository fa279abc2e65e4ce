use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::mpsc;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rusqlite::Connection;

use super::*;

#[test]
fn nobody_else_may_read_it_and_no_second_daemon_may_have_it() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    enter(&ledger, opening("bash", 0, at(0)), Status::Success);
    for entry in fs::read_dir(&scratch.0).expect("a directory").flatten() {
        let mode = entry.metadata().expect("there").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}", entry.path().display());
    }
    let second = Ledger::open(&scratch.file(), Durability::Process);
    assert!(matches!(second.err(), Some(LedgerError::InUse { .. })));
    drop(ledger);
    drop(open(&scratch.file()));
}

/// Whether this process holds a lock on the file, as others see it. To ask lets go of it.
fn is_locked(file: &std::path::Path) -> bool {
    let file = fs::File::open(file).expect("there");
    let mut found = libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // To a lock of the open file those of its own process are another's.
    fcntl(&file, FcntlArg::F_OFD_GETLK(&mut found)).expect("asked");
    i32::from(found.l_type) != libc::F_UNLCK
}

#[test]
fn who_opens_the_file_leaves_the_locks_of_who_has_it() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let second = Ledger::open(&scratch.file(), Durability::Process);
    assert!(matches!(second.err(), Some(LedgerError::InUse { .. })));
    assert!(is_locked(&scratch.file()));
    drop(ledger);
    // Nor those of who still reads it.
    let first = scratch.open();
    block_on(first.get(ExecutionId::new())).expect("read");
    first.close_file();
    let _second = scratch.open();
    assert!(is_locked(&scratch.file()));
}

#[test]
fn a_file_from_the_future_is_refused_and_left_alone() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let id = enter(&ledger, opening("bash", 0, at(0)), Status::Success);
    drop(ledger);
    let connection = Connection::open(scratch.file()).expect("a file");
    let current = connection.query_row("PRAGMA user_version", [], |row| row.get(0));
    let current: i64 = current.expect("a version");
    drop(connection);
    let version = |version: i64| {
        let connection = Connection::open(scratch.file()).expect("a file");
        connection
            .execute_batch(&format!("PRAGMA user_version = {version}"))
            .expect("set");
    };
    version(99);
    let error = Ledger::open(&scratch.file(), Durability::Process)
        .err()
        .expect("refused")
        .to_string();
    assert!(
        error.contains("version 99") && error.contains("ledger.db"),
        "{error}"
    );
    version(current);
    assert!(block_on(scratch.open().get(id)).expect("read").is_some());
}

#[test]
fn a_file_that_was_written_long_ago_still_opens() {
    let scratch = Scratch::new();
    // As the first version left it when it was killed, with pages of 512 bytes to be small.
    fs::write(scratch.file(), include_bytes!("version-1.db")).expect("written");
    let opened = open(&scratch.file());
    assert_eq!(opened.recovered.lost.len(), 1);
    let ledger = opened.ledger;
    let page = block_on(ledger.list(
        Filter {
            text: Some("hello".to_owned()),
            limit: 10,
            ..Filter::default()
        },
        |listed| listed.id,
    ));
    assert_eq!(page.expect("listed").records.len(), 1);
    assert_eq!(verified(&ledger, Vec::new()), Chain::Holds(ledger.head()));
}

#[test]
fn what_was_indexed_long_ago_is_indexed_anew() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let ended = enter(&ledger, opening("bash", 0, at(0)), Status::Success);
    drop(ledger);
    // As the eighth version had it: JSON, with a backslash before each line end.
    let connection = Connection::open(scratch.file()).expect("a file");
    let before = "INSERT INTO search (search) VALUES ('delete-all');
        INSERT INTO search (rowid, call) SELECT number, 'nstatus' FROM executions;
        ALTER TABLE approvals DROP COLUMN tool_version;
        ALTER TABLE approvals DROP COLUMN risk_level;
        ALTER TABLE approvals DROP COLUMN workspace;
        ALTER TABLE approvals DROP COLUMN context;
        PRAGMA user_version = 8;";
    connection.execute_batch(before).expect("changed");
    drop(connection);
    let ledger = scratch.open();
    let found = |text: &str| {
        let filter = Filter {
            text: Some(text.to_owned()),
            limit: 10,
            ..Filter::default()
        };
        let page = block_on(ledger.list(filter, |listed| listed.id)).expect("listed");
        page.records
    };
    assert_eq!((found("status"), found("nstatus")), (vec![ended], vec![]));
    cleared(&ledger, 0);
    assert_eq!(found("status"), []);
}

/// What the tables and indices of a ledger are like, whatever they were made by.
fn shape(file: &std::path::Path) -> Vec<(String, String)> {
    const COLUMNS: &str = "SELECT m.name, printf('%d %s %s %d %s %d %d', c.cid, c.name, c.type, c.[notnull], quote(c.dflt_value), c.pk, c.hidden)
        FROM sqlite_schema m JOIN pragma_table_xinfo(m.name) c WHERE m.type = 'table' ORDER BY m.name, c.cid";
    const TABLES: &str = "SELECT name, printf('%s %d %d', type, wr, strict) FROM pragma_table_list WHERE schema = 'main' ORDER BY name";
    const INDICES: &str = "SELECT name, tbl_name || sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL ORDER BY name";
    let connection = Connection::open(file).expect("a file");
    let rows = |sql: &str| {
        let mut statement = connection.prepare(sql).expect("SQL");
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        let rows: Result<Vec<(String, String)>, _> = rows.expect("asked").collect();
        rows.expect("read")
    };
    [COLUMNS, TABLES, INDICES]
        .into_iter()
        .flat_map(rows)
        .collect()
}

#[test]
fn a_file_that_was_written_long_ago_comes_to_what_a_new_one_is() {
    let (new, old) = (Scratch::new(), Scratch::new());
    fs::write(old.file(), include_bytes!("version-1.db")).expect("written");
    drop((new.open(), open(&old.file())));
    let new = shape(&new.file());
    assert!(new.len() > 60, "{new:?}");
    assert_eq!(shape(&old.file()), new);
}

#[test]
fn what_is_no_ledger_is_named_with_what_to_do() {
    let scratch = Scratch::new();
    fs::write(
        scratch.file(),
        "certainly not a database, but long enough to look at it twice",
    )
    .expect("written");
    let error = Ledger::open(&scratch.file(), Durability::Process)
        .err()
        .expect("refused");
    assert!(matches!(error, LedgerError::Damaged { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("ledger.db") && text.contains("move it"),
        "{text}"
    );
}

/// In memory there is none, as on file systems whose files cannot be shared between processes.
#[test]
fn where_there_can_be_no_log_ahead_of_the_file_it_is_refused() {
    let refused = super::super::file::open_to_write(Path::new(":memory:"), "NORMAL");
    let error = refused.expect_err("refused").to_string();
    assert!(
        error.contains("`:memory:`")
            && error.contains("only `memory`")
            && error.contains("put the"),
        "{error}"
    );
}

/// Fills a file and overwrites its second half.
fn damaged(scratch: &Scratch, executions: usize) {
    let ledger = scratch.open();
    for n in 0..executions {
        let mut record = opening("bash", 0, at(n as u64));
        record.call = json!({"input": {"command": "x".repeat(3000)}}).into();
        enter(&ledger, record, Status::Success);
    }
    drop(ledger);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .open(scratch.file())
        .expect("there");
    let length = file.metadata().expect("there").len();
    file.seek(SeekFrom::Start(length / 2)).expect("there");
    file.write_all(&vec![0x5a; length as usize / 2])
        .expect("written");
}

#[test]
fn a_damaged_file_is_refused() {
    let scratch = Scratch::new();
    damaged(&scratch, 50);
    let error = Ledger::open(&scratch.file(), Durability::Process)
        .err()
        .expect("refused");
    assert!(matches!(error, LedgerError::Damaged { .. }), "{error}");
}

#[test]
fn a_damaged_long_file_is_told_of() {
    let scratch = Scratch::new();
    damaged(&scratch, 3000);
    match Ledger::open(&scratch.file(), Durability::Process) {
        Ok(opened) => until("a problem", || {
            opened
                .ledger
                .problem()
                .is_some_and(|problem| problem.code == "ledger_damaged")
        }),
        // The look for open executions came upon it.
        Err(error) => assert!(matches!(error, LedgerError::Damaged { .. }), "{error}"),
    }
}

#[test]
fn a_directory_that_cannot_be_made_is_told() {
    let error = Ledger::open(Path::new("/proc/nowhere/ledger.db"), Durability::Process).err();
    assert!(matches!(error, Some(LedgerError::Open { .. })));
}

/// A file system of 2 MiB, where that can be had.
struct Tiny(PathBuf);

impl Tiny {
    fn mount(dir: PathBuf) -> Option<Self> {
        fs::create_dir_all(&dir).ok()?;
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs"])
            .arg(&dir);
        mount
            .output()
            .is_ok_and(|output| output.status.success())
            .then_some(Self(dir))
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_told_and_got_over() {
    let scratch = Scratch::new();
    let Some(tiny) = Tiny::mount(scratch.0.join("tiny")) else {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: a full disk, which takes the right to mount"
        );
        return;
    };
    let ledger = open(&tiny.0.join("ledger.db")).ledger;
    let before = enter(&ledger, opening("bash", 0, at(0)), Status::Success);
    let waiting = opening("bash", 0, at(1));
    let id = waiting.id;
    ledger.open_execution(waiting, None).wait().expect("opened");
    let ballast = tiny.0.join("ballast");
    let mut file = fs::File::create(&ballast).expect("a file");
    while file.write_all(&[1; 4096]).is_ok() {}

    // The log has some room of its own left: until that is used up.
    let mut opened = Vec::new();
    let error = loop {
        let mut record = opening("bash", 0, at(2));
        record.call = json!({"input": {"command": "x".repeat(30_000)}}).into();
        opened.push(record.id);
        if let Err(error) = ledger.open_execution(record, None).wait() {
            break error;
        }
        assert!(opened.len() < 1000, "the disk is never full");
    };
    assert!(matches!(error, LedgerError::Full { .. }), "{error}");
    assert_eq!(ledger.problem().expect("degraded").code, "ledger_full");
    let mut big = closing(id, Status::Success);
    big.content.place = Place::Inline(vec![b'x'; 30_000]);
    assert!(ledger.close_execution(big, None).wait().is_err());
    let record = block_on(ledger.get(before))
        .expect("reads still work")
        .expect("there");
    assert_eq!(record.status(), Status::Success);

    // By itself, and with what it could not write.
    fs::remove_file(&ballast).expect("removed");
    drop(file);
    until("the ledger is well", || ledger.problem().is_none());
    let record = block_on(ledger.get(id)).expect("read").expect("there");
    assert_eq!(record.status(), Status::Success);
    for id in opened {
        assert!(block_on(ledger.get(id)).expect("read").is_some(), "{id}");
    }
    enter(&ledger, opening("bash", 0, at(3)), Status::Success);
    assert_eq!(
        verified(&ledger, vec![ledger.head()]),
        Chain::Holds(ledger.head())
    );
}

#[test]
fn what_was_told_while_the_disk_filled_up_is_not_lost() {
    let scratch = Scratch::new();
    let Some(tiny) = Tiny::mount(scratch.0.join("tiny")) else {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: a disk that fills up, which takes the right to mount"
        );
        return;
    };
    let ledger = open(&tiny.0.join("ledger.db")).ledger;
    enter(&ledger, opening("bash", 0, at(0)), Status::Success);
    let ballast = tiny.0.join("ballast");
    let mut file = fs::File::create(&ballast).expect("a file");
    while file.write_all(&[1; 4096]).is_ok() {}
    file.set_len(file.metadata().expect("there").len() - (64 << 10))
        .expect("some room");

    let (mut told, mut refused) = (Vec::new(), 0);
    while refused < 10 {
        // What is in the file before it is full, and as much as `ON_TRUST`.
        assert!(told.len() < 3000, "the disk is never full");
        let record = opening("bash", 0, at(1));
        let id = record.id;
        drop(ledger.begin_execution(record, None));
        match ledger.end_execution(closing(id, Status::Success), None, None, drop) {
            Ended::Logged => told.push(id),
            Ended::Queued(receipt, _) => match receipt.wait() {
                Ok(()) => told.push(id),
                Err(error) => {
                    assert!(matches!(error, LedgerError::Full { .. }), "{error}");
                    refused += 1;
                }
            },
        }
    }
    // The log has its room beforehand.
    assert!(ledger.problem().is_some());
    assert!(told.len() > 100, "{}", told.len());
    let crashed = Scratch::new();
    for entry in fs::read_dir(&tiny.0).expect("a directory").flatten() {
        if entry.path() != ballast {
            fs::copy(entry.path(), crashed.0.join(entry.file_name())).expect("copied");
        }
    }
    fs::remove_file(&ballast).expect("removed");
    drop(file);
    until("the ledger is well", || ledger.problem().is_none());
    for ledger in [&ledger, &crashed.open()] {
        for id in &told {
            let record = block_on(ledger.get(*id)).expect("read").expect("there");
            assert_eq!(record.status(), Status::Success);
        }
    }
}

#[test]
fn what_was_told_while_somebody_held_the_file_is_not_lost() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    enter(&ledger, opening("bash", 0, at(0)), Status::Success);
    let somebody = Connection::open(scratch.file()).expect("a file");
    somebody.execute_batch("BEGIN IMMEDIATE").expect("free");
    let mut told = Vec::new();
    for n in 0..5000 {
        let record = opening("bash", 0, at(n));
        let id = record.id;
        assert!(ledger.begin_execution(record, None).is_none());
        let (tell, filed) = mpsc::channel();
        let then = move |result| tell.send(result).expect("somebody waits");
        if let Ended::Logged = ledger.end_execution(closing(id, Status::Success), None, None, then)
        {
            told.push((id, filed));
        }
    }
    // Who comes later waits for the file.
    assert!((1000..1100).contains(&told.len()), "{}", told.len());
    let mut ids = Vec::new();
    for (id, filed) in told {
        let filed = filed.recv().expect("it is told");
        filed.expect_err("somebody has it");
        ids.push(id);
    }
    drop(somebody);
    until("the ledger is well", || ledger.problem().is_none());
    for id in ids {
        let record = block_on(ledger.get(id)).expect("read").expect("there");
        assert_eq!(record.status(), Status::Success);
    }
}

/// A thousand of them, 16 MiB each, would be all the memory there is.
#[test]
fn what_waits_for_the_disk_is_bounded_in_bytes() {
    let scratch = Scratch::new();
    let ledger = scratch.open();
    let somebody = Connection::open(scratch.file()).expect("a file");
    somebody.execute_batch("BEGIN IMMEDIATE").expect("free");
    let open = |n, length| {
        let mut record = opening("bash", 0, at(n));
        record.call = json!({"input": {"command": "x".repeat(length)}}).into();
        (record.id, ledger.open_execution(record, None))
    };
    let long: Vec<_> = (0..80).map(|n| open(n, 1 << 20)).collect();
    let short: Vec<_> = (0..80).map(|n| open(n, 100)).collect();
    let [long, short] = [long, short].map(|opened| {
        opened.into_iter().map(|(id, receipt)| {
            receipt.wait().expect_err("somebody has it");
            id
        })
    });
    let (long, short): (Vec<_>, Vec<_>) = (long.collect(), short.collect());
    drop(somebody);
    until("the ledger is well", || ledger.problem().is_none());
    let is_there = |id: &_| block_on(ledger.get(*id)).expect("read").is_some();
    assert_eq!(long.iter().filter(|id| is_there(id)).count(), 63);
    assert!(short.iter().all(is_there));
}

#[test]
fn a_trail_that_was_tampered_with_is_found() {
    for (sql, at) in [
        (
            "UPDATE audit SET body = replace(body, 'success', 'denied') WHERE number = 5",
            5,
        ),
        ("DELETE FROM audit WHERE number = 7", 7),
        ("DELETE FROM audit WHERE number > 8", 9),
        (
            "UPDATE audit SET number = 100 WHERE number = 3; UPDATE audit SET number = 3 WHERE number = 4; UPDATE audit SET number = 4 WHERE number = 100",
            3,
        ),
    ] {
        let scratch = Scratch::new();
        let ledger = scratch.open();
        for n in 0..10 {
            enter(&ledger, opening("bash", 0, super::at(n)), Status::Success);
        }
        let head = ledger.head();
        Connection::open(scratch.file())
            .expect("a file")
            .execute_batch(sql)
            .expect("SQL");
        // Whoever wrote it knows its end.
        let by_itself = verified(&ledger, Vec::new());
        drop(ledger);
        let by_the_next = verified(&scratch.open(), vec![head]);
        for found in [by_itself, by_the_next] {
            assert!(
                matches!(found, Chain::Broken { at: found, .. } if found == at),
                "{sql}: {found:?}"
            );
        }
    }
}

/// Whatever would be read as what it was before, or not be read at all.
#[test]
fn a_record_that_cannot_be_one_is_named() {
    let insert = "INSERT INTO audit SELECT {}, time, kind, execution_id, body, previous, hash FROM audit WHERE number = 2";
    for (sql, at, told) in [
        (
            "UPDATE audit SET execution_id = x'0011' WHERE number = 2",
            2,
            "its id",
        ),
        (
            "UPDATE audit SET execution_id = x'' WHERE number = 4",
            4,
            "its id",
        ),
        (
            "UPDATE audit SET previous = x'ffff' WHERE number = 1",
            1,
            "the hash before",
        ),
        (
            "UPDATE audit SET hash = x'' WHERE number = 3",
            3,
            "its hash",
        ),
        (
            "UPDATE audit SET body = CAST(x'ff' AS TEXT) WHERE number = 3",
            3,
            "its body is no UTF-8",
        ),
        (
            "UPDATE audit SET kind = CAST(x'ff' AS TEXT) WHERE number = 1",
            1,
            "its kind is no UTF-8",
        ),
        (&insert.replace("{}", "0"), 1, "record 0 is before it"),
        (&insert.replace("{}", "-7"), 1, "record -7 is before it"),
        (
            &insert.replace("{}", "-9223372036854775808"),
            1,
            "record -9223372036854775808 is before it",
        ),
        (
            &insert.replace("{}", "9223372036854775807"),
            5,
            "9223372036854775807 follows",
        ),
        (
            "DELETE FROM audit WHERE number = 2; UPDATE audit SET body = CAST(x'ff' AS TEXT) WHERE number = 3",
            2,
            "record 2 is not there, 3 follows",
        ),
    ] {
        let scratch = Scratch::new();
        let ledger = scratch.open();
        for n in 0..3 {
            enter(&ledger, opening("bash", 0, super::at(n)), Status::Success);
        }
        let entry = AuditEntry {
            kind: "mark".to_owned(),
            execution_id: None,
            time: super::at(4),
            body: json!({}),
        };
        ledger.audit(entry).wait().expect("written");
        // While it is in use: a number that is the last there can be leaves no room for another.
        Connection::open(scratch.file())
            .expect("a file")
            .execute_batch(sql)
            .expect("SQL");
        let found = verified(&ledger, Vec::new());
        let Chain::Broken { at: found, detail } = found else {
            panic!("{sql}: intact");
        };
        assert!(
            found == at && detail.contains(told),
            "{sql}: {found}: {detail}"
        );
        match exported(&ledger, 0) {
            Ok(links) => assert_eq!(links[0].number, 1, "{sql}"),
            Err(error) => {
                let is_gap = sql.starts_with("DELETE");
                let named = format!("record {at}");
                assert!(
                    is_gap || error.to_string().contains(&named),
                    "{sql}: {error}"
                );
            }
        }
    }
}

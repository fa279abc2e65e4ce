//! The raw bytes of the streams.

use serde_json::json;

use super::{begin, blocked, release};
use crate::support::{Connection, Daemon, Mode, Reply, wait_for, wait_until};

fn range(daemon: &Daemon, id: &str, spec: &str) -> Reply {
    let path = format!("/executions/{id}/output?stream=stdout");
    daemon
        .connect()
        .request("GET", &path, &[("Range", spec)], b"")
}

#[track_caller]
fn whole(daemon: &Daemon, id: &str, stream: &str) -> Vec<u8> {
    let reply = daemon.get(&format!("/executions/{id}/output?stream={stream}"));
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(
        reply.header("content-type"),
        Some("application/octet-stream")
    );
    assert_eq!(reply.header("accept-ranges"), Some("bytes"));
    reply.body
}

#[test]
fn both_streams_are_there_to_the_byte() {
    let daemon = Daemon::start();
    let id = begin(
        &daemon,
        "printf 'a\\377\\0b\\n\\n'; printf '\\342\\202' >&2",
    );
    daemon.ended(&id);
    assert_eq!(whole(&daemon, &id, "stdout"), b"a\xFF\0b\n\n");
    assert_eq!(whole(&daemon, &id, "stderr"), b"\xE2\x82");
    let id = begin(&daemon, "true");
    daemon.ended(&id);
    assert_eq!(whole(&daemon, &id, "stdout"), b"");
}

#[test]
fn what_an_answer_lacks_is_still_there() {
    let daemon = Daemon::start_with(Mode::Group, "max_output_bytes = 10");
    let lines: String = (1..=400_000).map(|n| format!("{n}\n")).collect();
    let reply = daemon.bash("seq 1 400000");
    let body = reply.json();
    assert_eq!(
        (&body["truncated"], &body["stdout_bytes"]),
        (&json!(true), &json!(lines.len()))
    );
    let id = body["execution_id"].as_str().expect("an id");
    assert!(whole(&daemon, id, "stdout") == lines.as_bytes());
    // From the middle of a file on disk.
    let part = range(&daemon, id, "bytes=1000000-1000009");
    assert_eq!(part.status, 206);
    assert_eq!(part.body, &lines.as_bytes()[1_000_000..1_000_010]);
    let head = daemon.connect().request(
        "HEAD",
        &format!("/executions/{id}/output?stream=stdout"),
        &[],
        b"",
    );
    assert_eq!(
        head.header("content-length"),
        Some(lines.len().to_string().as_str())
    );
}

#[test]
fn the_spool_keeps_up_to_its_bounds() {
    let daemon = Daemon::start_with(
        Mode::Group,
        "max_output_bytes = 10\nspool_max_bytes = 600000\nspool_total_bytes = 1000000",
    );
    let run = || {
        let id = begin(&daemon, "yes | head -c 1000000");
        assert_eq!(daemon.ended(&id)["result"]["stdout_bytes"], 1_000_000);
        id
    };
    // The spool is written after the answer; until then all of it is in memory.
    let spooled = |id: &str| {
        wait_until("the spool has what it keeps", || {
            whole(&daemon, id, "stdout").len() == 600_000
        });
    };
    let first = run();
    spooled(&first);
    let second = run();
    spooled(&second);
    // The oldest gave way, and says so; its record is still there.
    let gone = daemon.get(&format!("/executions/{first}/output?stream=stdout"));
    assert_eq!(
        (gone.status, &gone.json()["code"]),
        (404, &json!("not_found"))
    );
    assert_eq!(daemon.ended(&first)["status"], "success");
    assert_eq!(whole(&daemon, &first, "stderr"), b"");
}

#[test]
fn without_a_spool_only_short_streams_and_answers_are_kept() {
    for bound in ["spool_max_bytes", "spool_total_bytes"] {
        let bounds = format!("max_output_bytes = 1000\n{bound} = 0");
        let daemon = Daemon::start_with(Mode::Group, &bounds);
        for (written, kept) in [
            (1000, true),
            (4096, true),
            (4097, false),
            (1_048_577, false),
        ] {
            let id = begin(&daemon, &format!("yes | head -c {written}"));
            assert_eq!(daemon.ended(&id)["result"]["stdout_bytes"], written);
            let path = format!("/executions/{id}/output?stream=stdout");
            let status = if kept { 200 } else { 404 };
            // Right behind its end the whole of it may still be in memory.
            wait_until("it is what is kept of it", || {
                daemon.get(&path).status == status
            });
        }
    }
}

/// What the history keeps of answers is none of what the spool may hold of outputs.
#[test]
fn long_answers_leave_the_spool_its_room() {
    let bounds = "spool_max_bytes = 1500000\nspool_total_bytes = 1500000";
    let daemon = Daemon::start_with(Mode::Group, bounds);
    let answers = [(); 3].map(|()| begin(&daemon, "yes | head -c 1000000"));
    for id in &answers {
        daemon.ended(id);
    }
    let id = begin(&daemon, "yes | head -c 1400000");
    assert_eq!(daemon.ended(&id)["result"]["truncated"], true);
    assert_eq!(whole(&daemon, &id, "stdout").len(), 1_400_000);
    for id in &answers {
        assert_eq!(whole(&daemon, id, "stdout").len(), 1_000_000);
    }
}

#[test]
fn a_range_is_served_as_the_standard_says() {
    let daemon = Daemon::start();
    let id = begin(&daemon, "printf 0123456789");
    daemon.ended(&id);
    for (spec, body, content_range) in [
        ("bytes=0-3", "0123", "bytes 0-3/10"),
        ("bytes=4-", "456789", "bytes 4-9/10"),
        ("bytes=8-100", "89", "bytes 8-9/10"),
        ("bytes=-3", "789", "bytes 7-9/10"),
        ("bytes=-100", "0123456789", "bytes 0-9/10"),
        ("bytes=9-9", "9", "bytes 9-9/10"),
    ] {
        let reply = range(&daemon, &id, spec);
        assert_eq!(
            (reply.status, reply.body.as_slice()),
            (206, body.as_bytes()),
            "{spec}"
        );
        assert_eq!(reply.header("content-range"), Some(content_range), "{spec}");
        assert_eq!(
            reply.header("content-length"),
            Some(body.len().to_string().as_str())
        );
    }
    for spec in [
        "bytes=10-",
        "bytes=10-20",
        "bytes=-0",
        "bytes=18446744073709551615-",
        "bytes=99999999999999999999-",
    ] {
        let reply = range(&daemon, &id, spec);
        assert_eq!(reply.status, 416, "{spec}");
        assert_eq!(reply.header("content-range"), Some("bytes */10"), "{spec}");
        assert_eq!(reply.json()["code"], "range_not_satisfiable");
    }
    // The last bytes of nothing are all there are.
    let nothing = daemon.connect().request(
        "GET",
        &format!("/executions/{id}/output?stream=stderr"),
        &[("Range", "bytes=-100")],
        b"",
    );
    assert_eq!((nothing.status, nothing.body.len()), (200, 0));
    // A range is for GET, and holds only if what the client knows is still so: nothing here says that.
    let path = format!("/executions/{id}/output?stream=stdout");
    let head = daemon
        .connect()
        .request("HEAD", &path, &[("Range", "bytes=10-")], b"");
    assert_eq!(head.status, 200);
    let known = [("Range", "bytes=0-0"), ("If-Range", "\"zz\"")];
    let whole = daemon.connect().request("GET", &path, &known, b"");
    assert_eq!((whole.status, whole.body.len()), (200, 10));
    // What is not one range of bytes is ignored.
    for spec in [
        "bytes=0-1,4-5",
        "lines=1-2",
        "bytes=3-1",
        "bytes=",
        "nonsense",
    ] {
        let reply = range(&daemon, &id, spec);
        assert_eq!((reply.status, reply.body.len()), (200, 10), "{spec}");
    }
}

#[test]
fn the_stream_must_be_named() {
    let daemon = Daemon::start();
    let id = begin(&daemon, "true");
    for (query, part) in [
        ("", "`stream`: is missing: expected `stdout` or `stderr`"),
        ("?stream=", "expected `stdout` or `stderr`"),
        ("?stream=stdin", "`stdin`"),
        ("?stream=stdout&from=1", "`from`"),
        ("?stream=STDOUT", "`STDOUT`"),
    ] {
        let reply = daemon.get(&format!("/executions/{id}/output{query}"));
        let detail = reply.json()["detail"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(detail.contains(part), "{detail} lacks {part}");
        assert_eq!(
            (reply.status, &reply.json()["code"]),
            (400, &json!("malformed_request")),
            "{query}"
        );
    }
}

/// Whoever clears the spool away is told, and the next output has a place again.
#[test]
fn what_was_lost_on_disk_is_not_made_up() {
    let daemon = Daemon::start();
    let id = begin(&daemon, "seq 20000");
    daemon.ended(&id);
    let spool = daemon.dir().join("state/spool");
    daemon.wait_until("it is on disk", || {
        spool.read_dir().is_ok_and(|entries| entries.count() == 1)
    });
    std::fs::remove_dir_all(&spool).expect("removable");
    let record = daemon.get(&format!("/executions/{id}")).json();
    let content = record["result"]["content"].as_str().expect("a text");
    assert!(content.contains("is lost"), "{content}");
    let reply = daemon.get(&format!("/executions/{id}/output?stream=stdout"));
    assert_eq!(
        (reply.status, &reply.json()["code"]),
        (404, &json!("not_found"))
    );
    let health = daemon.get("/health").json();
    assert_eq!(health["problems"][0]["code"], "spool_failed", "{health}");

    let id = begin(&daemon, "seq 20000");
    daemon.ended(&id);
    daemon.wait_until("all is well again", || {
        daemon.get("/health").json()["status"] == "ok"
    });
    assert_eq!(whole(&daemon, &id, "stdout").len(), 108_894);
    let long = "#".repeat(200_000) + "\necho read";
    std::fs::remove_dir_all(&spool).expect("removable");
    assert_eq!(daemon.bash(&long).stdout(), "read");

    // Nor does it take an output to find out that there is a place.
    let reply = daemon.get(&format!("/executions/{id}/output?stream=stdout"));
    assert_eq!(reply.status, 404);
    let health = || daemon.get("/health").json();
    assert_eq!(health()["problems"][0]["code"], "spool_failed");
    daemon.wait_until("all is well by itself", || health()["status"] == "ok");
}

#[test]
fn a_running_command_shows_what_there_is() {
    let daemon = Daemon::start();
    let (script, fifo) = blocked(&daemon, "go");
    let id = begin(&daemon, &script);
    wait_for("it begins", || {
        (whole(&daemon, &id, "stdout") == b"begun\n").then_some(())
    });
    assert_eq!(range(&daemon, &id, "bytes=2-").body, b"gun\n");
    assert_eq!(range(&daemon, &id, "bytes=6-").status, 416);
    release(&fifo, "on");
    daemon.ended(&id);
    assert_eq!(range(&daemon, &id, "bytes=6-").body, b"on\n");
    // So much of it that it has gone to disk.
    let (script, fifo) = blocked(&daemon, "again");
    let id = begin(&daemon, &format!("yes | head -c 500000; {script}"));
    wait_for("half a megabyte", || {
        (whole(&daemon, &id, "stdout").len() == 500_006).then_some(())
    });
    release(&fifo, "on");
    daemon.ended(&id);
    assert_eq!(range(&daemon, &id, "bytes=-3").body, b"on\n");
}

#[test]
fn a_stream_is_followed_while_it_is_written_however_long_it_gets() {
    for mode in Mode::all() {
        let daemon = Daemon::start_with(mode, "");
        let (script, fifo) = blocked(&daemon, "go");
        // In memory at first, then in the spool.
        for bytes in [0, 3_000_000] {
            let id = begin(
                &daemon,
                &format!("yes | head -c {bytes}; {script}; echo end"),
            );
            let mut reader = daemon.connect();
            let path = format!("/executions/{id}/output?stream=stdout&follow=true");
            reader.send("GET", &path, &[], b"");
            assert_eq!(reader.reply_head().status, 200);
            let mut read = Vec::new();
            while read.len() < bytes + 6 {
                read.extend(reader.chunk().expect("it has not ended"));
            }
            assert!(read.ends_with(b"begun\n"), "{mode:?}");
            release(&fifo, "on");
            while let Some(chunk) = reader.chunk() {
                read.extend(chunk);
            }
            assert_eq!(read.len(), bytes + "begun\non\nend\n".len(), "{mode:?}");
            assert_eq!(read, daemon.output(&id, "stdout"), "{mode:?}");
            // What is over is given as it is.
            let whole = daemon.get(&path);
            assert_eq!(whole.body, read, "{mode:?}");
        }
    }
}

/// It is not all there, and nobody is let believe that it was.
#[test]
fn a_stream_that_was_given_up_does_not_end_like_a_whole_one() {
    let toml = "max_output_bytes = 2000\nspool_max_bytes = 3000000\nspool_total_bytes = 6000000";
    let daemon = Daemon::start_with(Mode::Group, toml);
    let (script, fifo) = blocked(&daemon, "go");
    let id = begin(
        &daemon,
        &format!("yes | head -c 2500000; {script}; echo end"),
    );
    let path = format!("/executions/{id}/output?stream=stdout&follow=true");
    let mut reader = daemon.connect();
    reader.send("GET", &path, &[], b"");
    assert_eq!(reader.reply_head().status, 200);
    let mut read = 0;
    while read < 2_500_006 {
        read += reader.chunk().expect("it has not ended").len();
    }
    let plain = format!("/executions/{id}/output?stream=stdout");
    daemon.wait_until("it is given up for newer ones", || {
        assert_eq!(daemon.bash("yes | head -c 2900000").status, 200);
        daemon.get(&plain).status == 404
    });
    // Nothing is there for who comes now, whether or not it is followed.
    assert_eq!(daemon.get(&path).json()["code"], "not_found");
    release(&fifo, "on");
    let rest = String::from_utf8_lossy(&reader.drain()).into_owned();
    assert!(!rest.contains("0\r\n\r\n"), "{rest:?}");
}

/// From a byte that has come, from one that has not, and no further than it wants.
#[test]
fn who_was_cut_off_goes_on_to_follow_where_it_was() {
    let daemon = Daemon::start();
    // In memory at first, then in the spool.
    for bytes in [0, 3_000_000] {
        let (script, fifo) = blocked(&daemon, &format!("go{bytes}"));
        let id = begin(&daemon, &format!("yes | head -c {bytes}; {script}"));
        let path = format!("/executions/{id}/output?stream=stdout&follow=true");
        let follow = |spec: &str| {
            let mut reader = daemon.connect();
            reader.send("GET", &path, &[("Range", spec)], b"");
            let head = reader.reply_head();
            let range = head.header("content-range").map(str::to_owned);
            (reader, (head.status, range))
        };
        let part = |range: String| (206, Some(format!("bytes {range}/*")));
        let (first, behind) = (bytes + 2, bytes + 7);
        let (mut here, answer) = follow(&format!("bytes={first}-"));
        assert_eq!(answer, part(format!("{first}-9007199254740991")));
        assert_eq!(here.chunk().expect("it has come"), b"gun\n");
        let (mut later, answer) = follow(&format!("bytes={behind}-"));
        assert_eq!(answer, part(format!("{behind}-9007199254740991")));
        let (mut bounded, answer) = follow(&format!("bytes={first}-{behind}"));
        assert_eq!(answer, part(format!("{first}-{behind}")));
        let (mut beyond, answer) = follow("bytes=4000000-");
        assert_eq!(answer.0, 206);
        // What counts from the end, which nobody knows yet, is all of it.
        let (_, answer) = follow("bytes=-3");
        assert_eq!(answer, (200, None));
        release(&fifo, "on");
        let rest = |reader: &mut Connection| {
            let mut rest = Vec::new();
            while let Some(chunk) = reader.chunk() {
                rest.extend(chunk);
            }
            String::from_utf8(rest).expect("text")
        };
        let all = [&mut here, &mut later, &mut bounded, &mut beyond].map(rest);
        assert_eq!(all, ["on\n", "n\n", "gun\non", ""], "behind {bytes} bytes");
    }
}

/// Between the answer and the moment the ledger has it for others, too.
#[test]
fn what_has_just_ended_is_there_for_who_follows() {
    let daemon = Daemon::start();
    let mut connection = daemon.connect();
    for bytes in [6, 100_000].repeat(10) {
        let body = super::call(&format!("yes | head -c {bytes}")).to_string();
        let reply = connection.request("POST", "/execute", &[], body.as_bytes());
        let id = reply.json()["execution_id"].clone();
        let id = id.as_str().expect("an id");
        let path = format!("/executions/{id}/output?stream=stdout&follow=true");
        let read = connection.request("GET", &path, &[], b"");
        assert_eq!((read.status, read.body.len()), (200, bytes));
    }
}

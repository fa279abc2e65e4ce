//! How spans get to a collector, and that nobody waits for one.

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;

use super::{counted, end, id_of, wait_for_counts};
use crate::support::collector::{Closed, Collector, Reply, attribute};
use crate::support::{Daemon, Mode, bash_call, timed, wait_until};

/// How many spans a call of the bash tool makes: its own, and one for each stage.
const EACH: u64 = 7;

/// Far more than a call takes, and less than anything about a collector does.
const AT_ONCE: Duration = Duration::from_millis(900);

fn start(toml: &str) -> Daemon {
    Daemon::start_with(Mode::Group, toml)
}

/// How often something is in the daemon's log.
fn logged(daemon: &Daemon, text: &str) -> usize {
    daemon.log().matches(text).count()
}

/// Makes a call, which is answered as if there were no collector.
#[track_caller]
fn call(daemon: &Daemon) -> String {
    let (reply, took) = timed(|| daemon.bash("true"));
    assert!(took.within(AT_ONCE), "{took:?}");
    id_of(&reply.json())
}

#[test]
fn spans_are_gathered_and_sent_together() {
    let collector = Collector::start();
    let more = "service_name = \"shelly on a test\"\nheaders = { \"X-Scope-OrgID\" = \"acme\" }\n";
    let daemon = start(&format!("{}{more}", collector.toml()));
    let ids = [(); 3].map(|()| call(&daemon));
    let received = collector.wait_for(1);
    for id in &ids {
        assert_eq!(collector.spans_of(id).len() as u64, EACH);
    }
    for line in [
        "post /v1/traces http/1.1\r\n",
        "\r\ncontent-type: application/x-protobuf\r\n",
        "\r\nx-scope-orgid: acme\r\n",
        "\r\nuser-agent: shelly-executord/",
    ] {
        let head = &received[0].head;
        assert!(head.contains(line), "{line:?}: {head}");
    }
    let resource = received[0].message.resource_spans[0].resource.clone();
    let attributes = resource.expect("a resource").attributes;
    let name = attribute(&attributes, "service.name");
    assert_eq!(name.as_deref(), Some("shelly on a test"));
    wait_for_counts(&daemon, [3 * EACH, 0, 0]);
    assert_eq!(collector.received().len(), 1);
}

#[test]
fn a_collector_that_comes_back_gets_what_it_has_missed() {
    let closed = Closed::new();
    let daemon = start(&closed.toml());
    let ids = [(); 3].map(|()| call(&daemon));
    wait_until("it is said", || {
        logged(&daemon, "spans cannot be sent to http://127.0.0.1") == 1
    });
    assert_eq!(daemon.get("/health").json()["status"], "ok");
    let late = call(&daemon);
    let collector = closed.open();
    for id in ids.iter().chain([&late]) {
        assert_eq!(collector.spans_of(id).len() as u64, EACH);
    }
    wait_for_counts(&daemon, [4 * EACH, 0, 0]);
    // Once each, however often it was tried.
    assert_eq!(logged(&daemon, "spans cannot be sent to"), 1);
    assert_eq!(logged(&daemon, "spans are sent to"), 1);
}

#[test]
fn a_collector_is_left_alone_for_as_long_as_it_asks() {
    let collector = Collector::start();
    collector.answer([
        Reply::Status(503, "retry-after: 3\r\n"),
        Reply::Status(429, ""),
    ]);
    let daemon = start(&collector.toml());
    let id = call(&daemon);
    let received = collector.wait_for(3);
    let waits = [0, 1].map(|at| received[at + 1].at - received[at].at);
    // By itself it would have come back within a second, and within two the next time.
    assert!(waits[0] >= Duration::from_secs(3), "{waits:?}");
    assert!(waits[1] >= Duration::from_secs(1), "{waits:?}");
    assert!(received[0].body == received[2].body);
    assert_eq!(collector.spans_of(&id).len() as u64, EACH);
    wait_for_counts(&daemon, [EACH, 0, 0]);
}

#[test]
fn what_a_collector_does_not_want_is_not_sent_again() {
    let collector = Collector::start();
    collector.answer([Reply::Status(400, ""), Reply::Partly(3)]);
    let daemon = start(&collector.toml());
    let refused = call(&daemon);
    wait_for_counts(&daemon, [0, 0, EACH]);
    let partly = call(&daemon);
    wait_for_counts(&daemon, [EACH - 3, 0, EACH + 3]);
    let taken = call(&daemon);
    wait_for_counts(&daemon, [2 * EACH - 3, 0, EACH + 3]);
    let received = collector.received();
    assert_eq!(received.len(), 3);
    for (request, id) in received.iter().zip([&refused, &partly, &taken]) {
        let spans = &request.message.resource_spans[0].scope_spans[0].spans;
        let told = attribute(&spans[0].attributes, "shelly.execution.id");
        assert_eq!(told.as_ref(), Some(id));
    }
    assert_eq!(logged(&daemon, "it answers 400"), 1);
    assert_eq!(logged(&daemon, "not all of them"), 1);
}

#[test]
fn what_there_is_no_room_for_is_dropped_and_counted() {
    const CALLS: u64 = 400;
    let closed = Closed::new();
    let daemon = start(&closed.toml());
    let body = bash_call("true", &json!({})).to_string();
    let mut connection = daemon.connect();
    for _ in 0..CALLS {
        let reply = connection.request("POST", "/execute", &[], body.as_bytes());
        assert_eq!(reply.status, 200);
    }
    call(&daemon);
    let [sent, dropped, refused] = counted(&daemon);
    assert!(dropped > 0 && sent == 0 && refused == 0, "{dropped}");
    assert_eq!(logged(&daemon, "there is no room for more of them"), 1);
    let collector = closed.open();
    let told = (CALLS + 1) * EACH;
    wait_for_counts(&daemon, [told - dropped, dropped, 0]);
    let spans = collector.spans();
    let ids: HashSet<Vec<u8>> = spans.iter().map(|span| span.span_id.clone()).collect();
    assert_eq!(ids.len(), spans.len());
    assert_eq!(spans.len() as u64, told - dropped);
    for request in collector.received() {
        let spans = &request.message.resource_spans[0].scope_spans[0].spans;
        assert!(spans.len() <= 512, "{}", spans.len());
    }
}

#[test]
fn a_stop_sends_what_waits_and_waits_for_nobody() {
    let collector = Collector::start();
    let mut daemon = start(&collector.toml());
    let id = call(&daemon);
    let ((), took) = timed(|| end(&mut daemon));
    assert!(took.within(Duration::from_secs(3)), "{took:?}");
    assert_eq!(collector.spans_of(&id).len() as u64, EACH);

    let collector = Collector::start();
    collector.answer([Reply::Silence]);
    let mut daemon = start(&collector.toml());
    call(&daemon);
    let ((), took) = timed(|| end(&mut daemon));
    assert!(took.within(Duration::from_secs(6)), "{took:?}");
    assert!(daemon.log().contains("ended before all spans were sent"));

    let mut daemon = start(&Closed::new().toml());
    call(&daemon);
    let ((), took) = timed(|| end(&mut daemon));
    assert!(took.within(Duration::from_secs(3)), "{took:?}");
}

#[test]
fn nothing_is_sent_unless_a_collector_is_named_and_a_change_is_taken_up() {
    let collector = Collector::start();
    let daemon = start("");
    call(&daemon);
    assert_eq!(counted(&daemon), [0, 0, 0]);
    assert_eq!(internet_sockets(&daemon), 0);
    let write = |toml: &str| {
        let text = format!("{toml}[cgroup]\nmode = \"group\"\n");
        let new = daemon.dir().join("executor.toml.new");
        fs::write(&new, text).expect("written");
        fs::rename(new, daemon.dir().join("executor.toml")).expect("renamed");
    };
    let closed = Closed::new();
    write(&closed.toml());
    let taken_up = |times: usize| {
        wait_until("it is taken up", || {
            logged(&daemon, "took up a changed configuration") == times
        });
    };
    taken_up(1);
    let id = call(&daemon);
    wait_until("it is tried", || logged(&daemon, "cannot be sent") == 1);
    // What waits goes to where it should have gone.
    write(&collector.toml());
    taken_up(2);
    assert_eq!(collector.spans_of(&id).len() as u64, EACH);
    wait_for_counts(&daemon, [EACH, 0, 0]);
    write("");
    taken_up(3);
    call(&daemon);
    assert_eq!(counted(&daemon), [EACH, 0, 0]);
    assert_eq!(collector.received().len(), 1);
    wait_until("the connection is closed", || {
        internet_sockets(&daemon) == 0
    });
}

/// How many sockets of TCP or UDP the daemon has.
fn internet_sockets(daemon: &Daemon) -> usize {
    let proc = format!("/proc/{}", daemon.pid());
    let tables = ["tcp", "tcp6", "udp", "udp6"].map(|name| {
        let table = fs::read_to_string(format!("{proc}/net/{name}"));
        table.unwrap_or_default()
    });
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    let inodes: HashSet<&str> = lines
        .filter_map(|line| line.split_whitespace().nth(9))
        .collect();
    let open = fs::read_dir(format!("{proc}/fd"))
        .expect("it runs")
        .flatten();
    let links = open.filter_map(|entry| fs::read_link(entry.path()).ok());
    let is_one = |link: &std::path::PathBuf| {
        let text = link.to_string_lossy();
        let inode = text
            .strip_prefix("socket:[")
            .and_then(|rest| rest.strip_suffix(']'));
        inode.is_some_and(|inode| inodes.contains(inode))
    };
    links.filter(is_one).count()
}

/// Interim answers may come before the one that counts (RFC 9110, section 15.2), without end if need be.
#[test]
fn who_never_gets_to_the_point_keeps_nobody_waiting() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let told = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&told);
    // Ends with the process.
    std::thread::spawn(move || {
        let interim = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(40_000);
        for mut stream in listener.incoming().flatten() {
            // What comes before there is a question is no answer.
            let asked = stream.read(&mut [0; 1024]);
            assert!(asked.is_ok_and(|bytes| bytes > 0));
            while stream.write_all(&interim).is_ok() {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let daemon = start(&format!(
        "[tracing]\notlp_endpoint = \"http://127.0.0.1:{port}\"\n"
    ));
    call(&daemon);
    wait_until("it talks", || told.load(Ordering::Relaxed) > 8);
    let took: Vec<_> = (0..9).map(|_| timed(|| daemon.get("/health")).1).collect();
    // Where the event loop looks at everything in one turn, one of them waits for the end of the request.
    assert!(took.iter().all(|took| took.within(AT_ONCE)), "{took:?}");
}

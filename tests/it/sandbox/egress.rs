//! The way out: to what is listed, by its name, and to nothing else. The daemon has a network of its
//! own, in which addresses of the Internet are its loopback's, and an `/etc/hosts` of its own, which is
//! what names stand for.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use serde_json::json;

use super::{assert_clean, is_there, modes, wait_for_test};
use crate::support::grpc::{Grpc, json_of, request_of};
use crate::support::{Daemon, Mode, bash_call, scratch, timed};

/// Where the listed name leads, and a neighbour of it.
const HERE: &str = "11.22.33.44";
const ELSEWHERE: &str = "11.22.33.45";

/// What takes no longer than this has not waited for an answer that never comes.
const FAST: Duration = Duration::from_secs(5);

/// There so that what never comes fails its test instead of hanging it.
const LONG: Duration = Duration::from_secs(60);

/// A daemon in a network of its own, that runs bash in the sandbox with `egress` in its configuration.
fn start(mode: Mode, egress: &str, hosts: &str) -> Daemon {
    let dir = scratch();
    let names = dir.join("hosts");
    fs::write(&names, hosts).expect("written");
    let toml = format!("[tools]\nuntrusted = [\"bash\"]\n[sandbox]\n{egress}\n");
    let daemon = Daemon::start_in(dir, mode, &toml, |command| own_network(command, &names));
    let pid = daemon.pid().to_string();
    for line in [
        "link set lo up".to_owned(),
        format!("address add {HERE}/32 dev lo"),
        format!("address add {ELSEWHERE}/32 dev lo"),
    ] {
        let status = Command::new("nsenter")
            .args(["--target", &pid, "--net", "ip"])
            .args(line.split(' '))
            .status();
        assert!(status.expect("nsenter is there").success(), "ip {line}");
    }
    wait_for_test(&daemon, "passed");
    daemon
}

fn own_network(command: &mut Command, names: &Path) {
    let names = names.to_owned();
    // SAFETY: only system calls, and no other thread holds a lock of the copy's: paths are copied to
    // the stack.
    unsafe {
        command.pre_exec(move || {
            unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)?;
            let none: Option<&str> = None;
            mount(none, "/", none, MsFlags::MS_PRIVATE | MsFlags::MS_REC, none)?;
            mount(Some(&names), "/etc/hosts", none, MsFlags::MS_BIND, none)?;
            Ok(())
        });
    }
}

/// Changes what names stand for, as a DNS server would: from one question to the next.
fn answer(daemon: &Daemon, hosts: &str) {
    fs::write(daemon.dir().join("hosts"), hosts).expect("written");
}

/// An HTTP server in the daemon's network, with the requests that it gets as they were written, up to
/// their bodies.
fn server(
    daemon: &Daemon,
    address: &str,
    reply: impl Fn(&str, &mut BufReader<TcpStream>) -> String + Send + 'static,
) -> Receiver<String> {
    let network = File::open(format!("/proc/{}/ns/net", daemon.pid())).expect("there");
    let (bound, is_bound) = channel();
    let (sender, requests) = channel();
    let address = address.to_owned();
    thread::spawn(move || {
        setns(network, CloneFlags::CLONE_NEWNET).expect("root may");
        let listener = TcpListener::bind(&address).expect(&address);
        bound.send(()).expect("awaited");
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.expect("a connection"));
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).unwrap_or(0) > 0 {}
            let answer = reply(&head, &mut stream);
            if sender.send(head).is_err() {
                return;
            }
            let _ = stream.get_mut().write_all(answer.as_bytes());
            let _ = stream.get_mut().shutdown(Shutdown::Write);
        }
    });
    is_bound.recv().expect("it listens");
    requests
}

fn says(text: &'static str) -> impl Fn(&str, &mut BufReader<TcpStream>) -> String {
    move |_, _| {
        let length = text.len();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nKeep-Alive: 5\r\n\r\n{text}")
    }
}

/// Runs a command and says what it wrote to standard output.
#[track_caller]
fn out(daemon: &Daemon, command: &str) -> String {
    let body = daemon.bash(command).json();
    let id = body["execution_id"].as_str().expect("an id");
    String::from_utf8(daemon.output(id, "stdout")).expect("text")
}

/// The status that curl is told, of a request or of the tunnel.
const STATUS: &str = "curl --silent --output /dev/null --noproxy '' --max-time 20 --write-out '%{http_code} %{http_connect}'";

#[test]
fn what_is_listed_is_reached_by_its_name_and_nothing_else() {
    for mode in modes() {
        let hosts = format!("{HERE} api.test other.test\n{ELSEWHERE} elsewhere.test\n");
        let daemon = start(mode, r#"egress = { bash = ["api.test:8080"] }"#, &hosts);
        let requests = server(&daemon, &format!("{HERE}:8080"), says("hello"));
        let neighbour = server(&daemon, &format!("{HERE}:8081"), says("not this"));
        let elsewhere = server(&daemon, &format!("{ELSEWHERE}:8080"), says("nor this"));

        let url = "http://api.test:8080/a?b=c";
        let proxied = "curl --silent -H 'Connection: x-hop' -H 'X-Hop: 1' -H 'X-End: 2'";
        assert_eq!(out(&daemon, &format!("{proxied} {url}")), "hello");
        let request = requests
            .recv_timeout(LONG)
            .expect("it was asked")
            .to_ascii_lowercase();
        assert!(request.starts_with("get /a?b=c http/1.1\r\n"), "{request}");
        assert!(request.contains("host: api.test:8080\r\n"), "{request}");
        assert!(request.contains("x-end: 2\r\n"), "{request}");
        assert!(!request.contains("x-hop"), "{request}");
        assert!(!request.contains("proxy"), "{request}");
        // Whatever the client says in `Host`.
        out(
            &daemon,
            &format!("curl --silent -H 'Host: evil.test' {url}"),
        );
        let request = requests
            .recv_timeout(LONG)
            .expect("it was asked")
            .to_ascii_lowercase();
        assert!(request.contains("host: api.test:8080\r\n"), "{request}");
        assert!(!request.contains("evil"), "{request}");
        // As the tunnel that https goes through, and by the socket itself.
        let tunnel = format!("curl --silent --proxytunnel {url}");
        assert_eq!(out(&daemon, &tunnel), "hello");
        requests.recv_timeout(LONG).expect("it was asked");

        for (what, url) in [
            ("the port beside it", "http://api.test:8081/"),
            ("the port that goes without saying", "http://api.test/"),
            ("its address", &format!("http://{HERE}:8080/")),
            ("its address as a number", "http://186065196:8080/"),
            ("its address, mapped", "http://[::ffff:11.22.33.44]:8080/"),
            ("another name of it", "http://other.test:8080/"),
            ("a name below it", "http://x.api.test:8080/"),
            ("another host", "http://elsewhere.test:8080/"),
            ("the host's loopback", "http://localhost:8080/"),
        ] {
            for how in ["", "--proxytunnel"] {
                let (told, took) = timed(|| out(&daemon, &format!("{STATUS} {how} {url}")));
                let is_refused = ["403 000", "000 403", "400 000", "000 400"];
                assert!(
                    is_refused.contains(&told.as_str()),
                    "{mode:?} {what} {how}: {told}"
                );
                assert!(took.within(FAST), "{what}: {took:?}");
            }
        }
        // Nor past the proxy.
        for url in [&format!("http://{HERE}:8080/"), "http://api.test:8080/"] {
            let past = format!("curl --silent --noproxy '*' --max-time 20 {url}; echo $?");
            let (told, took) = timed(|| out(&daemon, &past));
            assert!(["6\n", "7\n"].contains(&told.as_str()), "{url}: {told}");
            assert!(took.within(FAST), "{url}: {took:?}");
        }
        assert!(neighbour.try_recv().is_err() && elsewhere.try_recv().is_err());
        assert!(requests.try_recv().is_err());
        assert_clean(&daemon, "after all of it");
    }
}

#[test]
fn a_redirect_leads_nowhere_else() {
    if !is_there() {
        return;
    }
    let hosts = format!("{HERE} api.test\n{ELSEWHERE} elsewhere.test\n");
    let egress = r#"egress = { bash = ["api.test:8080"] }"#;
    let daemon = start(Mode::Group, egress, &hosts);
    let _requests = server(&daemon, &format!("{HERE}:8080"), |head, _| {
        let to = head.split(' ').nth(1).expect("a path")[1..].to_owned();
        match to.as_str() {
            "there" => says("arrived")(head, &mut BufReader::new(unconnected())),
            to => format!(
                "HTTP/1.1 302 Found\r\nLocation: http://{to}/there\r\nContent-Length: 0\r\n\r\n"
            ),
        }
    });
    let elsewhere = server(&daemon, &format!("{ELSEWHERE}:8080"), says("not this"));
    let follow = |to: &str| {
        out(
            &daemon,
            &format!("curl --silent --location http://api.test:8080/{to}"),
        )
    };
    assert_eq!(follow("api.test:8080"), "arrived");
    for to in ["elsewhere.test:8080", &format!("{ELSEWHERE}:8080")] {
        let told = follow(to);
        assert!(told.contains("is not on the list"), "{told}");
    }
    assert!(elsewhere.try_recv().is_err());
}

/// A stream for a reply that does not look at it.
fn unconnected() -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    TcpStream::connect(listener.local_addr().expect("bound")).expect("connected")
}

#[test]
fn a_name_is_looked_up_each_time_and_never_leads_inward() {
    if !is_there() {
        return;
    }
    let egress = "egress = { bash = [\"api.test:8080\"] }\nprivate_networks = [\"10.9.0.0/16\"]";
    let daemon = start(Mode::Group, egress, &format!("{HERE} api.test\n"));
    let _here = server(&daemon, &format!("{HERE}:8080"), says("here"));
    let _there = server(&daemon, &format!("{ELSEWHERE}:8080"), says("there"));
    let inward = server(&daemon, "127.0.0.1:8080", says("not this"));
    let get = "curl --silent --max-time 20 http://api.test:8080/";
    assert_eq!(out(&daemon, get), "here");
    answer(&daemon, &format!("{ELSEWHERE} api.test\n"));
    assert_eq!(out(&daemon, get), "there");
    for address in ["127.0.0.1", "::1", "169.254.169.254", "10.1.2.3", "0.0.0.0"] {
        answer(&daemon, &format!("{address} api.test\n"));
        for how in ["", "--proxytunnel"] {
            let (told, took) =
                timed(|| out(&daemon, &format!("{STATUS} {how} http://api.test:8080/")));
            assert!(
                ["403 000", "000 403"].contains(&told.as_str()),
                "{address}: {told}"
            );
            assert!(took.within(FAST), "{address}: {took:?}");
        }
    }
    let told = out(&daemon, get);
    assert!(
        told.contains("0.0.0.0, which is no public address"),
        "{told}"
    );
    // Of several answers those count that may.
    answer(&daemon, &format!("127.0.0.1 api.test\n{HERE} api.test\n"));
    assert_eq!(out(&daemon, get), "here");
    assert!(inward.try_recv().is_err());
    // What is allowed and not there is another thing, and so is a name that nobody knows.
    answer(&daemon, "10.9.0.1 api.test\n");
    let told = out(&daemon, get);
    assert!(told.contains("cannot connect to api.test:8080"), "{told}");
    answer(&daemon, "");
    let told = out(&daemon, get);
    assert!(told.contains("cannot look up api.test"), "{told}");
}

#[test]
fn the_answer_and_the_record_say_where_it_went() {
    if !is_there() {
        return;
    }
    let egress = "egress = { bash = [\"api.test:8080\", \"api.test:1\"] }";
    let daemon = start(Mode::Group, egress, &format!("{HERE} api.test\n"));
    let _requests = server(&daemon, &format!("{HERE}:8080"), says("hello"));
    let ask = "curl --silent http://api.test:8080/ http://evil.test/ http://api.test:8080/ http://api.test:1/";
    let body = daemon.bash(ask).json();
    let expected = json!([
        {"to": "api.test:8080", "result": "connected", "count": 2},
        {"to": "evil.test:80", "result": "refused", "count": 1},
        {"to": "api.test:1", "result": "failed", "count": 1},
    ]);
    assert_eq!(body["sandbox"]["connections"], expected, "{body}");
    let id = body["execution_id"].as_str().expect("an id");
    let record = daemon.get(&format!("/executions/{id}")).json();
    let recorded = &record["result"]["sandbox"]["connections"];
    assert_eq!(recorded, &expected, "{record}");
    let request = request_of(&bash_call(ask, &json!({})));
    let answer = Grpc::open(daemon.socket()).execute(request);
    let told = json_of(&answer.expect("an answer"));
    assert_eq!(told["sandbox"]["connections"], expected, "{told}");
    daemon.wait_until("it is logged", || {
        let log = daemon.log();
        let line = log.lines().find(|line| line.contains("evil.test:80"));
        line.is_some_and(|line| line.contains(id) && line.contains("refused"))
    });
    // Who has no list has no way out, and is not told of one.
    let policy = "curl --silent --proxy http://127.0.0.1:3128 http://api.test:8080/; echo $?";
    let other = start(
        Mode::Group,
        "egress = { checksum = [\"api.test:8080\"] }",
        "",
    );
    assert_eq!(
        out(&other, &format!("env | grep -i proxy; {policy}")),
        "7\n"
    );
    assert_eq!(
        other.bash("true").json()["sandbox"]["connections"],
        json!([])
    );
}

#[test]
fn what_is_carried_is_carried_whole_both_ways() {
    if !is_there() {
        return;
    }
    const BYTES: usize = 8 << 20;
    let egress = r#"egress = { bash = ["api.test:8080"] }"#;
    let daemon = start(Mode::Group, egress, &format!("{HERE} api.test\n"));
    let requests = server(&daemon, &format!("{HERE}:8080"), |head, body| {
        let mut sum = 0;
        if head.to_ascii_lowercase().contains("chunked") {
            let mut length = String::new();
            while length.trim() != "0" {
                length.clear();
                body.read_line(&mut length).expect("a length");
                let size = u64::from_str_radix(length.trim(), 16).expect("hexadecimal");
                let copied = std::io::copy(&mut body.by_ref().take(size + 2), &mut std::io::sink());
                sum += copied.expect("read") - 2;
            }
        } else {
            let length = head.to_ascii_lowercase();
            let (_, length) = length.split_once("content-length: ").expect("a length");
            let length: u64 = length
                .lines()
                .next()
                .expect("a line")
                .parse()
                .expect("a number");
            sum = std::io::copy(&mut body.take(length), &mut std::io::sink()).expect("read");
        }
        format!(
            "HTTP/1.1 200 OK\r\nX-Sum: {sum}\r\n\r\n{}",
            "y".repeat(BYTES)
        )
    });
    for how in ["", "-H 'Transfer-Encoding: chunked'", "--proxytunnel"] {
        let send = format!(
            "head -c {BYTES} /dev/zero | curl --silent --max-time 60 {how} --dump-header /tmp/h \
             --data-binary @- http://api.test:8080/ | wc -c; grep -ai x-sum /tmp/h"
        );
        let told = out(&daemon, &send).to_ascii_lowercase();
        requests.recv_timeout(LONG).expect("it was asked");
        let expected = format!("{BYTES}\nx-sum: {BYTES}\r\n");
        assert_eq!(told, expected, "{how}");
    }
}

#[test]
fn what_is_open_at_the_end_is_closed() {
    for mode in modes() {
        let egress = r#"egress = { bash = ["api.test:8080"] }"#;
        let daemon = start(mode, egress, &format!("{HERE} api.test\n"));
        let requests = server(&daemon, &format!("{HERE}:8080"), |_, stream| {
            let half = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf";
            let _ = stream.get_mut().write_all(half);
            // The rest never comes: this is over when the other side closes.
            let _ = stream.read_to_end(&mut Vec::new());
            String::new()
        });
        let call = bash_call(
            "curl --silent --proxytunnel http://api.test:8080/ & curl --silent http://api.test:8080/; wait",
            &json!({"timeout_secs": 3}),
        );
        let reply = daemon.post(&call);
        assert_eq!(reply.status, 504, "{:?}", reply.json());
        for _ in 0..2 {
            requests
                .recv_timeout(LONG)
                .expect("it was asked, and is closed");
        }
        assert_clean(&daemon, "after the time limit");
    }
}

/// The runtime's permission to connect to sockets is for all that are there.
#[test]
fn no_other_socket_of_the_host_is_reached() {
    if !is_there() {
        return;
    }
    let path = format!("/opt/shelly-it-{}.sock", std::process::id());
    let _ = fs::remove_file(&path);
    let dir = scratch();
    let names = dir.join("hosts");
    fs::write(&names, format!("{HERE} api.test\n")).expect("written");
    let toml =
        "[tools]\nuntrusted = [\"bash\"]\n[sandbox]\negress = { bash = [\"api.test:8080\"] }";
    let daemon = Daemon::start_in(dir, Mode::Group, toml, |_| {});
    wait_for_test(&daemon, "passed");
    let listener = UnixListener::bind(&path).expect("bound");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("ours");
    listener.set_nonblocking(true).expect("a socket");
    let connect = format!(
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{path}\")' 2>&1 | tail -n 1"
    );
    let told = out(&daemon, &connect);
    let tried = listener.accept().map(drop);
    fs::remove_file(&path).expect("ours");
    assert!(told.contains("Error"), "{told}");
    assert!(tried.is_err(), "{told}");
    assert_clean(&daemon, "after another socket");
}

/// A host that does not read holds up who sends, which then does not notice that nobody is there.
#[test]
fn what_is_held_up_at_the_end_is_let_go() {
    for mode in modes() {
        let egress = r#"egress = { bash = ["api.test:8080"] }"#;
        let daemon = start(mode, egress, &format!("{HERE} api.test\n"));
        let (sender, seen) = channel();
        let _requests = server(&daemon, &format!("{HERE}:8080"), move |head, stream| {
            let another = stream.get_ref().try_clone().expect("another");
            let _ = sender.send((head.to_owned(), another));
            // It neither reads nor answers, as long as the test lasts.
            loop {
                thread::park();
            }
        });
        let command =
            "head -c 100000000 /dev/zero | curl --silent --data-binary @- http://api.test:8080/";
        let id = daemon.begin(command, &json!({}));
        let (_, stream) = seen.recv_timeout(LONG).expect("it was asked");
        let path = format!("/executions/{id}");
        let record = daemon.connect().request("DELETE", &path, &[], b"").json();
        assert_eq!(record["status"], "cancelled", "{record}");
        stream.set_read_timeout(Some(LONG)).expect("a socket");
        // It ends, with what was on its way or with a reset.
        let _ = (&stream).read_to_end(&mut Vec::new()).map_err(|error| {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        });
        assert_clean(&daemon, "after being held up");
    }
}

#[test]
fn what_is_not_http_harms_nobody() {
    if !is_there() {
        return;
    }
    let egress = r#"egress = { bash = ["api.test:8080"] }"#;
    let daemon = start(Mode::Group, egress, &format!("{HERE} api.test\n"));
    let _requests = server(&daemon, &format!("{HERE}:8080"), says("hello"));
    let garbage = r#"
import socket
def ask(text):
    s = socket.create_connection(("127.0.0.1", 3128)); s.sendall(text); s.shutdown(socket.SHUT_WR)
    answer = s.makefile("rb").read(); return answer.split(b"\r\n")[0].decode()
for text in [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"GET / HTTP/1.1\r\nHost: api.test:8080\r\n\r\n",
             b"GET https://api.test:8080/ HTTP/1.1\r\nHost: api.test:8080\r\n\r\n",
             b"CONNECT / HTTP/1.1\r\n\r\n", b"CONNECT api.test HTTP/1.1\r\nHost: api.test\r\n\r\n",
             b"CONNECT a@api.test:8080 HTTP/1.1\r\nHost: api.test:8080\r\n\r\n",
             b"GET http://a:b@api.test:8081/ HTTP/1.1\r\nHost: api.test\r\n\r\n"]:
    print(ask(text)[:12])
# As many as there may be at once, and one more, which waits.
many = [socket.create_connection(("127.0.0.1", 3128)) for _ in range(80)]
for s in many[:70]: s.close()
print(ask(b"GET http://api.test:8080/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
"#;
    let call = json!({"name": "bash", "input": {"command": "python3 -u -"}, "stdin": garbage});
    let reply = daemon.post(&call);
    assert_eq!(
        reply.stdout().lines().collect::<Vec<_>>(),
        [
            "HTTP/1.1 400",
            "HTTP/1.1 400",
            "HTTP/1.1 400",
            "HTTP/1.1 400",
            "HTTP/1.1 400",
            "HTTP/1.1 400",
            "HTTP/1.1 403",
            "HTTP/1.1 200 OK"
        ],
        "{}",
        reply.content()
    );
    assert_clean(&daemon, "after garbage");
}

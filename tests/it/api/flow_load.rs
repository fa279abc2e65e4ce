//! 256 clients at once: none is forgotten, and a tool that is blocked is no other tool's business.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Connection, Daemon, Fifo, Gate, Mode, bash_call, wait_to_equal, wait_until};

const CLIENTS: usize = 256;

/// How many of them call the tool that is blocked, while there is one.
const BLOCKED: usize = 192;

/// How many calls the others make in a round, each.
const CALLS: usize = 12;

const FEWEST_ROUNDS: usize = 3;

const ROUNDS: usize = 40;

/// Clients of who has few.
const FEW: usize = 16;

fn post(connection: &mut Connection, body: &[u8]) -> u16 {
    connection.request("POST", "/execute", &[], body).status
}

/// Everybody of whoever calls comes to their turn as often as whoever calls with a hundred clients.
#[test]
fn callers_get_the_same_however_many_clients_they_have() {
    let daemon = Daemon::start_with(
        Mode::Group,
        "[flow.tools.bash]\nmax_running = 4\n[flow]\nqueue_max = 1000\n",
    );
    let (over, all) = (AtomicBool::new(false), AtomicUsize::new(0));
    let until_over = |tenant: &str| {
        let body = bash_call("true", &json!({"tenant_id": tenant})).to_string();
        let mut connection = daemon.connect();
        let mut count = 0;
        while !over.load(Ordering::Relaxed) {
            assert_eq!(post(&mut connection, body.as_bytes()), 200);
            count += 1;
            all.fetch_add(1, Ordering::Relaxed);
        }
        count
    };
    // A few clients each of three tenants, and all the others of one. So many that one of them always waits for
    // its turn, for only who waits comes to it: on a busy machine it takes a client longer to call again than three
    // calls take.
    let few = ["few-1", "few-2", "few-3"];
    let many = CLIENTS - FEW * few.len();
    let (of_few, of_many) = thread::scope(|scope| {
        let spawn = |tenant: &'static str, clients: usize| {
            let until_over = &until_over;
            (0..clients)
                .map(|_| scope.spawn(move || until_over(tenant)))
                .collect::<Vec<_>>()
        };
        let few = few.map(|tenant| spawn(tenant, FEW));
        let many = spawn("many", many);
        // As many as it takes for shares to show.
        wait_until("a thousand calls are made", || {
            all.load(Ordering::Relaxed) >= 1000
        });
        over.store(true, Ordering::Relaxed);
        let total = |threads: Vec<thread::ScopedJoinHandle<'_, usize>>| -> usize {
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .sum()
        };
        (few.map(total), total(many))
    });
    // Those that still waited at the end are of the many.
    let of_many = of_many.saturating_sub(many).max(1);
    let shares = format!("{of_few:?} of the few, {of_many} of the many");
    for count in of_few {
        // Between two calls a client does not wait, and a turn may pass.
        assert!(count * 2 >= of_many, "{shares}");
    }
}

/// The time that a hundredth of the calls is beyond, of clients that call a tool which nothing is
/// wrong with.
fn p99(daemon: &Daemon) -> Duration {
    let body = json!({"name": "check_condition", "input": {"condition": "1 == 1"}}).to_string();
    let mut times: Vec<Duration> = thread::scope(|scope| {
        let client = || {
            let mut connection = daemon.connect();
            let timed = (0..CALLS).map(|_| {
                let start = Instant::now();
                assert_eq!(post(&mut connection, body.as_bytes()), 200);
                start.elapsed()
            });
            timed.collect::<Vec<_>>()
        };
        let threads: Vec<_> = (BLOCKED..CLIENTS).map(|_| scope.spawn(client)).collect();
        let times = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        times.flatten().collect()
    });
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

fn queued(daemon: &Daemon) -> Value {
    let listed = daemon.get("/executions?status=queued&limit=1000").json();
    let listed = listed["executions"].as_array().expect("a list");
    json!(listed.len())
}

#[test]
fn a_tool_that_is_blocked_slows_no_other() {
    let daemon = Daemon::start_with(
        Mode::Group,
        "[flow.tools.bash]\nmax_running = 1\n[flow]\nqueue_max = 1000\nmax_running = 200\n",
    );
    let (mut free, mut beside) = (Vec::new(), Vec::new());
    p99(&daemon);
    // Whatever else the machine does only adds to a round. The best rounds come near to what the
    // daemon takes by itself, and the more there are the nearer: if that were a fifth more beside a
    // blocked tool, no number of rounds would show otherwise.
    for round in 0..ROUNDS {
        free.push(p99(&daemon));
        let gate = block(&daemon, round);
        let body = bash_call("true", &json!({})).to_string();
        let mut waiting: Vec<Connection> = (0..BLOCKED)
            .map(|_| {
                let mut connection = daemon.connect();
                connection.send("POST", "/execute", &[], body.as_bytes());
                connection
            })
            .collect();
        wait_to_equal("those that wait", json!(BLOCKED), || queued(&daemon));
        beside.push(p99(&daemon));
        gate.say("on");
        for connection in &mut waiting {
            assert_eq!(connection.reply().status, 200);
        }
        if round >= FEWEST_ROUNDS && best(&beside) < best(&free).mul_f64(1.2) {
            return;
        }
    }
    panic!("free: {free:?}, beside a blocked tool: {beside:?}");
}

/// Has a call of the tool take its only place.
fn block(daemon: &Daemon, round: usize) -> Gate {
    let fifo = Fifo::new(daemon.dir().join(format!("blocked-{round}")));
    let script = format!("read word < {}", fifo.path().display());
    daemon.begin(&script, &json!({}));
    fifo.reached()
}

fn best(times: &[Duration]) -> Duration {
    times.iter().min().copied().unwrap_or_default()
}

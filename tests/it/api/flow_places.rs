//! Places that several daemons share, in a real Redis server: which may be gone, and so may a daemon.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::blocked;
use super::flow::{status, wait_for_status};
use super::flow_shared::problems;
use crate::support::{Daemon, Fifo, Gate, Mode, Redis, timed, wait_to_equal, wait_until};

fn sharing(redis: &Redis, flow: &str) -> Daemon {
    let backend = redis.backend();
    let toml = format!("[flow]\nbackend = \"{backend}\"\n{flow}\n");
    let daemon = Daemon::start_with(Mode::Group, &toml);
    // Until it knows its server it has all places for itself.
    let up = "shelly_flow_backend_up{backend=\"redis\"} 1";
    wait_until("it has found its server", || {
        let metrics = daemon.get("/metrics");
        String::from_utf8_lossy(&metrics.body).contains(up)
    });
    daemon
}

/// Begins a call that holds a place until the gate lets it go, and is known in the server to do so.
fn holds(daemon: &Daemon, redis: &Redis, cap: &str) -> (String, Gate) {
    let (script, fifo): (String, Fifo) = blocked(daemon, "holder");
    let id = daemon.begin(&script, &json!({}));
    let gate = fifo.reached();
    wait_until("its claim is known", || claims(redis, cap) >= 1);
    (id, gate)
}

fn claims(redis: &Redis, cap: &str) -> usize {
    redis.ask(&format!("ZRANGE shelly:places:{cap} 0 -1")).len()
}

/// Begins a call that writes a line when it runs, and waits until it is queued.
fn waits(daemon: &Daemon, line: &str, file: &Path) -> String {
    let script = format!("echo {line} >> {}", file.display());
    let id = daemon.begin(&script, &json!({}));
    wait_for_status(daemon, &id, "queued");
    id
}

#[test]
fn who_came_first_is_next_at_whichever_daemon() {
    for (flow, cap) in [
        ("tools.bash.max_running_shared = 1", "tool:bash"),
        ("max_running_shared = 1", "all"),
    ] {
        let Some(redis) = Redis::start() else { return };
        let (one, two) = (sharing(&redis, flow), sharing(&redis, flow));
        let (first, gate) = holds(&one, &redis, cap);
        let file = one.dir().join("ran");
        let second = waits(&two, "two", &file);
        wait_until("both are known", || claims(&redis, cap) == 2);
        let third = waits(&one, "one", &file);
        gate.say("on");
        assert_eq!(one.ended(&first)["status"], "success");
        wait_for_status(&two, &second, "success");
        wait_for_status(&one, &third, "success");
        let ran = std::fs::read_to_string(&file).expect("they ran");
        assert_eq!(ran, "two\none\n");
        wait_to_equal("what is claimed in the end", 0, || claims(&redis, cap));
    }
}

/// Four clients of two daemons, and a directory that only one call at a time can have.
#[test]
fn no_two_run_at_once_where_one_may() {
    let Some(redis) = Redis::start() else { return };
    let flow = "tools.bash.max_running_shared = 1\nmax_running_shared = 3";
    let daemons = [sharing(&redis, flow), sharing(&redis, flow)];
    let lock = daemons[0].dir().join("alone");
    let script = format!("mkdir {0} && sleep 0.01 && rmdir {0}", lock.display());
    std::thread::scope(|scope| {
        for daemon in daemons.iter().chain(&daemons) {
            let script = &script;
            scope.spawn(move || {
                for _ in 0..10 {
                    let reply = daemon.bash(script);
                    assert_eq!(reply.json()["exit_code"], 0, "{}", reply.content());
                }
            });
        }
    });
}

#[test]
fn the_claims_of_a_killed_daemon_lapse() {
    let Some(redis) = Redis::start() else { return };
    let flow = "tools.bash.max_running_shared = 1";
    let (mut one, two) = (sharing(&redis, flow), sharing(&redis, flow));
    let (_, _gate) = holds(&one, &redis, "tool:bash");
    let file = two.dir().join("ran");
    let second = waits(&two, "two", &file);
    one.signal(Signal::SIGKILL);
    one.wait();
    assert_eq!(status(&two, &second), "queued");
    wait_for_status(&two, &second, "success");
}

/// How often the server was asked by script.
fn asked(redis: &Redis) -> u64 {
    let stats = redis.ask("INFO commandstats");
    let line = stats
        .iter()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    let calls = line.and_then(|line| line.split(',').next()?.parse().ok());
    calls.expect("it was asked")
}

/// It still lets claims be given up, which says nothing of others.
#[test]
fn a_server_without_memory_is_waited_for_once() {
    let Some(redis) = Redis::start() else { return };
    let daemon = sharing(&redis, "tools.bash.max_running_shared = 2");
    assert_eq!(daemon.bash("true").status, 200);
    redis.ask("CONFIG SET maxmemory 1");
    let patience = Duration::from_secs(3);
    let (_, first) = timed(|| daemon.bash("true"));
    assert!(first.wall >= patience, "{first:?}");
    for _ in 0..5 {
        // What was claimed is given up, which the server does.
        let asked = asked(&redis);
        wait_until("it is asked again", || self::asked(&redis) > asked);
        let (_, next) = timed(|| daemon.bash("true"));
        assert!(next.within(patience / 2), "{next:?}");
        assert_eq!(problems(&daemon), json!(["flow_backend_unavailable"]));
    }
    redis.ask("CONFIG SET maxmemory 0");
    assert_eq!(daemon.bash("true").status, 200);
    wait_to_equal("the problems", json!([]), || problems(&daemon));
}

#[test]
fn a_server_that_is_gone_holds_nobody_up_and_is_told_what_runs() {
    let Some(mut redis) = Redis::start() else {
        return;
    };
    let flow = "tools.bash.max_running_shared = 1";
    let (one, two) = (sharing(&redis, flow), sharing(&redis, flow));
    let (first, gate) = holds(&one, &redis, "tool:bash");
    let file = one.dir().join("ran");
    let other = waits(&two, "two", &file);
    let own = waits(&one, "one", &file);
    redis.kill();
    // Each keeps to the number by itself.
    wait_for_status(&two, &other, "success");
    assert_eq!(status(&one, &own), "queued");
    redis.restart();
    wait_until("what runs is known to the new one", || {
        claims(&redis, "tool:bash") >= 1
    });
    wait_to_equal("the problems", json!([]), || problems(&two));
    // It counts, although nobody asked for it.
    let late = waits(&two, "late", &file);
    wait_until("it is known", || claims(&redis, "tool:bash") >= 2);
    assert_eq!(status(&two, &late), "queued");
    gate.say("on");
    for (daemon, id) in [(&one, &first), (&one, &own), (&two, &late)] {
        wait_for_status(daemon, id, "success");
    }
}

#[test]
fn what_runs_already_counts_when_places_come_to_be_shared() {
    let Some(redis) = Redis::start() else { return };
    let backend = redis.backend();
    let (one, two) = (
        sharing(&redis, "tools.bash.max_running = 9"),
        sharing(&redis, "tools.bash.max_running_shared = 1"),
    );
    let (script, fifo) = blocked(&one, "holder");
    let first = one.begin(&script, &json!({}));
    let gate = fifo.reached();
    assert_eq!(two.bash("true").status, 200);
    wait_until("nobody has a claim", || claims(&redis, "tool:bash") == 0);
    let config = format!(
        "[flow]\nbackend = \"{backend}\"\ntools.bash.max_running_shared = 1\n[cgroup]\nmode = \"group\"\n"
    );
    std::fs::write(one.dir().join("executor.toml"), config).expect("written");
    wait_until("what runs is known", || claims(&redis, "tool:bash") == 1);
    let file = two.dir().join("ran");
    let second = waits(&two, "two", &file);
    gate.say("on");
    for (daemon, id) in [(&one, &first), (&two, &second)] {
        wait_for_status(daemon, id, "success");
    }
    let health: Value = two.get("/health").json();
    assert_eq!(health["problems"], json!([]), "{health}");
}

/// It is asked again; what it forgot is brought along, and what it does not do is done without.
#[test]
fn a_server_that_refuses_is_done_without_and_one_that_forgot_its_scripts_is_not() {
    let Some(redis) = Redis::start() else { return };
    let flow = "tools.bash.max_running_shared = 1";
    let (one, two) = (sharing(&redis, flow), sharing(&redis, flow));
    let (first, gate) = holds(&one, &redis, "tool:bash");
    let file = one.dir().join("ran");
    let second = waits(&two, "two", &file);
    wait_until("both are known", || claims(&redis, "tool:bash") == 2);
    assert_eq!(redis.ask("SCRIPT FLUSH"), ["+OK"]);
    let third = waits(&one, "one", &file);
    gate.say("on");
    for (daemon, id) in [(&one, &first), (&two, &second), (&one, &third)] {
        wait_for_status(daemon, id, "success");
    }
    let ran = std::fs::read_to_string(&file).expect("they ran");
    assert_eq!(ran, "two\none\n");

    wait_to_equal("what is claimed", 0, || claims(&redis, "tool:bash"));
    assert_eq!(redis.ask("SET shelly:places:tool:bash nonsense"), ["+OK"]);
    assert_eq!(one.bash("true").status, 200);
    wait_to_equal("the problems", json!(["flow_backend_unavailable"]), || {
        problems(&one)
    });
    for _ in 0..20 {
        assert_eq!(one.bash("true").status, 200);
    }
    wait_to_equal("the warnings", 1, || {
        let log = one.log();
        let warnings = log
            .lines()
            .filter(|line| line.contains("by itself meanwhile"));
        warnings.filter(|line| line.contains("WRONGTYPE")).count()
    });
    redis.ask("DEL shelly:places:tool:bash");
    wait_until("it is asked again", || {
        one.bash("true").status == 200 && problems(&one) == json!([])
    });
}

#[test]
fn no_call_is_one_too_many_while_there_are_places() {
    let Some(redis) = Redis::start() else { return };
    let daemon = sharing(&redis, "queue_max = 1\ntools.bash.max_running_shared = 10");
    let fifo = Fifo::new(daemon.dir().join("all"));
    let script = format!("read word < {}", fifo.path().display());
    let all: Vec<String> = (0..11).map(|_| daemon.begin(&script, &json!({}))).collect();
    let running = || {
        all.iter()
            .filter(|id| status(&daemon, id) == "running")
            .count()
    };
    wait_to_equal("how many run", 10, running);
    super::flow::refused(&daemon.bash("true"), 429, "queue_full");
    for id in &all {
        daemon
            .connect()
            .request("DELETE", &format!("/executions/{id}"), &[], b"");
    }
}

//! Rates that several daemons share, in a real Redis server: which may be gone, too.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::flow::refused;
use crate::support::{Daemon, Mode, Redis, wait_for, wait_until};

fn sharing(redis: &Redis, rate: &str) -> Daemon {
    let backend = redis.backend();
    let toml = format!("[flow]\nbackend = \"{backend}\"\ntenant_rate = {rate}\n");
    let daemon = Daemon::start_with(Mode::Group, &toml);
    // It has come to know its server when what it lets through is known there.
    wait_until("it asks the server", || redis.knows(&daemon));
    daemon
}

fn once(daemon: &Daemon, tenant: &str) -> u16 {
    let reply = daemon.bash_with("true", &json!({"tenant_id": tenant}));
    if reply.status != 200 {
        refused(&reply, 429, "rate_limited");
    }
    reply.status
}

pub(super) fn problems(daemon: &Daemon) -> Value {
    let health = daemon.get("/health").json();
    let all = health["problems"].as_array().expect("a list").clone();
    let codes = all.iter().map(|problem| problem["code"].clone());
    codes.collect()
}

/// How many of so many calls at both daemons were let through.
fn let_through(daemons: &[&Daemon; 2], tenant: &str, calls: usize) -> usize {
    let counts = std::thread::scope(|scope| {
        let threads = daemons.map(|daemon| {
            scope.spawn(move || (0..calls).filter(|_| once(daemon, tenant) == 200).count())
        });
        threads.map(|thread| thread.join().expect("no panic"))
    });
    counts.iter().sum()
}

const RATE: &str = "{ calls = 1, per_secs = 10000, burst = 7 }";

#[test]
fn two_daemons_keep_to_one_rate() {
    let Some(redis) = Redis::start() else { return };
    let (one, two) = (sharing(&redis, RATE), sharing(&redis, RATE));
    // Both at once, and neither lets through what the other has.
    assert_eq!(let_through(&[&one, &two], "acme", 10), 7);
    let reply = two.bash_with("true", &json!({"tenant_id": "acme"}));
    let after = refused(&reply, 429, "rate_limited");
    assert!((9900..=10_000).contains(&after), "{after}");
    assert_eq!(once(&one, "other"), 200);
    assert_eq!(problems(&one), json!([]));
}

#[test]
fn a_daemon_whose_server_is_gone_keeps_to_the_rates_by_itself() {
    let Some(mut redis) = Redis::start() else {
        return;
    };
    let (one, two) = (sharing(&redis, RATE), sharing(&redis, RATE));
    assert_eq!(once(&one, "acme"), 200);
    redis.kill();
    // What it has let through so far counts, and what others have does not.
    let rest = (0..10).filter(|_| once(&one, "acme") == 200).count();
    assert_eq!(rest, 6);
    assert_eq!((0..10).filter(|_| once(&two, "acme") == 200).count(), 7);
    for daemon in [&one, &two] {
        wait_until("health says so", || {
            problems(daemon) == json!(["flow_backend_unavailable"])
        });
    }
    redis.restart();
    for daemon in [&one, &two] {
        wait_until("health says so", || problems(daemon) == json!([]));
    }
    assert_eq!(let_through(&[&one, &two], "after", 10), 7);
}

/// Nobody waits for a server that is there and says nothing.
#[test]
fn a_server_that_hangs_is_as_good_as_gone() {
    let Some(redis) = Redis::start() else { return };
    let daemon = sharing(&redis, RATE);
    redis.signal(Signal::SIGSTOP);
    let through = (0..10).filter(|_| once(&daemon, "acme") == 200).count();
    assert_eq!(through, 7);
    wait_until("health says so", || {
        problems(&daemon) == json!(["flow_backend_unavailable"])
    });
    redis.signal(Signal::SIGCONT);
    wait_until("health says so", || problems(&daemon) == json!([]));
}

#[test]
fn a_daemon_starts_without_its_server_and_finds_it_later() {
    let Some(mut redis) = Redis::start() else {
        return;
    };
    redis.kill();
    let backend = redis.backend();
    let toml = format!("[flow]\nbackend = \"{backend}\"\ntools.bash.rate = {RATE}\n");
    let daemon = Daemon::start_with(Mode::Group, &toml);
    wait_for("health says so", || {
        (problems(&daemon) == json!(["flow_backend_unavailable"])).then_some(())
    });
    assert_eq!((0..10).filter(|_| once(&daemon, "x") == 200).count(), 7);
    redis.restart();
    wait_until("health says so", || problems(&daemon) == json!([]));
    assert_eq!((0..10).filter(|_| once(&daemon, "x") == 200).count(), 7);
}

#[test]
fn a_server_may_want_a_password() {
    let Some(redis) = Redis::start_with_password("p%w") else {
        return;
    };
    let start = |password: &str| {
        let backend = redis.backend_with(password);
        let toml = format!("[flow]\nbackend = \"{backend}\"\ntenant_rate = {RATE}\n");
        Daemon::start_with(Mode::Group, &toml)
    };
    let wrong = start("wr0ng");
    let detail = wait_for("health says why", || {
        let health = wrong.get("/health").json();
        let detail = health["problems"][0]["detail"].as_str();
        detail.map(str::to_owned)
    });
    assert!(detail.contains("WRONGPASS"), "{detail}");
    assert!(!detail.contains("wr0ng") && !wrong.log().contains("wr0ng"));
    let right = start("p%25w");
    wait_until("it asks the server", || redis.knows(&right));
    assert_eq!(problems(&right), json!([]));
}

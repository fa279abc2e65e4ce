//! A client that nobody here wrote: Python's grpcio, which makes its code of the contract by itself.

use std::process::Command;

use serde_json::{Value, json};

use super::contract::EXCHANGE;
use crate::support::{Daemon, python_with, skip, wait_to_equal};

/// What the client imports.
const MODULES: &str = "grpc, grpc_tools, grpc_health.v1, grpc_reflection, grpc_status";

#[test]
fn grpcio_says_and_hears_what_the_contract_has() {
    let Some(python) = python_with(MODULES) else {
        skip(
            "gRPC with a client from elsewhere, for Python has no grpcio (tests/run installs it where it can)",
        );
        return;
    };
    let daemon = Daemon::start();
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/grpc/client.py");
    let contract = concat!(env!("CARGO_MANIFEST_DIR"), "/src/grpc/proto");
    let mut client = Command::new(python);
    client
        .arg(here)
        .arg(daemon.socket())
        .args([contract, EXCHANGE]);
    let output = client.output().expect("Python is there");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    // Nothing was left out silently.
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.lines().last(), Some("all of it"), "{said}");
    // What its calls came to that it gave up on.
    for (word, status) in [("deadline", "timeout"), ("cancelled", "cancelled")] {
        wait_to_equal(word, json!(status), || {
            let found = daemon.get("/executions?limit=50").json();
            let mut found = found["executions"].as_array().expect("a list").iter();
            let is_it = |record: &&Value| record["summary"].to_string().contains(word);
            found.find(is_it).expect("it was made")["status"].clone()
        });
    }
}

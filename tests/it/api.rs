//! The API as CONTRACT 3 gives it, over the real socket. Every JSON answer that is read here is
//! also held against the OpenAPI document (see `support::openapi`).

mod answers;
mod document;
mod events;
mod hostile;
mod limits;
mod output;
mod problems;
mod reading;
mod records;

use serde_json::{Value, json};

use crate::support::Daemon;

/// A call of the bash tool.
fn call(command: &str) -> Value {
    json!({"name": "bash", "input": {"command": command}})
}

/// The same with other members.
fn call_with(command: &str, others: Value) -> Value {
    let mut call = call(command);
    let others = others.as_object().expect("members").clone();
    call.as_object_mut().expect("an object").extend(others);
    call
}

/// Begins a call with `Prefer: respond-async` and gives its id.
#[track_caller]
fn begin(daemon: &Daemon, call: &Value) -> String {
    let headers = [("Prefer", "respond-async")];
    let body = call.to_string();
    let reply = daemon
        .connect()
        .request("POST", "/execute", &headers, body.as_bytes());
    assert_eq!(reply.status, 202, "{reply:?}");
    reply.json()["execution_id"]
        .as_str()
        .expect("an id")
        .to_owned()
}

/// The record of an execution, once it has ended.
#[track_caller]
fn ended(daemon: &Daemon, id: &str) -> Value {
    let reply = daemon.get(&format!("/executions/{id}?wait=60"));
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

/// A script that says `begun`, and ends when something is written to the FIFO of that name in the
/// daemon's directory.
fn blocked(daemon: &Daemon, fifo: &str) -> (String, std::path::PathBuf) {
    let path = daemon.dir().join(fifo);
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    (
        format!("echo begun; read word < {}; echo $word", path.display()),
        path,
    )
}

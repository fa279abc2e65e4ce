//! gRPC on the daemon's socket: the same as HTTP says, in the words of the contract.

mod access;
mod bounds;
mod cancel;
mod contract;
mod health;
mod python;
mod streams;
mod table;

use serde_json::{Value, json};
use shelly_executor::grpc::proto::ExecuteToolRequest;

use crate::support::grpc::{Grpc, request_of};
use crate::support::{Daemon, bash_call};

fn connect(daemon: &Daemon) -> Grpc {
    Grpc::open(daemon.socket())
}

/// A call of the bash tool with more members than its input, as a message.
fn bash(command: &str, members: &Value) -> ExecuteToolRequest {
    request_of(&bash_call(command, members))
}

/// A call of the bash tool and nothing else.
fn bash_only(command: &str) -> ExecuteToolRequest {
    bash(command, &json!({}))
}

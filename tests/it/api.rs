//! The API as CONTRACT 3 gives it, over the real socket. Every JSON answer that is read here is
//! also held against the OpenAPI document (see `support::openapi`).

pub mod access;
mod answers;
mod approvals;
mod approvals_lasting;
mod approvals_meanwhile;
mod audit;
mod clearing;
mod context;
mod correlation;
mod document;
mod early;
mod events;
mod execute_command;
mod files;
mod files_permissions;
mod files_samples;
mod flow;
mod flow_breaker;
mod flow_load;
mod flow_places;
mod flow_shared;
mod following;
mod full_disk;
mod history;
mod history_crashes;
mod hooks;
mod hooks_change;
mod hostile;
mod keys;
mod limits;
mod masking;
mod metrics;
mod output;
mod permissions;
mod problems;
mod reading;
mod records;
mod remembered;
mod schemas;
mod skills;
mod skills_calls;
mod skills_changes;
mod skills_hooks;
mod skills_samples;
mod skills_steps;
mod stages;
mod tracing;

use serde_json::{Value, json};

use crate::support::{Daemon, Fifo, bash_call};

/// A call of the bash tool and nothing else.
fn call(command: &str) -> Value {
    bash_call(command, &json!({}))
}

/// Begins a command that nobody waits for.
#[track_caller]
fn begin(daemon: &Daemon, command: &str) -> String {
    daemon.begin(command, &json!({}))
}

/// A script that says `begun`, waits, and says what is then written to the pipe.
fn blocked(daemon: &Daemon, name: &str) -> (String, Fifo) {
    let fifo = Fifo::new(daemon.dir().join(name));
    let script = format!(
        "echo begun; read word < {}; echo $word",
        fifo.path().display()
    );
    (script, fifo)
}

/// Lets a blocked script go on.
#[track_caller]
fn release(fifo: &Fifo, word: &str) {
    fifo.reached().say(word);
}

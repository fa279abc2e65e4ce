use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::{Call, ExecutionId, Status};

/// The way back into the pipeline, for tools that call other tools.
pub(crate) trait Calls: Send + Sync {
    /// Makes a call on behalf of the execution that this belongs to, and waits for its end. It is
    /// judged, recorded and limited like any other, and does not outlive its parent.
    fn call(&self, call: Call) -> BoxFuture<'_, Called>;

    /// Whether no rule refuses or asks about reading a file, by its real path.
    fn may_read(&self, file: &Path) -> bool;

    /// Lets processes of the execution make calls of their own, until this is dropped.
    fn admit(&self) -> Admission;

    /// Takes calls of the execution's processes on a socket of their own, and nothing else, until what is
    /// returned is dropped.
    ///
    /// # Errors
    /// When nobody is there to answer on it.
    fn open_door(&self, listener: UnixListener) -> io::Result<Door>;
}

/// A socket of one execution's own. Dropping it closes it.
pub(crate) type Door = Box<dyn Send + Sync>;

/// Who answers on the sockets that executions have of their own.
pub trait Doorkeeper: Send + Sync {
    /// Takes calls of one execution's processes on a socket that does not block, and nothing else, until
    /// what is returned is dropped. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When the socket cannot be waited for.
    fn open(&self, listener: UnixListener) -> io::Result<Box<dyn Send + Sync>>;
}

/// What came of a call that a tool made.
#[derive(Clone, Debug)]
pub(crate) struct Called {
    /// The execution it became; `None` of one that could not even be recorded.
    pub id: Option<ExecutionId>,
    /// How it ended.
    pub status: Status,
    /// The text for the model.
    pub content: Arc<String>,
    /// Whether it is to be told of a failure.
    pub is_error: bool,
    /// Whether the daemon's stop ended it.
    pub is_shut_down: bool,
    /// The structured output, of a tool that has one.
    pub output: Option<Value>,
    /// What a process wrote and how it ended, where one ran.
    pub process: Option<Process>,
}

/// What came of a process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    /// Its exit code; the negative number of the signal that ended it.
    pub return_code: Option<i32>,
    /// The first `max_output_bytes` of its standard output; `None` when it was not kept.
    pub stdout: Option<String>,
    /// Of its standard error, likewise.
    pub stderr: Option<String>,
}

/// That processes of an execution may make calls, until it is dropped.
pub(crate) struct Admission {
    /// What they have to show.
    pub token: String,
    /// Ends it.
    pub _end: Box<dyn Send + Sync>,
}

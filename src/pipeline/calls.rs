//! Calls that tools make: from inside the daemon, or by a process of theirs that shows a token.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::json;

use super::beside::{LONG, beside};
use super::executor::Inner;
use super::family::Family;
use super::life::Origin;
use super::{Begun, Execution, Executor, Finished, Terms};
use crate::domain::{
    Admission, Call, Called, Calls, Door, ExecutionId, Exit, FailureKind, Process, Status,
    StopReason, StreamName, Verdict,
};
use crate::policy::{NamedPath, Question};
use crate::runner::Kept;
use crate::tools::{Registry, cut_end};

/// What a token begins with, so that one that got somewhere is known for what it is.
const PREFIX: &str = "shelly_call_";

/// How many random bytes follow: as many as an AES key has.
const RANDOM_BYTES: usize = 32;

/// What processes of the tool may show, where it admits calls of theirs.
pub(super) fn token_for(call: &Call, registry: &Registry) -> Option<String> {
    let version = call.options.tool_version.as_deref();
    let tool = registry.find(&call.tool, version)?;
    // Without one they make no calls.
    let token = tool.implementation.admits_calls().then(new_token)?;
    token
        .inspect_err(|error| tracing::error!(%error, "cannot make a token for calls of a tool"))
        .ok()
}

/// A token that nobody guesses.
///
/// # Errors
/// When the kernel gives no random bytes (getrandom(2)).
fn new_token() -> Result<String, getrandom::Error> {
    let mut bytes = [0; RANDOM_BYTES];
    getrandom::fill(&mut bytes)?;
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    Ok(format!("{PREFIX}{}", digits.collect::<String>()))
}

impl Executor {
    /// The execution on whose behalf a process may make calls that shows `token`. `None` unless the
    /// execution is under way and the process is one of its tree: without cgroups, as far as that can be
    /// told.
    pub fn admitted_by(&self, token: &str, pid: Option<i32>) -> Option<Arc<Execution>> {
        let execution = self.inner.capabilities.find(token)?;
        let is_its_own = pid.is_some_and(|pid| execution.live().has_process(pid));
        (is_its_own && execution.finished().is_none()).then_some(execution)
    }

    /// The execution of which a process is one, if any runs: as far as that can be told.
    pub fn execution_of(&self, pid: Option<i32>) -> Option<ExecutionId> {
        let pid = pid?;
        let mut running = self.inner.records.running().into_iter();
        let its = running.find(|execution| execution.live().has_process(pid))?;
        Some(its.id)
    }

    /// Begins a call on behalf of another execution, whose caller is its caller and which it does not
    /// outlive.
    pub async fn begin_within(&self, parent: &Arc<Execution>, call: Call, terms: Terms) -> Begun {
        Arc::clone(&self.inner)
            .begin_within(parent, call, terms)
            .await
    }
}

impl Inner {
    pub(super) async fn begin_within(
        self: Arc<Self>,
        parent: &Arc<Execution>,
        call: Call,
        terms: Terms,
    ) -> Begun {
        match parent.tool_found() {
            Some(tool) => {
                let family = Family::within(parent, tool);
                self.begin_in(family, parent, call, terms).await
            }
            None => Begun::TooLate,
        }
    }

    /// Makes a call on behalf of an execution for a hook, and waits for its end.
    pub(super) fn call_for_hook<'a>(
        self: &'a Arc<Self>,
        parent: &'a Arc<Execution>,
        call: Call,
    ) -> BoxFuture<'a, Called> {
        async move {
            let Some(tool) = parent.tool_found() else {
                return not_begun("there is no tool yet on whose behalf it could be called");
            };
            let family = Family::of_hook(parent, tool);
            let begun = Arc::clone(self).begin_in(family, parent, call, Terms::default());
            ended(begun.await, self.config().max_output_bytes).await
        }
        .boxed()
    }

    async fn begin_in(
        self: Arc<Self>,
        family: Family,
        parent: &Arc<Execution>,
        call: Call,
        terms: Terms,
    ) -> Begun {
        let config = self.config();
        // A hook is told of a call that was cancelled before.
        let is_told = family.is_of_a_hook()
            && !parent.family.is_of_a_hook()
            && parent.stop_reason().is_some();
        // What it brings along is for all that share with its parent.
        let max_bytes = config.skills.max_context_bytes;
        if let Err(too_much) = parent.family.bring(&call.options.values, max_bytes) {
            return Begun::TooMuch(too_much);
        }
        // Its key is for calls of the same tools, which others may not be permitted, nor refused.
        let terms = terms.of_chain(&family.chain());
        let origin = Origin::now(terms, family);
        let caller = parent.caller.clone();
        let mut call = call;
        let correlation = parent.correlation.clone();
        let named = call.options.trace_id.as_ref();
        if named.is_none_or(|named| Some(named) == correlation.trace_id.as_ref()) {
            call.options.trace_id = correlation.trace_id;
            // Whatever it says itself: what comes of an execution stands below it.
            call.options.parent = Some(parent.span_context().as_parent());
        }
        // Nobody calls on another's behalf by way of a tool, or in another session.
        call.options.tenant_id = correlation.tenant_id;
        call.options.session_id = correlation.session_id;
        let is_long = call.bytes() >= LONG;
        let inner = Arc::clone(&self);
        let conceive = move || {
            let execution = Arc::new(inner.conceive(&call, caller, &config, origin));
            (execution, call, config)
        };
        // All of its texts are looked through for secrets.
        let (execution, call, config) = match is_long {
            true => beside(conceive).await,
            false => conceive(),
        };
        if !parent.family.adopt(&execution) {
            return Begun::TooLate;
        }
        if !is_told && parent.stop_reason().is_some() {
            execution.stop(StopReason::Cancelled);
        }
        self.begin(execution, call, config).await
    }
}

/// The way back into the pipeline for the tool of one execution.
pub(super) struct CallsOf {
    pub(super) inner: Arc<Inner>,
    pub(super) execution: Arc<Execution>,
}

impl Calls for CallsOf {
    fn call(&self, call: Call) -> BoxFuture<'_, Called> {
        async move {
            let begun = Arc::clone(&self.inner);
            let begun = begun.begin_within(&self.execution, call, Terms::default());
            ended(begun.await, self.inner.config().max_output_bytes).await
        }
        .boxed()
    }

    fn may_read(&self, file: &Path) -> bool {
        let parameter = "file_path";
        let input = json!({ parameter: file.to_string_lossy() });
        let judgement = self.inner.policy().judge(&Question {
            tool: "read_file",
            input: &input,
            paths: &[NamedPath {
                parameter: parameter.to_owned(),
                path: file.to_owned(),
            }],
            caller: &self.execution.caller,
            chain: &self.execution.family.chain(),
            working_dir: None,
            env: &BTreeMap::new(),
            stdin: None,
            shell: &self.inner.config().shell,
        });
        // What no rule is about was permitted with the call.
        judgement.verdict == Verdict::Allow || judgement.rule.is_none()
    }

    fn open_door(&self, listener: UnixListener) -> io::Result<Door> {
        let nobody = || io::Error::new(io::ErrorKind::NotConnected, "nobody answers calls here");
        let keeper = self.inner.doorkeeper.get().and_then(Weak::upgrade);
        keeper.ok_or_else(nobody)?.open(listener)
    }

    fn admit(&self) -> Admission {
        let token = self.execution.token.clone().unwrap_or_default();
        self.inner.capabilities.grant(&token, &self.execution);
        // Not before: a skill can make any number of calls that are refused.
        self.execution.family.add_token(&token);
        Admission {
            _end: Box::new(Revoked {
                inner: Arc::clone(&self.inner),
                execution: Arc::clone(&self.execution),
                token: token.clone(),
            }),
            token,
        }
    }
}

/// Takes a token back when it is dropped.
struct Revoked {
    inner: Arc<Inner>,
    execution: Arc<Execution>,
    token: String,
}

impl Drop for Revoked {
    fn drop(&mut self) {
        self.inner.capabilities.revoke(&self.token);
        self.execution.family.forget_token(&self.token);
    }
}

/// What became of what was begun, once it has ended, with at most so many bytes of each stream.
async fn ended(begun: Begun, most: usize) -> Called {
    match begun {
        Begun::New(execution) => {
            let finished = Arc::clone(execution.wait().await);
            called(&execution, &finished, most).await
        }
        Begun::Unrecorded(problem) | Begun::Unknown(problem) => not_begun(&problem.detail),
        Begun::TooMuch(too_much) => not_begun(&too_much.to_string()),
        // Without a key nothing is a repetition.
        Begun::TooLate | Begun::Repeated(_) | Begun::InProgress(_) | Begun::OtherCall(_) => {
            not_begun("it was called too late: what called it is over")
        }
    }
}

fn not_begun(detail: &str) -> Called {
    Called {
        id: None,
        status: Status::Failed,
        content: Arc::new(detail.to_owned()),
        is_error: true,
        is_shut_down: false,
        output: None,
        process: None,
    }
}

/// What came of it, for the tool that called.
async fn called(execution: &Execution, finished: &Finished, most: usize) -> Called {
    let ran = finished.ran.as_ref();
    let process = match ran.and_then(|ran| ran.report.exit) {
        Some(exit) => Some(Process {
            return_code: match (finished.failure.is_some(), exit) {
                (true, _) => None,
                (false, Exit::Code(code)) => Some(code),
                (false, Exit::Signal(signal)) => Some(-signal.0),
            },
            stdout: beginning(execution.kept(StreamName::Stdout), most).await,
            stderr: beginning(execution.kept(StreamName::Stderr), most).await,
        }),
        None => None,
    };
    Called {
        id: Some(execution.id),
        status: finished.status,
        content: finished.text(),
        is_error: finished.is_error(),
        is_shut_down: finished
            .failure
            .as_ref()
            .is_some_and(|failure| failure.kind == FailureKind::ShutDown),
        output: ran.and_then(|ran| ran.output.clone()),
        process,
    }
}

/// The first `most` bytes of a stream as text; `None` when it is not kept, or cannot be read.
async fn beginning(kept: Kept, most: usize) -> Option<String> {
    let bytes = match kept {
        Kept::Memory(bytes) => bytes,
        Kept::File {
            file,
            offset,
            length,
        } => {
            // One byte more, to see whether a character is cut.
            let most = most.saturating_add(1);
            let length = usize::try_from(length).unwrap_or(most).min(most);
            let read = tokio::task::spawn_blocking(move || {
                let mut bytes = vec![0; length];
                let read = file.open()?.read_exact_at(&mut bytes, offset);
                read.map(|()| Bytes::from(bytes))
            });
            let read = read.await.map_err(io::Error::other).flatten();
            read.inspect_err(|error| tracing::warn!(%error, "cannot read the output of a call"))
                .ok()?
        }
        Kept::Nowhere => return None,
    };
    Some(String::from_utf8_lossy(cut_end(&bytes, most)).into_owned())
}

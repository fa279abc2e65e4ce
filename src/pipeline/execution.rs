use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use tokio::sync::SetOnce;

use crate::domain::{
    Caller, ExecutionId, ExecutorError, RunReport, Secrets, Stage, StageTimes, Status, StopReason,
    StreamName, ToolOutput, Verbatim,
};
use crate::runner::{Capture, Kept, Live, SpoolFile};

/// One call's life under one id: what is known of it from its start until it is forgotten.
#[derive(Debug)]
pub struct Execution {
    /// Its name.
    pub id: ExecutionId,
    /// The tool that was called.
    pub tool: String,
    /// Who called it.
    pub caller: Caller,
    /// The id the model gave its call.
    pub tool_use_id: Option<String>,
    /// When the call came in.
    pub created_at: SystemTime,
    /// Whether its stages are timed for all to see.
    pub timed: bool,
    /// What is masked in whatever it leads to.
    pub(super) secrets: Arc<Secrets>,
    live: Arc<Live>,
    stages: Mutex<Vec<StageTimes>>,
    finished: SetOnce<Arc<Finished>>,
}

/// An execution being in a stage; dropping it is the stage's end.
pub(super) struct InStage<'a>(&'a Execution);

impl Drop for InStage<'_> {
    fn drop(&mut self) {
        if let Some(times) = self.0.lock_stages().last_mut() {
            times.ended_at = Some(SystemTime::now());
        }
    }
}

/// How an execution ended.
#[derive(Debug)]
pub struct Finished {
    /// In one word.
    pub status: Status,
    /// When.
    pub ended_at: SystemTime,
    /// With its text taken out into `text`.
    result: Result<ToolOutput, ExecutorError>,
    text: Mutex<Text>,
    verbatim: Verbatim,
}

/// The text of an answer, which is nearly all of its size.
#[derive(Debug)]
enum Text {
    Memory(Arc<String>),
    Spooled(Arc<SpoolFile>),
}

/// A text as the bytes that others may share.
struct TextBytes(Arc<String>);

impl AsRef<[u8]> for TextBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Execution {
    /// One that nobody gave an id of their own, with its stages timed.
    pub(super) fn new(
        id: ExecutionId,
        tool: String,
        caller: Caller,
        live: Live,
        secrets: Arc<Secrets>,
    ) -> Self {
        Self {
            id,
            tool,
            caller,
            tool_use_id: None,
            created_at: SystemTime::now(),
            timed: true,
            secrets,
            live: Arc::new(live),
            stages: Mutex::new(Vec::with_capacity(6)),
            finished: SetOnce::new(),
        }
    }

    /// When its process was started, if one was.
    pub fn started_at(&self) -> Option<SystemTime> {
        self.live.started_at()
    }

    /// Waits until its process is started; for good if none ever is.
    pub async fn started(&self) {
        self.live.started().await;
    }

    /// Where it stands.
    pub fn status(&self) -> Status {
        self.finished()
            .map_or(Status::Running, |finished| finished.status)
    }

    /// How it ended, if it has.
    pub fn finished(&self) -> Option<&Arc<Finished>> {
        self.finished.get()
    }

    /// Waits until it has ended. Dropping the future changes nothing.
    pub async fn wait(&self) -> &Arc<Finished> {
        self.finished.wait().await
    }

    /// Asks it to end, for the first reason that is given.
    pub fn stop(&self, reason: StopReason) {
        self.live.stop(reason);
    }

    /// One of its output streams, as far as it is still in memory: what an answer may hold.
    pub fn stream(&self, name: StreamName) -> &Arc<Capture> {
        self.live.stream(name)
    }

    /// One of its output streams as a whole.
    pub fn kept(&self, name: StreamName) -> Kept {
        match self.live.stream(name).kept() {
            // It has gone from there when the answer's text has it.
            Kept::Nowhere => self
                .finished()
                .and_then(|finished| finished.stream(name))
                .unwrap_or(Kept::Nowhere),
            kept @ (Kept::Memory(_) | Kept::File { .. }) => kept,
        }
    }

    /// The stages it has been in, in their order.
    pub fn stages(&self) -> Vec<StageTimes> {
        self.lock_stages().clone()
    }

    /// The stage that is to be named where it failed. Formatting itself never does: it words what
    /// became of the execution.
    pub fn failed_in(&self) -> Option<Stage> {
        let last = self.lock_stages().last().map(|times| times.stage);
        last.map(|stage| stage.min(Stage::Execution))
    }

    /// Begins a stage.
    pub(super) fn enter(&self, stage: Stage) -> InStage<'_> {
        self.lock_stages().push(StageTimes {
            stage,
            started_at: SystemTime::now(),
            ended_at: None,
        });
        InStage(self)
    }

    fn lock_stages(&self) -> MutexGuard<'_, Vec<StageTimes>> {
        self.stages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// Closes the record.
    pub(super) fn finish(&self, finished: Arc<Finished>) {
        // Closed once, by the task that opened it.
        let _ = self.finished.set(finished);
    }
}

impl Finished {
    pub(super) fn new(mut result: Result<ToolOutput, ExecutorError>) -> Self {
        let output = match &mut result {
            Ok(output) => Some(output),
            Err(error) => error.partial_mut(),
        };
        let (text, verbatim) = match output {
            Some(output) => (std::mem::take(&mut output.content), output.verbatim),
            None => {
                let error = result.as_ref().err().map(ExecutorError::chain);
                (error.unwrap_or_default(), Verbatim::default())
            }
        };
        Self {
            status: status(&result),
            ended_at: SystemTime::now(),
            result,
            text: Mutex::new(Text::Memory(Arc::new(text))),
            verbatim,
        }
    }

    /// Lets go of the text in memory, which `file` has.
    pub(super) fn move_text_to(&self, file: Arc<SpoolFile>) {
        *self.lock_text() = Text::Spooled(file);
    }

    /// Which streams the text holds as they were written.
    pub(super) fn verbatim(&self) -> Verbatim {
        self.verbatim
    }

    /// A stream that the text holds as it was written.
    fn stream(&self, name: StreamName) -> Option<Kept> {
        let begin = self.verbatim.of(name)?;
        let run = self.run()?;
        let length = match name {
            StreamName::Stdout => run.stdout_bytes,
            StreamName::Stderr => run.stderr_bytes,
        };
        Some(match &*self.lock_text() {
            Text::Memory(text) => {
                let end = begin + usize::try_from(length).ok()?;
                Kept::Memory(Bytes::from_owner(TextBytes(Arc::clone(text))).slice(begin..end))
            }
            Text::Spooled(file) => Kept::File {
                file: Arc::clone(file),
                offset: begin as u64,
                length,
            },
        })
    }

    /// The error, when the executor could not do it.
    pub fn error(&self) -> Option<&ExecutorError> {
        self.result.as_ref().err()
    }

    /// Whether the model is to be told of a failure.
    pub fn is_error(&self) -> bool {
        self.result
            .as_ref()
            .as_ref()
            .map_or(true, |output| output.is_error)
    }

    /// What came of the run, when a process ran. Its text is in [`Finished::text`].
    pub fn output(&self) -> Option<&ToolOutput> {
        match &self.result {
            Ok(output) => Some(output),
            Err(error) => error.partial(),
        }
    }

    /// The report of the run, when a process ran.
    pub fn run(&self) -> Option<&RunReport> {
        self.output().map(|output| &output.run)
    }

    /// The text for the model: the output of the process, else the error in words. May read from
    /// disk.
    pub fn text(&self) -> Arc<String> {
        let file = match &*self.lock_text() {
            Text::Memory(text) => return Arc::clone(text),
            Text::Spooled(file) => Arc::clone(file),
        };
        let text = file.open().and_then(std::io::read_to_string);
        Arc::new(text.unwrap_or_else(|error| {
            format!("[the text of this answer is lost: it cannot be read from the spool: {error}]")
        }))
    }

    fn lock_text(&self) -> MutexGuard<'_, Text> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a result comes to in one word.
pub(super) fn status(result: &Result<ToolOutput, ExecutorError>) -> Status {
    match result {
        Ok(output) if output.is_error => Status::Error,
        Ok(_) => Status::Success,
        Err(ExecutorError::Timeout { .. }) => Status::Timeout,
        Err(ExecutorError::Cancelled { .. }) => Status::Cancelled,
        Err(ExecutorError::PermissionDenied { .. }) => Status::Denied,
        Err(
            ExecutorError::UnknownTool { .. }
            | ExecutorError::ToolDisabled { .. }
            | ExecutorError::InvalidInput { .. }
            | ExecutorError::SpawnFailed { .. }
            | ExecutorError::OutputCaptureFailed { .. }
            | ExecutorError::Internal { .. },
        ) => Status::Failed,
    }
}

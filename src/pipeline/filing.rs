//! The end of an execution: made safe, told, and its long texts put where they stay. Before it, what is
//! known if it never comes.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::oneshot;

use super::entry::Outputs;
use super::event::Event;
use super::execution::Execution;
use super::executor::{Executor, Inner};
use super::termination::Termination;
use super::{Finished, counting, log, spans};
use crate::domain::{
    Digest, Digests, ExecutionId, ExecutorError, StreamName, ToolOutput, Unhashed,
};
use crate::ledger::{Ended, LedgerError, Output, Place};
use crate::runner::{KEPT_WITH_RECORD, SpoolFile};

/// How long an answer waits for its text to be in the spool.
const STORING: Duration = Duration::from_secs(10);

/// What is still to be done when the end of an execution is safe and told.
struct Aftermath {
    inner: Arc<Inner>,
    execution: Arc<Execution>,
    finished: Arc<Finished>,
    /// Where a long text of it is.
    text: Option<Arc<SpoolFile>>,
}

impl Aftermath {
    /// Lets go of the memory that only the answer needed.
    fn release(&self) {
        self.execution.live().release(self.finished.verbatim());
    }

    fn log(&self) {
        log::ending(&self.execution, &Termination::from(&*self.finished));
    }

    /// Forgets the execution once the ledger can answer for it. Where it could not be recorded, it stays in memory.
    fn settle(&self, filed: Result<(), LedgerError>) {
        let id = self.execution.id;
        let Err(error) = filed else {
            return self.inner.records.forget(id);
        };
        tracing::error!(EXECUTION_ID = %id, %error, "cannot record the end of an execution");
        self.release();
        let text_bytes = match &self.text {
            Some(file) => {
                self.finished.move_text_to(Arc::clone(file));
                0
            }
            None => self.finished.text().len(),
        };
        self.inner.records.close(id, text_bytes);
    }
}

impl Executor {
    /// Puts on disk since when executions run that do so for longer than `age`, and what they have said so far, as
    /// far as only memory holds it: when the daemon is killed, that is what is known of them.
    pub async fn save_drafts(&self, age: Duration) {
        let long = |execution: &Arc<Execution>| {
            let started = execution.started_at();
            // What begins in the future began before the clock was set back.
            let is_young = |started: SystemTime| started.elapsed().is_ok_and(|ran| ran < age);
            started.is_some_and(|started| !is_young(started))
        };
        let running = self.inner.records.running().into_iter();
        let running: Vec<_> = running.filter(long).collect();
        for execution in &running {
            if let Some(entry) = &execution.entry {
                entry.tell_start(execution);
            }
        }
        let streams = running.iter().flat_map(|execution| {
            [StreamName::Stdout, StreamName::Stderr].map(|name| execution.stream(name))
        });
        let streams: Vec<_> = streams.filter(|stream| stream.wants_draft()).collect();
        if !streams.is_empty() {
            let save = move || streams.iter().for_each(|stream| stream.save_draft());
            // Only a panic makes this fail.
            let _ = tokio::task::spawn_blocking(save).await;
        }
    }

    /// Tries whether the spool takes output again, if it did not. Call it now and then.
    pub async fn probe_spool(&self) {
        let spool = self.inner.spool.clone();
        if let Some(spool) = spool.filter(|spool| spool.wants_probe()) {
            // Only a panic makes this fail.
            let _ = tokio::task::spawn_blocking(move || spool.probe()).await;
        }
    }

    /// Removes what an earlier daemon has left in the spool of executions that are forgotten by now. Once,
    /// after the start.
    pub async fn sweep(&self) {
        let left = std::mem::take(&mut *self.inner.left.lock());
        let (Some(spool), Some(ledger)) = (self.inner.spool.clone(), &self.inner.ledger) else {
            return;
        };
        let count = left.len();
        if count == 0 {
            return;
        }
        let look = async {
            let unknown = ledger.unknown(&left).await?;
            // Of all that there is, either the ledger is another one, or it was cleared, of which its trail knows.
            let is_theirs = unknown.len() < count || ledger.has_known(left).await?;
            Ok::<_, LedgerError>(is_theirs.then_some(unknown))
        };
        match look.await {
            Ok(None) => tracing::warn!(
                "the ledger knows none of the {count} executions whose outputs the spool has; they are left alone"
            ),
            Ok(Some(unknown)) if unknown.is_empty() => {}
            Ok(Some(unknown)) => {
                tracing::info!(
                    executions = unknown.len(),
                    "removing outputs that were forgotten"
                );
                tokio::task::spawn_blocking(move || {
                    unknown.into_iter().for_each(|id| spool.remove(id))
                });
            }
            Err(error) => tracing::warn!(%error, "cannot tell which outputs were forgotten"),
        }
    }
}

impl Inner {
    /// Closes the record, in the ledger before anybody hears of it.
    pub(super) async fn close(
        self: &Arc<Self>,
        execution: &Arc<Execution>,
        result: Result<ToolOutput, ExecutorError>,
    ) {
        if let (Some(entry), Some(lineage)) = (&execution.entry, execution.family.lineage()) {
            entry.note(Event::skill_result(execution, lineage, &result));
        }
        let (finished, digests) = Finished::new(result, execution.failed_in());
        let finished = Arc::new(finished);
        counting::count(execution, &Termination::from(&*finished));
        let Some(entry) = &execution.entry else {
            return self.close_in_memory(execution, finished).await;
        };
        execution.form(&finished);
        let live = execution.live();
        let (digests, unhashed) = hand_over(digests);
        let ((content, text), ()) = tokio::join!(
            self.keep_text(execution.id, &finished, unhashed),
            live.keep(finished.verbatim()),
        );
        let outputs = Outputs::new(execution, &finished, content, digests);
        let is_long = text.is_some();
        let aftermath = Aftermath {
            inner: Arc::clone(self),
            execution: Arc::clone(execution),
            finished: Arc::clone(&finished),
            text,
        };
        let begun = Instant::now();
        // Beside the event loop, mostly, which others wait for.
        let then = move |filed| {
            aftermath.log();
            aftermath.inner.runner.let_go();
            aftermath.settle(filed);
        };
        let ended = entry.close(execution, &finished, outputs, then);
        let then = match ended {
            Ended::Logged => None,
            Ended::Queued(receipt, then) => Some((receipt.await, then)),
        };
        if let Some(metrics) = &execution.metrics {
            metrics.recorded(begun.elapsed());
        }
        execution.finish(Arc::clone(&finished));
        spans::tell(&self.spans, execution, &Termination::from(&*finished));
        if is_long || then.is_some() {
            // Whoever waits for the answer gets it first.
            tokio::task::yield_now().await;
            execution.live().release(finished.verbatim());
        }
        if let Some((filed, then)) = then {
            then(filed);
        }
    }

    /// Closes the record where there is no ledger, and moves what is large of it out of memory.
    async fn close_in_memory(&self, execution: &Arc<Execution>, finished: Arc<Finished>) {
        execution.finish(Arc::clone(&finished));
        // Whoever waits for the answer gets it before the disk gets its copy, which would take the
        // text from under them.
        tokio::task::yield_now().await;
        let ended = Termination::from(&*finished);
        log::ending(execution, &ended);
        spans::tell(&self.spans, execution, &ended);
        execution.live().keep(finished.verbatim()).await;
        execution.live().release(finished.verbatim());
        let text_bytes = match self.keep_text(execution.id, &finished, None).await {
            (_, Some(file)) => {
                finished.move_text_to(file);
                0
            }
            (output, None) => output.bytes as usize,
        };
        self.records.close(execution.id, text_bytes);
    }

    /// Puts a long text into the spool, and says where it is. Behind that, on the same thread, what is
    /// `unhashed` is hashed: on another it would be in the way of the event loop, as likely as not.
    async fn keep_text(
        &self,
        id: ExecutionId,
        finished: &Finished,
        unhashed: Option<Rest>,
    ) -> (Output, Option<Arc<SpoolFile>>) {
        let text = finished.text();
        let bytes = text.len() as u64;
        let spool = self.spool.clone().filter(|_| text.len() > KEPT_WITH_RECORD);
        let output = |place| Output {
            bytes,
            digest: None::<Digest>,
            place,
        };
        if let Some(spool) = spool {
            let copy = Arc::clone(&text);
            let (tell, stored) = oneshot::channel();
            tokio::task::spawn_blocking(move || {
                // Whoever asked waits for it, maybe for this processor, too.
                let _ = tell.send(spool.store(id, copy.as_bytes()));
                drop(copy);
                thread::yield_now();
                drop(unhashed);
            });
            match tokio::time::timeout(STORING, stored).await {
                Ok(Ok(Some(file))) => return (output(Place::Spool { bytes }), Some(file)),
                // It was not stored, which is told already; or there was a panic.
                Ok(Ok(None) | Err(_)) => {}
                Err(_) => {
                    tracing::warn!(%id, "the spool's disk does not answer: the ledger keeps the text")
                }
            }
        } else if unhashed.is_some() {
            tokio::task::spawn_blocking(move || drop(unhashed));
        }
        let inline = self.ledger.as_ref().map(|_| text.as_bytes().to_vec());
        (output(inline.map_or(Place::Nowhere, Place::Inline)), None)
    }
}

/// What is left to be hashed of standard output and standard error.
type Rest = [Option<Unhashed>; 2];

/// Hands out what is left to be hashed of long streams: nobody's answer waits for that.
fn hand_over(digests: Digests) -> (Digests, Option<Rest>) {
    if digests.are_at_hand() {
        return (digests, None);
    }
    let (digests, rest) = digests.hand_over();
    (digests, Some(rest))
}

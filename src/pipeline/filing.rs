//! The end of an execution: made safe, told, and its long texts put where they stay. Before it, what is
//! known if it never comes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::entry::Outputs;
use super::event::Event;
use super::execution::Execution;
use super::executor::{Executor, Inner};
use super::{Finished, counting, log, spans};
use crate::domain::{Digest, Digests, ExecutionId, ExecutorError, StreamName, ToolOutput};
use crate::ledger::{Ended, LedgerError, Output, Place, Receipt};
use crate::runner::SpoolFile;

/// The longest text of a finished answer that is kept with its record rather than in the spool, in
/// bytes: in memory, of which a thousand are 4 MiB at the worst, or in the ledger.
const TEXT_WITH_RECORD: usize = 4096;

/// The end of an execution that is safe, or cannot be made so, and on its way into the ledger's file.
pub(super) struct Filing {
    filed: Filed,
    finished: Arc<Finished>,
    /// Where a long text of it is.
    text: Option<Arc<SpoolFile>>,
}

enum Filed {
    Done(Result<(), LedgerError>),
    Soon(Receipt<()>),
}

impl Executor {
    /// Puts on disk what executions have said so far that run for longer than `age`, as far as only memory
    /// holds it: when the daemon is killed, that is what is known of them.
    pub async fn save_drafts(&self, age: Duration) {
        let long = |execution: &Arc<Execution>| {
            let started = execution.started_at();
            let ran = started.and_then(|started| started.elapsed().ok());
            ran.is_some_and(|ran| ran >= age)
        };
        let running = self.inner.records.running().into_iter().filter(long);
        let streams = running.flat_map(|execution| {
            [StreamName::Stdout, StreamName::Stderr].map(|name| execution.stream(name))
        });
        let streams: Vec<_> = streams.filter(|stream| stream.wants_draft()).collect();
        if !streams.is_empty() {
            let save = move || streams.iter().for_each(|stream| stream.save_draft());
            // Only a panic makes this fail.
            let _ = tokio::task::spawn_blocking(save).await;
        }
    }
}

impl Inner {
    /// Closes the record, in the ledger before anybody hears of it.
    pub(super) async fn close(
        &self,
        execution: &Arc<Execution>,
        result: Result<ToolOutput, ExecutorError>,
    ) -> Option<Filing> {
        if let (Some(entry), Some(lineage)) = (&execution.entry, execution.family.lineage()) {
            entry.note(Event::skill_result(execution, lineage, &result));
        }
        let (finished, digests) = Finished::new(result, execution.failed_in());
        let finished = Arc::new(finished);
        counting::ending(execution, &finished);
        let Some(entry) = &execution.entry else {
            self.close_in_memory(execution, finished).await;
            return None;
        };
        execution.form(&finished);
        let live = execution.live();
        let ((content, text), digests, ()) = tokio::join!(
            self.keep_text(execution.id, &finished),
            compute(digests),
            live.keep(finished.verbatim()),
        );
        let outputs = Outputs::new(execution, &finished, content, digests);
        let begun = Instant::now();
        let filed = match entry.close(execution, &finished, outputs) {
            Ended::Logged(receipt) => Filed::Soon(receipt),
            Ended::Queued(receipt) => Filed::Done(receipt.await),
        };
        if let Some(metrics) = &execution.metrics {
            metrics.recorded(begun.elapsed());
        }
        execution.finish(Arc::clone(&finished));
        // Whoever waits for the answer gets it first.
        tokio::task::yield_now().await;
        execution.live().release(finished.verbatim());
        log::ending(execution, &finished);
        spans::ending(&self.spans, execution, &finished);
        Some(Filing {
            filed,
            finished,
            text,
        })
    }

    /// It does not run any more. As soon as the ledger can be asked about it, it is the ledger's to
    /// tell; where that cannot be, it is remembered.
    pub(super) async fn conclude(&self, execution: &Execution, filing: Option<Filing>) {
        self.running.send_modify(|running| *running -= 1);
        let Some(Filing {
            filed,
            finished,
            text,
        }) = filing
        else {
            return;
        };
        let filed = match filed {
            Filed::Done(filed) => filed,
            Filed::Soon(receipt) => receipt.await,
        };
        let Err(error) = filed else {
            return self.records.forget(execution.id);
        };
        tracing::error!(EXECUTION_ID = %execution.id, %error, "cannot record the end of an execution");
        let text_bytes = text.map_or(finished.text().len(), |file| {
            finished.move_text_to(file);
            0
        });
        self.records.close(execution.id, text_bytes);
    }

    /// Closes the record where there is no ledger, and moves what is large of it out of memory.
    async fn close_in_memory(&self, execution: &Arc<Execution>, finished: Arc<Finished>) {
        execution.finish(Arc::clone(&finished));
        // Whoever waits for the answer gets it before the disk gets its copy, which would take the
        // text from under them.
        tokio::task::yield_now().await;
        log::ending(execution, &finished);
        spans::ending(&self.spans, execution, &finished);
        execution.live().keep(finished.verbatim()).await;
        execution.live().release(finished.verbatim());
        let text_bytes = match self.keep_text(execution.id, &finished).await {
            (_, Some(file)) => {
                finished.move_text_to(file);
                0
            }
            (output, None) => output.bytes as usize,
        };
        self.records.close(execution.id, text_bytes);
    }

    /// Puts a long text into the spool, and says where it is.
    async fn keep_text(
        &self,
        id: ExecutionId,
        finished: &Finished,
    ) -> (Output, Option<Arc<SpoolFile>>) {
        let text = finished.text();
        let bytes = text.len() as u64;
        let spool = self.spool.clone().filter(|_| text.len() > TEXT_WITH_RECORD);
        let output = |place| Output {
            bytes,
            digest: None::<Digest>,
            place,
        };
        if let Some(spool) = spool {
            let copy = Arc::clone(&text);
            let stored = tokio::task::spawn_blocking(move || spool.store(id, copy.as_bytes()));
            if let Ok(Some(file)) = stored.await {
                return (output(Place::Spool { bytes }), Some(file));
            }
        }
        let inline = self.ledger.as_ref().map(|_| text.as_bytes().to_vec());
        (output(inline.map_or(Place::Nowhere, Place::Inline)), None)
    }
}

/// Computes the digests of both streams, of long ones where that keeps nobody waiting.
async fn compute(digests: Digests) -> [Option<Digest>; 2] {
    if digests.are_at_hand() {
        return digests.compute();
    }
    let computed = tokio::task::spawn_blocking(move || digests.compute()).await;
    // Only a panic makes this fail.
    computed.unwrap_or_default()
}

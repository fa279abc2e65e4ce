use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::ExecutionSpan;

/// How many spans wait at the most: as many as OpenTelemetry's SDKs keep (`OTEL_BSP_MAX_QUEUE_SIZE`),
/// the spans of some 300 calls, which take less than 1 MiB.
pub(super) const MOST: usize = 2048;

/// How many are sent at once (`OTEL_BSP_MAX_EXPORT_BATCH_SIZE`): some 200 KiB.
pub(super) const BATCH: usize = 512;

/// How long one waits for others (`OTEL_BSP_SCHEDULE_DELAY`).
pub(super) const GATHER: Duration = Duration::from_secs(5);

/// Spans that wait to be sent, oldest first. Those of one execution stay together, or traces would
/// have holes.
#[derive(Debug, Default)]
pub(super) struct Queue {
    executions: VecDeque<(Instant, ExecutionSpan)>,
    /// Of all of them.
    length: usize,
}

impl Queue {
    /// Returns how many wait then; `None` when there was no room.
    pub(super) fn push(&mut self, span: ExecutionSpan) -> Option<usize> {
        let length = self.length + span.count();
        if length > MOST {
            return None;
        }
        self.length = length;
        self.executions.push_back((Instant::now(), span));
        Some(length)
    }

    /// When the next are to be sent: at once where there are enough. `None` where there are none.
    pub(super) fn due(&self) -> Option<Instant> {
        let (since, _) = self.executions.front()?;
        Some(match self.length {
            BATCH.. => *since,
            _ => *since + GATHER,
        })
    }

    /// Takes out what is sent at once.
    pub(super) fn take(&mut self) -> Vec<ExecutionSpan> {
        let (mut batch, mut length) = (Vec::new(), 0);
        while let Some((_, span)) = self.executions.front() {
            length += span.count();
            if length > BATCH && !batch.is_empty() {
                break;
            }
            self.length -= span.count();
            batch.extend(self.executions.pop_front().map(|(_, span)| span));
        }
        batch
    }

    /// Forgets all of them, and says how many there were.
    pub(super) fn clear(&mut self) -> usize {
        self.executions.clear();
        std::mem::take(&mut self.length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::otlp::message::tests::span;

    proptest! {
        #[test]
        fn no_more_wait_than_there_is_room_for_and_none_is_lost(
            told in prop::collection::vec((0usize..20, any::<bool>()), 1..600)
        ) {
            let (mut queue, mut waiting) = (Queue::default(), VecDeque::new());
            for (stages, takes) in told {
                let span = span(stages);
                let (id, count) = (span.id, span.count());
                let length: usize = waiting.iter().map(|(_, count)| count).sum();
                let pushed = queue.push(span);
                prop_assert_eq!(pushed.is_some(), length + count <= MOST);
                if pushed.is_some() {
                    waiting.push_back((id, count));
                }
                if takes && stages == 0 {
                    let batch = queue.take();
                    prop_assert!(batch.iter().map(ExecutionSpan::count).sum::<usize>() <= BATCH);
                    for span in batch {
                        prop_assert_eq!(waiting.pop_front(), Some((span.id, span.count())));
                    }
                }
            }
            let length: usize = waiting.iter().map(|(_, count)| count).sum();
            prop_assert_eq!(queue.due().is_some(), length > 0);
            prop_assert_eq!(queue.clear(), length);
            prop_assert_eq!(queue.due(), None);
        }
    }

    #[test]
    fn what_is_larger_than_a_batch_goes_by_itself() {
        let mut queue = Queue::default();
        for stages in [BATCH, 1] {
            queue.push(span(stages)).expect("room");
        }
        assert_eq!(queue.take().len(), 1);
        assert_eq!(queue.take().len(), 1);
        assert!(queue.take().is_empty());
    }
}

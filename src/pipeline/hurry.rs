//! What takes longer than most is entered into the ledger's file before it ends, for whoever looks.
//! One timer for all executions: to arm one for each costs each a turn of the event loop.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::domain::ExecutionId;
use crate::ledger::Ledger;

/// How long an execution may take for its opening and its end to be one commit of the ledger, for sure. Who
/// follows what happens hears of longer ones that much later, or a `PAUSE` more.
const SHORT: Duration = Duration::from_millis(10);

/// How long at the least between two looks at them. One after another, executions that are shorter than
/// that would have a timer go off for each all the same.
const PAUSE: Duration = Duration::from_millis(5);

/// The executions that have begun within the last moment, whether or not they have ended.
#[derive(Debug, Default)]
pub(super) struct Hurry(Arc<Mutex<Begun>>);

#[derive(Debug, Default)]
struct Begun {
    ids: VecDeque<(Instant, ExecutionId)>,
    /// Whether somebody looks after them.
    is_attended: bool,
}

impl Hurry {
    /// Has an execution entered in a moment, if it is still running then. Must be called inside a tokio
    /// runtime.
    pub(super) fn expect(&self, ledger: &Ledger, id: ExecutionId) {
        let mut begun = self.0.lock();
        begun.ids.push_back((Instant::now() + SHORT, id));
        if !std::mem::replace(&mut begun.is_attended, true) {
            let attendant = Attendant {
                begun: Arc::clone(&self.0),
                ledger: ledger.clone(),
                is_done: false,
            };
            tokio::spawn(attendant.attend());
        }
    }
}

/// Who looks after them, as long as there are any.
struct Attendant {
    begun: Arc<Mutex<Begun>>,
    ledger: Ledger,
    is_done: bool,
}

impl Attendant {
    async fn attend(mut self) {
        while let Some(due) = self.enter_due() {
            tokio::time::sleep_until(due).await;
        }
    }

    /// Enters those whose moment has come, and says when to look for the next.
    fn enter_due(&mut self) -> Option<Instant> {
        let mut begun = self.begun.lock();
        let now = Instant::now();
        while let Some(&(due, id)) = begun.ids.front() {
            if due > now {
                return Some(due.max(now + PAUSE));
            }
            begun.ids.pop_front();
            // Not one that has ended: that is on its way into the file.
            self.ledger.nudge(id);
        }
        begun.is_attended = false;
        self.is_done = true;
        None
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        // Where the runtime has gone first, another looks after them when the next one begins.
        if !self.is_done {
            self.begun.lock().is_attended = false;
        }
    }
}

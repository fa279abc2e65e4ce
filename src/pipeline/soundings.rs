//! Whether what calls need is in the file system. That is looked at beside the event loop: a file system that does
//! not answer, such as one of a network whose server is away, keeps who asks it, and would keep everybody else as well.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::domain::Degradation;

/// How long who wants to know waits for a look. Where the file system answers it takes microseconds.
const PATIENCE: Duration = Duration::from_millis(50);

/// After what time a look that has not ended is a problem of its own.
const STALLED: Duration = Duration::from_secs(1);

/// Looks at the file system, one at a time, and what the last one has found.
#[derive(Default)]
pub(super) struct Soundings {
    state: Mutex<State>,
    /// How many have ended.
    ended: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    /// How many have begun, and how many there have to be for those who want to know.
    begun: u64,
    wanted: u64,
    under_way: Option<UnderWay>,
    found: Vec<Degradation>,
}

struct UnderWay {
    since: Instant,
    /// What the file system was asked for last.
    asks: PathBuf,
}

impl Soundings {
    /// What `look` finds that is wrong, which says of each path that it is about to ask for it. Of one that does not
    /// end in time what the last one has found, and, before long, that it does not end.
    pub async fn take(
        self: &Arc<Self>,
        look: impl Fn(&dyn Fn(&Path)) -> Vec<Degradation> + Send + 'static,
    ) -> Vec<Degradation> {
        let mut ended = self.ended.subscribe();
        let number = self.want(look);
        // The sender lives as long as this does.
        let _ = tokio::time::timeout(PATIENCE, ended.wait_for(|ended| *ended >= number)).await;
        let state = self.state.lock();
        let stalled = state.under_way.as_ref().and_then(UnderWay::stalled);
        state.found.iter().cloned().chain(stalled).collect()
    }

    /// Has a look taken that begins from now on, and says which one that is.
    fn want(
        self: &Arc<Self>,
        look: impl Fn(&dyn Fn(&Path)) -> Vec<Degradation> + Send + 'static,
    ) -> u64 {
        let mut state = self.state.lock();
        let number = state.begun + 1;
        state.wanted = number;
        if state.under_way.is_none() {
            state.begin();
            let this = Arc::clone(self);
            drop(tokio::task::spawn_blocking(move || {
                while this.end(look(&|path| this.asks(path))) {}
            }));
        }
        number
    }

    fn asks(&self, path: &Path) {
        if let Some(under_way) = &mut self.state.lock().under_way {
            under_way.asks = path.to_owned();
        }
    }

    /// Takes what a look has found. Whether there has to be another, which begins with this.
    fn end(&self, found: Vec<Degradation>) -> bool {
        let mut state = self.state.lock();
        state.found = found;
        let ended = state.begun;
        let goes_on = state.wanted > state.begun;
        match goes_on {
            true => state.begin(),
            false => state.under_way = None,
        }
        drop(state);
        self.ended.send_replace(ended);
        goes_on
    }
}

impl State {
    fn begin(&mut self) {
        self.begun += 1;
        self.under_way = Some(UnderWay {
            since: Instant::now(),
            asks: PathBuf::new(),
        });
    }
}

impl UnderWay {
    fn stalled(&self) -> Option<Degradation> {
        (self.since.elapsed() >= STALLED).then(|| Degradation {
            code: "file_system_stalled",
            detail: format!(
                "asked for `{}`, the file system does not answer; calls that need it wait, and what else is known of files is from before. See that its server or device is there, or configure another place",
                self.asks.display()
            ),
            source: self.asks.display().to_string(),
        })
    }
}

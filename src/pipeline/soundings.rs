//! Whether what calls need is in the file system. That is looked at beside the event loop: a file system that does
//! not answer, such as one of a network whose server is away, keeps who asks it, and would keep everybody else as well.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::domain::Degradation;

/// How old a look may be for whose end anybody waits. Where the file system answers it takes microseconds, and a good
/// deal more where commands take all processors: `/health` is to answer within 100 ms all the same.
const PATIENCE: Duration = Duration::from_millis(20);

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
    asks: Option<PathBuf>,
}

impl Soundings {
    /// What `look` finds that is wrong, which says of each path that it is about to ask for it. Of one that does not
    /// end in time what the last one has found, and, before long, that it does not end.
    pub async fn take(
        self: &Arc<Self>,
        look: impl Fn(&dyn Fn(&Path)) -> Vec<Degradation> + Send + 'static,
    ) -> Vec<Degradation> {
        let mut ended = self.ended.subscribe();
        let (number, age) = self.want(look);
        let is_over = ended.wait_for(|ended| *ended >= number);
        // The sender lives as long as this does.
        let _ = tokio::time::timeout(PATIENCE.saturating_sub(age), is_over).await;
        let state = self.state.lock();
        let stalled = state.under_way.as_ref().and_then(UnderWay::stalled);
        state.found.iter().cloned().chain(stalled).collect()
    }

    /// Has a look taken that begins from now on, and says which one that is, and how old the one is that is under way.
    fn want(
        self: &Arc<Self>,
        look: impl Fn(&dyn Fn(&Path)) -> Vec<Degradation> + Send + 'static,
    ) -> (u64, Duration) {
        let mut state = self.state.lock();
        state.wanted = state.begun + 1;
        let number = state.wanted;
        if let Some(under_way) = &state.under_way {
            return (number, under_way.since.elapsed());
        }
        state.begin();
        let looks = Looks {
            of: Arc::clone(self),
            are_over: false,
        };
        drop(tokio::task::spawn_blocking(move || looks.take(look)));
        (number, Duration::ZERO)
    }

    fn asks(&self, path: &Path) {
        if let Some(under_way) = &mut self.state.lock().under_way {
            under_way.asks = Some(path.to_owned());
        }
    }

    /// Takes what a look has found. Whether there has to be another, which begins with this.
    fn end(&self, found: Vec<Degradation>) -> bool {
        let mut state = self.state.lock();
        state.found = found;
        // Before anybody can begin the next.
        self.ended.send_replace(state.begun);
        let goes_on = state.wanted > state.begun;
        match goes_on {
            true => state.begin(),
            false => state.under_way = None,
        }
        goes_on
    }
}

/// Looks that are taken in a row.
struct Looks {
    of: Arc<Soundings>,
    are_over: bool,
}

impl Looks {
    fn take(mut self, look: impl Fn(&dyn Fn(&Path)) -> Vec<Degradation>) {
        while self.of.end(look(&|path| self.of.asks(path))) {}
        self.are_over = true;
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        if !self.are_over {
            // One has panicked, or never begun: the next who wants one has it taken.
            self.of.state.lock().under_way = None;
        }
    }
}

impl State {
    fn begin(&mut self) {
        self.begun += 1;
        self.under_way = Some(UnderWay {
            since: Instant::now(),
            asks: None,
        });
    }
}

impl UnderWay {
    fn stalled(&self) -> Option<Degradation> {
        let asks = self.asks.as_ref()?.display().to_string();
        (self.since.elapsed() >= STALLED).then(|| Degradation {
            code: "file_system_stalled",
            detail: format!(
                "asked for `{asks}`, the file system does not answer; calls that need it wait, and what else is known of files is from before. See that its server or device is there, or configure another place"
            ),
            source: asks,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn found(source: &str) -> Degradation {
        Degradation {
            code: "commands_fail",
            detail: String::new(),
            source: source.to_owned(),
        }
    }

    /// Takes looks until what is known is as expected.
    async fn until(
        soundings: &Arc<Soundings>,
        what: &'static str,
        is_so: impl Fn(&[Degradation]) -> bool,
    ) -> Vec<Degradation> {
        let looks = async {
            loop {
                let known = soundings.take(move |_| vec![found(what)]).await;
                if is_so(&known) {
                    return known;
                }
                tokio::task::yield_now().await;
            }
        };
        let known = tokio::time::timeout(Duration::from_secs(20), looks).await;
        known.expect("it comes about")
    }

    #[tokio::test]
    async fn a_look_that_does_not_end_is_told_and_the_next_one_is_taken() {
        let soundings = Arc::new(Soundings::default());
        until(&soundings, "a", |known| known == [found("a")]).await;

        let (go_on, told) = mpsc::channel::<()>();
        let told = Mutex::new(told);
        let hangs = move |asks: &dyn Fn(&Path)| {
            asks(Path::new("/mute"));
            // Until the sender goes.
            let _ = told.lock().recv();
            vec![found("b")]
        };
        assert_eq!(soundings.take(hangs).await, [found("a")]);
        let known = until(&soundings, "c", |known| known.len() > 1).await;
        assert_eq!(known[0], found("a"));
        assert_eq!(
            (known[1].code, known[1].source.as_str()),
            ("file_system_stalled", "/mute")
        );
        drop(go_on);
        until(&soundings, "c", |known| known == [found("c")]).await;
    }

    #[tokio::test]
    async fn a_look_that_panics_is_not_the_last_one() {
        let soundings = Arc::new(Soundings::default());
        let panics = |_: &dyn Fn(&Path)| panic!("on purpose");
        assert_eq!(soundings.take(panics).await, []);
        until(&soundings, "a", |known| known == [found("a")]).await;
    }
}

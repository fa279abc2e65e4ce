//! What `background: keep` leaves alive: watched until it ends, killed when the daemon does, or the
//! execution that called for it.

use std::convert::Infallible;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::spawn::Leader;
use super::tree::Tree;
use crate::domain::ExecutionId;

/// How often a kept tree is looked at to see whether it has ended by itself. Nobody waits for it;
/// what is at stake is a cgroup directory, or one zombie.
const LOOK: Duration = Duration::from_secs(1);

/// All kept trees.
#[derive(Debug, Default)]
pub(super) struct Keepers(Mutex<Vec<Keeper>>);

/// Who watches one.
#[derive(Debug)]
struct Keeper {
    /// The execution that called for it, which it does not outlive.
    parent: Option<ExecutionId>,
    /// Dropped to end it.
    _end: oneshot::Sender<Infallible>,
    task: JoinHandle<()>,
}

impl Keepers {
    /// Takes over a tree, for as long as `parent` lasts if there is one. Its leader stays unreaped, a zombie mostly, which keeps the group's id
    /// from becoming anybody else's.
    pub(super) fn keep(
        &self,
        tree: Tree,
        leader: Leader,
        kill_wait: Duration,
        parent: Option<ExecutionId>,
    ) {
        let (end, mut ended) = oneshot::channel::<Infallible>();
        let task = tokio::spawn(async move {
            let mut leader = leader;
            loop {
                tokio::select! {
                    _ = &mut ended => {
                        tree.kill(&leader, kill_wait).await;
                        let _ = leader.reap();
                        return;
                    }
                    () = tokio::time::sleep(LOOK) => {}
                }
                if tree.has_others().await {
                    continue;
                }
                // One that even SIGKILL has not ended (uninterruptible sleep, a tracer) is not
                // waited for in any other way than this.
                match leader.reap() {
                    Ok(Ok(_)) => return,
                    Ok(Err(error)) => return tracing::error!(%error, "cannot reap"),
                    Err(alive) => leader = alive,
                }
            }
        });
        let mut keepers = self.lock();
        keepers.retain(|keeper| !keeper.task.is_finished());
        keepers.push(Keeper {
            parent,
            _end: end,
            task,
        });
    }

    /// Ends those that do not outlive `parent`.
    pub(super) async fn end_of(&self, parent: ExecutionId) {
        self.end(|keeper| keeper.parent == Some(parent)).await;
    }

    pub(super) async fn end_all(&self) {
        self.end(|_| true).await;
    }

    async fn end(&self, is_over: impl Fn(&Keeper) -> bool) {
        let over: Vec<Keeper> = self.lock().extract_if(.., |one| is_over(one)).collect();
        let tasks = over.into_iter().map(|keeper| keeper.task);
        for task in tasks.collect::<Vec<_>>() {
            let _ = task.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Keeper>> {
        self.0.lock()
    }
}

//! What `background: keep` leaves alive: watched until it ends, killed when the daemon does.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::spawn::Leader;
use super::tree::Tree;

/// How often a kept tree is looked at to see whether it has ended by itself. Nobody waits for it;
/// what is at stake is a cgroup directory, or one zombie.
const LOOK: Duration = Duration::from_secs(1);

/// All kept trees.
#[derive(Debug)]
pub(super) struct Keepers {
    end: watch::Sender<bool>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Default for Keepers {
    fn default() -> Self {
        Self {
            end: watch::Sender::new(false),
            tasks: Mutex::default(),
        }
    }
}

impl Keepers {
    /// Takes over a tree. Its leader stays unreaped, a zombie mostly, which keeps the group's id
    /// from becoming anybody else's.
    pub(super) fn keep(&self, tree: Tree, leader: Leader, kill_wait: Duration) {
        let mut end = self.end.subscribe();
        let task = tokio::spawn(async move {
            let ended = async move { drop(end.wait_for(|end| *end).await) };
            tokio::pin!(ended);
            let mut leader = leader;
            loop {
                tokio::select! {
                    () = &mut ended => {
                        tree.kill(&leader, kill_wait).await;
                        let _ = leader.reap();
                        return;
                    }
                    () = tokio::time::sleep(LOOK) => {}
                }
                if tree.has_others() {
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
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
    }

    pub(super) async fn end_all(&self) {
        self.end.send_replace(true);
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            let _ = task.await;
        }
    }
}

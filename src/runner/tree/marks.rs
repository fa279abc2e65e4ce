//! What processes say of themselves in their environment. The kernel keeps whoever reads that waiting while the memory
//! that it lies in is locked, or is yet to come (proc_pid_environ(5), userfaultfd(2)): for good, if a process wants that.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use parking_lot::Mutex;

use super::procfs::{self, Variable};

/// How long each may take to tell. It takes some microseconds where nothing is in the way.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long one that has not told by then may still turn out to: a busy machine may take as long to run a thread.
const DOUBT: Duration = Duration::from_secs(1);

/// How many may keep a thread waiting at once.
const AT_ONCE: usize = 16;

/// Reads the marks of processes, each on a thread that may be left to itself, and at most one for each process.
#[derive(Clone, Debug, Default)]
pub(in crate::runner) struct Marks(Arc<Mutex<HashMap<Pid, Instant>>>);

/// That a process is being asked, as long as this is there.
struct Asking {
    pid: Pid,
    marks: Marks,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.marks.0.lock().remove(&self.pid);
    }
}

impl Marks {
    /// What one says of a variable. Returns within a moment: one that does not tell is `Unreadable` at first, and
    /// says nothing at all from then on.
    pub(super) fn of(&self, pid: Pid, name: &'static str) -> Variable {
        self.of_all(&[pid], name)
            .pop()
            .unwrap_or(Variable::Unreadable)
    }

    /// The same of many, in their order.
    pub(super) fn of_all(&self, pids: &[Pid], name: &'static str) -> Vec<Variable> {
        let mut told = Vec::with_capacity(pids.len());
        while told.len() < pids.len() {
            told.append(&mut self.ask(pids[told.len()..].to_vec(), name));
            if told.len() < pids.len() {
                // The thread is left to itself; another asks the rest.
                told.push(Variable::Unreadable);
            }
        }
        told
    }

    /// Those that keep a thread waiting.
    pub(super) fn silent(&self) -> Vec<Pid> {
        self.0.lock().keys().copied().collect()
    }

    /// Asks them one after another on a thread of its own. Answers what they have told until one does not.
    fn ask(&self, pids: Vec<Pid>, name: &'static str) -> Vec<Variable> {
        let answers = Arc::new(Mutex::new(Some(Vec::with_capacity(pids.len()))));
        let (marks, told) = (self.clone(), Arc::clone(&answers));
        // It says nothing, and goes when the thread ends.
        let (ends, end) = channel::<Infallible>();
        let asking = move || {
            let _ends = ends;
            for pid in pids {
                let says = match marks.begin(pid) {
                    Ok(_asking) => procfs::variable(pid, name),
                    Err(untold) => untold,
                };
                match told.lock().as_mut() {
                    Some(told) => told.push(says),
                    None => return,
                }
            }
        };
        let count = || answers.lock().as_ref().map_or(0, Vec::len);
        let mut counted = 0;
        // Where there are no more threads to be had, nobody tells anything.
        let _ = thread::Builder::new()
            .name("marks".to_owned())
            .spawn(asking);
        while end.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            let before = std::mem::replace(&mut counted, count());
            if counted == before {
                break;
            }
        }
        answers.lock().take().unwrap_or_default()
    }

    /// Notes that one is asked, or what is to be held of it if it is not.
    fn begin(&self, pid: Pid) -> Result<Asking, Variable> {
        let mut asked = self.0.lock();
        let is_given_up = |since: &Instant| since.elapsed() >= DOUBT;
        let is_full = asked.len() >= AT_ONCE;
        let all_are_given_up = asked.values().all(is_given_up);
        match asked.entry(pid) {
            Entry::Occupied(since) if is_given_up(since.get()) => Err(Variable::Unset),
            Entry::Vacant(_) if is_full && all_are_given_up => Err(Variable::Unset),
            Entry::Occupied(_) => Err(Variable::Unreadable),
            Entry::Vacant(_) if is_full => Err(Variable::Unreadable),
            Entry::Vacant(free) => {
                free.insert(Instant::now());
                Ok(Asking {
                    pid,
                    marks: self.clone(),
                })
            }
        }
    }
}

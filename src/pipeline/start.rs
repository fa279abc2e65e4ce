//! How an executor comes to be: out of a configuration alone, or with what an earlier one has left behind.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::executor::{Executor, Inner};
use super::{log, record};
use crate::config::ExecutorConfig;
use crate::domain::prepare_masking;
use crate::ledger::{CloseRecord, Ledger, LedgerError, Opened, Recovered, Waiting};
use crate::runner::{Runner, Spool, hold_until_execve, prepare_descriptors};
use crate::sandbox;
use crate::tools::Registry;

/// An executor made ready for a process of its own, and what it found to clean up.
pub struct Started {
    /// Ready.
    pub executor: Executor,
    /// Processes that an earlier one had left running, killed now.
    pub killed: usize,
    /// Executions whose end nobody saw.
    pub lost: usize,
    /// Executions that wait for an approval, to be taken up by [`Executor::resume`] once the
    /// policy is in force.
    pub waiting: Vec<Waiting>,
}

/// Why an executor cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The spool's directory cannot be used, or cgroups are demanded and cannot be had.
    #[error("cannot set up the running of commands")]
    Runner(#[from] io::Error),
    /// The ledger cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl Executor {
    /// An executor with the built-in tools. Never fails, never touches the disk.
    ///
    /// It ignores what of `config` concerns the process as a whole: cgroups, subreaper, spool.
    pub fn new(config: ExecutorConfig) -> Self {
        let config = ExecutorConfig {
            subreaper: false,
            ..config
        };
        let runner = Runner::new(&config);
        Self::of(Inner::new(config, runner, None, None))
    }

    /// What a process that exists for its executor does before it opens anything: what commands are
    /// started with is then least costly.
    pub fn prepare_process() {
        prepare_descriptors();
    }

    /// Does what would otherwise be done at the first call: compiles the patterns of secrets and the
    /// schemas of the built-in tools. Takes some milliseconds.
    pub fn prepare_calls() {
        prepare_masking();
        Registry::prepare();
    }

    /// Has every command hold `lock`, which says that this process uses its state, until it executes its
    /// program: a command that is just being started when this process is killed is nobody's by its
    /// environment, so who comes next has to wait for it.
    ///
    /// # Errors
    /// When `lock` is not open.
    pub fn hold_until_execve(lock: impl AsFd) -> io::Result<()> {
        hold_until_execve(lock)
    }

    /// An executor for a process that exists for it, such as the daemon: opens spool and ledger,
    /// takes up cgroups or becomes a subreaper, and kills what a crash of the last one left running.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(config: ExecutorConfig) -> Result<Started, StartError> {
        let mut runner = Runner::new(&config);
        let leftovers = runner.prepare(&config)?;
        let bundles = sandbox::sweep(&config.sandbox);
        if bundles > 0 {
            tracing::warn!(
                bundles,
                "removed what an earlier daemon had left of its sandboxes"
            );
        }
        let history = config.history.max_total_bytes;
        let history = config.ledger.as_ref().map(|_| history);
        let open = |spool| Spool::open(spool, history);
        let spool = config.spool.as_ref().map(open).transpose()?.map(Arc::new);
        // When nothing of it runs any more, for what was open is lost now.
        let opened = config.ledger.as_ref();
        let hash = |close: &CloseRecord| record::digests(close, spool.as_ref());
        let opened = opened.map(|ledger| Ledger::open_with(&ledger.file, ledger.durability, &hash));
        let (ledger, recovered) = match opened.transpose()? {
            Some(Opened { ledger, recovered }) => (Some(ledger), recovered),
            None => (None, Recovered::default()),
        };
        if let Some(spool) = &spool {
            // These have none, and nobody would ask for what there is of it.
            let lost = recovered.lost_ids().into_iter();
            let texts = lost.filter_map(|id| spool.content(id));
            texts.for_each(|file| file.evict());
        }
        recovered.lost.iter().for_each(log::lost);
        let executor = Self::of(Inner::new(config, runner, spool, ledger));
        Ok(Started {
            executor,
            killed: leftovers.processes + leftovers.in_cgroups,
            lost: recovered.lost.len(),
            waiting: recovered.waiting,
        })
    }

    fn of(inner: Inner) -> Self {
        Self {
            inner: Arc::new(inner),
        }
    }
}

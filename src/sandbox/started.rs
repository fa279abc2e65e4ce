//! One sandbox, from its start to the end of all there is of it.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{Either, select};
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;

use super::basis::Basis;
use super::bundle::{Bundle, Held};
use super::order::Order;
use super::report::Report;
use super::runtime::Runtime;
use super::{Grants, RUNTIME_BYTES, RUNTIME_PIDS, SandboxError, beside, helper, quiet};
use crate::config::{ExecutorConfig, Limits};
use crate::domain::{Connection, ExecutionId};
use crate::runner::{Born, Live, Outcome, Plan, Runner};

/// How long one may take to end that nobody needs. The daemon may be waiting for it to stop.
const PARTING: Duration = Duration::from_secs(2);

/// A sandbox whose first process waits for its order. It has to be given one or ended: neither the
/// runtime nor what it keeps on disk goes by being dropped.
pub(super) struct Started {
    /// Under which the runtime runs: the execution's, if there is one already.
    id: ExecutionId,
    runtime: Runtime,
    bundle: Bundle,
    born: Born,
    order: pipe::Sender,
    config: Arc<ExecutorConfig>,
    runner: Arc<Runner>,
}

/// What became of it.
pub(super) struct Ended {
    /// Of the runtime.
    pub(super) outcome: Outcome,
    /// What the first process inside has said.
    pub(super) report: Report,
    pub(super) connections: Vec<Connection>,
}

impl Started {
    /// Starts the runtime.
    ///
    /// # Errors
    /// When there cannot be one.
    pub(super) async fn new(
        id: ExecutionId,
        basis: Basis,
        grants: Grants,
        runtime: Runtime,
        runner: Arc<Runner>,
    ) -> Result<Self, SandboxError> {
        let config = Arc::clone(&basis.config);
        let limits = limits(&config, &runner);
        let held = Held {
            memory: limits.memory_max.is_some(),
            pids: limits.pids_max.is_some(),
            by_runtime: runtime.makes_cgroups(),
        };
        let bundle = beside(move || Bundle::make(id, &basis, &grants, held)).await;
        let bundle = bundle.map_err(|error| SandboxError::broken("make its bundle", &error))?;
        let plan = Plan {
            working_dir: Some(bundle.dir().to_owned()),
            limits,
            ..helper(id, &runtime.program, runtime.run(&bundle), &config)
        };
        let (order, born) = begin(&plan, &runner).await?;
        Ok(Self {
            id,
            runtime,
            bundle,
            born,
            order,
            config,
            runner,
        })
    }

    /// Waits until it has ended, which without an order it does only if something is wrong.
    pub(super) async fn ended(&self) {
        self.born.ended().await;
    }

    /// Whether it has ended by itself, as far as can be known at once: it is told nothing then.
    pub(super) fn is_gone(&self) -> bool {
        if self.ended().now_or_never().is_some() {
            return true;
        }
        // Nobody reads its order any more, which is so a moment before its end is heard of: poll(2) tells
        // that, whatever it is asked.
        let mut order = [PollFd::new(self.order.as_fd(), PollFlags::empty())];
        let polled = poll(&mut order, PollTimeout::ZERO);
        let found = order[0].revents().unwrap_or(PollFlags::empty());
        polled.is_ok() && found.contains(PollFlags::POLLERR)
    }

    /// Runs `plan` in it, to the end of both.
    ///
    /// # Errors
    /// When it cannot be told what to run, or was none.
    pub(super) async fn carry_out(
        self,
        plan: Plan,
        live: &Arc<Live>,
    ) -> Result<Ended, SandboxError> {
        self.bundle.mask_egress(live.secrets());
        let outer = Plan {
            limit: plan.limit,
            kill_grace: plan.kill_grace,
            kill_wait: plan.kill_wait,
            drain: plan.drain,
            parent: plan.parent,
            stop_by: Some(Box::new(self.helper(self.runtime.kill(&self.bundle)))),
            ..self.helper(Vec::new())
        };
        let (bundle, user) = (self.bundle, self.config.sandbox.user.clone());
        let (bundle, text) = beside(move || {
            let order = Order::of(&plan, &bundle, &user);
            let text = order.and_then(|order| Ok(serde_json::to_vec(&order)?));
            Ok((bundle, text))
        })
        .await
        .map_err(|error| SandboxError::broken("tell it what to run", &error))?;
        let this = Self { bundle, ..self };
        match text {
            Ok(text) => this.attend(outer, text, live).await,
            Err(error) => {
                this.end().await;
                Err(SandboxError::broken("tell it what to run", &error))
            }
        }
    }

    /// Ends it without anything having run in it.
    pub(super) async fn end(self) {
        let plan = Plan {
            limit: PARTING,
            ..self.helper(Vec::new())
        };
        let live = quiet(self.id);
        if let Err(error) = self.attend(plan, Vec::new(), &live).await {
            tracing::debug!(%error, "a sandbox that nobody needed");
        }
    }

    async fn attend(
        self,
        plan: Plan,
        text: Vec<u8>,
        live: &Arc<Live>,
    ) -> Result<Ended, SandboxError> {
        let delete = self.helper(self.runtime.delete(&self.bundle.state(), &self.bundle.id()));
        let (mut order, mut bundle) = (self.order, self.bundle);
        // It waits for all of it. Who ends before that has closed the pipe, or keeps nobody waiting.
        let told = Box::pin(async move {
            let _ = order.write_all(&text).await;
        });
        let attended = Box::pin(self.runner.attend(self.born, plan, live));
        let outcome = match select(attended, told).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right(((), attended)) => attended.await,
        };
        let (connections, report) = (bundle.close_egress(), bundle.report());
        if self.runtime.may_leave(&bundle.state()) {
            // One that was killed has not cleaned up after itself.
            let _ = self.runner.run(delete, &quiet(self.id)).await;
        }
        let runtime = self.runtime;
        let cleared = beside(move || runtime.clear(&bundle.id()));
        if let Err(error) = cleared.await {
            tracing::error!(%error, "cannot remove what a sandbox has left");
        }
        Ok(Ended {
            outcome: outcome.map_err(SandboxError::from_runtime)?,
            report,
            connections,
        })
    }

    /// The runtime with other arguments, as part of this run of it.
    fn helper(&self, args: Vec<String>) -> Plan {
        helper(self.id, &self.runtime.program, args, &self.config)
    }
}

/// Starts a process that has the end of a pipe for its standard input.
async fn begin(plan: &Plan, runner: &Runner) -> Result<(pipe::Sender, Born), SandboxError> {
    let (input, order) = nix::unistd::pipe2(OFlag::O_CLOEXEC)
        .map_err(|error| SandboxError::broken("make a pipe", &error.into()))?;
    let order = pipe::Sender::from_owned_fd(order)
        .map_err(|error| SandboxError::broken("write to a pipe", &error))?;
    let born = runner.start(plan, Some(input)).await;
    Ok((order, born.map_err(SandboxError::from_runtime)?))
}

/// What holds the whole of it from outside, as far as there are controllers.
fn limits(config: &ExecutorConfig, runner: &Runner) -> Limits {
    let least = |a: Option<u64>, b: u64| Some(a.map_or(b, |a| a.min(b)));
    let (sandbox, given) = (&config.sandbox, config.limits);
    let wanted = Limits {
        memory_max: least(given.memory_max, sandbox.memory_max + RUNTIME_BYTES),
        pids_max: least(given.pids_max, sandbox.pids_max + RUNTIME_PIDS),
        cpu_weight: given.cpu_weight,
    };
    let lacks = runner.lacks(wanted);
    Limits {
        memory_max: wanted.memory_max.filter(|_| !lacks.contains(&"memory")),
        pids_max: wanted.pids_max.filter(|_| !lacks.contains(&"pids")),
        cpu_weight: wanted.cpu_weight,
    }
}

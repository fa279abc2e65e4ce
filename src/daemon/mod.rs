//! Starts and stops the daemon, in order, and keeps systemd and the configuration in step with it.
//! Everything a call needs is below: this room only owns the process.

mod check;
mod housekeeping;
mod memory;
mod policy;
mod process;
mod reload;
mod service;
mod signals;
mod socket;
mod state;
mod telemetry;
mod watchdog;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;

use crate::api::{self, Api, Backlog, EdgeSettings, Limits, Routes};
use crate::config::{
    ConfigError, ExecutorConfig, Places, REMEMBERED_DIR, Settings, SpoolConfig,
    socket_from_environment,
};
use crate::domain::{Doorkeeper, KillMode};
use crate::grpc;
use crate::pipeline::{Executor, StartError, Started};
use crate::policy::Policy;
use policy::PolicyFiles;
use reload::{Configuration, WereRead};
use signals::Signals;
use socket::Socket;
use state::{Chosen, State};
use telemetry::Courier;

pub use crate::pipeline::{SkillCheck, SkillProblem};
pub use check::{
    CheckedSkill, ConfigCheck, InvalidConfig, PolicyCheck, check_config, check_policy, check_skill,
};
pub use policy::UnusablePolicy;
pub use telemetry::TelemetryError;

/// The policy's file, beside the configuration.
const POLICY_FILE: &str = "policy.toml";

/// How long connections may take to close after the last execution has ended. What is left then
/// is clients that do not read.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// What systemd is asked for beyond the drain and the kills that follow it: time for what is written at the end.
const STOP_MARGIN: Duration = Duration::from_secs(10);

/// How many clients beyond `max_connections` are told so at the same time.
const MAX_REFUSALS: usize = 64;

/// Where things are; `None` asks for the places of the user who runs the daemon.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `--socket`; `SHELLY_SOCKET` names it as well, where this does not.
    pub socket: Option<PathBuf>,
    /// `--state`.
    pub state: Option<PathBuf>,
}

/// What kept the daemon from starting or running.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The policy is not valid.
    #[error(transparent)]
    Policy(#[from] UnusablePolicy),
    /// The log cannot be written.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// The state directory cannot be used.
    #[error("cannot use the state directory `{}`", path.display())]
    State {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The socket cannot be had.
    #[error("cannot listen on `{}`", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Processes cannot be run the way the configuration demands, or not recorded.
    #[error(transparent)]
    Executor(#[from] StartError),
    /// The event loop cannot be had.
    #[error("cannot set up the event loop")]
    EventLoop(#[source] io::Error),
}

/// Runs the daemon until it is told to stop.
///
/// # Errors
/// What kept it from starting. Once it runs it only ends in order.
pub fn run(options: &Options) -> Result<(), DaemonError> {
    signals::block().map_err(DaemonError::EventLoop)?;
    let config_path = config_path(options);
    let (settings, was_read) = read_settings(options)?;
    let path = state_path(options);
    let in_state = |source| DaemonError::State {
        path: path.clone(),
        source,
    };
    // Approvals that are remembered are in there.
    let chosen = match options.state {
        Some(_) => Chosen::Named,
        None => Chosen::Usual,
    };
    State::check(&path, chosen).map_err(in_state)?;
    let policy_files = policy_files(options);
    let policy = policy_files.read(false, &settings.executor.files)?;
    let (filter, courier) = telemetry::start(&settings.log)?;
    process::prepare();
    Executor::prepare_process();

    let state = State::open(&path, chosen).map_err(in_state)?;
    Executor::hold_until_execve(state.lock()).map_err(in_state)?;

    // One thread for all that waits: a command then costs no switch between threads, and what
    // would block has threads of its own (see docs/performance.md).
    let event_loop = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(DaemonError::EventLoop)?;
    let socket_path = options.socket.clone().or_else(socket_from_environment);
    let default_socket = Places::for_this_user().socket;
    let reached_at = socket_path.as_ref().unwrap_or(&default_socket);
    let configuration = Configuration::new(
        config_path,
        settings,
        WereRead {
            configuration: was_read.into(),
            policy: policy.main_file().is_some().into(),
        },
        reload::Surroundings {
            policy_files,
            places: state.places(),
            filter,
            socket: absolute(reached_at.clone()),
        },
    );
    let started = Start {
        configuration,
        policy,
        asked_socket: socket_path,
        default_socket,
    };
    let result = event_loop.block_on(start(started, &state, &courier));
    // Threads that still read from something unkillable must not hold up the end.
    event_loop.shutdown_background();
    courier.end();
    result
}

/// What was read before the event loop began.
struct Start {
    configuration: Configuration,
    policy: Policy,
    asked_socket: Option<PathBuf>,
    default_socket: PathBuf,
}

/// Everything that needs the event loop, in the order in which it depends on each other.
async fn start(start: Start, state: &State, courier: &Courier) -> Result<(), DaemonError> {
    let Start {
        configuration,
        policy,
        asked_socket,
        default_socket,
    } = start;
    let signals = Signals::new().map_err(DaemonError::EventLoop)?;
    // Before the socket: whoever connects must find the last daemon's commands gone.
    let settings = configuration.settings();
    let config = configuration.executor_config(&settings, state.instance());
    let Started {
        executor,
        killed,
        lost,
        waiting,
    } = Executor::start(config)?;
    // On the other processor: whoever connects first need not wait for it, unless it is with a call.
    drop(tokio::task::spawn_blocking(Executor::prepare_calls));
    executor.set_policy(policy);
    executor.load_skills();
    executor.resume(waiting);
    if killed > 0 {
        tracing::warn!(
            killed,
            "killed what the last daemon on this state directory left running"
        );
    }
    if lost > 0 {
        tracing::warn!(
            lost,
            "what became of executions that were under way when the last daemon died is not known; their records say so"
        );
    }
    let path = asked_socket.clone().unwrap_or(default_socket);
    let socket = Socket::open(asked_socket.as_deref(), &path)
        .map_err(|source| DaemonError::Socket { path, source })?;
    let mode = match executor.mode() {
        KillMode::Cgroup => "cgroup",
        KillMode::Group => "process group",
    };
    tracing::info!(socket = %socket.path().display(), "listening; process trees are held together by {mode}");
    // Not before the ledger's writer has memory of its own (`memory::tune`).
    if let Err(error) = courier.carry() {
        tracing::warn!(%error, "there is no thread for the log: a journal that stands still will hold up everything");
    }

    process::tell_of_few_descriptors(settings.max_connections);
    let api = Api::new(executor, edge_settings(&settings));
    let limits = Limits {
        max_connections: settings.max_connections,
        max_refusals: MAX_REFUSALS,
    };
    let Socket { listener, guard } = socket;
    let daemon = Daemon {
        api,
        limits,
        configuration,
        signals,
        probe: guard.path().to_owned(),
    };
    let executor = daemon.api.executor.clone();
    daemon.run(listener, guard.backlog()).await;
    drop(guard);
    if executor.running() == 0
        && process::is_alone()
        && let Err(error) = state.leave()
    {
        tracing::warn!(%error, "the next daemon on this state directory will kill what carries the mark of this one");
    }
    Ok(())
}

/// A daemon that has all it needs.
struct Daemon {
    api: Api,
    limits: Limits,
    configuration: Configuration,
    signals: Signals,
    /// The socket it probes itself through.
    probe: PathBuf,
}

impl Daemon {
    async fn run(self, listener: UnixListener, backlog: Backlog) {
        let Self {
            api,
            limits,
            configuration,
            mut signals,
            probe,
        } = self;
        // As long as this is there, executions in the sandbox make their calls.
        let doors: Arc<dyn Doorkeeper> = Arc::new(api::Doors::new(api.clone()));
        api.executor.set_doorkeeper(Arc::downgrade(&doors));
        let (close, closing) = tokio::sync::oneshot::channel::<()>();
        let closing = async { drop(closing.await) };
        let routes = Routes::new(api.clone()).with_grpc(grpc::router(&api));
        let serving = tokio::spawn(api::serve(listener, backlog, routes, limits, closing));

        let background = [
            tokio::spawn(watchdog::keep(probe)),
            tokio::spawn(housekeeping::keep(api.clone())),
            tokio::spawn(housekeeping::keep_spool(api.clone())),
        ];
        configuration.follow(&api, &mut signals).await;

        let grace = configuration.settings().shutdown_grace;
        api.health.set_stopping();
        service::stopping(grace + kills(&api.executor.config()) + STOP_MARGIN);
        service::status(&housekeeping::status_line(&api, &[]));
        tracing::info!(running = api.executor.running(), "stopping");
        let over = async {
            // A second signal means now.
            let _ = tokio::time::timeout(grace, signals.stop()).await;
        };
        api.executor.shut_down_after(over).await;
        api.health.set_ended();
        let _ = close.send(());
        let closed = tokio::time::timeout(CLOSE_GRACE, serving);
        let (closed, ()) = tokio::join!(closed, api.executor.end_spans());
        if closed.is_err() {
            tracing::warn!(
                "closed connections whose clients did not read their answers, or had not sent all of a request"
            );
        }
        for task in background {
            task.abort();
        }
        // A disk may take its time.
        let _ = tokio::time::timeout(CLOSE_GRACE, api.executor.settle_cancelled()).await;
        // With all that was still to be written.
        api.executor.close();
        housekeeping::tell_audit_head(&api);
    }
}

/// How long the last executions may take to end when the drain is over, with what they have left behind.
fn kills(config: &ExecutorConfig) -> Duration {
    // What is killed is waited for up to four times, of what is kept in the background once more.
    config.kill_grace + config.drain + 5 * config.kill_wait
}

fn edge_settings(settings: &Settings) -> EdgeSettings {
    EdgeSettings {
        access: settings.access.clone(),
        max_request_bytes: settings.max_request_bytes,
    }
}

/// Reads the configuration that was named, or the one at the usual place if there is one; and whether it was read.
fn read_settings(options: &Options) -> Result<(Settings, bool), ConfigError> {
    let path = config_path(options);
    let settings = match &options.config {
        Some(_) => Some(Settings::read(&path)?),
        None => Settings::read_if_there(&path)?,
    };
    match settings {
        Some(settings) => Ok((settings, true)),
        None => Ok((Settings::shipped()?, false)),
    }
}

fn config_path(options: &Options) -> PathBuf {
    let named = options.config.clone();
    absolute(named.unwrap_or_else(|| Places::for_this_user().config))
}

fn state_path(options: &Options) -> PathBuf {
    let named = options.state.clone();
    absolute(named.unwrap_or_else(|| Places::for_this_user().state))
}

/// What is said of a file in records and in the log has to mean something later and elsewhere, too.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

fn policy_files(options: &Options) -> PolicyFiles {
    PolicyFiles {
        path: config_path(options).with_file_name(POLICY_FILE),
        remembered: Some(state_path(options).join(REMEMBERED_DIR)),
    }
}

fn spool_config(settings: &Settings, dir: PathBuf) -> Option<SpoolConfig> {
    (settings.spool_max_bytes > 0 && settings.spool_total_bytes > 0).then_some(SpoolConfig {
        dir,
        max_bytes: settings.spool_max_bytes,
        total_bytes: settings.spool_total_bytes,
        lasting: true,
    })
}

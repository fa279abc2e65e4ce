use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;
use utoipa::ToSchema;

use super::Api;
use super::json::{json_response, to_json};
use crate::domain::{Degradation, whole_millis};
use crate::pipeline::{CircuitState, SandboxState, SelfTest};

/// A configuration that takes longer than this to read is reported as a problem.
const LONGEST_READING: Duration = Duration::from_secs(2);

/// What is known of the daemon besides its executions.
#[derive(Debug)]
pub struct Health {
    started: Instant,
    stopping: watch::Sender<bool>,
    /// Whether nothing happens any more.
    ended: watch::Sender<bool>,
    configuration: Mutex<Vec<Degradation>>,
    /// Which configuration is read at present, and since when.
    reading: Mutex<Option<(PathBuf, Instant)>>,
}

/// The configuration is read for as long as this lives.
#[must_use]
pub struct Reading<'a>(&'a Health);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        *self.0.reading.lock() = None;
    }
}

impl Health {
    pub(super) fn new(started: Instant) -> Self {
        Self {
            started,
            stopping: watch::Sender::new(false),
            ended: watch::Sender::new(false),
            configuration: Mutex::default(),
            reading: Mutex::default(),
        }
    }

    /// Says what is wrong with the configuration on disk; nothing when `problems` is empty.
    pub fn set_configuration(&self, problems: Vec<Degradation>) {
        *self.configuration.lock() = problems;
    }

    /// Says that the configuration at `path` is read, which takes for good where its file system does not answer.
    pub fn begin_reading(&self, path: &Path) -> Reading<'_> {
        *self.reading.lock() = Some((path.to_owned(), Instant::now()));
        Reading(self)
    }

    /// That the configuration does not come, if it does not.
    fn stalled(&self) -> Option<Degradation> {
        let reading = self.reading.lock();
        let (path, since) = reading.as_ref()?;
        let age = since.elapsed();
        (age >= LONGEST_READING).then(|| Degradation {
            code: "config_stalled",
            detail: format!(
                "for {}s the configuration has been read, and what is beside it, and it does not come; what was in force stays in force. See that the file systems and the directory service (getent passwd) answer",
                age.as_secs()
            ),
            source: path.display().to_string(),
        })
    }

    /// What is wrong with the configuration on disk.
    pub fn configuration(&self) -> Vec<Degradation> {
        self.configuration.lock().clone()
    }

    /// Says that no new calls are taken.
    pub fn set_stopping(&self) {
        self.stopping.send_replace(true);
    }

    /// Says that nothing happens any more, and lets those go who listen for it.
    pub fn set_ended(&self) {
        self.ended.send_replace(true);
    }

    /// Waits until nothing happens any more.
    pub(crate) async fn ended(&self) {
        // It lives as long as this does.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// Waits until no new calls are taken.
    pub(crate) async fn stopping(&self) {
        // It lives as long as this does.
        let _ = self.stopping.subscribe().wait_for(|stops| *stops).await;
    }

    /// Whether no new calls are taken.
    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }
}

impl Api {
    /// Everything that does not work as it should.
    pub async fn degradations(&self) -> Vec<Degradation> {
        let mut all = self.health.configuration();
        all.extend(self.health.stalled());
        all.extend(self.executor.degradations().await);
        all.extend(
            self.health.is_stopping().then(|| Degradation {
                code: "shutting_down",
                detail: "the daemon is stopping: running commands may end, new calls are refused"
                    .to_owned(),
                source: "shelly-executord".to_owned(),
            }),
        );
        all
    }
}

/// How well the daemon is.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum HealthStatus {
    Ok,
    Degraded,
}

/// The daemon's own account of itself.
#[derive(Serialize, ToSchema)]
#[schema(as = Health)]
pub(super) struct HealthBody {
    /// `degraded` exactly when there are problems.
    status: HealthStatus,
    /// The daemon's version.
    version: &'static str,
    /// For how long it has run, in seconds.
    uptime_secs: u64,
    /// How many executions run.
    running: usize,
    /// The policy in force.
    policy: PolicyBody,
    /// The sandbox, in which untrusted calls run.
    sandbox: SandboxBody,
    /// Tools that are left alone, or are to be tried by their next call, for they have failed: `open` or
    /// `half_open`, by name. The former are among the problems.
    circuits: BTreeMap<String, CircuitWord>,
    /// What does not work as it should.
    problems: Vec<DegradationBody>,
}

/// Where the circuit of a tool stands that has failed.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Circuit)]
enum CircuitWord {
    Open,
    HalfOpen,
}

impl CircuitWord {
    fn of(state: CircuitState) -> Option<Self> {
        match state {
            CircuitState::Closed => None,
            CircuitState::Open => Some(Self::Open),
            CircuitState::HalfOpen => Some(Self::HalfOpen),
        }
    }
}

/// Which policy is in force.
#[derive(Serialize, ToSchema)]
#[schema(as = Policy)]
struct PolicyBody {
    /// Its file; `null` where there is none, and the built-in policy allows everything.
    #[schema(required)]
    file: Option<String>,
    /// How many rules it has, approvals that are remembered among them.
    rules: usize,
    /// How many of them are such approvals.
    remembered: usize,
}

fn policy(api: &Api) -> PolicyBody {
    let policy = api.executor.policy();
    PolicyBody {
        file: policy.main_file().map(|file| file.display().to_string()),
        rules: policy.rule_count(),
        remembered: policy.remembered().count(),
    }
}

/// How the sandbox is.
#[derive(Serialize, ToSchema)]
#[schema(as = Sandbox)]
struct SandboxBody {
    /// The OCI runtime that is configured.
    runtime: String,
    /// Its version, once it was asked.
    #[schema(required)]
    version: Option<String>,
    /// How many wait for a call, or are being started for one that may come.
    ready: usize,
    /// `untested` as long as nothing is configured to run in it.
    self_test: SelfTestWord,
    /// How long the test took, from nothing to the end of a command, in milliseconds.
    #[schema(required)]
    self_test_ms: Option<u64>,
    /// Why it failed, and what to do.
    #[schema(required)]
    detail: Option<String>,
}

/// What came of the test.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = SelfTest)]
enum SelfTestWord {
    Untested,
    Passed,
    Failed,
}

impl From<SandboxState> for SandboxBody {
    fn from(state: SandboxState) -> Self {
        let (self_test, took, detail) = match state.self_test {
            SelfTest::Untested => (SelfTestWord::Untested, None, None),
            SelfTest::Passed(took) => (SelfTestWord::Passed, Some(took), None),
            SelfTest::Failed(detail) => (SelfTestWord::Failed, None, Some(detail)),
        };
        Self {
            runtime: state.runtime,
            version: state.version,
            ready: state.ready,
            self_test,
            self_test_ms: took.map(whole_millis),
            detail,
        }
    }
}

fn circuits(api: &Api) -> BTreeMap<String, CircuitWord> {
    let tools = api.executor.flow().tools.into_iter();
    let states = tools.filter_map(|(name, tool)| Some((name, tool.circuit?)));
    let words = states.map(|(name, state)| Some((name, CircuitWord::of(state)?)));
    words.flatten().collect()
}

/// Something that does not work as it should.
#[derive(Serialize, ToSchema)]
#[schema(as = Degradation)]
struct DegradationBody {
    /// A stable word for it.
    code: &'static str,
    /// What is wrong and what to do.
    detail: String,
    /// The file or part it comes from.
    source: String,
}

/// How the daemon is.
#[utoipa::path(
    get, path = "/health", tag = "daemon", operation_id = "health",
    responses((status = 200, description = "It answers; `status` says how well it is.", body = HealthBody))
)]
pub(super) async fn show(State(api): State<Api>) -> Response {
    let problems: Vec<DegradationBody> = api
        .degradations()
        .await
        .into_iter()
        .map(
            |Degradation {
                 code,
                 detail,
                 source,
             }| DegradationBody {
                code,
                detail,
                source,
            },
        )
        .collect();
    let body = HealthBody {
        status: if problems.is_empty() {
            HealthStatus::Ok
        } else {
            HealthStatus::Degraded
        },
        version: env!("CARGO_PKG_VERSION"),
        uptime_secs: api.health.started.elapsed().as_secs(),
        running: api.executor.running(),
        policy: policy(&api),
        sandbox: api.executor.sandbox().into(),
        circuits: circuits(&api),
        problems,
    };
    json_response(StatusCode::OK, to_json(&body))
}

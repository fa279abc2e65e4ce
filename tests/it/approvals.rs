//! Random sequences of requests, answers, changes, lapses and restarts against a model of a few
//! lines: what runs has been approved as it is, once, and by nobody else.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;
use shelly_executor::config::{Durability, LedgerConfig};
use shelly_executor::domain::{Call, Caller, ExecutionId, Remember, Status};
use shelly_executor::pipeline::{Answer, Approvals, Begun, CannotDecide, Found, Terms};
use shelly_executor::policy::{Policy, Source};
use shelly_executor::{Executor, ExecutorConfig};

use crate::support::scratch;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Somebody calls, and does not wait.
    Request,
    /// The same, and nobody answers in time.
    Lapse,
    Approve(usize),
    Deny(usize),
    /// What the call runs is another script from now on.
    Change(usize),
    Cancel(usize),
    Restart,
}

/// How a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stands {
    Waiting { changed: bool },
    Over(Status),
}

struct Request {
    id: ExecutionId,
    script: PathBuf,
    stands: Stands,
}

fn step() -> impl Strategy<Value = Step> {
    let which = 0..6usize;
    prop_oneof![
        4 => Just(Step::Request),
        1 => Just(Step::Lapse),
        4 => which.clone().prop_map(Step::Approve),
        2 => which.clone().prop_map(Step::Deny),
        2 => which.clone().prop_map(Step::Change),
        1 => which.prop_map(Step::Cancel),
        1 => Just(Step::Restart),
    ]
}

fn config(dir: &Path) -> ExecutorConfig {
    let mut config = ExecutorConfig {
        ledger: Some(LedgerConfig {
            file: dir.join("ledger.db"),
            durability: Durability::Process,
        }),
        ..ExecutorConfig::default()
    };
    config.confirmation.has_approvers = true;
    config.confirmation.self_approval = true;
    config
}

/// Everything that a sequence acts on.
struct World {
    dir: PathBuf,
    executor: Executor,
    requests: Vec<Request>,
}

impl World {
    fn new() -> Self {
        let dir = scratch();
        let executor = Self::start(&dir);
        Self {
            dir,
            executor,
            requests: Vec::new(),
        }
    }

    fn start(dir: &Path) -> Executor {
        let started = Executor::start(config(dir)).expect("started");
        let source = Source {
            path: Path::new("policy.toml"),
            text: "default = \"ask\"\n",
        };
        let policy = Policy::parse(&[source]).expect("valid");
        started.executor.set_policy(policy);
        started.executor.resume(started.waiting);
        started.executor
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Request => self.request(Duration::from_secs(600)).await,
            Step::Lapse => {
                self.request(Duration::from_millis(1)).await;
                let at = self.requests.len() - 1;
                self.ends(at, Status::Denied).await;
            }
            Step::Approve(at) => self.answer(at, true).await,
            Step::Deny(at) => self.answer(at, false).await,
            Step::Change(at) => {
                let Some(request) = self.requests.get_mut(at) else {
                    return;
                };
                // Longer than before, so that no clock is too coarse to tell.
                let more = fs::read_to_string(&request.script).expect("ours") + ": more\n";
                fs::write(&request.script, more).expect("ours");
                if let Stands::Waiting { changed } = &mut request.stands {
                    *changed = true;
                }
            }
            Step::Cancel(at) => {
                let Some(request) = self.requests.get(at) else {
                    return;
                };
                let found = self.find(request.id).await;
                if let Some(Found::Live(execution)) = found
                    && execution.finished().is_none()
                {
                    execution.stop(shelly_executor::domain::StopReason::Cancelled);
                    self.ends(at, Status::Cancelled).await;
                }
            }
            Step::Restart => {
                self.executor.shut_down(Duration::ZERO).await;
                self.executor.close();
                self.executor = Self::start(&self.dir);
            }
        }
    }

    async fn request(&mut self, patience: Duration) {
        let mut config = config(&self.dir);
        config.confirmation.async_timeout = patience;
        self.executor.reconfigure(config);
        let script = self.dir.join(format!("script{}", self.requests.len()));
        fs::write(&script, format!("echo x >>{}.ran\n", script.display())).expect("ours");
        let call = Call::new(
            "bash",
            json!({"command": format!("sh {}", script.display())}),
        );
        let terms = Terms {
            asynchronous: true,
            ..Terms::default()
        };
        let begun = self.executor.begin(call, Caller::this_process(), terms);
        let Begun::New(execution) = begun.await else {
            panic!("not begun");
        };
        execution.asking().await;
        self.requests.push(Request {
            id: execution.id,
            script,
            stands: Stands::Waiting { changed: false },
        });
    }

    async fn answer(&mut self, at: usize, approves: bool) {
        let Some(request) = self.requests.get(at) else {
            return;
        };
        let all = self
            .executor
            .approvals(Approvals::All, |approval| approval)
            .await
            .expect("read");
        let asked = all.iter().find(|asked| asked.execution_id == request.id);
        let asked = asked.expect("it was asked about");
        let answer = Answer {
            approves,
            reason: None,
            remember: Remember::Once,
        };
        let by = Caller::this_process();
        let decided = self.executor.decide(asked.id, &by, answer).await;
        match request.stands {
            Stands::Over(_) => {
                assert!(
                    matches!(decided, Err(CannotDecide::Decided(_))),
                    "{decided:?}"
                );
            }
            Stands::Waiting { changed } => {
                decided.expect("the first to answer");
                let status = match (approves, changed) {
                    (true, false) => Status::Success,
                    (true, true) | (false, _) => Status::Denied,
                };
                self.ends(at, status).await;
            }
        }
    }

    async fn find(&self, id: ExecutionId) -> Option<Found> {
        self.executor.find(id).await.expect("read")
    }

    /// Waits for the end of a request, which must be this.
    async fn ends(&mut self, at: usize, status: Status) {
        let request = &mut self.requests[at];
        if request.stands == Stands::Over(status) {
            return;
        }
        if let Some(Found::Live(execution)) = self.executor.find(request.id).await.expect("read") {
            execution.wait().await;
        }
        request.stands = Stands::Over(status);
    }

    /// Holds everything against the model.
    async fn check(&self) {
        for request in &self.requests {
            let status = match self.find(request.id).await.expect("remembered") {
                Found::Live(execution) => execution.record().status,
                Found::Past(record) => record.status,
            };
            let expected = match request.stands {
                Stands::Waiting { .. } => Status::Waiting,
                Stands::Over(status) => status,
            };
            assert_eq!(status, expected);
            let ran = fs::read_to_string(format!("{}.ran", request.script.display()));
            let times = ran.map_or(0, |text| text.lines().count());
            assert_eq!(times, usize::from(status == Status::Success));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.executor.close();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 40, ..ProptestConfig::default() })]

    #[test]
    fn what_runs_was_approved_as_it_is_and_once(steps in vec(step(), 1..20)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let mut world = World::new();
            for step in steps {
                world.take(step).await;
                world.check().await;
            }
        });
    }
}

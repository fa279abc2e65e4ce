//! The service of the contract over the pipeline.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use tonic::{Request, Response, Status, async_trait};

use super::answer::{Subject, response};
use super::deadline::Deadline;
use super::proto::tool_executor_server::ToolExecutor;
use super::proto::{
    ExecuteToolRequest, ExecuteToolResponse, GetToolRequest, ListToolsRequest, ListToolsResponse,
    ToolSpec,
};
use super::status::{of_failure, of_refusal};
use super::{call, stream};
use crate::api::{self, Api, Asked, Code, Opened, Peer, Refusal, Watch};
use crate::domain::{Call, Digest, ToolDetails};
use crate::pipeline::{Execution, Finished, Record, Terms, beside};

/// Answers the calls of the contract.
pub(super) struct Tools(Api);

/// An execution that somebody waits for over gRPC. Dropped before its end, they have taken their call
/// back, or their deadline has come.
pub(super) struct Waiting {
    pub(super) watch: Watch,
    pub(super) deadline: Option<Deadline>,
}

impl Waiting {
    /// Completes when nobody waits any more, the execution having been told why.
    pub(super) async fn given_up(&self) {
        let deadline = async {
            match self.deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = deadline => self.stop_at_deadline(),
            () = self.watch.peer.hung_up() => self.watch.give_up(),
        }
    }

    fn stop_at_deadline(&self) {
        if let Some(deadline) = self.deadline.filter(|_| !self.watch.outlives_client) {
            self.watch.execution.stop(deadline.reason());
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let is_due = self.deadline.is_some_and(Deadline::is_due);
        if is_due && self.watch.execution.finished().is_none() {
            // A client takes its call back at its deadline: so it counts as a timeout, not as a cancel. The first
            // reason counts.
            self.stop_at_deadline();
        }
    }
}

/// What has become of a request.
pub(super) enum Taken {
    UnderWay(Waiting),
    Repeated(Box<Record>),
}

impl Tools {
    pub(super) fn new(api: Api) -> Self {
        Self(api)
    }

    pub(super) fn api(&self) -> &Api {
        &self.0
    }

    /// Begins what a request asks for.
    pub(super) async fn take(&self, request: Request<ExecuteToolRequest>) -> Result<Taken, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let headers = metadata.into_headers();
        let peer = extensions.get::<Peer>().cloned();
        let peer = peer.ok_or_else(|| of_refusal(api::no_peer()))?;
        let taken = api::undivided(take(self.0.clone(), peer, headers, message));
        taken.await.map_err(of_refusal)
    }
}

async fn take(
    api: Api,
    peer: Peer,
    headers: HeaderMap,
    message: ExecuteToolRequest,
) -> Result<Taken, Refusal> {
    let deadline = Deadline::of(&headers)?;
    let body = call::body(&message)?;
    drop(message);
    let digest = match headers.contains_key("idempotency-key") {
        true => Digest::of(&body),
        false => Digest::ZERO,
    };
    let call = api::parse(body, &api).await;
    let mut call = call.map_err(call::without_place)?;
    if let Some(deadline) = deadline {
        if deadline.is_past() {
            let detail = "the deadline had passed before anything was run";
            return Err(Refusal::new(Code::Timeout, detail).of_call(call.tool_use_id));
        }
        limit(&mut call, deadline.after, &api);
    }
    let asked = Asked { api, peer, headers };
    let (opened, _) = api::begin(asked, (call, digest), Terms::default()).await?;
    match opened {
        Opened::Repeated(record) => Ok(Taken::Repeated(record)),
        Opened::UnderWay(watch) => Ok(Taken::UnderWay(Waiting { watch, deadline })),
    }
}

/// Gives a call no more time than its client has.
fn limit(call: &mut Call, time: Duration, api: &Api) {
    let version = call.options.tool_version.as_deref();
    let usual = || {
        api.executor
            .tool(&call.tool, version)
            .map(|tool| tool.timeout)
    };
    let asked = call.options.timeout.or_else(|| usual().ok());
    if asked.is_some_and(|asked| time < asked) {
        call.options.timeout = Some(time);
    }
}

/// The answer to an execution that has ended.
fn answer(subject: Subject, finished: &Finished) -> Result<ExecuteToolResponse, Status> {
    match (&finished.failure, &finished.ran) {
        (Some(failure), _) => Err(of_failure(subject, finished, failure)),
        (None, Some(ran)) => {
            let content = Arc::unwrap_or_clone(finished.text());
            Ok(response(subject, ran, content, None))
        }
        // Unreachable: without a failure there was a run.
        (None, None) => Err(of_refusal(Refusal::new(Code::Internal, "nothing ran"))),
    }
}

/// The same of one that is still at hand: what takes long is kept off the event loop.
pub(super) async fn answered(
    execution: &Execution,
    finished: &Arc<Finished>,
) -> Result<ExecuteToolResponse, Status> {
    let subject = Subject::from(execution);
    match finished.takes_long() {
        false => answer(subject, finished),
        true => {
            let finished = Arc::clone(finished);
            beside(move || answer(subject, &finished)).await
        }
    }
}

/// The answer that a call got when it was made the first time.
pub(super) fn repeated(record: &Record) -> Result<ExecuteToolResponse, Status> {
    match &record.finished {
        Some(finished) => answer(Subject::from(record), finished),
        // It is repeated only once it has ended.
        None => Err(of_refusal(Refusal::new(Code::Internal, "it has not ended"))),
    }
}

#[async_trait]
impl ToolExecutor for Tools {
    type ExecuteToolStreamStream = stream::Events;

    async fn execute_tool(
        &self,
        request: Request<ExecuteToolRequest>,
    ) -> Result<Response<ExecuteToolResponse>, Status> {
        let waiting = match self.take(request).await? {
            Taken::UnderWay(waiting) => waiting,
            // What was answered is read from the disk.
            Taken::Repeated(record) => {
                let repeat = move || repeated(&record);
                return beside(repeat).await.map(Response::new);
            }
        };
        let execution = &waiting.watch.execution;
        let finished = tokio::select! {
            biased;
            finished = execution.wait() => finished,
            () = waiting.given_up() => execution.wait().await,
        };
        answered(execution, finished).await.map(Response::new)
    }

    async fn execute_tool_stream(
        &self,
        request: Request<ExecuteToolRequest>,
    ) -> Result<Response<stream::Events>, Status> {
        match self.take(request).await? {
            Taken::UnderWay(waiting) => stream::follow(self.api().clone(), waiting).await,
            Taken::Repeated(record) => stream::repeat(self.api(), record).await,
        }
        .map(Response::new)
    }

    async fn get_tool(
        &self,
        request: Request<GetToolRequest>,
    ) -> Result<Response<ToolSpec>, Status> {
        let GetToolRequest {
            tool_name,
            tool_version,
        } = request.into_inner();
        let executor = &self.0.executor;
        let (reading, named) = (executor.clone(), tool_name.clone());
        let tool = beside(move || reading.tool(&named, tool_version.as_deref())).await;
        let tool =
            tool.map_err(|error| of_refusal(Refusal::new(Code::UnknownTool, error.to_string())))?;
        let spec = ToolSpec {
            versions: executor.tool_versions(&tool_name),
            ..spec(tool)
        };
        Ok(Response::new(spec))
    }

    async fn list_tools(
        &self,
        _: Request<ListToolsRequest>,
    ) -> Result<Response<ListToolsResponse>, Status> {
        let executor = &self.0.executor;
        let reading = executor.clone();
        let tools = beside(move || reading.tools()).await;
        let tools = tools.into_iter().map(|tool| ToolSpec {
            versions: executor.tool_versions(&tool.definition.name),
            ..spec(tool)
        });
        let tools = tools.collect();
        Ok(Response::new(ListToolsResponse { tools }))
    }
}

fn spec(tool: ToolDetails) -> ToolSpec {
    ToolSpec {
        name: tool.definition.name,
        description: tool.definition.description,
        input_schema_json: tool.definition.input_schema.to_string(),
        version: tool.version,
        versions: Vec::new(),
        risk_level: tool.risk_level.as_str().to_owned(),
        category: tool.category,
        timeout_secs: tool.timeout.as_secs_f64(),
        output_schema_json: tool.output_schema.map(|schema| schema.to_string()),
        source: tool.source,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::{Context, Waker};

    use serde_json::json;
    use tokio::runtime::Builder;
    use tokio::task::spawn_blocking;

    use super::*;
    use crate::domain::Caller;
    use crate::pipeline::{Begun, Executor};

    #[test]
    fn a_long_answer_is_made_off_the_event_loop() {
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(1).build();
        runtime.expect("a runtime").block_on(async {
            let mut config = (*Executor::new(Default::default()).config()).clone();
            config.max_output_bytes = 4 << 20;
            let executor = Executor::new(config);
            for (bytes, is_long) in [(1000, false), (3 << 20, true)] {
                let command = format!("yes | head -c {bytes}");
                let call = Call::new("bash", json!({"command": command}));
                let begun = executor.begin(call, Caller::this_process(), Terms::default());
                let Begun::New(execution) = begun.await else {
                    panic!("nothing keeps it from beginning");
                };
                let finished = execution.wait().await;
                // The only thread that there is for such things is busy until it is told to go on.
                let (go_on, told) = mpsc::channel::<()>();
                let busy = spawn_blocking(move || told.recv());
                let mut answered = std::pin::pin!(answered(&execution, finished));
                let mut context = Context::from_waker(Waker::noop());
                let at_once = answered.as_mut().poll(&mut context);
                assert_eq!(at_once.is_pending(), is_long, "{bytes}");
                drop(go_on);
                let _ = busy.await;
                if is_long {
                    let answer = answered.await.expect("it ran");
                    assert_eq!(answer.stdout_bytes, bytes);
                }
            }
        });
    }
}

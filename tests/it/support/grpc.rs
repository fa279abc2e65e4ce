use std::os::unix::net::UnixStream;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http;
use futures_util::{Stream, StreamExt, stream};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use serde_json::{Map, Value, json};
use shelly_executor::grpc::proto::{
    ExecuteToolEvent, ExecuteToolRequest, ExecuteToolResponse, Problem, Sandbox,
    execute_tool_event::Event,
};
use tokio::runtime::Runtime;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::{IntoRequest, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

/// There so that a daemon that never answers fails its test instead of hanging it.
const LONGEST_ANSWER: Duration = Duration::from_secs(120);

/// A client of one connection that speaks gRPC with the library's half that the daemon does not use.
pub struct Grpc {
    runtime: Runtime,
    channel: Channel,
    client: tonic::client::Grpc<Channel>,
}

/// A call that goes on while the test does something else. Dropped, it is taken back.
pub struct Pending<T> {
    task: tokio::task::JoinHandle<Result<T, Status>>,
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What is streamed. Dropped, the call is taken back.
pub struct GrpcEvents<'a> {
    client: &'a Grpc,
    events: Streaming<ExecuteToolEvent>,
}

#[derive(Clone)]
struct Channel(SendRequest<Body>);

impl Service<http::Request<Body>> for Channel {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

impl Grpc {
    /// Connects as whoever calls this.
    pub fn open(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("the daemon listens");
        stream.set_nonblocking(true).expect("a socket");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let sender = runtime.block_on(async {
            let stream = tokio::net::UnixStream::from_std(stream).expect("a socket");
            let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .expect("HTTP/2");
            tokio::spawn(connection);
            sender
        });
        let origin = http::Uri::from_static("http://localhost");
        let channel = Channel(sender);
        let client = tonic::client::Grpc::with_origin(channel.clone(), origin)
            .max_decoding_message_size(usize::MAX);
        Self {
            runtime,
            channel,
            client,
        }
    }

    /// Begins a call over JSON on the same connection, and reads its answer to the end.
    pub fn begin_json(&self, body: &Value, accept: &str) -> Pending<()> {
        let request = http::Request::post("http://localhost/execute")
            .header("accept", accept)
            .body(Body::new(axum::body::Body::from(body.to_string())))
            .expect("a request");
        let mut channel = self.channel.clone();
        let task = self.runtime.spawn(async move {
            let failed = |error: hyper::Error| Status::from_error(error.into());
            let answer = channel.call(request).await.map_err(failed)?;
            let mut body = axum::body::Body::new(answer.into_body()).into_data_stream();
            while body.next().await.is_some() {}
            Ok(())
        });
        Pending { task }
    }

    /// Calls a method that is answered once.
    pub fn unary<Q, A>(&self, path: &'static str, request: Request<Q>) -> Result<A, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut pending = self.begin(path, request);
        self.end(&mut pending)
    }

    /// Begins such a call.
    pub fn begin<Q, A>(&self, path: &'static str, request: Request<Q>) -> Pending<A>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut client = self.client.clone();
        let task = self.runtime.spawn(async move {
            client
                .ready()
                .await
                .map_err(|error| Status::from_error(error.into()))?;
            let path = http::uri::PathAndQuery::from_static(path);
            let answer = client.unary(request, path, ProstCodec::<Q, A>::default());
            answer.await.map(Response::into_inner)
        });
        Pending { task }
    }

    /// Waits for the answer.
    #[track_caller]
    pub fn end<A>(&self, pending: &mut Pending<A>) -> Result<A, Status> {
        let answer = async { tokio::time::timeout(LONGEST_ANSWER, &mut pending.task).await };
        let answer = self.runtime.block_on(answer).expect("an answer in time");
        answer.expect("not taken back")
    }

    /// Runs a call to its end.
    pub fn execute(
        &self,
        request: impl IntoRequest<ExecuteToolRequest>,
    ) -> Result<ExecuteToolResponse, Status> {
        self.unary(EXECUTE, request.into_request())
    }

    /// Begins a call.
    pub fn begin_execute(
        &self,
        request: impl IntoRequest<ExecuteToolRequest>,
    ) -> Pending<ExecuteToolResponse> {
        self.begin(EXECUTE, request.into_request())
    }

    /// Runs a call and follows it.
    pub fn stream(
        &self,
        request: impl IntoRequest<ExecuteToolRequest>,
    ) -> Result<GrpcEvents<'_>, Status> {
        let events = self.server_streaming(STREAM, request.into_request())?;
        Ok(GrpcEvents {
            client: self,
            events,
        })
    }

    /// Calls a method that is answered with a stream.
    pub fn server_streaming<Q, A>(
        &self,
        path: &'static str,
        request: Request<Q>,
    ) -> Result<Streaming<A>, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut client = self.client.clone();
        self.runtime.block_on(async move {
            client
                .ready()
                .await
                .map_err(|error| Status::from_error(error.into()))?;
            let path = http::uri::PathAndQuery::from_static(path);
            let answer = client.server_streaming(request, path, ProstCodec::<Q, A>::default());
            answer.await.map(Response::into_inner)
        })
    }

    /// Calls a method that is asked one thing after the other. The questions have no end, as those of a
    /// client that may have more.
    pub fn conversation<Q, A>(
        &self,
        path: &'static str,
        questions: Vec<Q>,
    ) -> Result<Streaming<A>, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        self.ask(path, stream::iter(questions).chain(stream::pending()))
    }

    /// The same with questions that are all there are.
    pub fn all_at_once<Q, A>(
        &self,
        path: &'static str,
        questions: Vec<Q>,
    ) -> Result<Streaming<A>, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        self.ask(path, stream::iter(questions))
    }

    fn ask<Q, A>(
        &self,
        path: &'static str,
        questions: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut client = self.client.clone();
        self.runtime.block_on(async move {
            client
                .ready()
                .await
                .map_err(|error| Status::from_error(error.into()))?;
            let path = http::uri::PathAndQuery::from_static(path);
            let request = Request::new(questions);
            let answer = client.streaming(request, path, ProstCodec::<Q, A>::default());
            answer.await.map(Response::into_inner)
        })
    }

    /// The next message of a stream; `None` at its end.
    #[track_caller]
    pub fn message<A>(&self, stream: &mut Streaming<A>) -> Result<Option<A>, Status> {
        let next = async { tokio::time::timeout(LONGEST_ANSWER, stream.message()).await };
        self.runtime.block_on(next).expect("a message in time")
    }
}

/// The method that runs a call to its end.
pub const EXECUTE: &str = "/shelly.executor.v1.ToolExecutor/ExecuteTool";

/// The method that runs one and tells of it as it goes.
pub const STREAM: &str = "/shelly.executor.v1.ToolExecutor/ExecuteToolStream";

impl GrpcEvents<'_> {
    /// The next event; `None` at the end.
    #[track_caller]
    pub fn next(&mut self) -> Result<Option<Event>, Status> {
        let event = self.client.message(&mut self.events)?;
        Ok(event.map(|event| event.event.expect("one of them")))
    }
}

/// A call's JSON body as a message.
pub fn request_of(body: &Value) -> ExecuteToolRequest {
    let text = |member: &str| body[member].as_str().map(str::to_owned);
    let json = |member: &str| body.get(member).map(Value::to_string);
    let env = body["env"].as_object().into_iter().flatten();
    ExecuteToolRequest {
        tool_name: text("name").unwrap_or_default(),
        tool_version: text("tool_version"),
        risk_level: text("risk_level"),
        input_json: json("input").unwrap_or_default(),
        tenant_id: text("tenant_id"),
        trace_id: text("trace_id"),
        session_id: text("session_id"),
        tool_use_id: text("id"),
        timeout_secs: body["timeout_secs"].as_f64(),
        working_dir: text("working_dir"),
        env: env
            .map(|(name, value)| (name.clone(), value.as_str().expect("text").to_owned()))
            .collect(),
        stdin: text("stdin"),
        background: text("background"),
        workspace: text("workspace"),
        context_json: json("context"),
    }
}

fn sandbox_of(sandbox: &Sandbox) -> Value {
    let connections = sandbox.connections.iter();
    let connections = connections
        .map(|asked| json!({"to": asked.to, "result": asked.result, "count": asked.count}));
    json!({
        "runtime": sandbox.runtime,
        "version": sandbox.version,
        "connections": connections.collect::<Vec<_>>(),
    })
}

/// An answer as HTTP words it.
pub fn json_of(answer: &ExecuteToolResponse) -> Value {
    let usage = answer.usage.as_ref().expect("always there");
    let display = answer.display.as_ref().expect("always there");
    let background = answer.background.iter().map(|left| {
        json!({"pid": left.pid, "command": left.command, "held": left.held, "killed": left.killed})
    });
    let signal = answer.signal.as_ref();
    let sandbox = answer.sandbox.as_ref();
    let mut all = json!({
        "content": answer.content,
        "is_error": answer.is_error,
        "tool_use_id": answer.tool_use_id,
        "execution_id": answer.execution_id,
        "exit_code": answer.exit_code,
        "signal": signal.map(|signal| json!({"number": signal.number, "name": signal.name})),
        "oom_killed": answer.oom_killed,
        "duration_ms": answer.duration_ms,
        "truncated": answer.truncated,
        "stdout_bytes": answer.stdout_bytes,
        "stderr_bytes": answer.stderr_bytes,
        "background": background.collect::<Vec<_>>(),
        "usage": {"cpu_ms": usage.cpu_ms, "memory_peak_bytes": usage.memory_peak_bytes},
        "display": {
            "title": display.title,
            "summary": display.summary,
            "duration_ms": display.duration_ms,
            "exit": display.exit,
        },
        "risk_level": answer.risk_level,
        "sandbox": sandbox.map(sandbox_of),
    });
    if let Some(output) = &answer.output_json {
        all["output"] = serde_json::from_str(output).expect("JSON");
    }
    if let Some(kill) = &answer.kill {
        all["kill"] = json!({
            "by": kill.by,
            "reason": kill.reason,
            "signalled": kill.signalled,
            "survivors": kill.survivors,
        });
    }
    all
}

/// The details of a status, by their kinds.
pub fn details(status: &Status) -> Vec<(String, Vec<u8>)> {
    let all = tonic_types::pb::Status::decode(status.details()).expect("details");
    assert_eq!(all.code, i32::from(status.code()));
    assert_eq!(all.message, status.message());
    let kind = |url: &str| url.rsplit('/').next().unwrap_or_default().to_owned();
    let details = all.details.into_iter();
    details
        .map(|any| (kind(&any.type_url), any.value))
        .collect()
}

/// The problem that a status is, as the contract has it.
#[track_caller]
pub fn problem_of(status: &Status) -> Problem {
    let details = details(status);
    let problem = details
        .iter()
        .find(|(kind, _)| kind == "shelly.executor.v1.Problem");
    let (_, bytes) = problem.unwrap_or_else(|| panic!("no problem: {status:?}"));
    Problem::decode(bytes.as_slice()).expect("a problem")
}

/// The same as HTTP words it.
#[track_caller]
pub fn problem_json(status: &Status) -> Value {
    let problem = problem_of(status);
    let mut all = match &problem.partial {
        Some(partial) => json_of(partial),
        None => json!({"content": problem.detail, "is_error": true}),
    };
    let errors = problem
        .errors
        .iter()
        .map(|violation| json!({"pointer": violation.pointer, "detail": violation.detail}));
    let errors: Vec<Value> = errors.collect();
    let known: Map<String, Value> = [
        ("code", json!(problem.code)),
        ("status", json!(problem.http_status)),
        ("detail", json!(problem.detail)),
        ("stage", json!(problem.stage)),
        ("tool_use_id", json!(problem.tool_use_id)),
        ("execution_id", json!(problem.execution_id)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into_iter()
    .collect();
    all.as_object_mut().expect("an object").extend(known);
    if !errors.is_empty() {
        all["errors"] = errors.into();
    }
    if let Some(judgement) = &problem.judgement_json {
        all["judgement"] = serde_json::from_str(judgement).expect("JSON");
    }
    all
}

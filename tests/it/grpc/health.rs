//! `grpc.health.v1` and reflection.

use nix::sys::signal::Signal;
use shelly_executor::grpc::proto::{ListToolsRequest, ListToolsResponse};
use tonic::{Code, Request, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

use super::{bash_only, connect};
use crate::support::grpc::{Grpc, problem_of};
use crate::support::{Daemon, Fifo};

const SERVICE: &str = "shelly.executor.v1.ToolExecutor";

fn asked(service: &str) -> Request<HealthCheckRequest> {
    Request::new(HealthCheckRequest {
        service: service.to_owned(),
    })
}

fn check(grpc: &Grpc, service: &str) -> Result<ServingStatus, Status> {
    let answer: HealthCheckResponse = grpc.unary("/grpc.health.v1.Health/Check", asked(service))?;
    Ok(answer.status())
}

#[test]
fn the_daemon_and_each_service_serve() {
    let daemon = Daemon::start();
    let grpc = connect(&daemon);
    for service in ["", SERVICE, "grpc.health.v1.Health"] {
        assert_eq!(
            check(&grpc, service).expect("known"),
            ServingStatus::Serving
        );
    }
    assert_eq!(
        check(&grpc, "no.such").expect_err("unknown").code(),
        Code::NotFound
    );
}

#[test]
fn a_stop_is_told_and_ends_every_stream() {
    let mut daemon = Daemon::start();
    let grpc = connect(&daemon);
    let watch = |service: &str| {
        grpc.server_streaming::<_, HealthCheckResponse>(
            "/grpc.health.v1.Health/Watch",
            asked(service),
        )
        .expect("a stream")
    };
    let (mut known, mut unknown) = (watch(SERVICE), watch("no.such"));
    let next = |stream: &mut tonic::Streaming<HealthCheckResponse>| {
        let message = grpc.message(stream).expect("no problem");
        message.map(|message| message.status())
    };
    assert_eq!(next(&mut known), Some(ServingStatus::Serving));
    assert_eq!(next(&mut unknown), Some(ServingStatus::ServiceUnknown));
    // One that only listens.
    let _reflection = reflect_slowly(&grpc);
    let fifo = Fifo::new(daemon.dir().join("gate"));
    let command = format!("echo begun; read _ < {}", fifo.path().display());
    let mut events = grpc.stream(bash_only(&command)).expect("a stream");
    let gate = fifo.reached();
    daemon.signal(Signal::SIGTERM);
    assert_eq!(next(&mut known), Some(ServingStatus::NotServing));
    // What runs may end; what is new is refused.
    let refused = grpc.execute(bash_only("true")).expect_err("it stops");
    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(problem_of(&refused).code, "shutting_down");
    gate.say("on");
    let mut last = None;
    while let Some(event) = events.next().expect("no problem") {
        last = Some(event);
    }
    assert!(last.is_some());
    assert_eq!(next(&mut known), None);
    assert_eq!(next(&mut unknown), None);
    drop(events);
    assert!(daemon.wait().success());
    assert!(
        !daemon.log().contains("closed connections"),
        "streams held the stop up"
    );
}

fn question(question: MessageRequest) -> ServerReflectionRequest {
    ServerReflectionRequest {
        host: String::new(),
        message_request: Some(question),
    }
}

fn reflect_slowly(grpc: &Grpc) -> tonic::Streaming<ServerReflectionResponse> {
    let first = question(MessageRequest::ListServices(String::new()));
    grpc.conversation(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        vec![first],
    )
    .expect("a stream")
}

#[test]
fn reflection_tells_the_services_and_the_contract() {
    let daemon = Daemon::start();
    let grpc = connect(&daemon);
    let questions = vec![
        question(MessageRequest::ListServices(String::new())),
        question(MessageRequest::FileContainingSymbol(SERVICE.to_owned())),
    ];
    let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    let mut answers = grpc.conversation(path, questions).expect("a stream");
    let mut next = || {
        let answer: Option<ServerReflectionResponse> =
            grpc.message(&mut answers).expect("no problem");
        answer
            .and_then(|answer| answer.message_response)
            .expect("an answer")
    };
    let MessageResponse::ListServicesResponse(services) = next() else {
        panic!("a list")
    };
    let names: Vec<&str> = services
        .service
        .iter()
        .map(|service| service.name.as_str())
        .collect();
    for name in [
        SERVICE,
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    let MessageResponse::FileDescriptorResponse(file) = next() else {
        panic!("a file")
    };
    let file = file.file_descriptor_proto.concat();
    let has = |text: &str| {
        file.windows(text.len())
            .any(|window| window == text.as_bytes())
    };
    assert!(has("ExecuteToolRequest") && has("input_json"));
}

#[test]
fn what_is_not_there_is_unimplemented() {
    let daemon = Daemon::start();
    let grpc = connect(&daemon);
    for path in [
        "/shelly.executor.v1.ToolExecutor/NoSuch",
        "/no.such.Service/Method",
    ] {
        let answer: Result<ListToolsResponse, _> =
            grpc.unary(path, Request::new(ListToolsRequest {}));
        assert_eq!(
            answer.expect_err("nothing there").code(),
            Code::Unimplemented,
            "{path}"
        );
    }
}

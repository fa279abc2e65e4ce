use std::borrow::Cow;
use std::collections::BTreeMap;

use axum::http::StatusCode;
use axum::response::Response;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{
    AnyOfBuilder, KnownFormat, ObjectBuilder, OneOfBuilder, Ref, Schema, SchemaFormat, Type,
};
use utoipa::openapi::{self, ContentBuilder, HeaderBuilder, RefOr, ResponseBuilder};
use utoipa::{OpenApi, PartialSchema, ToSchema};

use super::events;
use super::json::{json_response, to_json};
use super::lost::LostProblem;
use super::problem::{Code, Problem, RunProblem};
use super::routes::{Audience, ROUTES};
use super::sse;

/// The description of this API, generated from its handlers.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Shelly Executor",
        description = "Runs commands and tools for AI agents, over a Unix socket. Who is calling is the kernel's word on the other end of the connection; there is nothing to log in with.",
    ),
    servers((url = "http://shelly", description = "The Unix socket; the host's name is not looked at.")),
    security(()),
    tags(
        (name = "executions", description = "Run a tool, and what becomes of it."),
        (name = "approvals", description = "What waits for somebody's word."),
        (name = "events", description = "What happens."),
        (name = "audit", description = "What was decided and done, and the proof of it."),
        (name = "permissions", description = "What is allowed."),
        (name = "tools", description = "What can be called."),
        (name = "context", description = "What skills share."),
        (name = "daemon", description = "The daemon itself."),
    ),
    components(schemas(Problem<'static>, RunProblem<'static>, LostProblem<'static>, sse::Started<'static>, sse::Piece<'static>, events::EventBody<'static>, events::Missed, crate::domain::Scope)),
    paths(
        super::approvals::decide,
        super::approvals::list,
        super::approvals::show,
        super::audit::export,
        super::audit::verify,
        super::context::list,
        super::context::remove,
        super::context::set,
        super::context::show,
        super::events::follow,
        super::execute::execute,
        super::executions::cancel,
        super::executions::show,
        super::health::show,
        super::history::clear,
        super::history::list,
        super::history::replay,
        super::metrics::show,
        super::openapi::show,
        super::output::show,
        super::permissions::explain,
        super::tools::list,
        super::tools::show,
    )
)]
struct Document;

/// What each operation can be refused with or fail of, besides what every one can.
#[rustfmt::skip]
const PROBLEMS: &[(&str, &[Code])] = &[
    ("execute", &[
        Code::PermissionDenied, Code::ToolDisabled, Code::UnknownTool, Code::Cancelled, Code::PayloadTooLarge, Code::InvalidInput,
        Code::ShuttingDown, Code::SpawnFailed, Code::OutputCaptureFailed, Code::Internal, Code::Timeout, Code::IdempotencyConflict, Code::AuditUnavailable,
        Code::UserRejected, Code::ApprovalExpired, Code::ApprovalStale, Code::Lost, Code::OutputInvalid, Code::BadCapability,
        Code::DepthExceeded, Code::CallCycle, Code::RateLimited, Code::QueueFull, Code::CircuitOpen, Code::SandboxUnavailable, Code::ProviderMissing,
    ]),
    ("replayExecution", &[
        Code::PermissionDenied, Code::ToolDisabled, Code::UnknownTool, Code::Cancelled, Code::PayloadTooLarge, Code::InvalidInput,
        Code::ShuttingDown, Code::SpawnFailed, Code::OutputCaptureFailed, Code::Internal, Code::Timeout, Code::AuditUnavailable, Code::Lost,
        Code::UserRejected, Code::ApprovalExpired, Code::ApprovalStale, Code::UnknownExecution, Code::NotReplayable, Code::IdempotencyConflict,
        Code::OutputInvalid, Code::RateLimited, Code::QueueFull, Code::CircuitOpen, Code::SandboxUnavailable, Code::ProviderMissing,
    ]),
    ("listExecutions",  &[Code::Internal]),
    ("clearExecutions", &[Code::AuditUnavailable]),
    ("listApprovals",   &[Code::Internal]),
    ("showApproval",    &[Code::NotFound, Code::Internal]),
    ("decideApproval",  &[Code::PayloadTooLarge, Code::NotFound, Code::ApprovalDecided, Code::AuditUnavailable, Code::ShuttingDown, Code::Internal]),
    ("followEvents",    &[Code::NotFound]),
    ("verifyAudit",     &[Code::NotFound, Code::Internal]),
    ("explainPermission", &[
        Code::ToolDisabled, Code::UnknownTool, Code::PayloadTooLarge, Code::InvalidInput, Code::ShuttingDown, Code::Internal,
    ]),
    ("listContext",     &[Code::BadCapability, Code::NotFound]),
    ("getContext",      &[Code::BadCapability, Code::NotFound]),
    ("setContext",      &[Code::BadCapability, Code::NotFound, Code::PayloadTooLarge, Code::ShuttingDown, Code::Internal]),
    ("removeContext",   &[Code::BadCapability, Code::NotFound]),
    ("metrics",         &[Code::NotFound, Code::Internal]),
    ("showTool",        &[Code::UnknownTool]),
    ("showExecution",   &[Code::UnknownExecution, Code::Internal]),
    ("cancelExecution", &[Code::UnknownExecution, Code::Internal]),
    ("showOutput",      &[Code::UnknownExecution, Code::NotFound, Code::RangeNotSatisfiable, Code::Internal]),
];

/// The same as it is served: `cargo run --example openapi` writes it and `build.rs` takes its layout away, so that the
/// programs have the text and not what makes it, which is four times as long.
const TEXT: &str = include_str!(concat!(env!("OUT_DIR"), "/openapi.json"));

/// The OpenAPI 3.1 description, made anew.
pub fn document() -> openapi::OpenApi {
    let mut document = Document::openapi();
    for route in ROUTES {
        let Some(item) = document.paths.paths.get_mut(route.path) else {
            continue;
        };
        // A test finds the route that has no operation.
        let operations = [
            &mut item.get,
            &mut item.post,
            &mut item.put,
            &mut item.delete,
        ];
        for operation in operations.into_iter().flatten() {
            add_problems(operation, route.audience);
        }
    }
    if let Some(components) = &mut document.components
        && let Some(RefOr::T(Schema::Object(call))) = components.schemas.get_mut("Call")
    {
        accept_other_names(call);
    }
    document
}

/// Adds a response for every status that the operation's problems have.
fn add_problems(operation: &mut Operation, audience: Audience) {
    let id = operation.operation_id.as_deref().unwrap_or_default();
    let own = PROBLEMS.iter().find(|(operation, _)| *operation == id);
    let mut codes = own.map_or(&[][..], |(_, codes)| codes).to_vec();
    // Without a Host nothing is answered otherwise.
    codes.extend([Code::MalformedRequest, Code::TooManyConnections]);
    if audience != Audience::Connected {
        codes.push(Code::AccessDenied);
    }
    let mut by_status: BTreeMap<StatusCode, Vec<Code>> = BTreeMap::new();
    for code in codes {
        by_status.entry(code.status()).or_default().push(code);
    }
    for (status, codes) in by_status {
        let response = problem_response(status, &codes);
        operation
            .responses
            .responses
            .insert(status.as_str().to_owned(), RefOr::T(response));
    }
}

fn problem_response(status: StatusCode, codes: &[Code]) -> openapi::Response {
    let words: Vec<String> = codes
        .iter()
        .map(|code| String::from_utf8_lossy(&to_json(code)).replace('"', "`"))
        .collect();
    let schema = match codes.iter().any(|code| code.may_follow_a_start()) {
        true => any_problem(),
        false => RefOr::Ref(Ref::from_schema_name("Problem")),
    };
    let content = ContentBuilder::new().schema(Some(schema)).build();
    let response = ResponseBuilder::new()
        .description(words.join(", "))
        .content("application/problem+json", content);
    match status {
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
            let header = HeaderBuilder::new()
                .schema(Some(ObjectBuilder::new().schema_type(Type::Integer)))
                .description(Some("Seconds after which to try again."));
            response.header("retry-after", header.build()).build()
        }
        StatusCode::RANGE_NOT_SATISFIABLE => {
            let header = HeaderBuilder::new()
                .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
                .description(Some("How many bytes there are."));
            response.header("content-range", header.build()).build()
        }
        _ => response.build(),
    }
}

/// A problem before or after a process was started.
fn any_problem() -> RefOr<Schema> {
    AnyOfBuilder::new()
        .item(Ref::from_schema_name("RunProblem"))
        .item(Ref::from_schema_name("LostProblem"))
        .item(Ref::from_schema_name("Problem"))
        .into()
}

/// The derived schema knows one name of the tool's name; the parser takes three.
fn accept_other_names(call: &mut openapi::Object) {
    call.required.retain(|name| name != "name");
    let mut one_of = OneOfBuilder::new();
    for name in ["name", "tool", "tool_name"] {
        one_of = one_of.item(ObjectBuilder::new().required(name));
    }
    for name in ["tool", "tool_name"] {
        let other = ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("Another word for `name`."));
        call.properties.insert(name.to_owned(), other.into());
    }
    let one_of = serde_json::to_value(one_of.build()).unwrap_or_default();
    let one_of = one_of.get("oneOf").cloned().unwrap_or_default();
    call.extensions
        .get_or_insert_default()
        .insert("oneOf".to_owned(), one_of);
}

/// What a record's `result` can be.
pub(super) struct ResultSchema;

impl PartialSchema for ResultSchema {
    fn schema() -> RefOr<Schema> {
        AnyOfBuilder::new()
            .item(Ref::from_schema_name("Answer"))
            .item(Ref::from_schema_name("RunProblem"))
            .item(Ref::from_schema_name("LostProblem"))
            .item(Ref::from_schema_name("Problem"))
            .item(ObjectBuilder::new().schema_type(Type::Null))
            .into()
    }
}

impl ToSchema for ResultSchema {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Result")
    }
}

/// Bytes as they are.
pub(super) struct RawBytes;

impl PartialSchema for RawBytes {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary)))
            .into()
    }
}

impl ToSchema for RawBytes {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("RawBytes")
    }
}

/// This document.
#[utoipa::path(
    get, path = "/openapi.json", tag = "daemon", operation_id = "openapi",
    responses((status = 200, description = "OpenAPI 3.1.", body = serde_json::Value))
)]
pub(super) async fn show() -> Response {
    json_response(StatusCode::OK, TEXT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_can_come_to_all_that_its_call_can() {
        let of = |id: &str| {
            let row = PROBLEMS.iter().find(|(operation, _)| *operation == id);
            row.expect("a row").1
        };
        // It is nobody's on behalf of an execution.
        let elsewhere = [Code::BadCapability, Code::DepthExceeded, Code::CallCycle];
        for code in of("execute")
            .iter()
            .filter(|code| !elsewhere.contains(code))
        {
            assert!(of("replayExecution").contains(code), "{code:?}");
        }
    }
}

//! Every 4xx and 5xx: one code a problem, one exhaustive table from code to status.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::body::RunBody;
use super::json::{Text, to_json_around};
use crate::domain::{Display, ExecutorError, Judgement, RunReport, Stage, StopReason, Violation};
use crate::pipeline::Execution;

/// The stable words for what can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Code {
    MalformedRequest,
    AccessDenied,
    PermissionDenied,
    ToolDisabled,
    UnknownTool,
    UnknownExecution,
    NotFound,
    MethodNotAllowed,
    RangeNotSatisfiable,
    Cancelled,
    PayloadTooLarge,
    InvalidInput,
    ShuttingDown,
    TooManyConnections,
    SpawnFailed,
    OutputCaptureFailed,
    Internal,
    Timeout,
}

impl Code {
    /// The one table from codes to statuses.
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::MalformedRequest => StatusCode::BAD_REQUEST,
            Self::AccessDenied | Self::PermissionDenied | Self::ToolDisabled => {
                StatusCode::FORBIDDEN
            }
            Self::UnknownTool | Self::UnknownExecution | Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Cancelled => StatusCode::CONFLICT,
            Self::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::RangeNotSatisfiable => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::InvalidInput => StatusCode::UNPROCESSABLE_ENTITY,
            Self::ShuttingDown | Self::TooManyConnections => StatusCode::SERVICE_UNAVAILABLE,
            Self::SpawnFailed | Self::OutputCaptureFailed | Self::Internal => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// Whether a process may have run before it came to this.
    pub(super) fn may_follow_a_start(self) -> bool {
        match self {
            Self::Cancelled | Self::ShuttingDown | Self::OutputCaptureFailed | Self::Timeout => {
                true
            }
            Self::MalformedRequest
            | Self::AccessDenied
            | Self::PermissionDenied
            | Self::ToolDisabled
            | Self::UnknownTool
            | Self::UnknownExecution
            | Self::NotFound
            | Self::MethodNotAllowed
            | Self::RangeNotSatisfiable
            | Self::PayloadTooLarge
            | Self::InvalidInput
            | Self::TooManyConnections
            | Self::SpawnFailed
            | Self::Internal => false,
        }
    }

    /// The code of what the executor could not do.
    pub(super) fn of(error: &ExecutorError) -> Self {
        match error {
            ExecutorError::UnknownTool { .. } => Self::UnknownTool,
            ExecutorError::ToolDisabled { .. } => Self::ToolDisabled,
            ExecutorError::InvalidInput { .. } => Self::InvalidInput,
            ExecutorError::PermissionDenied { .. } => Self::PermissionDenied,
            ExecutorError::SpawnFailed { .. } => Self::SpawnFailed,
            ExecutorError::Timeout { .. } => Self::Timeout,
            ExecutorError::Cancelled { reason, .. } => match reason {
                StopReason::Shutdown => Self::ShuttingDown,
                StopReason::Cancelled | StopReason::Disconnect | StopReason::Timeout(_) => {
                    Self::Cancelled
                }
            },
            ExecutorError::OutputCaptureFailed { .. } => Self::OutputCaptureFailed,
            ExecutorError::Internal { .. } => Self::Internal,
        }
    }
}

/// A problem (RFC 9457) that can at the same time be turned into a `tool_result`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(super) struct Problem<'a> {
    /// Always `about:blank`: `code` says more.
    #[serde(rename = "type")]
    #[schema(example = "about:blank")]
    kind: &'static str,
    /// The status in words.
    title: &'static str,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What is wrong with this request and what to do.
    detail: String,
    /// A stable word for the problem.
    code: Code,
    /// The stage of the pipeline it arose in; null outside of it.
    #[schema(required)]
    stage: Option<Stage>,
    /// The text for the model.
    #[schema(value_type = String)]
    content: Text,
    /// Always true.
    is_error: bool,
    /// The id of the model's call, handed back; null when it could not be read.
    #[schema(required)]
    tool_use_id: Option<&'a str>,
    /// The execution; null when none was opened.
    #[schema(required, format = "uuid")]
    execution_id: Option<String>,
    /// How an input breaks its schema; there exactly when that is the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    errors: Option<Vec<ViolationBody>>,
    /// What the policy says; there exactly when that is the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    judgement: Option<&'a Judgement>,
}

/// A problem that arose after a process had been started, with the facts of the run.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RunProblem<'a> {
    #[serde(flatten)]
    problem: Problem<'a>,
    #[serde(flatten)]
    run: RunBody,
}

/// One violation of a schema.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Violation)]
struct ViolationBody {
    /// A JSON Pointer (RFC 6901) into the input.
    pointer: String,
    /// What is wrong there.
    detail: String,
}

impl<'a> Problem<'a> {
    /// The problem that an execution ended in.
    pub(super) fn of_execution(error: &'a ExecutorError, execution: &'a Execution) -> Self {
        let code = Code::of(error);
        let status = code.status();
        Self {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or_default(),
            status: status.as_u16(),
            detail: error.chain(),
            code,
            stage: execution.failed_in(),
            content: Text,
            is_error: true,
            tool_use_id: execution.tool_use_id.as_deref(),
            execution_id: Some(execution.id.to_string()),
            errors: violations(error),
            judgement: error.judgement(),
        }
    }

    /// The same with the facts of the run it broke off.
    pub(super) fn with_run(self, run: &RunReport, display: &Display) -> RunProblem<'a> {
        RunProblem {
            problem: self,
            run: RunBody::new(run, display, true),
        }
    }

    pub(super) fn status(&self) -> StatusCode {
        self.code.status()
    }
}

impl From<&Violation> for ViolationBody {
    fn from(violation: &Violation) -> Self {
        Self {
            pointer: violation.pointer.clone(),
            detail: violation.detail.clone(),
        }
    }
}

/// A request that is refused before it becomes an execution.
#[derive(Debug)]
pub(super) struct Refusal {
    code: Code,
    detail: String,
    stage: Option<Stage>,
    errors: Option<Vec<ViolationBody>>,
    tool_use_id: Option<String>,
    headers: Vec<(header::HeaderName, HeaderValue)>,
}

impl Refusal {
    pub(super) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            stage: None,
            errors: None,
            tool_use_id: None,
            headers: Vec::new(),
        }
    }

    /// What an execution would be refused with at `stage`, where there is none.
    pub(super) fn of_error(error: &ExecutorError, stage: Stage) -> Self {
        Self {
            stage: Some(stage),
            errors: violations(error),
            ..Self::new(Code::of(error), error.chain())
        }
    }

    /// The same, naming the model's call.
    pub(super) fn of_call(mut self, tool_use_id: Option<String>) -> Self {
        self.tool_use_id = tool_use_id;
        self
    }

    pub(super) fn with_header(mut self, name: header::HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = self.code.status();
        let problem = Problem {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or_default(),
            status: status.as_u16(),
            detail: self.detail.clone(),
            code: self.code,
            stage: self.stage,
            content: Text,
            is_error: true,
            tool_use_id: self.tool_use_id.as_deref(),
            execution_id: None,
            errors: self.errors,
            judgement: None,
        };
        let mut response = problem_response(status, to_json_around(&problem.detail, &problem));
        response.headers_mut().extend(self.headers);
        response
    }
}

fn violations(error: &ExecutorError) -> Option<Vec<ViolationBody>> {
    if let ExecutorError::InvalidInput { violations, .. } = error {
        Some(violations.iter().map(ViolationBody::from).collect())
    } else {
        None
    }
}

/// A response that carries a problem.
pub(super) fn problem_response(status: StatusCode, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        // Restarts and bursts of connections are over in about that time, in seconds.
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

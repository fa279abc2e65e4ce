//! Every 4xx and 5xx: one code a problem, one exhaustive table from code to status.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::body::RunBody;
use super::body::Subject;
use super::json::{Text, to_json_around};
use crate::domain::{
    ExecutionId, ExecutorError, Failure, FailureKind, Judgement, LONGEST_NAME, Stage, Violation,
    brief,
};

/// The stable words for what can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Code {
    MalformedRequest,
    BadCapability,
    AccessDenied,
    PermissionDenied,
    UserRejected,
    ApprovalExpired,
    ToolDisabled,
    UnknownTool,
    UnknownExecution,
    NotFound,
    MethodNotAllowed,
    RangeNotSatisfiable,
    Cancelled,
    IdempotencyConflict,
    ApprovalStale,
    ApprovalDecided,
    NotReplayable,
    PayloadTooLarge,
    InvalidInput,
    DepthExceeded,
    CallCycle,
    RateLimited,
    QueueFull,
    CircuitOpen,
    ShuttingDown,
    TooManyConnections,
    AuditUnavailable,
    SandboxUnavailable,
    ProviderMissing,
    SpawnFailed,
    OutputCaptureFailed,
    OutputInvalid,
    Lost,
    Internal,
    Timeout,
}

impl Code {
    /// The word for it in JSON.
    pub(crate) fn word(self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::String(word)) => word,
            // A variant without data is a text.
            Ok(_) | Err(_) => String::new(),
        }
    }

    /// The one table from codes to statuses.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::MalformedRequest => StatusCode::BAD_REQUEST,
            Self::BadCapability => StatusCode::UNAUTHORIZED,
            Self::AccessDenied
            | Self::PermissionDenied
            | Self::UserRejected
            | Self::ApprovalExpired
            | Self::ToolDisabled => StatusCode::FORBIDDEN,
            Self::UnknownTool | Self::UnknownExecution | Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Cancelled
            | Self::IdempotencyConflict
            | Self::ApprovalStale
            | Self::ApprovalDecided
            | Self::NotReplayable => StatusCode::CONFLICT,
            Self::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::RangeNotSatisfiable => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::InvalidInput | Self::DepthExceeded | Self::CallCycle => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Self::RateLimited | Self::QueueFull => StatusCode::TOO_MANY_REQUESTS,
            Self::CircuitOpen
            | Self::ShuttingDown
            | Self::TooManyConnections
            | Self::AuditUnavailable
            | Self::SandboxUnavailable
            | Self::ProviderMissing => StatusCode::SERVICE_UNAVAILABLE,
            Self::SpawnFailed
            | Self::OutputCaptureFailed
            | Self::OutputInvalid
            | Self::Lost
            | Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// After how many seconds what is refused so, in this stage, is worth another try, where nothing says so more exactly.
    pub(crate) fn retry_after_secs(self, stage: Option<Stage>) -> Option<u64> {
        // It has run in part: another try would run it again, or under its key come to the same for good.
        if self.may_follow_a_start() && matches!(stage, Some(Stage::Execution | Stage::Formatting))
        {
            return None;
        }
        // Restarts, bursts of connections and what holds up a disk are over in about that time. A sandbox that is
        // not there, or a provider, takes somebody to set it up.
        let passes = matches!(
            self,
            Self::CircuitOpen
                | Self::ShuttingDown
                | Self::TooManyConnections
                | Self::AuditUnavailable
        );
        passes.then_some(1)
    }

    /// Whether a process may have run before it came to this.
    pub(super) fn may_follow_a_start(self) -> bool {
        match self {
            Self::Cancelled
            | Self::ShuttingDown
            | Self::OutputCaptureFailed
            | Self::OutputInvalid
            | Self::Timeout => true,
            Self::MalformedRequest
            | Self::BadCapability
            | Self::DepthExceeded
            | Self::CallCycle
            | Self::RateLimited
            | Self::QueueFull
            | Self::CircuitOpen
            | Self::AccessDenied
            | Self::PermissionDenied
            | Self::UserRejected
            | Self::ApprovalExpired
            | Self::ApprovalStale
            | Self::ApprovalDecided
            | Self::IdempotencyConflict
            | Self::NotReplayable
            | Self::AuditUnavailable
            | Self::SandboxUnavailable
            | Self::ProviderMissing
            | Self::Lost
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
    pub(crate) fn of(kind: FailureKind) -> Self {
        match kind {
            FailureKind::UnknownTool => Self::UnknownTool,
            FailureKind::ToolDisabled => Self::ToolDisabled,
            FailureKind::InvalidInput => Self::InvalidInput,
            FailureKind::DepthExceeded => Self::DepthExceeded,
            FailureKind::CallCycle => Self::CallCycle,
            FailureKind::CallsUsedUp | FailureKind::RateLimited => Self::RateLimited,
            FailureKind::QueueFull => Self::QueueFull,
            FailureKind::CircuitOpen => Self::CircuitOpen,
            FailureKind::PermissionDenied
            | FailureKind::HookDenied
            | FailureKind::CallNotDeclared => Self::PermissionDenied,
            FailureKind::UserRejected => Self::UserRejected,
            FailureKind::ApprovalExpired => Self::ApprovalExpired,
            FailureKind::ApprovalStale => Self::ApprovalStale,
            FailureKind::AuditUnavailable => Self::AuditUnavailable,
            FailureKind::SandboxUnavailable => Self::SandboxUnavailable,
            FailureKind::ProviderMissing => Self::ProviderMissing,
            FailureKind::SpawnFailed => Self::SpawnFailed,
            FailureKind::Timeout => Self::Timeout,
            FailureKind::Cancelled => Self::Cancelled,
            FailureKind::ShutDown => Self::ShuttingDown,
            FailureKind::OutputInvalid => Self::OutputInvalid,
            FailureKind::OutputCaptureFailed => Self::OutputCaptureFailed,
            FailureKind::Lost => Self::Lost,
            FailureKind::Internal => Self::Internal,
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
    /// How an input or output breaks its schema; there exactly when that is the problem.
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
    run: RunBody<'a>,
}

/// One violation of a schema.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Violation)]
pub(crate) struct ViolationBody {
    /// A JSON Pointer (RFC 6901) into the input.
    pub(crate) pointer: String,
    /// What is wrong there.
    pub(crate) detail: String,
}

impl<'a> Problem<'a> {
    /// The problem that an execution ended in.
    pub(super) fn of_failure(failure: &'a Failure, subject: Subject<'a>) -> Self {
        let code = Code::of(failure.kind);
        let status = code.status();
        Self {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or_default(),
            status: status.as_u16(),
            detail: failure.detail.clone(),
            code,
            stage: failure.stage,
            content: Text,
            is_error: true,
            tool_use_id: subject.tool_use_id,
            execution_id: Some(subject.id.to_string()),
            errors: violations(failure),
            judgement: failure.judgement.as_deref(),
        }
    }

    /// The same with the facts of the run it broke off.
    pub(super) fn with_run(self, run: RunBody<'a>) -> RunProblem<'a> {
        RunProblem { problem: self, run }
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
pub(crate) struct Refusal {
    pub(crate) code: Code,
    pub(crate) detail: String,
    pub(crate) stage: Option<Stage>,
    pub(crate) errors: Option<Vec<ViolationBody>>,
    pub(crate) tool_use_id: Option<String>,
    pub(crate) execution_id: Option<ExecutionId>,
    headers: Vec<(header::HeaderName, HeaderValue)>,
}

impl Refusal {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: brief(detail.into()),
            stage: None,
            errors: None,
            tool_use_id: None,
            execution_id: None,
            headers: Vec::new(),
        }
    }

    /// What an execution would be refused with at `stage`, where there is none.
    pub(super) fn of_error(error: &ExecutorError, stage: Stage) -> Self {
        let failure = Failure::of(error, Some(stage));
        Self {
            stage: failure.stage,
            errors: violations(&failure),
            ..Self::new(Code::of(failure.kind), failure.detail)
        }
    }

    /// The same, naming the model's call. A name longer than any call may have is not repeated: it may be all of
    /// the largest body there is, and the call is refused for it.
    pub(crate) fn of_call(mut self, tool_use_id: Option<String>) -> Self {
        self.tool_use_id = tool_use_id.filter(|id| id.len() <= LONGEST_NAME);
        self
    }

    /// The same, naming the execution that is in its way.
    pub(super) fn for_execution(mut self, id: ExecutionId) -> Self {
        self.execution_id = Some(id);
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
            execution_id: self.execution_id.map(|id| id.to_string()),
            errors: self.errors,
            judgement: None,
        };
        let body = to_json_around(&problem.detail, &problem);
        let mut response = problem_response(self.code, self.stage, body);
        response.headers_mut().extend(self.headers);
        response
    }
}

pub(crate) fn violations(failure: &Failure) -> Option<Vec<ViolationBody>> {
    let violations = failure.violations.iter().map(ViolationBody::from);
    let breaks_a_schema = matches!(
        failure.kind,
        FailureKind::InvalidInput | FailureKind::OutputInvalid
    );
    breaks_a_schema.then(|| violations.collect())
}

/// A response that carries a problem which came up in this stage.
pub(super) fn problem_response(code: Code, stage: Option<Stage>, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = code.status();
    let kind = HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    if let Some(secs) = code.retry_after_secs(stage) {
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, HeaderValue::from(secs));
    }
    response
}

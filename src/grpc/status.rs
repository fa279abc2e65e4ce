//! What is no answer: one exhaustive table from the codes of the house to those of gRPC, and the details
//! that go with them (`google.rpc`, and the contract's `Problem`).

use std::collections::HashMap;

use prost::Message;
use prost_types::Any;
use tonic::{Code as GrpcCode, Status};
use tonic_types::pb::{BadRequest, ErrorInfo, RetryInfo, bad_request::FieldViolation};

use super::answer::{Subject, response};
use super::proto;
use crate::api::{Code, Refusal, ViolationBody, violations};
use crate::domain::{CUT_MARK, Failure};
use crate::pipeline::Finished;

/// Whose words `ErrorInfo` has.
const DOMAIN: &str = "shelly-executor";

/// A status travels in headers, of which many a client takes no more than 8 KiB: its message three bytes
/// for one at the worst, its details four for three.
const MESSAGE_BYTES: usize = 512;
const DETAIL_BYTES: usize = 1024;
const PROBLEM_BYTES: usize = 3072;
const MAX_VIOLATIONS: usize = 16;

/// The one table from codes, of what may be called again or not, to gRPC's.
pub(super) fn grpc_code(code: Code, retry_after: Option<u64>) -> GrpcCode {
    match code {
        // It has run in part, and what is unavailable clients call again by themselves.
        Code::ShuttingDown if retry_after.is_none() => GrpcCode::Aborted,
        Code::MalformedRequest | Code::InvalidInput => GrpcCode::InvalidArgument,
        Code::BadCapability => GrpcCode::Unauthenticated,
        Code::AccessDenied
        | Code::PermissionDenied
        | Code::UserRejected
        | Code::ApprovalExpired
        | Code::ToolDisabled => GrpcCode::PermissionDenied,
        Code::UnknownTool | Code::UnknownExecution | Code::NotFound => GrpcCode::NotFound,
        Code::MethodNotAllowed => GrpcCode::Unimplemented,
        Code::RangeNotSatisfiable => GrpcCode::OutOfRange,
        Code::Cancelled => GrpcCode::Cancelled,
        Code::IdempotencyConflict => GrpcCode::Aborted,
        Code::ApprovalStale
        | Code::ApprovalDecided
        | Code::NotReplayable
        | Code::DepthExceeded
        | Code::CallCycle => GrpcCode::FailedPrecondition,
        Code::PayloadTooLarge | Code::RateLimited | Code::QueueFull => GrpcCode::ResourceExhausted,
        Code::CircuitOpen
        | Code::ShuttingDown
        | Code::TooManyConnections
        | Code::AuditUnavailable
        | Code::SandboxUnavailable
        | Code::ProviderMissing => GrpcCode::Unavailable,
        Code::SpawnFailed | Code::OutputCaptureFailed | Code::OutputInvalid | Code::Internal => {
            GrpcCode::Internal
        }
        // What became of it is not known.
        Code::Lost => GrpcCode::Unknown,
        Code::Timeout => GrpcCode::DeadlineExceeded,
    }
}

/// What a call is refused with that became no execution.
pub(super) fn of_refusal(refusal: Refusal) -> Status {
    let Refusal {
        code,
        detail,
        stage,
        errors,
        tool_use_id,
        execution_id,
        ..
    } = refusal;
    let problem = proto::Problem {
        detail,
        stage: stage.map(|stage| stage.as_str().to_owned()),
        tool_use_id,
        execution_id: execution_id.map(|id| id.to_string()),
        errors: violated(errors),
        ..proto::Problem::default()
    };
    status(code, problem, code.retry_after_secs(stage))
}

/// What an execution ended in.
pub(super) fn of_failure(subject: Subject, finished: &Finished, failure: &Failure) -> Status {
    let judgement = failure.judgement.as_deref();
    let partial = finished.ran.as_ref().map(|ran| {
        let text = finished.text();
        // All that has room, and more where it is more: it is cut below.
        let content = text[..text.floor_char_boundary(PROBLEM_BYTES)].to_owned();
        response(subject.clone(), ran, content, Some(failure.kind))
    });
    let problem = proto::Problem {
        detail: failure.detail.clone(),
        stage: failure.stage.map(|stage| stage.as_str().to_owned()),
        tool_use_id: subject.tool_use_id,
        execution_id: Some(subject.execution_id),
        errors: violated(violations(failure)),
        judgement_json: judgement.and_then(|judgement| serde_json::to_string(judgement).ok()),
        partial,
        ..proto::Problem::default()
    };
    let code = Code::of(failure.kind);
    let retry_after = failure.retry_after_secs;
    let retry_after = retry_after.or_else(|| code.retry_after_secs(failure.stage));
    status(code, problem, retry_after)
}

fn violated(errors: Option<Vec<ViolationBody>>) -> Vec<proto::Violation> {
    let errors = errors.unwrap_or_default().into_iter();
    let errors =
        errors.map(|ViolationBody { pointer, detail }| proto::Violation { pointer, detail });
    errors.take(MAX_VIOLATIONS).collect()
}

fn status(code: Code, problem: proto::Problem, retry_after: Option<u64>) -> Status {
    let http_status = code.status();
    let mut problem = proto::Problem {
        code: code.word(),
        http_status: u32::from(http_status.as_u16()),
        ..problem
    };
    let message = cut(problem.detail.clone(), MESSAGE_BYTES);
    problem.detail = cut(problem.detail, DETAIL_BYTES);
    fit(&mut problem);

    let mut details = vec![any("google.rpc.ErrorInfo", &info(&problem))];
    if let Some(secs) = retry_after {
        let retry_delay = prost_types::Duration {
            seconds: i64::try_from(secs).unwrap_or(i64::MAX),
            nanos: 0,
        };
        let retry = RetryInfo {
            retry_delay: Some(retry_delay),
        };
        details.push(any("google.rpc.RetryInfo", &retry));
    }
    if code == Code::InvalidInput && !problem.errors.is_empty() {
        details.push(any("google.rpc.BadRequest", &bad_request(&problem)));
    }
    details.push(any("shelly.executor.v1.Problem", &problem));
    let grpc = grpc_code(code, retry_after);
    let all = tonic_types::pb::Status {
        code: grpc.into(),
        message: message.clone(),
        details,
    };
    Status::with_details(grpc, message, all.encode_to_vec().into())
}

fn info(problem: &proto::Problem) -> ErrorInfo {
    let known = [
        ("http_status", Some(problem.http_status.to_string())),
        ("stage", problem.stage.clone()),
        ("execution_id", problem.execution_id.clone()),
    ];
    let known = known
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    ErrorInfo {
        reason: problem.code.to_uppercase(),
        domain: DOMAIN.to_owned(),
        metadata: known.collect::<HashMap<_, _>>(),
    }
}

fn bad_request(problem: &proto::Problem) -> BadRequest {
    let violations = problem.errors.iter().map(|violation| FieldViolation {
        field: format!("input_json{}", violation.pointer),
        description: violation.detail.clone(),
        ..FieldViolation::default()
    });
    BadRequest {
        field_violations: violations.collect(),
    }
}

/// Cuts what is long until all of it has room: text first, then what is more than a line.
fn fit(problem: &mut proto::Problem) {
    let over = |problem: &proto::Problem| problem.encoded_len().saturating_sub(PROBLEM_BYTES);
    if let Some(partial) = &mut problem.partial {
        partial.output_json = None;
        partial.background.truncate(4);
    }
    let excess = over(problem);
    if let Some(partial) = problem.partial.as_mut().filter(|_| excess > 0) {
        /// What says that `truncated` is true.
        const TOLD_BYTES: usize = 2;
        let content = std::mem::take(&mut partial.content);
        let left = content
            .len()
            .saturating_sub(excess + TOLD_BYTES + CUT_MARK.len());
        partial.content = cut(content, left) + CUT_MARK;
        partial.truncated = true;
    }
    if over(problem) > 0 {
        problem.judgement_json = None;
    }
    while over(problem) > 0 && problem.errors.pop().is_some() {}
    if over(problem) > 0 {
        problem.partial = None;
    }
}

fn cut(mut text: String, bytes: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes));
    text
}

fn any(name: &str, message: &impl Message) -> Any {
    Any {
        type_url: format!("type.googleapis.com/{name}"),
        value: message.encode_to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_room_in_headers_whatever_it_says() {
        let long = "ü".repeat(20_000);
        let errors = (0..100).map(|number| ViolationBody {
            pointer: format!("/{number}"),
            detail: long.clone(),
        });
        let partial = proto::ExecuteToolResponse {
            content: long.clone(),
            output_json: Some(long.clone()),
            ..proto::ExecuteToolResponse::default()
        };
        for problem in [
            proto::Problem {
                judgement_json: Some(long.clone()),
                ..proto::Problem::default()
            },
            proto::Problem {
                errors: violated(Some(errors.collect())),
                ..proto::Problem::default()
            },
            proto::Problem {
                partial: Some(partial),
                ..proto::Problem::default()
            },
        ] {
            let problem = proto::Problem {
                detail: long.clone(),
                ..problem
            };
            let status = status(Code::InvalidInput, problem, Some(7));
            let message = status.message().len() * 3;
            let details = status.details().len().div_ceil(3) * 4;
            assert!(message + details < 8_000, "{message} + {details}");
        }
    }

    #[test]
    fn a_text_that_is_cut_says_so() {
        for (bytes, is_cut) in [(100, false), (PROBLEM_BYTES, true), (20_000, true)] {
            let partial = proto::ExecuteToolResponse {
                content: "x".repeat(bytes),
                ..proto::ExecuteToolResponse::default()
            };
            let mut problem = proto::Problem {
                partial: Some(partial),
                ..proto::Problem::default()
            };
            fit(&mut problem);
            assert!(problem.encoded_len() <= PROBLEM_BYTES, "{bytes}");
            let partial = problem.partial.expect("there is room for it");
            let is_marked = partial.content.ends_with("x\n...(truncated)");
            assert_eq!((partial.truncated, is_marked), (is_cut, is_cut), "{bytes}");
        }
    }

    #[test]
    fn a_name_that_no_call_may_have_is_not_repeated() {
        for (length, is_told) in [(256, true), (257, false), (10_000_000, false)] {
            let id = "x".repeat(length);
            let refusal = Refusal::new(Code::MalformedRequest, "`id`: has too many bytes");
            let status = of_refusal(refusal.of_call(Some(id.clone())));
            let all = tonic_types::pb::Status::decode(status.details()).expect("a status");
            let problem = all.details.last().expect("a problem");
            let problem = proto::Problem::decode(&*problem.value).expect("a problem");
            assert_eq!(problem.tool_use_id, is_told.then_some(id), "{length}");
        }
    }

    #[test]
    fn what_is_short_is_told_whole() {
        let refusal = Refusal::new(Code::ShuttingDown, "the daemon is shutting down");
        let status = of_refusal(refusal);
        assert_eq!(status.code(), GrpcCode::Unavailable);
        assert_eq!(status.message(), "the daemon is shutting down");
        let all = tonic_types::pb::Status::decode(status.details()).expect("a status");
        let kinds: Vec<&str> = all
            .details
            .iter()
            .map(|any| any.type_url.rsplit('/').next().unwrap_or_default())
            .collect();
        assert_eq!(
            kinds,
            [
                "google.rpc.ErrorInfo",
                "google.rpc.RetryInfo",
                "shelly.executor.v1.Problem"
            ]
        );
        let problem = proto::Problem::decode(&*all.details[2].value).expect("a problem");
        assert_eq!(
            (problem.code.as_str(), problem.http_status),
            ("shutting_down", 503)
        );
    }
}

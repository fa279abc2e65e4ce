//! Spans in the words of OpenTelemetry: its messages, and its names for attributes where it has some.

use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status as Outcome};

use super::ExecutionSpan;
use crate::domain::{
    Exit, FailureKind, KillReason, RiskLevel, SpanId, Stage, StageTimes, Status, TraceId, Verdict,
};

/// The longest text in an attribute, in bytes: as long as a caller's names may be. The name of a
/// tool that there is not may be anything.
const LONGEST: usize = 256;

/// Flags of a span (`SpanFlags` of OTLP): the trace is recorded.
const SAMPLED: u32 = 0x1;
/// It is known where the parent comes from.
const HAS_IS_REMOTE: u32 = 0x100;
/// The parent is another program's.
const IS_REMOTE: u32 = 0x200;

/// What sends the spans.
pub(super) fn resource(service_name: &str, instance: Option<&str>) -> Resource {
    let host = nix::sys::utsname::uname().ok();
    let host = host.and_then(|names| names.nodename().to_str().map(str::to_owned));
    let mut attributes = Attributes::default();
    attributes.text("service.name", service_name);
    attributes.text("service.version", env!("CARGO_PKG_VERSION"));
    attributes.maybe("service.instance.id", instance);
    attributes.maybe("host.name", host.as_deref());
    Resource {
        attributes: attributes.0,
        ..Resource::default()
    }
}

/// All spans of these executions.
pub(super) fn spans(resource: Resource, executions: &[ExecutionSpan]) -> ResourceSpans {
    ResourceSpans {
        resource: Some(resource),
        scope_spans: vec![ScopeSpans {
            scope: Some(InstrumentationScope {
                name: env!("CARGO_PKG_NAME").to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                ..InstrumentationScope::default()
            }),
            spans: executions.iter().flat_map(of_execution).collect(),
            ..ScopeSpans::default()
        }],
        ..ResourceSpans::default()
    }
}

/// The span of an execution, and one for each stage it was in.
fn of_execution(told: &ExecutionSpan) -> Vec<Span> {
    let parent = told.belongs.parent.as_ref();
    let is_remote = parent.is_some() && told.lineage.is_none();
    let context = &told.context;
    // A call that named another trace than its caller's is no part of the caller's trace; a link says where it came from.
    let link = told
        .caller
        .filter(|caller| caller.trace_id != context.trace_id);
    let link = link.map(|caller| Link {
        trace_id: caller.trace_id.to_vec(),
        span_id: caller.span_id.as_bytes().to_vec(),
        ..Link::default()
    });
    let name = match &told.version {
        Some(_) => format!("execute_tool {}", short(&told.tool)),
        // Or there would be as many names as callers can think of.
        None => "execute_tool".to_owned(),
    };
    let span = Span {
        trace_id: context.trace_id.to_vec(),
        span_id: context.span_id.as_bytes().to_vec(),
        parent_span_id: parent.map_or_else(Vec::new, |parent| parent.id.as_bytes().to_vec()),
        flags: SAMPLED | HAS_IS_REMOTE | if is_remote { IS_REMOTE } else { 0 },
        name,
        kind: SpanKind::Internal.into(),
        start_time_unix_nano: nanos(told.started_at),
        end_time_unix_nano: nanos(told.ended_at.max(told.started_at)),
        attributes: attributes(told).0,
        links: link.into_iter().collect(),
        status: error(told).map(|error| Outcome {
            code: StatusCode::Error.into(),
            message: message(told, error),
        }),
        ..Span::default()
    };
    let stages = told.stages.iter().enumerate();
    let stages: Vec<Span> = stages
        .map(|(number, times)| of_stage(told, &span, (number, times)))
        .collect();
    std::iter::once(span).chain(stages).collect()
}

/// The span of a stage, within that of its execution: clocks are set, and a trace is to be read.
fn of_stage(told: &ExecutionSpan, execution: &Span, stage: (usize, &StageTimes)) -> Span {
    let (number, times) = stage;
    let name = times.stage.as_str();
    let (first, last) = (execution.start_time_unix_nano, execution.end_time_unix_nano);
    let started = nanos(times.started_at).clamp(first, last);
    let ended = times.ended_at.map_or(last, nanos).clamp(started, last);
    let mut attributes = Attributes::default();
    attributes.text("shelly.stage", name);
    attributes.text("shelly.execution.id", &told.id.to_string());
    let is_last = told
        .stages
        .iter()
        .rposition(|other| other.stage == times.stage)
        == Some(number);
    let failed = is_last && failed_in(told) == Some(times.stage);
    Span {
        trace_id: execution.trace_id.clone(),
        span_id: SpanId::of_part(told.id, name, number).as_bytes().to_vec(),
        parent_span_id: execution.span_id.clone(),
        flags: SAMPLED | HAS_IS_REMOTE,
        name: name.to_owned(),
        kind: SpanKind::Internal.into(),
        start_time_unix_nano: started,
        end_time_unix_nano: ended,
        attributes: attributes.0,
        status: execution.status.clone().filter(|_| failed),
        ..Span::default()
    }
}

fn attributes(told: &ExecutionSpan) -> Attributes {
    let mut attributes = Attributes::default();
    let belongs = &told.belongs;
    attributes.text("gen_ai.operation.name", "execute_tool");
    attributes.text("gen_ai.tool.name", &told.tool);
    attributes.maybe("gen_ai.tool.call.id", told.tool_use_id.as_deref());
    attributes.maybe("session.id", belongs.session_id.as_deref());
    attributes.maybe("shelly.tenant.id", belongs.tenant_id.as_deref());
    let name = belongs.trace_id.as_ref();
    let name = name.filter(|trace| trace.w3c().is_none());
    attributes.maybe("shelly.trace.name", name.map(TraceId::as_str));
    attributes.text("shelly.execution.id", &told.id.to_string());
    let parent = told.lineage.as_ref();
    let parent = parent.map(|lineage| lineage.parent.to_string());
    attributes.maybe("shelly.execution.parent_id", parent.as_deref());
    attributes.maybe("shelly.tool.version", told.version.as_deref());
    attributes.number("shelly.caller.uid", told.caller_uid.into());
    attributes.maybe("shelly.verdict", told.verdict.map(Verdict::as_str));
    if let Some(uid) = told.approver_uid {
        attributes.number("shelly.approver.uid", uid.into());
    }
    attributes.maybe("shelly.risk_level", told.risk.map(RiskLevel::as_str));
    attributes.maybe("shelly.sandbox.runtime", told.sandbox.as_deref());
    attributes.text("shelly.status", told.status.as_str());
    if let Some((kind, stage)) = told.failure {
        attributes.text("shelly.failure", kind.as_str());
        attributes.maybe("shelly.failure.stage", stage.map(Stage::as_str));
    }
    match told.exit {
        Some(Exit::Code(code)) => attributes.number("process.exit.code", code.into()),
        Some(Exit::Signal(signal)) => attributes.text("shelly.exit.signal", &signal.name()),
        None => {}
    }
    if told.oom_killed {
        attributes.flag("shelly.oom_killed");
    }
    attributes.maybe("shelly.kill.reason", told.kill.map(KillReason::as_str));
    attributes.maybe("error.type", error(told));
    attributes
}

/// What went wrong with it, in a word; `None` of what went as it should. A refusal is an answer and
/// no error of the one who refuses, as with a 4xx of an HTTP server.
fn error(told: &ExecutionSpan) -> Option<&'static str> {
    if let Some((kind, _)) = told.failure {
        return (!is_refusal(kind)).then(|| kind.as_str());
    }
    match (told.status, told.exit) {
        (Status::Success, _) => None,
        (_, Some(Exit::Signal(_))) => Some("signal"),
        (_, Some(Exit::Code(_))) => Some("exit_code"),
        // A tool that the daemon does itself.
        (_, None) => Some("tool_error"),
    }
}

/// The same for people.
fn message(told: &ExecutionSpan, error: &str) -> String {
    match told.exit {
        _ if told.oom_killed => format!("{error}: out of memory"),
        Some(Exit::Code(code)) => format!("{error}: {code}"),
        Some(Exit::Signal(signal)) => format!("{error}: {}", signal.name()),
        None => error.to_owned(),
    }
}

/// The stage that what went wrong is to be looked for in.
fn failed_in(told: &ExecutionSpan) -> Option<Stage> {
    match told.failure {
        Some((_, stage)) => stage,
        None => Some(Stage::Execution),
    }
}

/// Whether the call was not to be done, or not now: nothing has failed.
fn is_refusal(kind: FailureKind) -> bool {
    match kind {
        FailureKind::UnknownTool
        | FailureKind::ToolDisabled
        | FailureKind::InvalidInput
        | FailureKind::DepthExceeded
        | FailureKind::CallCycle
        | FailureKind::CallNotDeclared
        | FailureKind::CallsUsedUp
        | FailureKind::RateLimited
        | FailureKind::QueueFull
        | FailureKind::PermissionDenied
        | FailureKind::HookDenied
        | FailureKind::UserRejected
        | FailureKind::ApprovalExpired
        | FailureKind::ApprovalStale => true,
        FailureKind::CircuitOpen
        | FailureKind::AuditUnavailable
        | FailureKind::SandboxUnavailable
        | FailureKind::ProviderMissing
        | FailureKind::SpawnFailed
        | FailureKind::Timeout
        | FailureKind::Cancelled
        | FailureKind::ShutDown
        | FailureKind::OutputCaptureFailed
        | FailureKind::OutputInvalid
        | FailureKind::Lost
        | FailureKind::Internal => false,
    }
}

/// Nanoseconds since 1970.
fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}

#[derive(Default)]
struct Attributes(Vec<KeyValue>);

impl Attributes {
    fn add(&mut self, name: &str, value: Value) {
        self.0.push(KeyValue {
            key: name.to_owned(),
            value: Some(AnyValue { value: Some(value) }),
            ..KeyValue::default()
        });
    }

    fn text(&mut self, name: &str, text: &str) {
        self.add(name, Value::StringValue(short(text).to_owned()));
    }

    fn maybe(&mut self, name: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }

    fn number(&mut self, name: &str, number: i64) {
        self.add(name, Value::IntValue(number));
    }

    fn flag(&mut self, name: &str) {
        self.add(name, Value::BoolValue(true));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::domain::{Correlation, ExecutionId, Signal, SpanContext};

    /// One that has been in so many stages.
    pub(in crate::otlp) fn span(stages: usize) -> ExecutionSpan {
        let id = ExecutionId::new();
        let belongs = Correlation::default();
        let started_at = SystemTime::now();
        let stage = StageTimes {
            stage: Stage::Validation,
            started_at,
            ended_at: Some(started_at),
        };
        ExecutionSpan {
            id,
            context: SpanContext::of(id, &belongs, None),
            lineage: None,
            caller: None,
            belongs,
            tool: "bash".to_owned(),
            version: Some("1.0.0".to_owned()),
            tool_use_id: None,
            caller_uid: 0,
            verdict: None,
            approver_uid: None,
            risk: None,
            sandbox: None,
            started_at,
            ended_at: started_at,
            stages: vec![stage; stages],
            status: Status::Success,
            failure: None,
            exit: None,
            oom_killed: false,
            kill: None,
        }
    }

    #[test]
    fn what_failed_is_an_error_and_what_was_refused_is_none() {
        let ended = |status, exit| ExecutionSpan {
            status,
            exit,
            ..span(0)
        };
        let failed = |kind: FailureKind| ExecutionSpan {
            status: kind.status(),
            failure: Some((kind, None)),
            ..span(0)
        };
        let segfault = Some(Exit::Signal(Signal(11)));
        for (told, expected) in [
            (ended(Status::Success, Some(Exit::Code(0))), None),
            (
                ended(Status::Error, Some(Exit::Code(3))),
                Some("exit_code: 3"),
            ),
            (ended(Status::Error, segfault), Some("signal: SIGSEGV")),
            (ended(Status::Error, None), Some("tool_error")),
            (failed(FailureKind::Timeout), Some("timeout")),
            (failed(FailureKind::Cancelled), Some("cancelled")),
            (failed(FailureKind::SpawnFailed), Some("spawn_failed")),
            (failed(FailureKind::PermissionDenied), None),
            (failed(FailureKind::UnknownTool), None),
            (failed(FailureKind::RateLimited), None),
        ] {
            let spans = of_execution(&told);
            let status = spans[0].status.as_ref();
            assert_eq!(status.map(|status| status.message.as_str()), expected);
            let code = status.map(|status| status.code);
            assert!(code.is_none_or(|code| code == StatusCode::Error as i32));
        }
    }

    #[test]
    fn a_stage_lies_within_its_execution_whatever_the_clock_says() {
        let mut told = span(3);
        let (hour, before) = (Duration::from_secs(3600), told.started_at);
        told.stages[0].started_at = before - hour;
        told.stages[1].ended_at = Some(before + hour);
        told.stages[2].ended_at = None;
        told.ended_at = before + Duration::from_secs(1);
        let spans = of_execution(&told);
        let (first, last) = (spans[0].start_time_unix_nano, spans[0].end_time_unix_nano);
        for stage in &spans[1..] {
            let (began, ended) = (stage.start_time_unix_nano, stage.end_time_unix_nano);
            assert!(first <= began && began <= ended && ended <= last);
            assert_eq!(stage.parent_span_id, spans[0].span_id);
        }
        told.ended_at = before - hour;
        let spans = of_execution(&told);
        assert_eq!(spans[0].start_time_unix_nano, spans[0].end_time_unix_nano);
    }

    #[test]
    fn what_a_caller_makes_up_is_cut_and_names_no_span() {
        let told = ExecutionSpan {
            tool: "é".repeat(10_000),
            version: None,
            ..span(0)
        };
        let spans = of_execution(&told);
        assert_eq!(spans[0].name, "execute_tool");
        let size: usize = spans[0]
            .attributes
            .iter()
            .map(prost::Message::encoded_len)
            .sum();
        assert!(size < 1000, "{size}");
    }
}

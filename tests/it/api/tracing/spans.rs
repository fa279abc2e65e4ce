//! The spans of executions: whose children they are, and what they tell.

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use serde_json::{Value, json};
use shelly_executor::domain::Digest;
use tonic::Request;

use super::{end, id_of};
use crate::api::approvals::pending;
use crate::api::skills::Room;
use crate::api::stages::ALL as STAGES;
use crate::support::collector::{Collector, attribute, hex, text};
use crate::support::grpc::{Grpc, request_of};
use crate::support::{Daemon, Mode, bash_call, scratch};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
fn post(daemon: &Daemon, body: &Value, traceparent: &str) -> Value {
    let headers = [("traceparent", traceparent)];
    let body = body.to_string();
    let reply = daemon
        .connect()
        .request("POST", "/execute", &headers, body.as_bytes());
    reply.json()
}

/// The id of an execution's span.
fn span_id(execution: &str) -> String {
    execution.replace('-', "")[16..].to_owned()
}

/// The id of the trace that an execution makes by itself.
fn trace_id(execution: &str) -> String {
    execution.replace('-', "")
}

fn status(span: &Span) -> Option<(StatusCode, &str)> {
    let status = span.status.as_ref()?;
    Some((status.code(), &status.message))
}

/// Asserts that the rest are the stages of the first, in their order and within it.
#[track_caller]
fn assert_stages<'a>(spans: &'a [Span], expected: &[&str]) -> &'a Span {
    let (execution, stages) = spans.split_first().expect("spans");
    let names: Vec<&str> = stages.iter().map(|stage| stage.name.as_str()).collect();
    assert_eq!(names, expected);
    let mut ids = vec![&execution.span_id];
    let mut before = execution.start_time_unix_nano;
    for stage in stages {
        assert_eq!(stage.trace_id, execution.trace_id);
        assert_eq!(stage.parent_span_id, execution.span_id);
        assert!(before <= stage.start_time_unix_nano, "{stage:?}");
        assert!(stage.start_time_unix_nano <= stage.end_time_unix_nano);
        assert!(stage.end_time_unix_nano <= execution.end_time_unix_nano);
        assert_eq!(stage.span_id.len(), 8);
        before = stage.start_time_unix_nano;
        ids.push(&stage.span_id);
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), spans.len(), "each has an id of its own");
    execution
}

#[test]
fn a_call_is_a_span_below_its_callers_with_its_stages_below_it() {
    let collector = Collector::start();
    let mut daemon = Daemon::start_with(Mode::Group, &collector.toml());
    let members = json!({
        "id": "toolu_7", "tenant_id": "acme", "session_id": "chat 7",
        "env": {"WORD": "not-for-traces"}, "stdin": "not-for-traces",
    });
    let call = bash_call("echo not-for-traces; sleep 0.1", &members);
    let id = id_of(&post(&daemon, &call, PARENT));
    let instance = daemon.instance();
    end(&mut daemon);
    let spans = collector.spans_of(&id);
    let span = assert_stages(&spans, &STAGES);
    assert_eq!(hex(&span.trace_id), TRACE);
    assert_eq!(hex(&span.parent_span_id), "00f067aa0ba902b7");
    // Sampled, and the parent is known to be another program's (`SpanFlags`).
    assert_eq!(span.flags, 0x301);
    assert_eq!(hex(&span.span_id), span_id(&id));
    assert_eq!(span.name, "execute_tool bash");
    assert_eq!(status(span), None);
    let took = span.end_time_unix_nano - span.start_time_unix_nano;
    assert!(took >= 100_000_000, "{took}");
    let uid = nix::unistd::getuid().to_string();
    for (name, value) in [
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", "bash"),
        ("gen_ai.tool.call.id", "toolu_7"),
        ("process.exit.code", "0"),
        ("session.id", "chat 7"),
        ("shelly.caller.uid", &uid),
        ("shelly.execution.id", &id),
        ("shelly.risk_level", "trusted"),
        ("shelly.status", "success"),
        ("shelly.tenant.id", "acme"),
        ("shelly.tool.version", env!("CARGO_PKG_VERSION")),
        ("shelly.verdict", "allow"),
    ] {
        assert_eq!(text(span, name).as_deref(), Some(value), "{name}");
    }
    for absent in ["error.type", "shelly.failure", "shelly.trace.name"] {
        assert_eq!(text(span, absent), None);
    }
    let received = collector.received();
    let resource = received[0].message.resource_spans[0].resource.clone();
    let attributes = resource.expect("a resource").attributes;
    for (name, value) in [
        ("service.name", "shelly-executord"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", instance.trim()),
    ] {
        assert_eq!(attribute(&attributes, name).as_deref(), Some(value));
    }
    assert!(attribute(&attributes, "host.name").is_some());
    let secret = b"not-for-traces";
    let bytes = &received[0].body;
    assert!(!bytes.windows(secret.len()).any(|part| part == secret));
}

#[test]
fn what_belongs_to_no_trace_is_one_by_itself_and_a_name_is_one_for_all() {
    let collector = Collector::start();
    let mut daemon = Daemon::start_with(Mode::Group, &collector.toml());
    // Its process finds the same span.
    let reply = daemon.bash("echo $TRACEPARENT");
    let alone = id_of(&reply.json());
    let expected = format!("00-{}-{}-01", trace_id(&alone), span_id(&alone));
    assert_eq!(reply.stdout(), expected);
    // Of two parents nobody can tell which one is meant.
    let twice = [("traceparent", PARENT); 2];
    let body = bash_call("echo $TRACEPARENT", &json!({})).to_string();
    let reply = daemon
        .connect()
        .request("POST", "/execute", &twice, body.as_bytes());
    let of_its_own = trace_id(&id_of(&reply.json()));
    assert!(reply.stdout().contains(&of_its_own), "{}", reply.stdout());
    let named = json!({"trace_id": "order 4711"});
    let [one, other] = [(); 2].map(|()| id_of(&daemon.bash_with("true", &named).json()));
    end(&mut daemon);
    let spans = collector.spans_of(&alone);
    let root = assert_stages(&spans, &STAGES);
    assert_eq!(hex(&root.trace_id), trace_id(&alone));
    assert!(root.parent_span_id.is_empty());
    assert_eq!(root.flags, 0x101);
    let digest = Digest::of(b"order 4711").to_string();
    for id in [one, other] {
        let span = collector.spans_of(&id)[0].clone();
        assert_eq!(hex(&span.trace_id), digest[..32]);
        let name = text(&span, "shelly.trace.name");
        assert_eq!(name.as_deref(), Some("order 4711"));
        assert!(span.parent_span_id.is_empty());
    }
}

#[test]
fn a_call_of_a_skill_is_below_the_skill() {
    let collector = Collector::start();
    let room = Room::new(&collector.toml());
    let steps = json!([{"tool": "bash", "parameters": {"command": "true"}}]);
    room.steps("outer", steps, json!({}));
    // It says where its call belongs, as it pleases.
    let other = "5bf92f3577b34da6a3ce929d0e0e4736";
    let script = format!(
        "#!/bin/sh
for parent in 00-{TRACE}-00000000000000aa-01 00-{other}-00000000000000bb-01; do
    curl --silent --fail --unix-socket \"$SHELLY_SOCKET\" --header \"authorization: Bearer $SHELLY_CAPABILITY\" \\
        --header \"traceparent: $parent\" --data '{{\"name\": \"bash\", \"input\": {{\"command\": \"true\"}}}}' \\
        http://shelly/execute >&2 || exit 1
done
echo '{{}}'\n"
    );
    room.program("program", &script, json!({"calls": ["bash"]}));
    let mut daemon = room.start();
    let call = |name: &str, traceparent: &str| {
        let answer = post(&daemon, &json!({"name": name, "input": {}}), traceparent);
        assert_eq!(answer["is_error"], false, "{answer}");
        let id = id_of(&answer);
        let record = daemon.ended(&id);
        let children = record["children"].as_array().expect("a list").iter();
        (id, children.map(id_of).collect::<Vec<_>>())
    };
    let (alone, of_alone) = call("outer", "");
    let (traced, of_traced) = call("outer", PARENT);
    let (program, of_program) = call("program", PARENT);
    end(&mut daemon);
    for (outer, inner, trace) in [
        (&alone, &of_alone[0], trace_id(&alone).as_str()),
        (&traced, &of_traced[0], TRACE),
        (&program, &of_program[0], TRACE),
    ] {
        let spans = collector.spans_of(inner);
        let span = assert_stages(&spans, &STAGES);
        assert_eq!(hex(&span.trace_id), trace);
        assert_eq!(hex(&span.parent_span_id), span_id(outer));
        assert_eq!(span.flags, 0x101);
        let parent = text(span, "shelly.execution.parent_id");
        assert_eq!(parent.as_ref(), Some(outer));
        assert!(span.links.is_empty());
        let outer = &collector.spans_of(outer)[0];
        assert!(outer.start_time_unix_nano <= span.start_time_unix_nano);
        assert!(span.end_time_unix_nano <= outer.end_time_unix_nano);
    }
    // One that names a trace of its own is in that, and linked.
    let span = collector.spans_of(&of_program[1])[0].clone();
    assert_eq!(hex(&span.trace_id), other);
    assert_eq!(hex(&span.parent_span_id), "00000000000000bb");
    let links: Vec<_> = span.links.iter().map(|link| hex(&link.span_id)).collect();
    assert_eq!(links, [span_id(&program)]);
    assert_eq!(hex(&span.links[0].trace_id), TRACE);
}

#[test]
fn what_failed_is_an_error_and_what_was_refused_is_told() {
    let collector = Collector::start();
    let dir = scratch();
    let policy = "default = \"allow\"\ndeny = [\"bash(command:rm *)\"]\n";
    std::fs::write(dir.join("policy.toml"), policy).expect("written");
    let mut daemon = Daemon::start_in(dir, Mode::Group, &collector.toml(), |_| {});
    let bash = |command: &str, members: Value| {
        let answer = daemon.bash_with(command, &members).json();
        id_of(&answer)
    };
    let denied = bash("rm x", json!({}));
    let late = bash("sleep 60", json!({"timeout_secs": 0.1}));
    let failed = bash("exit 3", json!({}));
    let killed = bash("kill -SEGV 0", json!({}));
    let unknown = daemon.post(&json!({"name": "made up", "input": {}}));
    let unknown = id_of(&unknown.json());
    end(&mut daemon);

    let spans = collector.spans_of(&denied);
    let span = assert_stages(&spans, &STAGES[..3]);
    assert!(spans.iter().all(|span| span.status.is_none()));
    for (name, value) in [
        ("shelly.status", "denied"),
        ("shelly.verdict", "deny"),
        ("shelly.failure", "permission_denied"),
        ("shelly.failure.stage", "permission"),
    ] {
        assert_eq!(text(span, name).as_deref(), Some(value), "{name}");
    }
    assert_eq!(text(span, "error.type"), None);

    let spans = collector.spans_of(&unknown);
    let span = assert_stages(&spans, &STAGES[..1]);
    assert_eq!(span.name, "execute_tool");
    assert_eq!(text(span, "gen_ai.tool.name").as_deref(), Some("made up"));
    assert_eq!(span.status, None);

    for (id, kind, message, more) in [
        (
            late,
            "timeout",
            "timeout",
            ("shelly.kill.reason", "timeout"),
        ),
        (
            failed,
            "exit_code",
            "exit_code: 3",
            ("process.exit.code", "3"),
        ),
        (
            killed,
            "signal",
            "signal: SIGSEGV",
            ("shelly.exit.signal", "SIGSEGV"),
        ),
    ] {
        let spans = collector.spans_of(&id);
        let span = assert_stages(&spans, &STAGES);
        assert_eq!(status(span), Some((StatusCode::Error, message)));
        assert_eq!(text(span, "error.type").as_deref(), Some(kind));
        assert_eq!(text(span, more.0).as_deref(), Some(more.1));
        let wrong: Vec<&str> = spans[1..]
            .iter()
            .filter(|stage| stage.status.is_some())
            .map(|stage| stage.name.as_str())
            .collect();
        assert_eq!(wrong, ["execution"]);
    }
}

#[test]
fn what_its_caller_does_not_record_is_not_told_of() {
    let collector = Collector::start();
    let mut daemon = Daemon::start_with(Mode::Group, &collector.toml());
    let unrecorded = PARENT.replace("-01", "-00");
    let answer = post(
        &daemon,
        &bash_call("echo $TRACEPARENT", &json!({})),
        &unrecorded,
    );
    let expected = format!("00-{TRACE}-{}-00\n", span_id(&id_of(&answer)));
    let content = answer["content"].as_str().expect("a text");
    assert!(content.contains(&expected), "{content}");
    let recorded = id_of(&post(&daemon, &bash_call("true", &json!({})), PARENT));
    end(&mut daemon);
    assert_eq!(collector.spans_of(&recorded).len(), 7);
    assert_eq!(collector.spans().len(), 7);
}

#[test]
fn metadata_of_grpc_names_a_parent_as_well() {
    let collector = Collector::start();
    let mut daemon = Daemon::start_with(Mode::Group, &collector.toml());
    let client = Grpc::open(daemon.socket());
    let mut request = Request::new(request_of(&bash_call("true", &json!({}))));
    let value = PARENT.parse().expect("ASCII");
    request.metadata_mut().insert("traceparent", value);
    let answer = client.execute(request).expect("an answer");
    end(&mut daemon);
    let span = collector.spans_of(&answer.execution_id)[0].clone();
    assert_eq!(hex(&span.trace_id), TRACE);
    assert_eq!(hex(&span.parent_span_id), "00f067aa0ba902b7");
}

#[test]
fn stages_that_are_not_timed_are_no_spans() {
    let collector = Collector::start();
    let toml = format!("{}[metrics]\nenabled = false\n", collector.toml());
    let mut daemon = Daemon::start_with(Mode::Group, &toml);
    let id = id_of(&daemon.bash("true").json());
    end(&mut daemon);
    assert_stages(&collector.spans_of(&id), &[]);
}

#[test]
fn a_call_that_waits_across_a_restart_keeps_its_parent() {
    let collector = Collector::start();
    let policy = "default = \"allow\"\nask = [\"bash(command:true)\"]\n";
    let mut first = Daemon::start_under(policy, &collector.toml());
    let headers = [("Prefer", "respond-async"), ("traceparent", PARENT)];
    let body = bash_call("true", &json!({})).to_string();
    let begun = first
        .connect()
        .request("POST", "/execute", &headers, body.as_bytes());
    let id = id_of(&begun.json());
    pending(&first);
    first.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(first.wait().success());
    let mut daemon = first.restart();
    let path = format!("/executions/{id}");
    daemon.connect().request("DELETE", &path, &[], b"");
    daemon.ended(&id);
    end(&mut daemon);
    let span = collector.spans_of(&id)[0].clone();
    assert_eq!(hex(&span.parent_span_id), "00f067aa0ba902b7");
    assert_eq!(status(&span), Some((StatusCode::Error, "cancelled")));
}

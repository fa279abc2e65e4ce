use std::time::Duration;

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};

use super::bounded::Bounded;
use super::{Group, MetricsError};
use crate::domain::{
    ConnectionResult, Failure, FailureKind, KillReason, RiskLevel, RunReport, Stage, Status,
    StreamName, Verdict,
};

/// From what costs nothing to what a person takes to answer a question, in seconds.
const STAGE_BUCKETS: [f64; 12] = [
    0.000_01, 0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0,
];

/// From a command that does nothing to one that works for an hour, in seconds.
const RUN_BUCKETS: [f64; 10] = [0.001, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0, 600.0, 3600.0];

/// Stands for what was not known when the execution ended: a tool that is none, or how far it
/// would have been trusted where nobody has come to that.
const UNKNOWN: &str = "unknown";

/// Stands for the rule where none has decided.
const NO_RULE: &str = "none";

/// What is counted of an execution that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Counted<'a> {
    /// The name of its tool, if there is such a tool.
    pub tool: Option<&'a str>,
    /// How far it was trusted, if it came to be judged.
    pub risk: Option<RiskLevel>,
    /// How it ended.
    pub status: Status,
    /// What kept the executor from doing it, if something did.
    pub failure: Option<&'a Failure>,
    /// The facts, where something was run.
    pub run: Option<&'a RunReport>,
}

/// What becomes of calls.
#[derive(Debug)]
pub(super) struct Executions {
    tools: Bounded,
    rules: Bounded,
    ended: IntCounterVec,
    /// In their order, so that nobody has to look them up: an execution leaves six.
    stages: [Histogram; Stage::ALL.len()],
    verdicts: IntCounterVec,
    runs: HistogramVec,
    kills: IntCounterVec,
    survivors: IntCounter,
    oom_killed: IntCounter,
    truncated: IntCounter,
    retries: IntCounter,
    output: IntCounterVec,
    sandbox_starts: IntCounterVec,
    connections: IntCounterVec,
}

impl Executions {
    pub(super) fn new(group: &Group<'_>) -> Result<Self, MetricsError> {
        let stages = group.times_by(
            "shelly_stage_duration_seconds",
            "How long executions were in each stage.",
            ("stage", &STAGE_BUCKETS),
        )?;
        let executions = Self {
            tools: Bounded::default(),
            rules: Bounded::default(),
            ended: group.counters(
                "shelly_executions_total",
                "Executions that have ended, by tool, by how far they were trusted and by how they ended.",
                &["tool", "risk", "ending"],
            )?,
            stages: Stage::ALL.map(|stage| stages.with_label_values(&[stage.as_str()])),
            verdicts: group.counters(
                "shelly_verdicts_total",
                "What the policy said of calls, by the rule that decided.",
                &["verdict", "rule"],
            )?,
            runs: group.times_by(
                "shelly_run_duration_seconds",
                "How long what was run took to its end, by how far it was trusted.",
                ("risk", &RUN_BUCKETS),
            )?,
            kills: group.counters(
                "shelly_kills_total",
                "Executions of which processes were killed, by why.",
                &["reason"],
            )?,
            survivors: group.counter(
                "shelly_kill_survivors_total",
                "Processes that were still there after they were killed. Anything but 0 needs looking into.",
            )?,
            oom_killed: group.counter(
                "shelly_oom_kills_total",
                "Executions of which the kernel killed something for want of memory.",
            )?,
            truncated: group.counter(
                "shelly_outputs_truncated_total",
                "Executions whose answer lacks a part of their output.",
            )?,
            retries: group.counter(
                "shelly_retries_total",
                "Calls that were tried once more.",
            )?,
            output: group.counters(
                "shelly_output_bytes_total",
                "What commands wrote, in bytes, kept or not.",
                &["stream"],
            )?,
            sandbox_starts: group.counters(
                "shelly_sandbox_starts_total",
                "Executions that were to run in the sandbox, by whether it could be had.",
                &["result"],
            )?,
            connections: group.counters(
                "shelly_egress_connections_total",
                "Connections that were asked for from inside of sandboxes, by what became of them.",
                &["result"],
            )?,
        };
        executions.begin_with_zero();
        Ok(executions)
    }

    /// Has everything there that can be told beforehand: of a counter that comes into being with
    /// its first event no increase can be seen.
    fn begin_with_zero(&self) {
        for risk in [RiskLevel::Trusted, RiskLevel::Untrusted] {
            self.runs.with_label_values(&[risk.as_str()]);
        }
        for reason in [
            KillReason::Timeout,
            KillReason::Cancelled,
            KillReason::Disconnect,
            KillReason::Shutdown,
            KillReason::Background,
        ] {
            self.kills.with_label_values(&[reason.as_str()]);
        }
        for stream in [StreamName::Stdout, StreamName::Stderr] {
            self.output.with_label_values(&[stream.as_str()]);
        }
        for result in ["started", "failed"] {
            self.sandbox_starts.with_label_values(&[result]);
        }
        for result in ConnectionResult::ALL {
            self.connections.with_label_values(&[result.as_str()]);
        }
    }

    pub(super) fn retried(&self) {
        self.retries.inc();
    }

    pub(super) fn ended(&self, execution: &Counted<'_>) {
        let tool = execution.tool.map(|tool| self.tools.label(tool));
        let risk = execution.risk.map_or(UNKNOWN, RiskLevel::as_str);
        let labels = [
            tool.as_deref().unwrap_or(UNKNOWN),
            risk,
            execution.status.as_str(),
        ];
        self.ended.with_label_values(&labels).inc();
        // In the stages before that it is refused for what it asks, not for want of a sandbox.
        let could_not_start = execution.failure.is_some_and(|failure| {
            failure.kind == FailureKind::SandboxUnavailable
                && failure.stage == Some(Stage::Execution)
        });
        if could_not_start {
            self.sandbox_starts.with_label_values(&["failed"]).inc();
        }
        if let Some(run) = execution.run {
            self.ran(run);
        }
    }

    fn ran(&self, run: &RunReport) {
        let times = self.runs.with_label_values(&[run.risk_level.as_str()]);
        times.observe(run.duration.as_secs_f64());
        if let Some(sandbox) = &run.sandbox {
            self.sandbox_starts.with_label_values(&["started"]).inc();
            for asked in &sandbox.connections {
                let counter = self.connections.with_label_values(&[asked.result.as_str()]);
                counter.inc_by(asked.count);
            }
        }
        if let Some(kill) = &run.kill {
            if kill.signalled > 0 {
                self.kills.with_label_values(&[kill.reason.as_str()]).inc();
            }
            self.survivors
                .inc_by(u64::from(kill.survivors.unwrap_or(0)));
        }
        if run.oom_killed {
            self.oom_killed.inc();
        }
        if run.truncated {
            self.truncated.inc();
        }
        for (stream, bytes) in [
            (StreamName::Stdout, run.stdout_bytes),
            (StreamName::Stderr, run.stderr_bytes),
        ] {
            if bytes > 0 {
                let counter = self.output.with_label_values(&[stream.as_str()]);
                counter.inc_by(bytes);
            }
        }
    }

    pub(super) fn left_stage(&self, stage: Stage, took: Duration) {
        self.stages[stage as usize].observe(took.as_secs_f64());
    }

    pub(super) fn judged(&self, verdict: Verdict, rule: Option<&str>) {
        let rule = rule.map(|rule| self.rules.label(rule));
        let labels = [verdict.as_str(), rule.as_deref().unwrap_or(NO_RULE)];
        self.verdicts.with_label_values(&labels).inc();
    }
}

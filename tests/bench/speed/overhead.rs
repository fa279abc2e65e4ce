//! What all stages but Execution cost a call, by the daemon's own account: the
//! durations in its `stageCompleted` events, from entering a stage to leaving it.
//! HTTP and the writing of the ledger are in none of them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::Fallible;
use crate::client::{self, Connection, Request};
use crate::daemon::{Daemon, Mode};
use crate::report::{Goal, Row, Unit};
use crate::rows::{PER_TURN, TURNS};
use crate::scratch::Scratch;
use crate::stats::median;

/// A policy, a command under it, and what the policy says: were it not in force, the row would
/// measure nothing.
struct Case {
    name: &'static str,
    policy: Option<&'static str>,
    command: &'static str,
    /// Of the command: the verdict, and the rule that gives it.
    says: (&'static str, Option<&'static str>),
    /// Of the same with `shutdown` in place of `true`.
    says_of_shutdown: (&'static str, Option<&'static str>),
    /// In seconds.
    limit: Option<f64>,
}

const HUNDRED_RULES: &str = include_str!("hundred_rules.toml");
const REFUSES_SHUTDOWN: (&str, Option<&str>) = ("deny", Some("bash(command:shutdown *)"));

/// The owner's limit: nobody notices a fifth of a millisecond beside the start of a process.
const LIMIT: f64 = 0.0002;

const CASES: [Case; 3] = [
    Case {
        name: "overhead, shipped policy",
        policy: None,
        command: "true",
        says: ("allow", None),
        says_of_shutdown: ("allow", None),
        limit: Some(LIMIT),
    },
    Case {
        name: "overhead, 100 rules",
        policy: Some(HUNDRED_RULES),
        command: "true",
        says: ("allow", Some("bash(command:true)")),
        says_of_shutdown: REFUSES_SHUTDOWN,
        limit: Some(LIMIT),
    },
    // Plain words are read without bash's grammar; a loop is not.
    Case {
        name: "overhead, 100 rules, a loop",
        policy: Some(HUNDRED_RULES),
        command: "for _ in 1; do true; done",
        says: ("allow", None),
        says_of_shutdown: REFUSES_SHUTDOWN,
        limit: None,
    },
];

/// The stage that is not counted, and how many a call goes through.
const EXECUTION: &str = "execution";
const STAGES: usize = 6;

/// A case under measurement, on a daemon of its own: nobody else's events.
struct Running {
    case: &'static Case,
    mode: Mode,
    daemon: Daemon,
    connection: Connection,
    request: Request,
    /// The number of the last event that was counted.
    heard: u64,
    /// One of each per round, in seconds: the sum of the stages, and each stage.
    sums: Vec<f64>,
    stages: BTreeMap<String, Vec<f64>>,
}

/// Measures all cases in all modes, turn by turn.
pub fn measure(
    scratch: &Scratch,
    modes: impl Iterator<Item = Mode>,
    rounds: impl Iterator<Item = usize>,
    sink: &mut dyn FnMut(Row),
) -> Fallible<()> {
    let mut running = Vec::new();
    for mode in modes {
        for (number, case) in CASES.iter().enumerate() {
            running.push(Running::start(scratch, mode, number, case)?);
        }
    }
    for _ in rounds {
        for _ in 0..TURNS {
            for one in &mut running {
                one.turn()?;
            }
        }
        for one in &mut running {
            one.hear(TURNS * PER_TURN)?;
        }
    }
    running.iter().for_each(|one| one.report(sink));
    Ok(())
}

impl Running {
    fn start(scratch: &Scratch, mode: Mode, number: usize, case: &'static Case) -> Fallible<Self> {
        let daemon = scratch.ruled(mode, &format!("overhead-{number}"), case.policy)?;
        let connection = daemon.connect()?;
        let mut one = Self {
            case,
            mode,
            daemon,
            connection,
            request: Request::execute(case.command, &[]),
            heard: 0,
            sums: Vec::new(),
            stages: BTreeMap::new(),
        };
        one.check()?;
        // What a first execution has to make is not of interest here.
        one.turn()?;
        one.hear(PER_TURN)?;
        one.sums.clear();
        one.stages.clear();
        Ok(one)
    }

    /// Fails unless the policy is in force and says what it should.
    fn check(&mut self) -> Fallible<()> {
        let case = self.case;
        if let Some(policy) = case.policy {
            let lists: toml::Table = policy.parse()?;
            let rules: usize = lists
                .values()
                .filter_map(|list| Some(list.as_array()?.len()))
                .sum();
            if rules != 100 {
                return Err(format!("the policy of a hundred rules has {rules}").into());
            }
        }
        let shutdown = case.command.replace("true", "shutdown now");
        let expected = [
            (case.command, case.says),
            (&shutdown, case.says_of_shutdown),
        ];
        for (command, (verdict, rule)) in expected {
            let answer = self.connection.exchange(&Request::explain(command))?;
            let judgement: Value = serde_json::from_slice(answer.expect(200)?.body)?;
            if judgement["verdict"] != verdict || judgement["rule"].as_str() != rule {
                return Err(format!("of {command:?} the policy says {judgement}").into());
            }
        }
        Ok(())
    }

    fn turn(&mut self) -> Fallible<()> {
        for _ in 0..PER_TURN {
            self.connection.exchange(&self.request)?.expect_success()?;
        }
        Ok(())
    }

    /// Takes the medians over the `count` executions since it last heard.
    fn hear(&mut self, count: usize) -> Fallible<()> {
        let path = format!(
            "/events?follow=false&type=stageCompleted&after={}",
            self.heard
        );
        let text = client::whole(&self.daemon.socket(), &path)?;
        let mut executions: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
        for data in text.lines().filter_map(|line| line.strip_prefix("data:")) {
            let completed: Completed =
                serde_json::from_str(data).map_err(|error| format!("{error}: {data}"))?;
            self.heard = completed.number;
            let stages = executions.entry(completed.execution_id).or_default();
            stages.insert(completed.stage, completed.duration_ms / 1e3);
        }
        if executions.len() != count || executions.values().any(|stages| stages.len() != STAGES) {
            return Err(format!(
                "{} executions with stages instead of {count}, or some with other than {STAGES}",
                executions.len()
            )
            .into());
        }
        let mut sums = Vec::new();
        let mut each: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for mut stages in executions.into_values() {
            stages.remove(EXECUTION).ok_or("an execution without one")?;
            sums.push(stages.values().sum());
            for (stage, seconds) in stages {
                each.entry(stage).or_default().push(seconds);
            }
        }
        self.sums.push(median(&sums));
        for (stage, seconds) in each {
            self.stages.entry(stage).or_default().push(median(&seconds));
        }
        Ok(())
    }

    /// The sum, and for the sake of whoever wants to lower it the stage that has most of it.
    fn report(&self, sink: &mut dyn FnMut(Row)) {
        let Case { name, limit, .. } = self.case;
        let value = |name: &str, seconds: f64, goal: Goal| {
            Row::value(name, Some(self.mode), Unit::Seconds, seconds, goal)
        };
        let goal = limit.map_or_else(Goal::none, Goal::at_most);
        sink(value(name, median(&self.sums), goal));
        let stages = self
            .stages
            .iter()
            .map(|(stage, seconds)| (stage, median(seconds)));
        if let Some((stage, seconds)) = stages.max_by(|(_, a), (_, b)| a.total_cmp(b)) {
            sink(value(&format!("{name}: {stage}"), seconds, Goal::none()));
        }
    }
}

/// What is read of a `stageCompleted`; of anything else it fails.
#[derive(Deserialize)]
struct Completed {
    number: u64,
    execution_id: String,
    stage: String,
    duration_ms: f64,
}

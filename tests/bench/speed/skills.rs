//! What skills cost: validating a call against a large schema, taking ten steps in the daemon instead
//! of ten calls from outside, and reading two hundred skills anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::Fallible;
use crate::client::{self, Connection, Request};
use crate::daemon::{Daemon, Mode};
use crate::report::{Goal, Row, Unit};
use crate::scratch::Scratch;
use crate::stats::{Pairs, median};

/// Members of the large schema: some 95 bytes each, 10 KiB in all.
const MEMBERS: usize = 110;
const STEPS: usize = 10;
const SKILLS: usize = 200;

/// Calls per round.
const CALLS: usize = 20;

/// Nobody waits longer for a change of a file.
const PATIENCE: Duration = Duration::from_secs(10);

/// Measures all three in all modes.
pub fn measure(
    scratch: &Scratch,
    modes: impl Iterator<Item = Mode>,
    rounds: impl Iterator<Item = usize>,
    sink: &mut dyn FnMut(Row),
) -> Fallible<()> {
    let mut running = Vec::new();
    for mode in modes {
        running.push(Running::start(scratch, mode)?);
    }
    for round in rounds {
        for one in &mut running {
            one.validate()?;
            one.step()?;
            one.reload(round)?;
        }
    }
    running.iter().for_each(|one| one.report(sink));
    Ok(())
}

/// A daemon with skills, and what was measured of it.
struct Running {
    mode: Mode,
    daemon: Daemon,
    connection: Connection,
    /// The number of the last event that was looked at.
    heard: u64,
    /// In seconds, one of each per round.
    validation: Vec<f64>,
    steps: Pairs,
    reloads: Vec<f64>,
}

impl Running {
    fn start(scratch: &Scratch, mode: Mode) -> Fallible<Self> {
        let daemon = scratch.ruled(mode, "skills", None)?;
        let skills = daemon.skills_dir();
        let step = json!({"tool": "bash", "parameters": {"command": "true"}});
        let check = json!({"tool": "check_condition", "parameters": {"condition": "True"}});
        let anything = json!({"type": "object"});
        put(&skills, "large", &large_schema(), &[check], "1.0.0")?;
        put(
            &skills,
            "ten",
            &anything,
            &vec![step.clone(); STEPS],
            "1.0.0",
        )?;
        for number in 2..SKILLS {
            let name = format!("skill{number}");
            put(
                &skills,
                &name,
                &anything,
                std::slice::from_ref(&step),
                "1.0.0",
            )?;
        }
        let mut one = Self {
            mode,
            connection: daemon.connect()?,
            daemon,
            heard: 0,
            validation: Vec::new(),
            steps: Pairs::default(),
            reloads: Vec::new(),
        };
        one.shows(&format!("skill{}", SKILLS - 1), "1.0.0")?;
        // What a first call makes ready is not of interest here.
        one.validate()?;
        one.validation.clear();
        Ok(one)
    }

    /// How long the stage took in which the schema is held against the input.
    fn validate(&mut self) -> Fallible<()> {
        let input: Map<String, Value> = (0..MEMBERS)
            .map(|number| (member(number), json!("some words and 12 digits")))
            .collect();
        let request = Request::tool("large", &Value::Object(input));
        let mut ids = BTreeSet::new();
        for _ in 0..CALLS {
            let answer = self.connection.exchange(&request)?.expect(200)?;
            let answer: Value = serde_json::from_slice(answer.body)?;
            ids.extend(answer["execution_id"].as_str().map(str::to_owned));
        }
        let path = format!(
            "/events?follow=false&type=stageCompleted&after={}",
            self.heard
        );
        let text = client::whole(&self.daemon.socket(), &path)?;
        let mut seconds = Vec::new();
        for data in text.lines().filter_map(|line| line.strip_prefix("data:")) {
            let event: Value = serde_json::from_str(data)?;
            self.heard = event["number"].as_u64().unwrap_or(self.heard);
            let is_ours = event["execution_id"]
                .as_str()
                .is_some_and(|id| ids.contains(id));
            if is_ours && event["stage"] == "validation" {
                seconds.extend(event["duration_ms"].as_f64().map(|millis| millis / 1e3));
            }
        }
        if seconds.len() != CALLS {
            return Err(format!("{} validations of {CALLS} were told of", seconds.len()).into());
        }
        self.validation.push(median(&seconds));
        Ok(())
    }

    /// Ten calls by a client, and the skill that makes the same ten.
    fn step(&mut self) -> Fallible<()> {
        let call = Request::execute("true", &[]);
        let skill = Request::tool("ten", &json!({}));
        let (mut by_client, mut by_skill) = (Vec::new(), Vec::new());
        for _ in 0..CALLS {
            let start = Instant::now();
            for _ in 0..STEPS {
                self.connection.exchange(&call)?.expect_success()?;
            }
            by_client.push(start.elapsed().as_secs_f64());
            let start = Instant::now();
            let answer = self.connection.exchange(&skill)?.expect(200)?;
            by_skill.push(start.elapsed().as_secs_f64());
            let answer: Value = serde_json::from_slice(answer.body)?;
            if answer["is_error"] != false {
                return Err(format!("the skill failed: {answer}").into());
            }
        }
        self.steps.push(median(&by_client), median(&by_skill));
        Ok(())
    }

    /// From the change of one file of two hundred until it is in force.
    fn reload(&mut self, round: usize) -> Fallible<()> {
        let version = format!("1.1.{round}");
        let step = json!({"tool": "bash", "parameters": {"command": "true"}});
        let start = Instant::now();
        let anything = json!({"type": "object"});
        put(
            &self.daemon.skills_dir(),
            "skill7",
            &anything,
            &[step],
            &version,
        )?;
        self.shows("skill7", &version)?;
        self.reloads.push(start.elapsed().as_secs_f64());
        Ok(())
    }

    fn shows(&mut self, name: &str, version: &str) -> Fallible<()> {
        let request = Request::get(&format!("/tools/{name}"));
        let start = Instant::now();
        loop {
            let answer = self.connection.exchange(&request)?;
            let answer: Value = serde_json::from_slice(answer.body)?;
            if answer["version"] == version {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("`{name}` is not {version}, but {answer}").into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn report(&self, sink: &mut dyn FnMut(Row)) {
        let value = |name: &str, seconds: &[f64], goal: Goal| {
            let seconds = median(seconds);
            Row::value(name, Some(self.mode), Unit::Seconds, seconds, goal)
        };
        // Unnoticed beside the start of a process.
        let name = "skills, validation against 10 KiB of schema";
        sink(value(name, &self.validation, Goal::at_most(0.0002)));
        let name = "skills, ten steps against ten calls";
        let (mode, goal) = (Some(self.mode), Goal::at_most(1.1));
        sink(Row::ratio(name, mode, Unit::Seconds, &self.steps, goal));
        // A tenth of a second is waited for quiet.
        let name = "skills, a change among 200 in force";
        sink(value(name, &self.reloads, Goal::at_most(0.3)));
    }
}

fn member(number: usize) -> String {
    format!("member_{number:03}")
}

fn large_schema() -> Value {
    let property =
        json!({"type": "string", "minLength": 1, "maxLength": 100, "pattern": "^[a-z0-9 ]+$"});
    let properties: Map<String, Value> = (0..MEMBERS)
        .map(|number| (member(number), property.clone()))
        .collect();
    let required: Vec<&String> = properties.keys().collect();
    json!({
        "type": "object", "required": required, "properties": properties,
        "additionalProperties": false,
    })
}

/// Writes a skill at once, as an installer does.
fn put(skills: &Path, name: &str, input: &Value, steps: &[Value], version: &str) -> Fallible<()> {
    let dir = skills.join(name);
    fs::create_dir_all(&dir)?;
    let manifest = json!({
        "name": name, "version": version, "description": "Measured.", "mode": "composite",
        "input": input, "steps": steps,
    });
    fs::write(dir.join("skill.json.tmp"), manifest.to_string())?;
    Ok(fs::rename(
        dir.join("skill.json.tmp"),
        dir.join("skill.json"),
    )?)
}

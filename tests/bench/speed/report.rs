//! The table people read and the JSON programs read. Both say the same.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::Fallible;
use crate::daemon::Mode;
use crate::rows::Bench;
use crate::stats::{Pairs, Spread};

/// Where everything this bench writes goes.
pub fn directory() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("target"),
        PathBuf::from,
    );
    target.join("bench")
}

/// What a measured number counts.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Seconds,
    PerSecond,
    Bytes,
    BytesPerSecond,
}

impl Unit {
    fn show(self, value: f64) -> String {
        const MIB: f64 = 1048576.0;
        match self {
            Self::Seconds => format!("{:.3} ms", value * 1e3),
            Self::PerSecond => format!("{value:.0}/s"),
            Self::Bytes => format!("{:.2} MiB", value / MIB),
            Self::BytesPerSecond => format!("{:.0} MiB/s", value / MIB),
        }
    }
}

/// What is to be reached: by the ratio where there is one, else by the value.
#[derive(Clone, Copy, Serialize)]
pub struct Goal {
    at_most: Option<f64>,
    at_least: Option<f64>,
    stretch: Option<f64>,
}

impl Goal {
    /// For numbers that are good to know.
    pub fn none() -> Self {
        Self {
            at_most: None,
            at_least: None,
            stretch: None,
        }
    }

    pub fn at_most(limit: f64) -> Self {
        Self {
            at_most: Some(limit),
            ..Self::none()
        }
    }

    pub fn at_least(limit: f64) -> Self {
        Self {
            at_least: Some(limit),
            ..Self::none()
        }
    }

    /// A limit that would be even better, on the same side.
    pub fn stretch(self, limit: f64) -> Self {
        Self {
            stretch: Some(limit),
            ..self
        }
    }

    fn verdict(self, value: f64) -> Verdict {
        let reaches = |limit: f64| {
            if self.at_least.is_some() {
                value >= limit
            } else {
                value <= limit
            }
        };
        match self.at_most.or(self.at_least) {
            None => Verdict::Informative,
            Some(limit) if !reaches(limit) => Verdict::Missed,
            Some(_) if self.stretch.is_some_and(reaches) => Verdict::Stretch,
            Some(_) => Verdict::Reached,
        }
    }

    fn show(self, show: impl Fn(f64) -> String) -> String {
        match (self.at_most, self.at_least) {
            (Some(limit), _) => format!("≤ {}", show(limit)),
            (None, Some(limit)) => format!("≥ {}", show(limit)),
            (None, None) => String::new(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Reached,
    Stretch,
    Missed,
    Informative,
    NotMeasured,
}

/// One line of the table.
#[derive(Serialize)]
pub struct Row {
    name: String,
    mode: Option<&'static str>,
    unit: Option<Unit>,
    floor: Option<f64>,
    daemon: Option<f64>,
    ratio: Option<Spread>,
    goal: Goal,
    verdict: Verdict,
    error: Option<String>,
}

impl Row {
    pub fn ratio(name: &str, mode: Option<Mode>, unit: Unit, pairs: &Pairs, goal: Goal) -> Self {
        let ratio = pairs.ratio();
        Self {
            floor: Some(pairs.floor()),
            daemon: Some(pairs.daemon()),
            ratio: Some(ratio),
            ..Self::new(name, mode, unit, goal, goal.verdict(ratio.median))
        }
    }

    pub fn value(name: &str, mode: Option<Mode>, unit: Unit, value: f64, goal: Goal) -> Self {
        Self {
            daemon: Some(value),
            ..Self::new(name, mode, unit, goal, goal.verdict(value))
        }
    }

    pub fn failed(name: &str, error: &str) -> Self {
        let empty = Self::new(
            name,
            None,
            Unit::Seconds,
            Goal::none(),
            Verdict::NotMeasured,
        );
        Self {
            unit: None,
            error: Some(error.to_owned()),
            ..empty
        }
    }

    fn new(name: &str, mode: Option<Mode>, unit: Unit, goal: Goal, verdict: Verdict) -> Self {
        let mode = mode.map(Mode::name);
        Self {
            name: name.to_owned(),
            mode,
            unit: Some(unit),
            floor: None,
            daemon: None,
            ratio: None,
            goal,
            verdict,
            error: None,
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if let Some(error) = &self.error {
            return write!(f, "{:40} not measured: {error}", self.name);
        }
        let show = |value: f64| self.unit.map_or_else(String::new, |unit| unit.show(value));
        let (ratio, spread, goal) = match self.ratio {
            Some(Spread { low, median, high }) => (
                format!("{median:.3}"),
                format!("{low:.2}-{high:.2}"),
                self.goal.show(|limit| format!("{limit:.2}")),
            ),
            None => (String::new(), String::new(), self.goal.show(show)),
        };
        let verdict = match self.verdict {
            Verdict::Reached => "yes",
            Verdict::Stretch => "yes, and the stretch",
            Verdict::Missed => "NO",
            Verdict::Informative | Verdict::NotMeasured => "",
        };
        let [floor, daemon] =
            [self.floor, self.daemon].map(|value| value.map_or_else(String::new, show));
        let (name, mode) = (&self.name, self.mode.unwrap_or_default());
        write!(
            f,
            "{name:40} {mode:6} {floor:>11} {daemon:>11} {ratio:>6} {spread:>11}  {goal:10} {verdict}"
        )
    }
}

/// Prints rows as they come and keeps them.
pub struct Table {
    rows: Vec<Row>,
}

impl Table {
    pub fn begin() -> Self {
        println!(
            "\n{:40} {:6} {:>11} {:>11} {:>6} {:>11}  {:10} reached",
            "what", "mode", "floor", "daemon", "ratio", "quartiles", "goal"
        );
        Self { rows: Vec::new() }
    }

    pub fn add(&mut self, row: Row) {
        println!("{row}");
        self.rows.push(row);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Every row could be measured.
    pub fn measured(&self) -> bool {
        self.rows
            .iter()
            .all(|row| row.verdict != Verdict::NotMeasured)
    }

    /// Every goal was reached.
    pub fn reached(&self) -> bool {
        self.rows.iter().all(|row| row.verdict != Verdict::Missed)
    }

    /// Writes the machine-readable copy and says where it is.
    pub fn save(&self, environment: &Environment) -> Fallible<PathBuf> {
        let path = directory().join("results.json");
        let copy = serde_json::json!({"environment": environment, "load_at_end": load(), "rows": self.rows});
        fs::write(&path, format!("{copy:#}\n"))?;
        Ok(path)
    }
}

/// What the numbers depend on.
#[derive(Serialize)]
pub struct Environment {
    daemon: PathBuf,
    kernel: String,
    architecture: &'static str,
    processor: String,
    processors: usize,
    load_at_start: String,
    rounds: usize,
    skipped: Vec<String>,
    unfair: Option<String>,
    configuration: &'static str,
    ledger: String,
}

impl Environment {
    pub fn look(bench: &Bench) -> Fallible<Self> {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
        let model = cpuinfo
            .lines()
            .find(|line| line.starts_with("model name"))
            .and_then(|line| line.split_once(": "));
        Ok(Self {
            daemon: crate::daemon::program(),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?
                .trim()
                .to_owned(),
            architecture: std::env::consts::ARCH,
            processor: model.map_or("unknown", |(_, model)| model).to_owned(),
            processors: std::thread::available_parallelism()?.get(),
            load_at_start: load(),
            rounds: bench.effort().rounds,
            skipped: bench.skipped.clone(),
            unfair: bench.unfair.clone(),
            configuration: "config/executor.toml; [cgroup] mode and path as the row says; shell = \"/bin/sh\" in the rows of sh -c true; a policy of 100 rules in the rows that say so",
            ledger: bench.ledger()?,
        })
    }
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(f, "{}", self.daemon.display())?;
        writeln!(
            f,
            "{}, {} x {}, Linux {}",
            self.architecture, self.processors, self.processor, self.kernel
        )?;
        writeln!(
            f,
            "load {}, medians of {} interleaved rounds",
            self.load_at_start, self.rounds
        )?;
        writeln!(f, "configuration: {}", self.configuration)?;
        writeln!(f, "ledger: {}", self.ledger)?;
        if let Some(unfair) = &self.unfair {
            writeln!(
                f,
                "autogroups favour the daemon where others are at work: {unfair}"
            )?;
        }
        self.skipped
            .iter()
            .try_for_each(|skipped| writeln!(f, "not measured: {skipped}"))
    }
}

/// The load averages: a number above the count of processors says that others were at work.
fn load() -> String {
    let line = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    line.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

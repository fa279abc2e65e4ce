//! The rows: what is measured, how, and what is to be reached.
//!
//! Every row alternates between the floor and the daemon in each mode, round by
//! round. A row that fails is reported as failed; the others go on.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::Fallible;
use crate::client::{self, Connection, Request};
use crate::daemon::{self, Daemon, Mode};
use crate::floor::Floor;
use crate::interrupt::{self, interrupted};
use crate::overhead;
use crate::report::{Goal, Row, Unit};
use crate::scratch::{BASH, Measured, SH, Scratch, Shell};
use crate::share::Share;
use crate::stats::{Pairs, median, quantile};
use crate::{sandbox, skills};

/// How much is measured.
#[derive(Clone, Copy)]
pub struct Effort {
    pub rounds: usize,
    pub executions: usize,
}

/// In a round floor and daemons take turns this often, this many executions each: short enough that both
/// see the same weather, long enough that the caches are those of the one whose turn it is. A p50 is
/// compared turn by turn; a p99 takes the 500 samples of a round, or it would be their maximum.
pub const TURNS: usize = 10;
pub const PER_TURN: usize = 50;

/// Everything that runs during a measurement.
pub struct Bench {
    effort: Effort,
    modes: Vec<Measured>,
    /// Modes that cannot be measured here, and why.
    pub skipped: Vec<String>,
    /// Why floor and daemon may not have had the same share of the processors.
    pub unfair: Option<String>,
    scratch: Scratch,
    // Last, so that it is left when everything has ended.
    _share: Option<Share>,
}

/// Somewhere a finished row goes.
type Sink<'a> = &'a mut dyn FnMut(Row);

impl Bench {
    pub fn start(only: Option<Mode>, effort: Effort) -> Fallible<Self> {
        interrupt::listen()?;
        let (share, unfair) = match Share::enter() {
            Ok(share) => (share, None),
            Err(error) => (None, Some(error.to_string())),
        };
        let scratch = Scratch::create()?;
        let mut modes = Vec::new();
        let mut skipped = Vec::new();
        for mode in [Mode::Group, Mode::Cgroup] {
            if only.is_some_and(|only| only != mode) {
                continue;
            }
            let usable = if mode == Mode::Cgroup {
                daemon::cgroup_usable()
            } else {
                Ok(())
            };
            match usable.and_then(|()| scratch.daemons(mode)) {
                Ok(measured) => modes.push(measured),
                Err(error) => skipped.push(format!("{} mode: {error}", mode.name())),
            }
        }
        if modes.is_empty() {
            return Err(skipped.join("\n").into());
        }
        Ok(Self {
            effort,
            modes,
            skipped,
            unfair,
            scratch,
            _share: share,
        })
    }

    pub fn effort(&self) -> Effort {
        self.effort
    }

    /// What the daemons do of keeping a ledger; it is the same for all.
    pub fn ledger(&self) -> Fallible<String> {
        let measured = self.modes.first().ok_or("no daemon")?;
        measured.bash.ledger()
    }

    /// One turn per round, until somebody is tired of it.
    fn rounds(&self) -> impl Iterator<Item = usize> {
        (0..self.effort.rounds).take_while(|_| !interrupted())
    }

    /// Measures the rows whose name begins with `wanted`.
    pub fn measure(&self, wanted: &str, sink: Sink) -> Fallible<()> {
        let mut floor = Floor::start()?;
        let row = |name: &str, measure: &mut dyn FnMut(Sink) -> Fallible<()>, sink: Sink| {
            if !name.starts_with(wanted) || interrupted() {
                return;
            }
            if let Err(error) = measure(sink) {
                sink(Row::failed(name, &error.to_string()));
            }
        };
        for shell in [SH, BASH] {
            row(
                shell.name,
                &mut |sink| self.latency(&mut floor, shell, sink),
                sink,
            );
        }
        for shell in [SH, BASH] {
            for clients in [8, 32, 256] {
                let name = format!("{}, {clients} clients", shell.name);
                row(
                    &name,
                    &mut |sink| self.throughput(&name, &mut floor, shell, clients, sink),
                    sink,
                );
            }
        }
        row(
            "1 MiB answer as JSON",
            &mut |sink| self.json_answer(&mut floor, sink),
            sink,
        );
        row(
            "1 MiB answer as raw bytes",
            &mut |sink| self.raw_answer(&mut floor, sink),
            sink,
        );
        row(
            "64 MiB drained, 1 MiB kept",
            &mut |sink| self.drain(&mut floor, sink),
            sink,
        );
        row("overhead", &mut |sink| self.overhead(sink), sink);
        row("skills", &mut |sink| self.skills(sink), sink);
        row("sandbox", &mut |sink| self.sandbox(sink), sink);
        row("resident memory", &mut |sink| self.memory(sink), sink);
        row(
            "start to first answer",
            &mut |sink| self.start_time(sink),
            sink,
        );
        row("size of program", &mut |sink| self.sizes(sink), sink);
        Ok(())
    }

    fn latency(&self, floor: &mut Floor, shell: Shell, sink: Sink) -> Fallible<()> {
        let request = Request::execute("true", &[]);
        let mut connections = self.connect(shell)?;
        let mut noise = Pairs::default();
        let mut pairs: Vec<(Pairs, Pairs)> =
            self.modes.iter().map(|_| Default::default()).collect();
        let mut previous = None;
        for _ in self.rounds() {
            let mut bare = Vec::new();
            let mut ours = vec![Vec::new(); connections.len()];
            for _ in 0..TURNS {
                let turn = floor.latency(&[shell.path, "-c", "true"], PER_TURN)?;
                let bare_p50 = median(&turn);
                if let Some(previous) = previous.replace(bare_p50) {
                    noise.push(previous, bare_p50);
                }
                bare.extend(turn);
                for ((connection, ours), (p50, _)) in
                    connections.iter_mut().zip(&mut ours).zip(&mut pairs)
                {
                    let turn = (0..PER_TURN)
                        .map(|_| timed(|| connection.exchange(&request)?.expect(200).map(drop)));
                    let turn = turn.collect::<Fallible<Vec<_>>>()?;
                    p50.push(bare_p50, median(&turn));
                    ours.extend(turn);
                }
            }
            for ((_, p99), ours) in pairs.iter_mut().zip(&ours) {
                p99.push(quantile(&bare, 0.99), quantile(ours, 0.99));
            }
        }
        for (measured, (p50, p99)) in self.modes.iter().zip(&pairs) {
            let mode = Some(measured.mode);
            sink(Row::ratio(
                &format!("{}, p50", shell.name),
                mode,
                Unit::Seconds,
                p50,
                Goal::at_most(1.20).stretch(1.10),
            ));
            sink(Row::ratio(
                &format!("{}, p99", shell.name),
                mode,
                Unit::Seconds,
                p99,
                Goal::at_most(1.35),
            ));
        }
        sink(Row::ratio(
            &format!("{}, floor against itself", shell.name),
            None,
            Unit::Seconds,
            &noise,
            Goal::none(),
        ));
        Ok(())
    }

    fn throughput(
        &self,
        name: &str,
        floor: &mut Floor,
        shell: Shell,
        clients: usize,
        sink: Sink,
    ) -> Fallible<()> {
        let request = Request::execute("true", &[]);
        // Some four rounds of every client, and never less than about a third of a second.
        let total = (clients * 4).max(800);
        self.against_floor(
            name,
            (Unit::PerSecond, Goal::at_least(0.9)),
            &mut || floor.throughput(&[shell.path, "-c", "true"], clients, total),
            &mut |measured| {
                client::throughput(&measured.with(shell).socket(), &request, clients, total)
            },
            sink,
        )
    }

    /// The floor runs the same command and holds its output in memory.
    fn json_answer(&self, floor: &mut Floor, sink: Sink) -> Fallible<()> {
        let command = cat(&self.scratch.one_mib);
        let request = Request::execute(&command, &[]);
        self.against_floor(
            "1 MiB answer as JSON",
            (Unit::Seconds, Goal::at_most(1.8)),
            &mut || {
                Ok(median(
                    &floor.latency(&[BASH.path, "-c", &command], SAMPLES)?,
                ))
            },
            &mut |measured| {
                let mut connection = measured.bash.connect()?;
                connection.exchange(&request)?.expect_success()?;
                samples(|| {
                    let answer = connection.exchange(&request)?.expect(200)?;
                    if answer.body.len() > 1 << 20 {
                        Ok(())
                    } else {
                        Err("the answer is shorter than the output".into())
                    }
                })
            },
            sink,
        )
    }

    /// Two requests: the call, answered 202 at once, then the output, held back until the end. So the bytes come
    /// once and never as JSON. The floor is that of the JSON row.
    fn raw_answer(&self, floor: &mut Floor, sink: Sink) -> Fallible<()> {
        let command = cat(&self.scratch.one_mib);
        let request = Request::execute(&command, &["Prefer: respond-async"]);
        self.against_floor(
            "1 MiB answer as raw bytes",
            (Unit::Seconds, Goal::at_most(1.3)),
            &mut || {
                Ok(median(
                    &floor.latency(&[BASH.path, "-c", &command], SAMPLES)?,
                ))
            },
            &mut |measured| {
                let mut connection = measured.bash.connect()?;
                samples(|| {
                    let record: serde_json::Value =
                        serde_json::from_slice(connection.exchange(&request)?.expect(202)?.body)?;
                    let id = record["execution_id"]
                        .as_str()
                        .ok_or("a record without an execution_id")?;
                    let output =
                        Request::get(&format!("/executions/{id}/output?stream=stdout&wait=60"));
                    let answer = connection.exchange(&output)?.expect(200)?;
                    if answer.body.len() == 1 << 20 {
                        Ok(())
                    } else {
                        Err(format!("{} bytes", answer.body.len()).into())
                    }
                })
            },
            sink,
        )
    }

    /// The floor drains the same stream and keeps its first 1 MiB.
    fn drain(&self, floor: &mut Floor, sink: Sink) -> Fallible<()> {
        let command = cat(&self.scratch.sixty_four_mib);
        let request = Request::execute(&command, &[]);
        let rate = |seconds: f64| (64 << 20) as f64 / seconds;
        self.against_floor(
            "64 MiB drained, 1 MiB kept",
            (Unit::BytesPerSecond, Goal::at_least(0.8)),
            &mut || {
                Ok(rate(median(
                    &floor.latency(&[BASH.path, "-c", &command], DRAINS)?,
                )))
            },
            &mut |measured| {
                let mut connection = measured.bash.connect()?;
                let seconds = (0..DRAINS)
                    .map(|_| timed(|| connection.exchange(&request)?.expect(200).map(drop)));
                Ok(rate(median(&seconds.collect::<Fallible<Vec<_>>>()?)))
            },
            sink,
        )
    }

    fn overhead(&self, sink: Sink) -> Fallible<()> {
        let modes = self.modes.iter().map(|measured| measured.mode);
        overhead::measure(&self.scratch, modes, self.rounds(), sink)
    }

    fn skills(&self, sink: Sink) -> Fallible<()> {
        let modes = self.modes.iter().map(|measured| measured.mode);
        skills::measure(&self.scratch, modes, self.rounds(), sink)
    }

    fn sandbox(&self, sink: Sink) -> Fallible<()> {
        let modes = self.modes.iter().map(|measured| measured.mode);
        sandbox::measure(&self.scratch, modes, self.rounds(), sink)
    }

    /// On a fresh daemon: what the others have done so far is not this row's business.
    fn memory(&self, sink: Sink) -> Fallible<()> {
        let executions = self.effort.executions;
        for measured in &self.modes {
            let mode = Some(measured.mode);
            let daemon = self.scratch.fresh(measured.mode)?;
            let idle = settled(&daemon)?;
            client::throughput(
                &daemon.socket(),
                &Request::execute("true", &[]),
                32,
                executions,
            )?;
            let after = settled(&daemon)?;
            let more = format!("resident memory, more after {executions}");
            sink(Row::value(
                "resident memory, idle",
                mode,
                Unit::Bytes,
                idle,
                Goal::at_most(8.0 * MIB),
            ));
            sink(Row::value(
                &more,
                mode,
                Unit::Bytes,
                after - idle,
                Goal::at_most(2.0 * MIB),
            ));
            let worked = measured.bash.resident()?;
            sink(Row::value(
                "resident memory, after the rows above",
                mode,
                Unit::Bytes,
                worked,
                Goal::none(),
            ));
        }
        Ok(())
    }

    fn start_time(&self, sink: Sink) -> Fallible<()> {
        let mut seconds = vec![Vec::new(); self.modes.len()];
        for _ in self.rounds() {
            for (measured, seconds) in self.modes.iter().zip(&mut seconds) {
                seconds.push(self.scratch.fresh(measured.mode)?.start_seconds);
            }
        }
        for (measured, seconds) in self.modes.iter().zip(&seconds) {
            sink(Row::value(
                "start to first answer",
                Some(measured.mode),
                Unit::Seconds,
                median(seconds),
                Goal::at_most(0.020),
            ));
        }
        Ok(())
    }

    fn sizes(&self, sink: Sink) -> Fallible<()> {
        let daemon = daemon::program();
        for program in [daemon.with_file_name("shellyctl"), daemon] {
            let name = program.file_name().unwrap_or_default().to_string_lossy();
            let stripped = self.scratch.stripped(&program)?;
            let size = fs::metadata(stripped)?.len() as f64;
            sink(Row::value(
                &format!("size of program {name}, stripped"),
                None,
                Unit::Bytes,
                size,
                Goal::at_most(12.0 * MIB),
            ));
        }
        Ok(())
    }

    /// One number per round from the floor and from each mode, compared.
    fn against_floor(
        &self,
        name: &str,
        (unit, goal): (Unit, Goal),
        bare: &mut dyn FnMut() -> Fallible<f64>,
        ours: &mut dyn FnMut(&Measured) -> Fallible<f64>,
        sink: Sink,
    ) -> Fallible<()> {
        let mut pairs: Vec<Pairs> = self.modes.iter().map(|_| Pairs::default()).collect();
        for _ in self.rounds() {
            let bare = bare()?;
            for (measured, pairs) in self.modes.iter().zip(&mut pairs) {
                pairs.push(bare, ours(measured)?);
            }
        }
        for (measured, pairs) in self.modes.iter().zip(&pairs) {
            sink(Row::ratio(name, Some(measured.mode), unit, pairs, goal));
        }
        Ok(())
    }

    /// One warm connection per mode.
    fn connect(&self, shell: Shell) -> Fallible<Vec<Connection>> {
        let request = Request::execute("true", &[]);
        self.modes
            .iter()
            .map(|measured| {
                let mut connection = measured.with(shell).connect()?;
                for _ in 0..20 {
                    connection.exchange(&request)?.expect_success()?;
                }
                Ok(connection)
            })
            .collect()
    }
}

const MIB: f64 = 1048576.0;

/// Executions per round of a row whose commands write 1 MiB, and 64 MiB.
const SAMPLES: usize = 20;
const DRAINS: usize = 3;

/// The median of [`SAMPLES`] goes, in seconds.
fn samples(mut go: impl FnMut() -> Fallible<()>) -> Fallible<f64> {
    let seconds = (0..SAMPLES)
        .map(|_| timed(&mut go))
        .collect::<Fallible<Vec<_>>>()?;
    Ok(median(&seconds))
}

fn timed(go: impl FnOnce() -> Fallible<()>) -> Fallible<f64> {
    let start = Instant::now();
    go()?;
    Ok(start.elapsed().as_secs_f64())
}

/// The cheapest way to write a file's content: what costs nothing to produce hides nothing of what it costs to read.
fn cat(path: &Path) -> String {
    format!("cat '{}'", path.display())
}

/// What a daemon holds when what a start or a load leaves to be done is done: when more than two of its looks at
/// that, a second apart, have changed nothing. Nothing else tells of it.
fn settled(daemon: &Daemon) -> Fallible<f64> {
    const LOOK: Duration = Duration::from_millis(100);
    const QUIET: Duration = Duration::from_millis(2300);
    const LIMIT: Duration = Duration::from_secs(60);
    let begun = Instant::now();
    let (mut resident, mut since) = (daemon.resident()?, begun);
    while since.elapsed() < QUIET {
        if begun.elapsed() > LIMIT {
            return Err(format!("the daemon's memory has not settled within {LIMIT:?}").into());
        }
        std::thread::sleep(LOOK);
        let now = daemon.resident()?;
        if now != resident {
            (resident, since) = (now, Instant::now());
        }
    }
    Ok(resident)
}

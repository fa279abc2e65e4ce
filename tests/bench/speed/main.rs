//! How fast the daemon is, against a floor measured in the same run.
//!
//! Owns the command line and the order of things: start the floor and the
//! daemons, measure every row in interleaved rounds, print, write the JSON copy.
//! What is measured and what its goal is stands in `rows`.

mod client;
mod daemon;
mod floor;
mod interrupt;
mod overhead;
mod report;
mod rows;
mod sandbox;
mod scratch;
mod share;
mod skills;
mod stats;

use std::process::ExitCode;

use clap::Parser;

/// What can go wrong here is said once, to a developer, in words.
type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

#[derive(Parser)]
#[command(name = "speed", about = "Measures the daemon against a floor")]
struct Arguments {
    /// Fewer rounds and fewer executions: a minute instead of ten
    #[arg(long)]
    quick: bool,
    /// How many interleaved rounds the medians are taken over
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Only rows whose name begins with this
    #[arg(long, value_name = "TEXT", default_value = "")]
    rows: String,
    /// Only this mode
    #[arg(long, value_name = "MODE")]
    mode: Option<daemon::Mode>,
    /// How many executions stand between the two readings of the memory
    #[arg(long, value_name = "N")]
    executions: Option<usize>,
    /// Exit with 1 when a goal is missed
    #[arg(long)]
    check: bool,
    /// Be the floor: take orders on standard input (the harness starts itself so)
    #[arg(long, hide = true)]
    floor: bool,
    /// What `cargo bench` adds
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.floor {
        return exit_code(floor::serve().map(|()| true));
    }
    if !arguments.bench {
        // `cargo test --all-targets` runs benches too, unoptimised: numbers would mean nothing.
        println!("run me through `make bench`");
        return ExitCode::SUCCESS;
    }
    exit_code(measure(&arguments))
}

fn exit_code(done: Fallible<bool>) -> ExitCode {
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("speed: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures and reports; `false` when a row could not be measured or, under `--check`, a goal was missed.
fn measure(arguments: &Arguments) -> Fallible<bool> {
    let effort = rows::Effort {
        rounds: arguments
            .rounds
            .unwrap_or(if arguments.quick { 3 } else { 15 })
            .max(1),
        executions: arguments
            .executions
            .unwrap_or(if arguments.quick { 5_000 } else { 100_000 }),
    };
    let bench = rows::Bench::start(arguments.mode, effort)?;
    let environment = report::Environment::look(&bench)?;
    print!("{environment}");
    let mut table = report::Table::begin();
    bench.measure(&arguments.rows, &mut |row| table.add(row))?;
    drop(bench);
    if interrupt::interrupted() {
        return Err("interrupted".into());
    }
    if table.is_empty() {
        let error = format!(
            "no row begins with `{}`: see docs/performance.md",
            arguments.rows
        );
        return Err(error.into());
    }
    let path = table.save(&environment)?;
    println!("\nWritten to {}", path.display());
    Ok(table.measured() && (!arguments.check || table.reached()))
}

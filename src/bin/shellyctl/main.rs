//! shellyctl, the operator's command line: arguments → client → print. Each command has a file of
//! its own; all of them end here, as an exit status or as a failure that is told on standard error.

mod args;
mod call;
mod cancel;
mod completions;
mod config;
mod ending;
mod exec;
mod failure;
mod follow;
mod options;
mod policy;
mod print;
mod relay;
mod status;
mod tools;

use std::process::ExitCode;

use clap::Parser;
use shelly_executor::client::Client;

use args::{Args, Command, ConfigCommand, PolicyCommand};
use failure::Failure;

fn main() -> ExitCode {
    let args = Args::parse();
    let json = args.json;
    run(args).unwrap_or_else(|failure| failure.report(json))
}

fn run(args: Args) -> Result<ExitCode, Failure> {
    match args.command {
        Command::Config(ConfigCommand::Check { path }) => {
            Err(config::check(path.as_deref(), args.json))
        }
        Command::Policy(PolicyCommand::Test { path }) => {
            Err(config::check_policy(path.as_deref(), args.json))
        }
        Command::Completions { shell } => completions::print(shell),
        Command::Status
        | Command::Tools { .. }
        | Command::Exec(_)
        | Command::Call(_)
        | Command::Policy(PolicyCommand::Explain(_))
        | Command::Cancel { .. } => talk(args),
    }
}

/// The commands that need the daemon.
fn talk(args: Args) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| Failure::Setup { source })?;
    let ended = runtime.block_on(dispatch(args));
    // A write to a reader that has stopped reading must not hold up the end.
    runtime.shutdown_background();
    ended
}

async fn dispatch(args: Args) -> Result<ExitCode, Failure> {
    let client = args
        .socket
        .map_or_else(Client::from_env_or_default, Client::new);
    match args.command {
        Command::Status => status::run(&client, args.json).await,
        Command::Tools { name: None } => tools::list(&client, args.json).await,
        Command::Tools { name: Some(name) } => tools::show(&client, &name, args.json).await,
        Command::Exec(exec) => exec::run(&client, exec, args.json).await,
        Command::Call(call) => call::run(&client, call, args.json).await,
        Command::Cancel { id } => cancel::run(&client, &id, args.json).await,
        Command::Policy(PolicyCommand::Explain(explain)) => {
            policy::explain(&client, explain, args.json).await
        }
        Command::Policy(PolicyCommand::Test { .. })
        | Command::Config(_)
        | Command::Completions { .. } => {
            unreachable!("`run` handles what needs no daemon")
        }
    }
}

//! shellyctl, the operator's command line: arguments → client → print. Each command has a file of
//! its own; all of them end here, as an exit status or as a failure that is told on standard error.

mod approvals;
mod args;
mod audit;
mod call;
mod cancel;
mod clock;
mod columns;
mod completions;
mod config;
mod ending;
mod events;
mod exec;
mod failure;
mod follow;
mod history;
mod ids;
mod journal;
mod options;
mod output;
mod policy;
mod print;
mod relay;
mod replay;
mod show;
mod signals;
mod status;
mod subscription;
mod tools;
mod top;
mod watch;

use std::process::ExitCode;

use clap::Parser;
use shelly_executor::client::Client;

use args::tools::ToolsArgs;
use args::{Args, Command, ConfigCommand, PolicyCommand};
use failure::Failure;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(said) => return tell(&said),
    };
    let json = args.json;
    run(args).unwrap_or_else(|failure| failure.report(json))
}

/// Says what clap has to say: help, a version, or what is wrong with the command line.
fn tell(said: &clap::Error) -> ExitCode {
    match said.print() {
        Err(source) if !said.use_stderr() => Failure::Stdout { source }.report(false),
        Ok(()) | Err(_) => u8::try_from(said.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from),
    }
}

fn run(args: Args) -> Result<ExitCode, Failure> {
    match args.command {
        Command::Config(ConfigCommand::Check { path }) => {
            config::tell_whose(path.as_deref(), args.socket.as_deref());
            Err(config::check(path.as_deref(), args.json))
        }
        Command::Policy(PolicyCommand::Test { path }) => {
            config::tell_whose(path.as_deref(), args.socket.as_deref());
            Err(config::check_policy(path.as_deref(), args.json))
        }
        Command::Completions { shell } => completions::print(shell),
        Command::Tools(ToolsArgs {
            command: Some(command),
            name,
        }) => tools::work(command, name, args.json),
        Command::Status
        | Command::Tools(_)
        | Command::Exec(_)
        | Command::Call(_)
        | Command::Policy(PolicyCommand::Explain(_))
        | Command::Cancel { .. }
        | Command::History(_)
        | Command::Show { .. }
        | Command::Output(_)
        | Command::Replay { .. }
        | Command::Approvals(_)
        | Command::Approve(_)
        | Command::Deny(_)
        | Command::Events(_)
        | Command::Audit(_)
        | Command::Top => talk(args),
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
        Command::Tools(ToolsArgs { name, .. }) => match name {
            None => tools::list(&client, args.json).await,
            Some(name) => tools::show(&client, &name, args.json).await,
        },
        Command::Exec(exec) => exec::run(&client, exec, args.json).await,
        Command::Call(call) => call::run(&client, call, args.json).await,
        Command::Cancel { id } => cancel::run(&client, &id, args.json).await,
        Command::History(history) => history::run(&client, history, args.json).await,
        Command::Show { id } => show::run(&client, &id, args.json).await,
        Command::Output(output) => output::run(&client, output).await,
        Command::Replay { id } => replay::run(&client, &id, args.json).await,
        Command::Approvals(approvals) => approvals::run(&client, approvals, args.json).await,
        Command::Approve(approve) => approvals::approve(&client, approve, args.json).await,
        Command::Deny(deny) => approvals::deny(&client, deny, args.json).await,
        Command::Events(events) => events::run(&client, events, args.json).await,
        Command::Audit(audit) => audit::run(&client, audit, args.json).await,
        Command::Top => top::run(&client).await,
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

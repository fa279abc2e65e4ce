//! The command line of shellyctl. Its doc comments are the text of `--help` and of the man page,
//! and the generator of man pages and completions includes this module: it names no other.

pub mod approvals;
pub mod events;
mod history;
mod id;
mod number;
pub mod tools;
mod when;

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use shelly_executor::client::read_json;

use approvals::{ApprovalsArgs, ApproveArgs, DenyArgs};
pub use events::{AuditCommand, EventsArgs};
pub use history::{HistoryArgs, OutputArgs};
use id::id;
use tools::ToolsArgs;

/// Operate the Shelly Executor daemon
///
/// shellyctl talks to shelly-executord, the daemon that runs commands and tools for AI agents, over
/// its Unix socket. It shows how the daemon is and which tools it offers, runs commands through it,
/// cancels what is running, shows what has been, and answers what waits for a person's word. Whoever the daemon's configuration allows to call it (as installed,
/// root and the members of the group shelly) can use it.
///
/// On a terminal the output is meant for people; with --json it is the daemon's own JSON, for
/// programs. Colours appear on a terminal only, and never when NO_COLOR is set.
#[derive(Debug, Parser)]
#[command(
    name = "shellyctl",
    version,
    propagate_version = true,
    max_term_width = 100
)]
#[command(after_long_help = AFTER_HELP)]
pub struct Args {
    /// The daemon's socket, in place of $SHELLY_SOCKET
    ///
    /// Where neither names one it is that of a daemon of one's own,
    /// $XDG_RUNTIME_DIR/shelly-executor/executor.sock (without that variable executor.sock in its
    /// state directory), if there is one, else /run/shelly-executor/executor.sock. An empty
    /// SHELLY_SOCKET counts as unset.
    #[arg(long, global = true, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub socket: Option<PathBuf>,

    /// Print the daemon's JSON instead of text for people, where there is any
    #[arg(long, global = true)]
    pub json: bool,

    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

const AFTER_HELP: &str = "\
Exit status:
  0    it worked
  1    the daemon is degraded (status), the tool reported an error (call), the call would not simply
       run (policy explain), the audit trail is broken (audit verify), something is wrong with a
       skill or it cannot be put in its place (tools)
  2    the command line is wrong
  3    the daemon cannot be reached (status)
  78   the configuration or the policy is not valid (config check, policy test)
  124  the time limit ended it (exec, call, replay)
  125  the daemon refused, failed or cannot be reached, or some of the output of a command that
       ended with 0 is missing (exec, replay)
  130  it was cancelled (exec, call, replay)
  141  whoever reads standard output went away

exec otherwise ends as the command did: with its exit code, or with 128 + n if signal n ended it.

Environment:
  SHELLY_SOCKET    the daemon's socket, where --socket names none
  XDG_RUNTIME_DIR  where the daemon of an ordinary user has its socket
  XDG_STATE_HOME   where it keeps its state, and its socket where there is none of the former
  NO_COLOR         if not empty, there are no colours
  TERM             if empty or `dumb`, there are no colours either";

/// The commands of shellyctl.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show how the daemon is
    ///
    /// Prints the daemon's version, how long it has been up, how many executions are under way, and
    /// everything that keeps it from being well. The exit status is 0 when it is well, 1 when it is
    /// degraded and 3 when it cannot be reached.
    Status,

    /// List the tools or show one of them; make, check, install and remove tools of your own
    ///
    /// Without NAME all tools are listed; --json gives the list in the shape that the `tools`
    /// member of an Anthropic Messages request has. With NAME everything about that tool is shown,
    /// its input schema included. A tool that is called like one of the commands below is shown by
    /// `shellyctl tools -- NAME`.
    Tools(ToolsArgs),

    /// Run a command through the daemon, and follow it as it runs
    ///
    /// The command runs as a call of the tool `bash`, with the daemon's privileges and in the
    /// environment that the daemon builds; what it writes to standard output and standard error
    /// appears there as it is written. A single argument is a script and is passed on as it is;
    /// several are quoted, so that every one of them reaches the command as it stands here.
    ///
    /// What is beyond `max_output_bytes` of a stream, or is no UTF-8, is had from what the daemon keeps:
    /// `spool_max_bytes`, 16 MiB as shipped, and less where its spool is full. What is missing is told,
    /// and the exit status is 125 where the command's own would be 0.
    ///
    /// SIGINT (Ctrl-C), SIGTERM and SIGHUP cancel the execution; a second one does not wait for
    /// the daemon to confirm that its processes are dead.
    ///
    /// The exit status is that of the command; 128 + n if signal n ended it, 124 if the time limit
    /// did, 125 if the daemon refused or failed or some of the output is missing, 130 if it was
    /// cancelled. With --json nothing is followed, and the daemon's answer is printed at the end.
    Exec(ExecArgs),

    /// Call any tool with JSON input
    ///
    /// Prints the text that a model would get. SIGINT (Ctrl-C), SIGTERM and SIGHUP cancel, as for
    /// exec. The exit status is 0 for a result, 1 for a result that the tool reports as an error,
    /// and otherwise 124, 125 or 130 as for exec.
    Call(CallArgs),

    /// Cancel an execution
    ///
    /// Comes back once all of its processes are dead. An execution that has already ended is left
    /// as it is.
    Cancel {
        /// The execution's id, or 4 characters and more from its beginning or end, if only one of the newest 1000 has them
        #[arg(value_parser = id)]
        id: String,
    },

    /// List executions, the newest first
    ///
    /// Those that still run are among them. Members of the daemon's admins see everybody's, others
    /// their own. --clear forgets them.
    History(HistoryArgs),

    /// Show everything about an execution
    Show {
        /// The execution's id, or 4 characters and more from its beginning or end, if only one of the newest 1000 has them
        #[arg(value_parser = id)]
        id: String,
    },

    /// Print what an execution wrote, byte for byte
    ///
    /// The daemon keeps more than the answer to a call has, but not without limit.
    Output(OutputArgs),

    /// Make the call of an execution once more
    ///
    /// It gets an execution and an id of its own, and is judged by the policy as it is now. What is
    /// printed and the exit status are those of exec for the tool `bash`, and of call otherwise.
    Replay {
        /// The id of the execution to repeat, or 4 characters and more from its beginning or end, if only one of the newest 1000 has them
        #[arg(value_parser = id)]
        id: String,
    },

    /// List what waits for a person's word
    ///
    /// With --watch on a terminal each is asked about as it comes: approve it once, approve it
    /// always, deny it, or skip it and leave it to others.
    Approvals(ApprovalsArgs),

    /// Let a call run that waits for approval
    ///
    /// Those whom the daemon's configuration lists as approvers decide, but nobody about a call of
    /// their own unless that is configured too. With --remember calls like it are not asked about
    /// again; the rules it is remembered as are printed.
    Approve(ApproveArgs),

    /// Refuse a call that waits for approval
    Deny(DenyArgs),

    /// Show what happens in the daemon, an event a line
    ///
    /// Without --follow: what has happened up to now, as far as the daemon keeps it.
    Events(EventsArgs),

    /// Watch what runs and what waits for approval, and act on it
    ///
    /// A screen that changes as things do. The arrow keys, or j and k, select a line; c cancels it,
    /// a lets it run and d refuses it where it waits for approval, and q quits.
    Top,

    /// Check or export the audit trail
    #[command(subcommand)]
    Audit(AuditCommand),

    /// Ask what the daemon's policy permits
    #[command(subcommand)]
    Policy(PolicyCommand),

    /// Work on the daemon's configuration
    #[command(subcommand)]
    Config(ConfigCommand),

    /// Print a completion script for a shell
    ///
    /// `source <(shellyctl completions bash)` enables them in a running bash. The package installs
    /// those for bash, zsh and fish.
    Completions {
        /// The shell to complete for
        shell: Shell,
    },
}

/// How a call runs, whichever tool it is of.
#[derive(Debug, clap::Args)]
pub struct CallOptions {
    /// The time limit in seconds, fractions allowed; the daemon's default if absent
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub timeout: Option<f64>,

    /// The directory to run in; the daemon's default if absent
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub cwd: Option<PathBuf>,

    /// Set a variable in the command's environment; can be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(String, String)>,

    /// Run it in the sandbox, however far it is trusted otherwise
    #[arg(long)]
    pub untrusted: bool,

    /// The directory that it may write to in the sandbox
    ///
    /// It does not put it there: --untrusted does, or the tool, the daemon's configuration or its policy.
    /// Outside of the sandbox it has no effect, which is told.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub workspace: Option<PathBuf>,

    /// The trace that it is of: the 32 hexadecimal digits of a W3C trace id, or any other name
    #[arg(long, value_name = "ID")]
    pub trace: Option<String>,

    /// The tenant that it is made for
    #[arg(long, value_name = "ID")]
    pub tenant: Option<String>,
}

/// What to run, and how.
#[derive(Debug, clap::Args)]
pub struct ExecArgs {
    #[command(flatten)]
    pub options: CallOptions,

    /// Pass standard input on to the command, read to its end before the start; it must be UTF-8
    #[arg(long)]
    pub stdin: bool,

    /// A script as a single argument, or a command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<String>,
}

/// Which tool to call, with what, and how.
#[derive(Debug, clap::Args)]
pub struct CallArgs {
    #[command(flatten)]
    pub options: CallOptions,

    /// The session that the call is of, whose values skills share
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,

    /// Values that skills may read, by scope and name: {"scratch": {"ticket": 4711}}
    #[arg(long, value_name = "JSON", value_parser = json)]
    pub context: Option<serde_json::Value>,

    /// The tool to call; NAME@VERSION for another version than the default one
    pub tool: String,

    /// Its input, a JSON object; `-` reads it from standard input
    #[arg(value_name = "JSON")]
    pub input: String,
}

/// The commands of `shellyctl config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check the configuration without starting anything
    ///
    /// Runs `shelly-executord --check-config`, whose output and exit status these are: 0 when the
    /// configuration is valid, 78 when it is not. It prints the file that it checked. The daemon is
    /// neither asked nor changed, also where a socket names one.
    Check {
        /// The configuration file; the one at the usual place, in /etc/shelly-executor, if absent
        #[arg(value_hint = ValueHint::FilePath)]
        path: Option<PathBuf>,
    },
}

/// The commands of `shellyctl policy`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Say what would become of a call, and why, without running it
    ///
    /// Shows the verdict, the rule that decided with its file and line, the command of a script
    /// that it was about, and what would change it. The exit status is 0 when the call would run
    /// and 1 when it would be asked about or refused.
    Explain(ExplainArgs),

    /// Check a policy file and the examples in it
    ///
    /// Runs `shelly-executord --check-policy`, whose output and exit status these are: 0 when the
    /// policy is valid and every example holds, 78 when not. It prints the file that it checked, and
    /// warns of tools that there are none of. The daemon is neither asked nor changed, also where a
    /// socket names one.
    Test {
        /// The policy's file; the one at the usual place, in /etc/shelly-executor, if absent
        #[arg(value_hint = ValueHint::FilePath)]
        path: Option<PathBuf>,
    },
}

/// Which call to judge.
#[derive(Debug, clap::Args)]
pub struct ExplainArgs {
    #[command(flatten)]
    pub options: CallOptions,

    /// The tools that would have led to the call, the outermost first, with commas between
    #[arg(long, value_name = "TOOLS", value_delimiter = ',')]
    pub called_by: Vec<String>,

    /// The tool; what follows is its input as JSON then
    #[arg(long, value_name = "TOOL")]
    pub tool: Option<String>,

    /// A script as a single argument, or a command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<String>,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds > 0.0 => Ok(seconds),
        Ok(_) | Err(_) => Err("not a number of seconds above 0".to_owned()),
    }
}

fn json(text: &str) -> Result<serde_json::Value, String> {
    read_json(text).map_err(|error| format!("no JSON: {error}"))
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) => Err("the name before `=` is empty".to_owned()),
        None => Err("there is no `=` between name and value".to_owned()),
    }
}

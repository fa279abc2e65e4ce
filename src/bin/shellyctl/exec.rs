//! `shellyctl exec`: runs a command, follows it as it runs, and ends as it ended. Signals cancel.

use std::cell::OnceCell;
use std::path::Path;
use std::pin::{Pin, pin};
use std::process::ExitCode;
use std::time::Duration;

use shelly_executor::client::{Answer, Call, Client, ClientError, EventKind};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::ExecArgs;
use crate::call::stdin;
use crate::failure::Failure;
use crate::relay::Relay;
use crate::{ending, print};

/// What a shell reports of a command whose reader went away: 128 + SIGPIPE.
const READER_GONE: u8 = 141;

/// How long the result may take once the daemon has confirmed the cancelling. It is on its way by
/// then; longer means that standard output is stuck.
const RESULT_GRACE: Duration = Duration::from_secs(5);

/// How long a command is quiet before its spool is looked at for output beyond the stream's cap.
const QUIET: Duration = Duration::from_secs(1);

/// Runs the command.
pub async fn run(client: &Client, args: ExecArgs, json: bool) -> Result<ExitCode, Failure> {
    let call = call(args)?;
    let mut signals = Signals::new()?;
    let id = OnceCell::new();
    let mut following = pin!(follow(client, &call, &id, json));
    let ended = tokio::select! {
        ended = &mut following => ended,
        () = signals.next() => tokio::select! {
            ended = cancel(client, id.get(), following) => ended,
            () = signals.next() => Ok(ending::CANCELLED),
        },
    };
    match ended {
        Ok(status) => Ok(ExitCode::from(status)),
        Err(failure) if failure.is_broken_pipe() => Ok(ExitCode::from(READER_GONE)),
        Err(failure) => Err(failure),
    }
}

fn call(args: ExecArgs) -> Result<Call, Failure> {
    let mut call = Call::bash(&script(&args.command)?);
    call.timeout_secs = args.timeout;
    call.working_dir = args.cwd.as_deref().map(working_dir).transpose()?;
    call.env = args.env.into_iter().collect();
    call.stdin = args.stdin.then(stdin).transpose()?;
    Ok(call)
}

/// A single argument is a script; several are words that must reach the command as they are.
fn script(command: &[String]) -> Result<String, Failure> {
    match command {
        [script] => Ok(script.clone()),
        words => {
            let words = words.iter().map(String::as_str);
            shlex::try_join(words).map_err(|source| Failure::Unquotable { source })
        }
    }
}

/// A relative directory is meant from here, not from where the daemon stands.
fn working_dir(cwd: &Path) -> Result<String, Failure> {
    let absolute = std::path::absolute(cwd).and_then(|absolute| {
        let not_text = || std::io::Error::new(std::io::ErrorKind::InvalidData, "it is not UTF-8");
        absolute
            .into_os_string()
            .into_string()
            .map_err(|_| not_text())
    });
    absolute.map_err(|source| Failure::Cwd {
        cwd: cwd.to_owned(),
        source,
    })
}

/// The whole life of the execution: its status in the end, its id in `id` as soon as it has one.
async fn follow(
    client: &Client,
    call: &Call,
    id: &OnceCell<String>,
    json: bool,
) -> Result<u8, Failure> {
    let mut stream = client.stream(call).await?;
    let mut relay = (!json).then(|| Relay::new(client.clone()));
    loop {
        let next = tokio::time::timeout(QUIET, stream.next()).await;
        let event = match (next, &mut relay) {
            (Ok(event), _) => event.transpose()?,
            (Err(_), Some(relay)) => {
                relay.catch_up().await?;
                continue;
            }
            (Err(_), None) => continue,
        };
        let Some(event) = event else {
            let execution_id = id.get().cloned();
            return Err(ClientError::StreamCutShort {
                execution_id,
                source: None,
            }
            .into());
        };
        match event.kind {
            EventKind::Started { execution_id } => {
                if let Some(relay) = &mut relay {
                    relay.started(&execution_id);
                }
                // The first one counts; the daemon sends no second.
                let _ = id.set(execution_id);
            }
            EventKind::Output {
                stream,
                text,
                offset,
            } => {
                if let Some(relay) = &mut relay {
                    relay.output(stream, &text, offset).await?;
                }
            }
            EventKind::ConfirmationRequired { details } => {
                print::note(&format!("waiting for a confirmation: {details}"));
            }
            EventKind::Result(answer) => return end(relay, &answer).await,
            EventKind::Other { .. } => {}
        }
    }
}

async fn end(relay: Option<Relay>, answer: &Answer) -> Result<u8, Failure> {
    match relay {
        Some(relay) => relay.finish(&answer.outcome).await?,
        None => print::line(&answer.json)?,
    }
    ending::tell(answer);
    Ok(ending::exit_status(answer))
}

/// Cancels, and goes on following meanwhile: the last output and the result are still to come.
async fn cancel(
    client: &Client,
    id: Option<&String>,
    mut following: Pin<&mut impl Future<Output = Result<u8, Failure>>>,
) -> Result<u8, Failure> {
    // Before the start there is nothing to name; leaving hangs up, which cancels too.
    let Some(id) = id else {
        return Ok(ending::CANCELLED);
    };
    tokio::select! {
        ended = &mut following => return ended,
        cancelled = client.cancel(id) => if let Err(error) = cancelled {
            print::note(&format!("cannot cancel {id}, hanging up instead: {error}"));
            return Ok(ending::CANCELLED);
        },
    }
    let ended = tokio::time::timeout(RESULT_GRACE, following).await;
    ended.unwrap_or(Ok(ending::CANCELLED))
}

/// The signals that ask a program to stop.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let take = |kind| signal(kind).map_err(|source| Failure::Setup { source });
        Ok(Self {
            interrupt: take(SignalKind::interrupt())?,
            terminate: take(SignalKind::terminate())?,
            hangup: take(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script_of(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        script(&words).expect("succeeds")
    }

    #[test]
    fn one_argument_is_a_script_as_it_is() {
        assert_eq!(script_of(&["echo $HOME | wc -c"]), "echo $HOME | wc -c");
    }

    #[test]
    fn several_arguments_reach_the_command_as_they_are() {
        let words = [
            "printf",
            "%s\\n",
            "a b",
            "it's",
            "$HOME",
            "",
            "*",
            "new\nline",
            "é!",
        ];
        let output = std::process::Command::new("bash")
            .arg("-c")
            .arg(script_of(&words))
            .output();
        let text = String::from_utf8(output.expect("succeeds").stdout).expect("succeeds");
        assert_eq!(text, "a b\nit's\n$HOME\n\n*\nnew\nline\né!\n");
    }

    #[test]
    fn a_relative_directory_is_meant_from_here() {
        let here = std::env::current_dir().expect("succeeds");
        assert_eq!(
            working_dir(Path::new("x/y")).expect("succeeds"),
            here.join("x/y").to_str().expect("succeeds")
        );
        assert_eq!(working_dir(Path::new("/tmp")).expect("succeeds"), "/tmp");
    }
}

//! `shellyctl exec`: runs a command, follows it as it runs, and ends as it ended.

use std::process::ExitCode;

use shelly_executor::client::{Answer, Call, Client, ClientError, EventStream};

use crate::args::ExecArgs;
use crate::call::stdin;
use crate::ending::Wanted;
use crate::failure::Failure;
use crate::relay::Relay;
use crate::{ending, follow, options, print};

/// Runs the command.
pub async fn run(client: &Client, args: ExecArgs, json: bool) -> Result<ExitCode, Failure> {
    let call = call(args)?;
    let wanted = Wanted {
        json,
        workspace: call.workspace.as_deref(),
    };
    ended(client, client.stream(&call), wanted).await
}

/// Follows what `opening` starts, and ends as it ended.
pub async fn ended(
    client: &Client,
    opening: impl Future<Output = Result<EventStream, ClientError>>,
    wanted: Wanted<'_>,
) -> Result<ExitCode, Failure> {
    let mut relay = (!wanted.json).then(|| Relay::new(client.clone()));
    match follow::to_its_answer(client, opening, relay.as_mut()).await {
        Ok(Some(answer)) => {
            tell(&answer, wanted)?;
            Ok(ExitCode::from(status(&answer, relay.as_ref())))
        }
        Ok(None) => Ok(ExitCode::from(ending::CANCELLED)),
        Err(failure) => Err(failure),
    }
}

fn tell(answer: &Answer, wanted: Wanted<'_>) -> Result<(), Failure> {
    if wanted.json {
        print::line(&answer.json)?;
    }
    wanted.tell_what_was_not_used(answer);
    ending::tell(answer);
    Ok(())
}

/// The command's own status, except that with a part of the output missing there is no success:
/// what is done next would take it for all.
fn status(answer: &Answer, relay: Option<&Relay>) -> u8 {
    match ending::exit_status(answer) {
        0 if relay.is_some_and(Relay::is_incomplete) => ending::FAILED,
        status => status,
    }
}

fn call(args: ExecArgs) -> Result<Call, Failure> {
    let mut call = options::with(args.options, Call::bash(&script(&args.command)?))?;
    call.stdin = args.stdin.then(stdin).transpose()?;
    Ok(call)
}

/// A single argument is a script; several are words that must reach the command as they are.
pub fn script(command: &[String]) -> Result<String, Failure> {
    match command {
        [script] => Ok(script.clone()),
        words => {
            let words = words.iter().map(String::as_str);
            shlex::try_join(words).map_err(|source| Failure::Unquotable { source })
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
}

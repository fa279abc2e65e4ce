//! `shellyctl output`: what an execution wrote, byte for byte and never all of it in memory.

use std::process::ExitCode;

use shelly_executor::client::{Client, Output, OutputStream};

use crate::args::OutputArgs;
use crate::failure::Failure;
use crate::{ids, print};

/// Prints one of the two streams.
pub async fn run(client: &Client, args: OutputArgs) -> Result<ExitCode, Failure> {
    let stream = if args.stderr {
        OutputStream::Stderr
    } else {
        OutputStream::Stdout
    };
    let id = ids::execution(client, &args.id).await?;
    let output = if args.follow {
        client.follow_output(&id, stream).await?
    } else {
        client.output(&id, stream, ..).await?
    };
    pass_on(output).await
}

/// Prints the bytes as they come.
pub async fn pass_on(mut output: Output) -> Result<ExitCode, Failure> {
    while let Some(bytes) = output.chunk().await? {
        print::bytes(&bytes)?;
    }
    Ok(ExitCode::SUCCESS)
}

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
    let printed = pass_on(output).await?;
    if let Some(written) = written(client, &id, stream).await
        && written > printed
    {
        print::note(&format!(
            "it wrote {written} bytes to {}, of which the daemon keeps these {printed} (`spool_max_bytes`)",
            stream.name()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// How much an execution that has ended has written, where that can still be learned.
async fn written(client: &Client, id: &str, stream: OutputStream) -> Option<u64> {
    let record = client.execution(id, None).await.ok()?;
    let outcome = record.answer().ok()??.outcome;
    match stream {
        OutputStream::Stdout => outcome.stdout_bytes,
        OutputStream::Stderr => outcome.stderr_bytes,
    }
}

/// Prints the bytes as they come, and says how many there were.
pub async fn pass_on(mut output: Output) -> Result<u64, Failure> {
    let mut printed = 0;
    while let Some(bytes) = output.chunk().await? {
        print::bytes(&bytes)?;
        printed += bytes.len() as u64;
    }
    Ok(printed)
}

//! Any two streams, cap and ending to the text for the model.
#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use shelly_executor::config::Truncate;
use shelly_executor::domain::Signal;
use shelly_executor::runner::Captured;
use shelly_executor::tools::{Closing, Content, Streams, content};

#[derive(Arbitrary, Debug)]
struct Input {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    cap: u16,
    middle: bool,
    /// How much more than the cap is in memory, as with commands of little output.
    spare: u8,
    ending: Ending,
}

#[derive(Arbitrary, Debug)]
enum Ending {
    Code(u8),
    Signal(u8),
    Timeout(u32),
    Cancelled,
}

/// Captures as the runner does: a head of at least the cap, and a tail where one is wanted.
fn capture(stream: &[u8], head: usize, tail: usize) -> Captured {
    let (head, rest) = stream.split_at(head.min(stream.len()));
    Captured {
        head: Bytes::copy_from_slice(head),
        tail: Bytes::copy_from_slice(&rest[rest.len().saturating_sub(tail)..]),
        total: stream.len() as u64,
    }
}

fuzz_target!(|input: Input| {
    let cap = usize::from(input.cap).max(1);
    let head = cap + usize::from(input.spare);
    let (truncate, tail) = match input.middle {
        true => (Truncate::Middle, cap),
        false => (Truncate::Tail, 0),
    };
    let closing = match input.ending {
        Ending::Code(code) => Closing::ExitCode(code.into()),
        Ending::Signal(number) => Closing::Signal(Signal((number % 64 + 1).into())),
        Ending::Timeout(millis) => Closing::Timeout(Duration::from_millis(millis.into())),
        Ending::Cancelled => Closing::Cancelled,
    };
    let captured = [&input.stdout, &input.stderr].map(|stream| capture(stream, head, tail));
    let streams = Streams {
        stdout: &captured[0],
        stderr: &captured[1],
    };
    let Content {
        text,
        truncated,
        verbatim,
    } = content(streams, cap, truncate, closing);

    let total = input.stdout.len() + input.stderr.len();
    assert_eq!(truncated, total > cap);
    assert_eq!(truncated, text.contains("\n...(truncated)") && total > cap);
    // One byte that is not UTF-8 becomes U+FFFD, three bytes; markers and sections come on top.
    for (stream, begin) in [
        (&input.stdout, verbatim.stdout),
        (&input.stderr, verbatim.stderr),
    ] {
        let found = begin.map(|begin| &text.as_bytes()[begin..begin + stream.len()]);
        assert!(
            found.is_none_or(|found| found == stream.as_slice()),
            "{text:?}"
        );
    }
    assert!(text.len() <= 3 * cap + 128, "{} of {cap}", text.len());
    assert_eq!(text.starts_with("[stdout]\n"), !input.stdout.is_empty());
    if input.stdout.is_empty() {
        assert_eq!(text.starts_with("[stderr]\n"), !input.stderr.is_empty());
    }
    let valid = |stream: &[u8]| {
        std::str::from_utf8(stream).is_ok_and(|text| !text.contains(char::REPLACEMENT_CHARACTER))
    };
    if valid(&input.stdout) && valid(&input.stderr) {
        assert!(!text.contains(char::REPLACEMENT_CHARACTER), "{text:?}");
    }
    if !truncated {
        let whole = |stream: &[u8]| {
            let text = String::from_utf8_lossy(stream);
            text.strip_suffix('\n').unwrap_or(&text).to_owned()
        };
        assert!(text.contains(&whole(&input.stdout)) && text.contains(&whole(&input.stderr)));
    }
});

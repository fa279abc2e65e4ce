//! The text for the model: whatever a command writes, all sections are there, in order, cut where
//! the cap says.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::{arbitrary, fuzz_target};
use shelly_executor::config::Truncate;
use shelly_executor::runner::Captured;
use shelly_executor::tools::{Closing, Streams, content};

const MARK: &str = "...(truncated)";

#[derive(Debug)]
struct Output {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    cap: usize,
    truncate: Truncate,
}

impl<'a> arbitrary::Arbitrary<'a> for Output {
    fn arbitrary(input: &mut arbitrary::Unstructured<'a>) -> arbitrary::Result<Self> {
        let cap = input.int_in_range(1..=64)?;
        let truncate = if input.arbitrary()? {
            Truncate::Middle
        } else {
            Truncate::Tail
        };
        let stdout = input.arbitrary()?;
        let stderr = input.arbitrary()?;
        Ok(Self {
            stdout,
            stderr,
            cap,
            truncate,
        })
    }
}

/// A stream as it is captured: `cap` bytes of its head and, when the middle is cut, of its tail.
fn captured(bytes: &[u8], cap: usize, truncate: Truncate) -> Captured {
    let (head, rest) = bytes.split_at(bytes.len().min(cap));
    let tail = match truncate {
        Truncate::Tail => &[],
        Truncate::Middle => &rest[rest.len().saturating_sub(cap)..],
    };
    Captured {
        head: Bytes::copy_from_slice(head),
        tail: Bytes::copy_from_slice(tail),
        total: bytes.len() as u64,
    }
}

fuzz_target!(|output: Output| {
    let Output {
        stdout,
        stderr,
        cap,
        truncate,
    } = output;
    let streams = [&stdout, &stderr].map(|bytes| captured(bytes, cap, truncate));
    let streams = Streams {
        stdout: &streams[0],
        stderr: &streams[1],
    };
    let (text, truncated) = content(streams, cap, truncate, Closing::ExitCode(0));

    assert!(text.ends_with("[exit_code]\n0"));
    assert_eq!(text.starts_with("[stdout]\n"), !stdout.is_empty());
    assert_eq!(truncated, stdout.len() + stderr.len() > cap, "{text:?}");
    if truncated {
        assert!(text.contains(MARK));
        // A byte that is no character becomes three of them.
        let around = "[stdout]\n\n\n[stderr]\n\n\n[exit_code]\n0".len() + 4 * (MARK.len() + 2);
        assert!(
            text.len() <= 3 * cap + around,
            "{} bytes: {text:?}",
            text.len()
        );
    } else {
        for bytes in [&stdout, &stderr] {
            let whole = String::from_utf8_lossy(bytes);
            assert!(text.contains(whole.strip_suffix('\n').unwrap_or(&whole)));
        }
    }
});

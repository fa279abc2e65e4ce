//! The text a model reads of a run: `[stdout]`, `[stderr]` and how it ended, cut to the cap.

use std::borrow::Cow;
use std::fmt::Write;
use std::str::Utf8Chunk;
use std::time::Duration;

use crate::config::Truncate;
use crate::domain::{CUT_MARK, Failure, Signal, Verbatim};
use crate::runner::Captured;

/// What the text is made of.
#[derive(Clone, Copy, Debug)]
pub struct Streams<'a> {
    /// Standard output.
    pub stdout: &'a Captured,
    /// Standard error.
    pub stderr: &'a Captured,
}

/// The last section: how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// `[exit_code]`.
    ExitCode(i32),
    /// `[signal]`.
    Signal(Signal),
    /// `[timeout]`, with the limit.
    Timeout(Duration),
    /// `[cancelled]`.
    Cancelled,
    /// `[lost]`: nobody saw how.
    Lost,
}

/// The sections as one text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// For the model.
    pub text: String,
    /// Whether any output had to be cut away.
    pub truncated: bool,
    /// Which streams `text` holds as they were written.
    pub verbatim: Verbatim,
}

/// What became of a stream in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    AsItWas,
    Decoded,
    Cut,
}

/// Writes the sections in their order, one blank line between them, streams that brought nothing
/// left out. At most `cap` bytes of raw output are in it.
pub fn content(streams: Streams<'_>, cap: usize, truncate: Truncate, closing: Closing) -> Content {
    let (stdout, stderr) = (streams.stdout, streams.stderr);
    let shares = shares(stdout.total, stderr.total, cap as u64);
    let mut text = String::with_capacity(shares.0.saturating_add(shares.1).saturating_add(128));
    let mut truncated = false;
    let mut verbatim = Verbatim::default();
    for (name, stream, share, place) in [
        ("stdout", stdout, shares.0, &mut verbatim.stdout),
        ("stderr", stderr, shares.1, &mut verbatim.stderr),
    ] {
        if stream.total > 0 {
            let _ = writeln!(text, "[{name}]");
            let begin = text.len();
            match write_stream(&mut text, stream, share, truncate) {
                // A newline at its end that was left out is the one that follows.
                Written::AsItWas => *place = Some(begin),
                Written::Decoded => {}
                Written::Cut => truncated = true,
            }
            text.push_str("\n\n");
        }
    }
    // Writing to a String cannot fail.
    let _ = match closing {
        Closing::ExitCode(code) => write!(text, "[exit_code]\n{code}"),
        Closing::Signal(signal) => write!(text, "[signal]\n{}", signal.name()),
        Closing::Timeout(limit) => write!(text, "[timeout]\n{}s", limit.as_secs_f64()),
        Closing::Cancelled => write!(text, "[cancelled]"),
        Closing::Lost => write!(text, "[lost]\n{}", Failure::LOST),
    };
    Content {
        text,
        truncated,
        verbatim,
    }
}

/// Standard output and standard error by themselves, each as much as goes into [`content`], for programs: the newline
/// at an end stays.
pub fn texts(streams: Streams<'_>, cap: usize, truncate: Truncate) -> (String, String) {
    let (stdout, stderr) = (streams.stdout, streams.stderr);
    let shares = shares(stdout.total, stderr.total, cap as u64);
    let text = |stream: &Captured, share: usize| {
        let mut text = String::with_capacity(share);
        match whole(stream, share) {
            Some(whole) => push_decoded(&mut text, whole),
            None => write_stream(&mut text, stream, share, truncate),
        };
        text
    };
    (text(stdout, shares.0), text(stderr, shares.1))
}

/// How many bytes of each stream go in. Standard error, where the reason of a failure stands, has
/// at least a quarter of the cap; beyond that it gets what standard output leaves.
fn shares(stdout: u64, stderr: u64, cap: u64) -> (usize, usize) {
    let for_stderr = stderr.min((cap / 4).max(cap.saturating_sub(stdout)));
    let for_stdout = stdout.min(cap - for_stderr);
    // Both are at most `cap`, which came from a usize.
    (for_stdout as usize, for_stderr as usize)
}

/// Writes at most `share` bytes of a stream, without a newline at their end.
fn write_stream(text: &mut String, stream: &Captured, share: usize, truncate: Truncate) -> Written {
    if let Some(whole) = whole(stream, share) {
        return push_decoded(text, whole.strip_suffix(b"\n").unwrap_or(whole));
    }
    match truncate {
        Truncate::Tail => {
            push_decoded(text, cut_end(&stream.head, share));
            text.push_str(CUT_MARK);
        }
        Truncate::Middle => {
            let for_tail = share / 2;
            push_decoded(text, cut_end(&stream.head, share - for_tail));
            text.push_str(CUT_MARK);
            let tail = last_bytes(stream, for_tail);
            let tail = cut_start(&tail);
            let tail = tail.strip_suffix(b"\n").unwrap_or(tail);
            if !tail.is_empty() {
                text.push('\n');
                push_decoded(text, tail);
            }
        }
    }
    Written::Cut
}

/// All of a stream, if its share is that.
fn whole(stream: &Captured, share: usize) -> Option<&[u8]> {
    let is_whole = stream.total == share as u64;
    stream.head.get(..share).filter(|_| is_whole)
}

/// The last `wanted` bytes of a stream; where the tail is shorter than that, it follows directly
/// on the head.
fn last_bytes(stream: &Captured, wanted: usize) -> Cow<'_, [u8]> {
    match wanted.checked_sub(stream.tail.len()) {
        None | Some(0) => Cow::Borrowed(&stream.tail[stream.tail.len() - wanted..]),
        Some(missing) => {
            let from = stream.head.len().saturating_sub(missing);
            Cow::Owned([&stream.head[from..], &stream.tail].concat())
        }
    }
}

/// The first `at` bytes, or up to three fewer where the cut would fall into a character.
pub(crate) fn cut_end(bytes: &[u8], at: usize) -> &[u8] {
    let at = at.min(bytes.len());
    for back in 1..=at.min(3) {
        let byte = bytes[at - back];
        if let Some(length) = sequence_length(byte) {
            return &bytes[..if length > back { at - back } else { at }];
        }
        if byte & 0xC0 != 0x80 {
            break;
        }
    }
    &bytes[..at]
}

/// Without up to three bytes at the start that belong to a character cut away.
fn cut_start(bytes: &[u8]) -> &[u8] {
    let continued = bytes
        .iter()
        .take(3)
        .take_while(|byte| **byte & 0xC0 == 0x80)
        .count();
    &bytes[continued..]
}

/// How long the character is that a byte begins; `None` for a byte that begins none (of more than
/// one byte) in UTF-8.
fn sequence_length(byte: u8) -> Option<usize> {
    match byte {
        0xC2..=0xDF => Some(2),
        0xE0..=0xEF => Some(3),
        0xF0..=0xF4 => Some(4),
        _ => None,
    }
}

/// Appends text as it is; other bytes as U+FFFD, one for each maximal part of a character (Unicode
/// 16, section 3.9). Valid text, the rule, takes a tenth of the time.
fn push_decoded(text: &mut String, bytes: &[u8]) -> Written {
    match simdutf8::basic::from_utf8(bytes) {
        Ok(valid) => {
            text.push_str(valid);
            Written::AsItWas
        }
        Err(_) => {
            let replacement = |chunk: &Utf8Chunk<'_>| match chunk.invalid() {
                [] => "",
                _ => "\u{FFFD}",
            };
            // Three times as long at the worst: no more memory than that, not even for a moment.
            let length = bytes.utf8_chunks();
            let length = length.map(|chunk| chunk.valid().len() + replacement(&chunk).len());
            text.reserve_exact(length.sum());
            for chunk in bytes.utf8_chunks() {
                text.push_str(chunk.valid());
                text.push_str(replacement(&chunk));
            }
            Written::Decoded
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn captured(bytes: &[u8]) -> Captured {
        Captured {
            head: bytes.to_vec().into(),
            tail: Default::default(),
            total: bytes.len() as u64,
            digest: None,
        }
    }

    fn text(stdout: &[u8], stderr: &[u8], cap: usize, truncate: Truncate) -> (String, bool) {
        let (stdout, stderr) = (captured(stdout), captured(stderr));
        let streams = Streams {
            stdout: &stdout,
            stderr: &stderr,
        };
        let content = content(streams, cap, truncate, Closing::ExitCode(0));
        (content.text, content.truncated)
    }

    #[test]
    fn sections_stand_in_order_and_empty_ones_are_left_out() {
        let all = text(b"hello\n", b"oops\n\n", 100, Truncate::Tail);
        assert_eq!(
            all,
            (
                "[stdout]\nhello\n\n[stderr]\noops\n\n\n[exit_code]\n0".into(),
                false
            )
        );
        let none = text(b"", b"", 100, Truncate::Tail);
        assert_eq!(none, ("[exit_code]\n0".into(), false));
        let newline = text(b"\n", b"", 100, Truncate::Tail);
        assert_eq!(newline, ("[stdout]\n\n\n[exit_code]\n0".into(), false));
    }

    #[test]
    fn closings_read_as_in_the_contract() {
        let nothing = captured(b"");
        let streams = Streams {
            stdout: &nothing,
            stderr: &nothing,
        };
        for (closing, expected) in [
            (Closing::ExitCode(137), "[exit_code]\n137"),
            (Closing::Signal(Signal(9)), "[signal]\nSIGKILL"),
            (Closing::Timeout(Duration::from_secs(30)), "[timeout]\n30s"),
            (
                Closing::Timeout(Duration::from_millis(1500)),
                "[timeout]\n1.5s",
            ),
            (Closing::Cancelled, "[cancelled]"),
            (
                Closing::Lost,
                "[lost]\nthe daemon died while this was under way: what became of it is not known",
            ),
        ] {
            assert_eq!(content(streams, 9, Truncate::Tail, closing).text, expected);
        }
    }

    #[test]
    fn standard_error_has_its_quarter() {
        assert_eq!(shares(1000, 1000, 100), (75, 25));
        assert_eq!(shares(1000, 10, 100), (90, 10));
        assert_eq!(shares(10, 1000, 100), (10, 90));
        assert_eq!(shares(0, 1000, 100), (0, 100));
        assert_eq!(shares(40, 60, 100), (40, 60));
        assert_eq!(shares(1, 1, 1), (1, 0));
    }

    #[test]
    fn a_cut_never_falls_into_a_character() {
        assert_eq!(cut_end("aé€😀".as_bytes(), 9), "aé€".as_bytes());
        assert_eq!(cut_end("aé€😀".as_bytes(), 10), "aé€😀".as_bytes());
        assert_eq!(cut_end("aé€".as_bytes(), 4), "aé".as_bytes());
        assert_eq!(cut_end("aé".as_bytes(), 2), b"a");
        assert_eq!(cut_end(b"\x80\x80\x80\x80", 3), b"\x80\x80\x80");
        assert_eq!(cut_start("é€".as_bytes().split_at(1).1), "€".as_bytes());
        let marked = text("€€€".as_bytes(), b"", 4, Truncate::Tail);
        assert_eq!(
            marked,
            ("[stdout]\n€\n...(truncated)\n\n[exit_code]\n0".into(), true)
        );
    }

    #[test]
    fn the_middle_goes_when_asked() {
        let stream = Captured {
            head: "0123".into(),
            tail: "wxyz\n".into(),
            total: 1000,
            digest: None,
        };
        let nothing = captured(b"");
        let streams = Streams {
            stdout: &stream,
            stderr: &nothing,
        };
        let cut = content(streams, 7, Truncate::Middle, Closing::ExitCode(0));
        assert_eq!(
            cut.text,
            "[stdout]\n0123\n...(truncated)\nyz\n\n[exit_code]\n0"
        );
        assert!(cut.truncated);
        assert_eq!(cut.verbatim, Verbatim::default());
        let whole = captured(b"0123456789");
        let streams = Streams {
            stdout: &whole,
            stderr: &nothing,
        };
        // No character of the tail has room.
        let wide = captured("€€€".as_bytes());
        let streams_of = |stdout| Streams {
            stdout,
            stderr: &nothing,
        };
        let cut = content(streams_of(&wide), 5, Truncate::Middle, Closing::ExitCode(0));
        assert_eq!(cut.text, "[stdout]\n€\n...(truncated)\n\n[exit_code]\n0");
        let cut = content(streams, 6, Truncate::Middle, Closing::ExitCode(0));
        assert_eq!(
            cut.text,
            "[stdout]\n012\n...(truncated)\n789\n\n[exit_code]\n0"
        );
    }

    #[test]
    fn what_programs_get_is_cut_as_what_a_model_reads() {
        let (out, err) = (captured(b"0123456789\n"), captured(b"ab\n"));
        let streams = Streams {
            stdout: &out,
            stderr: &err,
        };
        let both = |cap, truncate| texts(streams, cap, truncate);
        let whole = ("0123456789\n".to_owned(), "ab\n".to_owned());
        assert_eq!(both(14, Truncate::Tail), whole);
        let (out, err) = both(8, Truncate::Middle);
        assert_eq!(
            (out.as_str(), err.as_str()),
            ("012\n...(truncated)\n89", "a\n...(truncated)")
        );
    }

    /// Captures as the runner does: a head of at least the cap, and with `Middle` a tail.
    fn capture_with(bytes: &[u8], cap: usize, truncate: Truncate) -> Captured {
        let (head, rest) = bytes.split_at(cap.min(bytes.len()));
        let tail_cap = if truncate == Truncate::Middle { cap } else { 0 };
        let tail = &rest[rest.len().saturating_sub(tail_cap)..];
        Captured {
            head: head.to_vec().into(),
            tail: tail.to_vec().into(),
            total: bytes.len() as u64,
            digest: None,
        }
    }

    proptest! {
        #[test]
        fn valid_text_stays_valid_and_within_the_cap(
            stdout in "(\\PC|\n){0,40}", stderr in "(\\PC|\n){0,40}", cap in 1usize..60, middle: bool,
        ) {
            let truncate = if middle { Truncate::Middle } else { Truncate::Tail };
            let captured = [&stdout, &stderr].map(|s| capture_with(s.as_bytes(), cap, truncate));
            let streams = Streams { stdout: &captured[0], stderr: &captured[1] };
            let Content { text, truncated, verbatim } =
                content(streams, cap, truncate, Closing::ExitCode(0));
            for (stream, begin) in [(&stdout, verbatim.stdout), (&stderr, verbatim.stderr)] {
                prop_assert!(truncated || stream.is_empty() || begin.is_some());
                let found = begin.map(|begin| &text[begin..begin + stream.len()]);
                prop_assert!(found.is_none_or(|found| found == stream.as_str()));
            }
            let replaced = |text: &str| text.contains(char::REPLACEMENT_CHARACTER);
            prop_assert!(!replaced(&text) || replaced(&stdout) || replaced(&stderr));
            prop_assert_eq!(truncated, stdout.len() + stderr.len() > cap);
            let markers = "[stdout]\n\n\n[stderr]\n\n\n[exit_code]\n0".len() + 2 * (CUT_MARK.len() + 1);
            prop_assert!(text.len() <= cap + markers);
            if !truncated {
                prop_assert!(text.contains(stdout.strip_suffix('\n').unwrap_or(&stdout)));
            }
        }

        #[test]
        fn any_bytes_decode_as_the_whole_stream_would(
            bytes in proptest::collection::vec(any::<u8>(), 0..64), cap in 1usize..80,
        ) {
            let (text, truncated) = text(&bytes, b"", cap, Truncate::Tail);
            let whole = String::from_utf8_lossy(&bytes).into_owned();
            if !truncated && !bytes.is_empty() {
                let expected = whole.strip_suffix('\n').unwrap_or(&whole);
                prop_assert_eq!(text, format!("[stdout]\n{expected}\n\n[exit_code]\n0"));
            } else if truncated {
                let shown = text.strip_prefix("[stdout]\n").and_then(|t| t.split_once(CUT_MARK)).expect("marked").0;
                prop_assert!(whole.starts_with(shown), "{:?} does not begin {:?}", shown, whole);
            }
        }
    }
}

//! How bodies become JSON.

use std::io::{self, Write};

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;
use serde_json::value::RawValue;

use crate::domain::JsonSink;

/// The place of the text for the model in a body; `to_json_around` puts it there. It is nearly all
/// of most large bodies, and serde_json takes longer to escape it than everything else about an
/// answer takes together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text;

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RawValue::NULL.serialize(serializer)
    }
}

/// Writes a text for every `Text`.
struct Around<'a>(&'a str);

impl Formatter for Around<'_> {
    fn write_raw_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, _: &str) -> io::Result<()> {
        write_string(writer, self.0)
    }
}

/// JSON of a body with `text` in the place of `Text`, in one piece of memory of about the right
/// size: a buffer that grows by doubling takes up to three times as much.
pub(super) fn to_json_around(text: &str, value: &impl Serialize) -> Vec<u8> {
    /// What all the other members take, list of processes left behind aside; little enough that glibc has it at hand,
    /// with a short text (1,032 bytes in all).
    const OTHERS: usize = 768;
    // Text has a newline every few dozen characters, and little else to escape. Counting exactly
    // takes as long as writing.
    let escapes = text.len() / 16;
    let mut body = Vec::with_capacity(text.len() + escapes + OTHERS);
    let sink = JsonSink(&mut body);
    let mut serializer = serde_json::Serializer::with_formatter(sink, Around(text));
    complete(value.serialize(&mut serializer), body)
}

/// JSON of one of our own bodies, none of which has anything that JSON cannot hold.
pub(super) fn to_json(value: &impl Serialize) -> Vec<u8> {
    let mut body = Vec::new();
    complete(serde_json::to_writer(JsonSink(&mut body), value), body)
}

pub(super) fn json_response(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn complete(written: serde_json::Result<()>, body: Vec<u8>) -> Vec<u8> {
    match written {
        Ok(()) => body,
        Err(error) => {
            tracing::error!(%error, "cannot write an answer as JSON");
            b"{}".to_vec()
        }
    }
}

/// A JSON string (RFC 8259, section 7), in pieces: the library reserves six times what it escapes.
fn write_string<W: ?Sized + Write>(writer: &mut W, text: &str) -> io::Result<()> {
    const PIECE: usize = 8 * 1024;
    let mut escaped = Vec::new();
    let mut rest = text;
    writer.write_all(b"\"")?;
    while !rest.is_empty() {
        let (piece, others) = rest.split_at(rest.floor_char_boundary(PIECE));
        escaped.clear();
        json_escape_simd::escape_into(piece, &mut escaped);
        // Without its quotes.
        writer.write_all(&escaped[1..escaped.len() - 1])?;
        rest = others;
    }
    writer.write_all(b"\"")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Serialize)]
    struct Sample {
        before: u8,
        content: Text,
        after: &'static str,
    }

    fn json(text: &str) -> String {
        let sample = Sample {
            before: 1,
            content: Text,
            after: "\n",
        };
        String::from_utf8(to_json_around(text, &sample)).expect("UTF-8")
    }

    fn expected(text: &str) -> String {
        let text = serde_json::to_string(text).expect("a string");
        format!(r#"{{"before":1,"content":{text},"after":"\n"}}"#)
    }

    #[test]
    fn every_character_at_every_place_of_a_piece() {
        let ascii: String = (0..0x80).map(char::from).collect();
        for length in 8_100..8_200 {
            let text = format!("{}{ascii}é€😀{}", "x".repeat(length), "\u{7f}\\\"");
            assert_eq!(json(&text), expected(&text), "after {length} characters");
        }
    }

    proptest! {
        #[test]
        fn the_text_is_what_serde_json_makes_of_it(
            text in "(\\PC|[\u{0}-\u{7f}]){0,200}", repeated in 1usize..300,
        ) {
            let text = text.repeat(repeated);
            prop_assert_eq!(json(&text), expected(&text));
        }
    }
}

//! Server-sent events, as the WHATWG standard parses them: bytes in, frames out, nothing read or
//! waited for here. What a frame means is left to `events`.

use std::collections::VecDeque;

/// What one frame may hold before the peer counts as broken.
///
/// The last frame of a stream is a whole answer, so `max_output_bytes` (1 MiB as shipped) with up
/// to six bytes for one where all are control characters: this leaves room for caps up to 40 MiB.
pub(super) const MAX_FRAME_BYTES: usize = 256 * 1024 * 1024;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// One dispatched event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    /// The event's name; `message` when the peer gave none.
    pub(super) event: String,
    /// Its data lines, joined by newlines.
    pub(super) data: String,
    /// The last id seen on the stream, which outlives the frame that set it.
    pub(super) id: Option<String>,
}

/// A line or frame grew beyond the limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {limit} bytes")]
pub(super) struct FrameTooLarge {
    pub(super) limit: usize,
}

/// The state between two chunks; a chunk may end anywhere, also inside a character or between CR
/// and LF.
#[derive(Debug)]
pub(super) struct Parser {
    limit: usize,
    line: Vec<u8>,
    event: String,
    data: Option<String>,
    id: Option<String>,
    after_cr: bool,
    first_line: bool,
    ready: VecDeque<Frame>,
}

impl Parser {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            event: String::new(),
            data: None,
            id: None,
            after_cr: false,
            first_line: true,
            ready: VecDeque::new(),
        }
    }

    /// Takes the next bytes; the frames they complete wait for [`Parser::next_frame`].
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<(), FrameTooLarge> {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                return self.keep(bytes);
            };
            self.keep(&bytes[..end])?;
            self.after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            self.end_line();
        }
        Ok(())
    }

    /// The oldest complete frame that has not been taken yet.
    pub(super) fn next_frame(&mut self) -> Option<Frame> {
        self.ready.pop_front()
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), FrameTooLarge> {
        let held = self.line.len() + self.data.as_ref().map_or(0, String::len);
        if held + bytes.len() > self.limit {
            return Err(FrameTooLarge { limit: self.limit });
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let mut rest = line.as_slice();
        if std::mem::take(&mut self.first_line) {
            rest = rest.strip_prefix(BOM).unwrap_or(rest);
        }
        if rest.is_empty() {
            self.dispatch();
        } else {
            let colon = rest.iter().position(|&byte| byte == b':');
            let (name, value) = colon.map_or((rest, &b""[..]), |at| (&rest[..at], &rest[at + 1..]));
            let value = String::from_utf8_lossy(value.strip_prefix(b" ").unwrap_or(value));
            self.field(name, &value);
        }
        // The buffer goes back, so that a stream of short lines allocates once.
        self.line = line;
        self.line.clear();
    }

    /// An empty name is a comment; `retry` and names nobody has heard of are ignored, as the
    /// standard asks.
    fn field(&mut self, name: &[u8], value: &str) {
        match name {
            b"event" => value.clone_into(&mut self.event),
            b"id" if !value.contains('\0') => self.id = Some(value.to_owned()),
            b"data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                none => *none = Some(value.to_owned()),
            },
            _ => {}
        }
    }

    fn dispatch(&mut self) {
        let event = std::mem::take(&mut self.event);
        let Some(data) = self.data.take() else { return };
        let event = if event.is_empty() {
            "message".to_owned()
        } else {
            event
        };
        self.ready.push_back(Frame {
            event,
            data,
            id: self.id.clone(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(chunks: &[&[u8]]) -> Vec<Frame> {
        let mut parser = Parser::new(1024);
        let mut found = Vec::new();
        for chunk in chunks {
            parser.push(chunk).expect("succeeds");
            while let Some(frame) = parser.next_frame() {
                found.push(frame);
            }
        }
        found
    }

    fn frame(event: &str, data: &str, id: Option<&str>) -> Frame {
        Frame {
            event: event.into(),
            data: data.into(),
            id: id.map(Into::into),
        }
    }

    #[test]
    fn reads_names_data_and_ids() {
        let text = b"id: 1\nevent: started\ndata: {\"a\":1}\n\nevent:stdout\ndata:x\n\n";
        assert_eq!(
            frames(&[text]),
            [
                frame("started", "{\"a\":1}", Some("1")),
                frame("stdout", "x", Some("1"))
            ]
        );
    }

    #[test]
    fn any_split_gives_the_same_frames() {
        let text = "\u{feff}: hello\r\nid: 7\r\nevent: stdout\r\ndata: grün\r\ndata\r\ndata:  ✓\r\n\r\n: ping\n\n\
                    data: cr\rdata: only\r\revent: lost\n\ndata: \n\n"
            .as_bytes();
        let whole = frames(&[text]);
        assert_eq!(
            whole,
            [
                frame("stdout", "grün\n\n ✓", Some("7")),
                frame("message", "cr\nonly", Some("7")),
                frame("message", "", Some("7")),
            ]
        );
        for at in 0..=text.len() {
            assert_eq!(frames(&[&text[..at], &text[at..]]), whole, "split at {at}");
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(frames(&bytes), whole);
    }

    #[test]
    fn comments_and_unknown_fields_dispatch_nothing() {
        assert_eq!(
            frames(&[b": ping\n\n:\n\nretry: 10\nwhat: ever\nnothing\n\n"]),
            []
        );
    }

    #[test]
    fn an_unfinished_frame_is_never_dispatched() {
        assert_eq!(frames(&[b"data: half\n"]), []);
    }

    #[test]
    fn an_id_with_nul_is_ignored() {
        assert_eq!(
            frames(&[b"id: a\0b\ndata: x\n\n"]),
            [frame("message", "x", None)]
        );
    }

    #[test]
    fn a_frame_over_the_limit_is_refused_however_it_is_cut() {
        let mut one_line = Parser::new(16);
        assert_eq!(
            one_line.push(b"data: 0123456789abcdef"),
            Err(FrameTooLarge { limit: 16 })
        );
        let mut many_lines = Parser::new(16);
        let refused = (0..9).find_map(|_| many_lines.push(b"data: abc\n").err());
        assert_eq!(refused, Some(FrameTooLarge { limit: 16 }));
        let mut by_byte = Parser::new(16);
        assert!(
            [b'x'; 17]
                .iter()
                .any(|&byte| by_byte.push(&[byte]).is_err())
        );
    }

    #[test]
    fn the_limit_is_per_frame_not_per_stream() {
        let mut parser = Parser::new(16);
        for _ in 0..100 {
            parser.push(b"data: 0123\n\n").expect("succeeds");
            assert!(parser.next_frame().is_some());
        }
    }
}

//! Passes a command's output on, right to the byte. Events carry text and end at the daemon's
//! output cap; where the text is not what was written, or ends early, the raw bytes come from the
//! spool.

use shelly_executor::client::{Client, Outcome, OutputStream};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::failure::Failure;
use crate::print;

/// What a decoder leaves where bytes are not UTF-8; in a text it stands for an unknown number of
/// raw bytes.
const REPLACEMENT: char = '\u{fffd}';

type Writer = Box<dyn AsyncWrite + Unpin>;

/// Both streams of one execution.
pub struct Relay {
    client: Client,
    id: Option<String>,
    stdout: Lane,
    stderr: Lane,
}

impl Relay {
    /// Passes on to this process's own standard output and standard error.
    pub fn new(client: Client) -> Self {
        let stdout = Lane::new(OutputStream::Stdout, Box::new(tokio::io::stdout()));
        let stderr = Lane::new(OutputStream::Stderr, Box::new(tokio::io::stderr()));
        Self {
            client,
            id: None,
            stdout,
            stderr,
        }
    }

    /// The execution has its id; before that nothing can be fetched. Another time it is tried again, and what it writes
    /// begins anew.
    pub fn started(&mut self, id: &str) {
        if self.id.replace(id.to_owned()).is_some() {
            self.stdout.begin_again();
            self.stderr.begin_again();
            print::note("it is tried again: what it has written so far is no part of its result");
        }
    }

    /// The command wrote `text`, which begins `offset` raw bytes into its stream.
    pub async fn output(
        &mut self,
        stream: OutputStream,
        text: &str,
        offset: u64,
    ) -> Result<(), Failure> {
        let (lane, spool) = self.lane(stream);
        lane.pass(&spool, text, offset).await
    }

    /// Passes on what the command has written so far beyond the output cap.
    pub async fn catch_up(&mut self) -> Result<(), Failure> {
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            let (lane, spool) = self.lane(stream);
            if lane.position != Position::At(0) {
                lane.fetch(&spool, None).await?;
            }
        }
        Ok(())
    }

    /// The execution ended: passes on what is still missing, and says what cannot be had.
    pub async fn finish(&mut self, outcome: &Outcome) -> Result<(), Failure> {
        let totals = [
            (OutputStream::Stdout, outcome.stdout_bytes),
            (OutputStream::Stderr, outcome.stderr_bytes),
        ];
        for (stream, total) in totals {
            let (lane, spool) = self.lane(stream);
            for gap in lane.finish(&spool, total.unwrap_or_default()).await? {
                print::note(&gap);
            }
        }
        Ok(())
    }

    /// Whether bytes of either stream could not be had.
    pub fn is_incomplete(&self) -> bool {
        [&self.stdout, &self.stderr]
            .iter()
            .any(|lane| lane.missing > 0 || lane.replaced)
    }

    fn lane(&mut self, stream: OutputStream) -> (&mut Lane, Spool<'_>) {
        let lane = match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        };
        (
            lane,
            Spool {
                client: &self.client,
                id: self.id.as_deref(),
            },
        )
    }
}

/// Where the raw bytes of an execution can be had.
struct Spool<'a> {
    client: &'a Client,
    id: Option<&'a str>,
}

/// How far a stream has been passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// So many raw bytes.
    At(u64),
    /// Unknown, since a text with replacement characters had to do, from so many raw bytes on; the next offset
    /// settles it.
    Lost(u64),
}

/// One stream on its way out.
struct Lane {
    stream: OutputStream,
    writer: Writer,
    position: Position,
    replaced: bool,
    missing: u64,
}

impl Lane {
    fn new(stream: OutputStream, writer: Writer) -> Self {
        Self {
            stream,
            writer,
            position: Position::At(0),
            replaced: false,
            missing: 0,
        }
    }

    fn begin_again(&mut self) {
        self.position = Position::At(0);
        self.replaced = false;
        self.missing = 0;
    }

    async fn pass(&mut self, spool: &Spool<'_>, text: &str, offset: u64) -> Result<(), Failure> {
        let at = self.advance_to(spool, offset).await?;
        if text.contains(REPLACEMENT) {
            if self.fetch(spool, None).await? == 0 && at == offset {
                self.write(text.as_bytes()).await?;
                self.position = Position::Lost(offset);
                self.replaced = true;
            }
            return Ok(());
        }
        // What the spool already gave is not written twice.
        let done = usize::try_from(at - offset).unwrap_or(usize::MAX);
        if let Some(rest) = text.as_bytes().get(done..) {
            self.write(rest).await?;
            self.position = Position::At(offset + text.len() as u64);
        }
        Ok(())
    }

    /// Brings the position to `offset` at least, with what the spool has of the bytes between.
    async fn advance_to(&mut self, spool: &Spool<'_>, offset: u64) -> Result<u64, Failure> {
        if matches!(self.position, Position::At(at) if at < offset) {
            self.fetch(spool, Some(offset)).await?;
        }
        let at = match self.position {
            Position::At(at) => at,
            Position::Lost(_) => offset,
        };
        self.missing += offset.saturating_sub(at);
        self.position = Position::At(at.max(offset));
        Ok(at.max(offset))
    }

    /// Passes on what the spool has from the position to `end`; how many bytes that were.
    ///
    /// A spool that cannot be read gives nothing: what is missing in the end is told then.
    async fn fetch(&mut self, spool: &Spool<'_>, end: Option<u64>) -> Result<u64, Failure> {
        let (Position::At(from), Some(id)) = (self.position, spool.id) else {
            return Ok(0);
        };
        let opened = match end {
            Some(end) => spool.client.output(id, self.stream, from..end).await,
            None => spool.client.output(id, self.stream, from..).await,
        };
        let Ok(mut output) = opened else { return Ok(0) };
        let mut at = output.start;
        while at <= end.unwrap_or(u64::MAX)
            && let Ok(Some(bytes)) = output.chunk().await
        {
            // A range is a wish: a daemon may send more of the stream than it was asked for.
            let skip = usize::try_from(from.saturating_sub(at)).unwrap_or(usize::MAX);
            self.write(bytes.get(skip..).unwrap_or_default()).await?;
            at += bytes.len() as u64;
            self.position = Position::At(at.max(from));
        }
        Ok(at.saturating_sub(from))
    }

    /// Passes on the rest; then what is not as the command wrote it, for people.
    async fn finish(&mut self, spool: &Spool<'_>, total: u64) -> Result<Vec<String>, Failure> {
        if matches!(self.position, Position::At(at) if at < total) {
            self.fetch(spool, None).await?;
        }
        let stream = self.stream.name();
        let mut gaps = Vec::new();
        if self.replaced {
            gaps.push(format!(
                "{stream} has bytes that are not UTF-8; U+FFFD stands for some"
            ));
        }
        match self.position {
            Position::At(at) => self.missing += total.saturating_sub(at),
            Position::Lost(from) => gaps.push(format!(
                "of the bytes of {stream} from {from} to {total} some may be missing: the daemon did not keep them"
            )),
        }
        if self.missing > 0 {
            gaps.push(format!(
                "{} of the {total} bytes of {stream} are missing: the daemon did not keep them",
                self.missing
            ));
        }
        Ok(gaps)
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = async {
            self.writer.write_all(bytes).await?;
            self.writer.flush().await
        };
        written.await.map_err(|source| Failure::Stdout { source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    /// What comes out, and the gaps that are told, when nothing can be had from a spool.
    async fn without_spool(texts: &[(&str, u64)], total: u64) -> (String, Vec<String>) {
        let client = Client::new("/nonexistent/executor.sock");
        let spool = Spool {
            client: &client,
            id: Some("1"),
        };
        let (writer, mut reader) = tokio::io::duplex(1024);
        let mut lane = Lane::new(OutputStream::Stdout, Box::new(writer));
        for (text, offset) in texts {
            lane.pass(&spool, text, *offset).await.expect("succeeds");
        }
        let gaps = lane.finish(&spool, total).await.expect("succeeds");
        drop(lane);
        let mut out = String::new();
        reader.read_to_string(&mut out).await.expect("succeeds");
        (out, gaps)
    }

    #[tokio::test]
    async fn text_passes_as_it_is() {
        let (out, gaps) = without_spool(&[("grün", 0), ("\n", 5)], 6).await;
        assert_eq!((out.as_str(), gaps.len()), ("grün\n", 0));
    }

    #[tokio::test]
    async fn what_has_been_passed_on_is_not_repeated() {
        let (out, gaps) = without_spool(&[("abcd", 0), ("cdef", 2), ("ab", 0)], 6).await;
        assert_eq!((out.as_str(), gaps.len()), ("abcdef", 0));
    }

    #[tokio::test]
    async fn without_raw_bytes_the_text_does_and_the_next_offset_settles_the_position() {
        let (out, gaps) = without_spool(&[("a\u{fffd}", 0)], 1000).await;
        assert_eq!(out, "a\u{fffd}");
        assert_eq!(
            gaps,
            [
                "stdout has bytes that are not UTF-8; U+FFFD stands for some",
                "of the bytes of stdout from 0 to 1000 some may be missing: the daemon did not keep them"
            ]
        );
        let (out, gaps) = without_spool(&[("a\u{fffd}", 0), ("b", 2)], 3).await;
        assert_eq!(out, "a\u{fffd}b");
        assert_eq!(
            gaps,
            ["stdout has bytes that are not UTF-8; U+FFFD stands for some"]
        );
    }

    #[tokio::test]
    async fn missing_bytes_are_counted_in_the_middle_and_at_the_end() {
        let (out, gaps) = without_spool(&[("ab", 0), ("ef", 4)], 10).await;
        assert_eq!(out, "abef");
        assert_eq!(
            gaps,
            ["6 of the 10 bytes of stdout are missing: the daemon did not keep them"]
        );
    }
}

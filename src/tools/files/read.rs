use std::io::Read;
use std::os::unix::fs::FileExt;

use rustix::fs::OFlags;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::access::Found;
use super::text::{Decoded, Encoding, HEAD};
use super::{Answer, FileError, Work, answer, lines, whole};
use crate::domain::{Digest, counted};
use crate::tools::{ReadOn, Width};

/// The greatest line and byte that can be asked for: up to here every reader of JSON has whole numbers as they are (RFC
/// 8259, section 6), and no file is as long.
const MOST: u64 = (1 << 53) - 1;

/// What it takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// The file: absolute, from `~/`, or relative to the working directory.
    pub(crate) file_path: String,
    /// Its encoding, such as "utf-8", "utf-16le" or "latin1". Detected when absent.
    pub(crate) encoding: Option<String>,
    /// The first line to read, counted from 1.
    #[schemars(range(min = 1, max = MOST))]
    pub(crate) start_line: Option<u64>,
    /// The last line to read; the end of the file when absent.
    #[schemars(range(min = 1, max = MOST))]
    pub(crate) end_line: Option<u64>,
    /// Whether each line begins with its number and a tab.
    #[serde(default)]
    pub(crate) line_numbers: bool,
    /// The first byte to read, counted from 0; instead of lines.
    #[schemars(range(max = MOST))]
    pub(crate) offset: Option<u64>,
    /// How many bytes to read; as many as may be when absent.
    #[schemars(range(max = MOST))]
    pub(crate) length: Option<u64>,
}

/// What it answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Output {
    file_path: String,
    /// The text, without its byte order mark.
    content: String,
    /// What it was read as; goes back into a call.
    encoding: String,
    /// The size of the file.
    size_bytes: u64,
    /// Null when not all of the file was read.
    total_lines: Option<u64>,
    /// The first line of the content; null when there is none or it is not known.
    start_line: Option<u64>,
    /// The last line of the content.
    end_line: Option<u64>,
    /// SHA-256 of the whole file, as `expected_digest` of a later change; null when not all of it
    /// was read.
    digest: Option<String>,
    /// How many bytes of what was read do not fit the encoding; U+FFFD stands in their place. Those of a character that
    /// only a part of lies between offset and length are shown as U+FFFD, too, and not counted.
    invalid_bytes: u64,
    /// Whether more follows of what was asked for.
    truncated: bool,
}

/// Reads a file, or lines or bytes of one.
pub(crate) fn read_file(work: &Work<'_>, input: &Input) -> Result<Answer, FileError> {
    let range = Range::of(input, work.access.max_file_size)?;
    let found = work.access.find(&input.file_path)?.regular(work.access)?;
    work.check_permitted(&found.real)?;
    let reading = Reading { work, input, found };
    let (output, read_on) = match range {
        Range::Bytes { offset, length } => reading.bytes(offset, length)?,
        Range::Lines(lines) if reading.found.size() <= work.access.max_file_size => {
            by_lines(reading.whole(lines)?)
        }
        Range::Lines(lines) => by_lines(reading.part(lines)?),
    };
    Ok(Answer {
        read_on,
        note: note(&output),
        ..answer(content(&output, input), &output)
    })
}

fn by_lines(output: Output) -> (Output, ReadOn) {
    let total = output.total_lines;
    let lines = |first| ReadOn::Lines { first, total };
    let read_on = output.start_line.map_or(ReadOn::Nothing, lines);
    (output, read_on)
}

/// What the model is shown.
fn content(output: &Output, input: &Input) -> String {
    match (input.line_numbers, output.start_line) {
        (true, Some(first)) => lines::numbered(&output.content, first),
        _ => output.content.clone(),
    }
}

/// What the text does not say.
fn note(output: &Output) -> String {
    let mut note = String::new();
    if (output.total_lines, output.size_bytes) == (Some(0), 0) {
        note.push_str("[the file is empty]");
    }
    if output.invalid_bytes > 0 {
        let count = counted(output.invalid_bytes, "byte is", "bytes are");
        let encoding = &output.encoding;
        note.push_str(&format!(
            "\n[{count} not {encoding}, and shown as \u{fffd}]"
        ));
    }
    note
}

/// Where the last line or else the last word of `bytes` begins, unless that is far from their end.
fn last_break(bytes: &[u8]) -> Option<usize> {
    /// Longer than any token.
    const FAR: usize = 8 * 1024;
    let begin = bytes.len().saturating_sub(FAR).max(1);
    let last = bytes.get(begin..)?;
    let line = memchr::memrchr(b'\n', last);
    let at = line.or_else(|| last.iter().rposition(u8::is_ascii_whitespace))?;
    Some(begin + at + 1)
}

/// There is nothing at an offset.
fn ends_before(size: u64) -> FileError {
    let size = match size {
        0 => "it ends before that".to_owned(),
        size => format!("the file has only {}", counted(size, "byte", "bytes")),
    };
    FileError::input("offset", size)
}

enum Range {
    Lines(Lines),
    Bytes { offset: u64, length: Option<u64> },
}

#[derive(Clone, Copy)]
struct Lines {
    first: u64,
    last: Option<u64>,
}

impl Range {
    fn of(input: &Input, most: u64) -> Result<Self, FileError> {
        let by_lines = input.start_line.is_some() || input.end_line.is_some();
        if input.offset.is_none() && input.length.is_none() {
            let (first, last) = (input.start_line.unwrap_or(1), input.end_line);
            if first == 0 {
                return Err(FileError::input("start_line", "lines are counted from 1"));
            }
            if last.is_some_and(|last| last < first) {
                let why = format!("expected {first} (start_line) or more");
                return Err(FileError::input("end_line", why));
            }
            return Ok(Self::Lines(Lines { first, last }));
        }
        if by_lines || input.line_numbers {
            let why = "goes with bytes, not with lines: leave out start_line, end_line and line_numbers, or offset and length";
            return Err(FileError::input("offset", why));
        }
        if input.length.is_some_and(|length| length > most) {
            let why = format!("expected at most {most}, [files] max_file_size_mb");
            return Err(FileError::input("length", why));
        }
        Ok(Self::Bytes {
            offset: input.offset.unwrap_or(0),
            length: input.length,
        })
    }
}

struct Reading<'a> {
    work: &'a Work<'a>,
    input: &'a Input,
    found: Found,
}

impl Reading<'_> {
    fn whole(&self, lines: Lines) -> Result<Output, FileError> {
        let bytes = whole::read(self.work, &self.found)?;
        let encoding = self.encoding(&bytes)?;
        let decoded = encoding.decode(&bytes);
        let total = lines::count(&decoded.text);
        if lines.first > total.max(1) {
            let why = format!("the file has only {}", counted(total, "line", "lines"));
            return Err(FileError::input("start_line", why));
        }
        let digest = Digest::of(&bytes).to_string();
        let last = lines.last.unwrap_or(total).min(total);
        let decoded = match (lines.first, last == total) {
            (1, true) => decoded,
            _ => {
                let (first, last) = (at(lines.first), at(last));
                let chosen = decoded
                    .text
                    .split_inclusive('\n')
                    .take(last)
                    .skip(first - 1);
                Decoded {
                    text: chosen.collect(),
                    ..decoded
                }
            }
        };
        Ok(Output {
            total_lines: Some(total),
            start_line: (total > 0).then_some(lines.first),
            end_line: (total > 0).then_some(last),
            digest: Some(digest),
            ..self.output(encoding, decoded)
        })
    }

    /// Lines of a file that is too large to be read whole.
    fn part(&self, lines: Lines) -> Result<Output, FileError> {
        let most = self.work.access.max_file_size;
        let asked = &self.found.asked;
        if (lines.first, lines.last) == (1, None) {
            let instead = ": read a part of it with start_line and end_line, or offset and length";
            return Err(whole::too_large(asked, self.found.size(), most, instead));
        }
        let mut file = self.found.open(OFlags::RDONLY)?;
        let encoding = self.encoding(&self.head()?)?;
        if !encoding.has_byte_lines() {
            let why = "is too large to have its lines looked for in utf-16: use offset and length";
            return Err(FileError::refused(asked, why));
        }
        let mut picked = Picked::new(lines, most);
        let mut buffer = vec![0; whole::CHUNK];
        while !picked.is_done() {
            self.work.check_stop()?;
            let read = file
                .read(&mut buffer)
                .map_err(FileError::io("read", asked))?;
            if read == 0 {
                break;
            }
            if picked.take(&buffer[..read]).is_err() {
                let why = format!(
                    "these lines have more than {most} bytes, [files] max_file_size_mb: ask for fewer"
                );
                return Err(FileError::input("end_line", why));
            }
        }
        if picked.bytes.is_empty() {
            let why = format!(
                "the file has only {}",
                counted(picked.lines(), "line", "lines")
            );
            return Err(FileError::input("start_line", why));
        }
        let decoded = match lines.first {
            1 => encoding.decode(&picked.bytes),
            _ => encoding.decode_part(&picked.bytes),
        };
        let last = lines.first + lines::count(&decoded.text).saturating_sub(1);
        Ok(Output {
            start_line: Some(lines.first),
            end_line: Some(last),
            ..self.output(encoding, decoded)
        })
    }

    fn bytes(&self, offset: u64, length: Option<u64>) -> Result<(Output, ReadOn), FileError> {
        let size = self.found.size();
        // Files of the kernel's have a size of 0 and are read to their end all the same.
        let left = match size {
            0 => u64::MAX,
            size => size.checked_sub(offset).ok_or_else(|| ends_before(size))?,
        };
        let wanted = length.unwrap_or(u64::MAX).min(left);
        let length = wanted.min(self.work.access.max_file_size);
        let encoding = self.encoding(&self.head()?)?;
        let mut bytes = self.range(offset, length)?;
        let read = bytes.len() as u64;
        if size == 0 && read == 0 && offset > 0 {
            return Err(ends_before(size));
        }
        // More may follow, of which the last character may be the beginning.
        let is_cut = read == length && (size == 0 || offset + read < size);
        let cut_before = match offset {
            0 => 0,
            _ => encoding.cut_before(&bytes),
        };
        let mut cut_behind = match is_cut {
            true => encoding.cut_behind(&bytes[cut_before..]),
            false => 0,
        };
        let truncated = length < wanted && read == length;
        if truncated {
            // What follows begins with that character, or with the line or word that it is in: what is read in pieces is
            // masked in pieces.
            bytes.truncate(bytes.len() - cut_behind);
            if encoding.has_byte_lines() {
                bytes.truncate(last_break(&bytes).unwrap_or(bytes.len()));
            }
            cut_behind = 0;
        }
        let (first, mut decoded) = match offset {
            0 => (encoding.mark_bytes() as u64, encoding.decode(&bytes)),
            _ => (offset, encoding.decode_part(&bytes)),
        };
        // It is the range that they do not fit, and not the encoding.
        let cut = (cut_before + cut_behind) as u64;
        decoded.invalid_bytes = decoded.invalid_bytes.saturating_sub(cut);
        let is_exact = decoded.invalid_bytes == 0;
        let width = encoding.width().filter(|_| is_exact);
        let read_on = ReadOn::Bytes {
            first,
            stray: if width == Some(Width::Utf8) {
                cut_before
            } else {
                0
            },
            width,
            next: truncated.then_some(offset + bytes.len() as u64),
        };
        let output = Output {
            truncated,
            ..self.output(encoding, decoded)
        };
        Ok((output, read_on))
    }

    /// So many bytes from `offset` on, or as many as there are.
    fn range(&self, offset: u64, length: u64) -> Result<Vec<u8>, FileError> {
        let file = self.found.open(OFlags::RDONLY)?;
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < length {
            self.work.check_stop()?;
            let have = bytes.len();
            bytes.resize(at(length).min(have + whole::CHUNK), 0);
            let read = file.read_at(&mut bytes[have..], offset + have as u64);
            let read = read.map_err(FileError::io("read", &self.found.asked))?;
            bytes.truncate(have + read);
            if read == 0 {
                break;
            }
        }
        Ok(bytes)
    }

    fn head(&self) -> Result<Vec<u8>, FileError> {
        let mut head = Vec::new();
        let file = self.found.open(OFlags::RDONLY)?;
        let read = file.take(HEAD as u64).read_to_end(&mut head);
        read.map_err(FileError::io("read", &self.found.asked))?;
        Ok(head)
    }

    fn encoding(&self, head: &[u8]) -> Result<Encoding, FileError> {
        let named = self.input.encoding.as_deref();
        let encoding = whole::encoding(self.work, &self.found, (named, head))?;
        encoding.ok_or_else(|| whole::binary(&self.found.asked))
    }

    fn output(&self, encoding: Encoding, decoded: Decoded) -> Output {
        Output {
            file_path: self.input.file_path.clone(),
            content: decoded.text,
            encoding: encoding.name(),
            size_bytes: self.found.size(),
            total_lines: None,
            start_line: None,
            end_line: None,
            digest: None,
            invalid_bytes: decoded.invalid_bytes,
            truncated: false,
        }
    }
}

/// The bytes of some lines, out of all that come by.
struct Picked {
    wanted: Lines,
    most: u64,
    /// The line that the next byte is in.
    line: u64,
    /// Whether it has any so far.
    is_begun: bool,
    bytes: Vec<u8>,
}

/// There is more than there may be.
struct TooMuch;

impl Picked {
    fn new(wanted: Lines, most: u64) -> Self {
        Self {
            wanted,
            most,
            line: 1,
            is_begun: false,
            bytes: Vec::new(),
        }
    }

    /// How many have come by; a last one without its newline counts.
    fn lines(&self) -> u64 {
        self.line - u64::from(!self.is_begun)
    }

    fn is_done(&self) -> bool {
        self.wanted.last.is_some_and(|last| self.line > last)
    }

    fn take(&mut self, mut chunk: &[u8]) -> Result<(), TooMuch> {
        while !chunk.is_empty() && !self.is_done() {
            let end = memchr::memchr(b'\n', chunk);
            let (now, rest) = chunk.split_at(end.map_or(chunk.len(), |at| at + 1));
            if self.line >= self.wanted.first {
                self.bytes.extend(now);
            }
            if self.bytes.len() as u64 > self.most {
                return Err(TooMuch);
            }
            self.line += u64::from(end.is_some());
            self.is_begun = end.is_none();
            chunk = rest;
        }
        Ok(())
    }
}

fn at(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

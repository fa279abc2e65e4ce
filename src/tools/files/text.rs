//! Bytes into text and back, by the encoding that was named or that the bytes show.

use std::ops::RangeInclusive;

use encoding_rs::{DecoderResult, EncoderResult};

use super::FileError;
use crate::tools::Width;

/// How much of a file is looked at to tell text from binary: as much as grep and git look at.
pub(super) const HEAD: usize = 8 * 1024;

/// An encoding and whether the text begins with a byte order mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Encoding {
    charset: Charset,
    pub(super) has_bom: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Charset {
    Utf8,
    Utf16Le,
    Utf16Be,
    /// What Python calls so, and not windows-1252, as which the web reads it.
    Latin1,
    Other(&'static encoding_rs::Encoding),
}

/// Text and what was found in its bytes.
#[derive(Debug, PartialEq)]
pub(super) struct Decoded {
    pub(super) text: String,
    /// How many bytes the encoding does not know; U+FFFD stands in their place.
    pub(super) invalid_bytes: u64,
}

impl Encoding {
    pub(super) const UTF_8: Self = Self::without_bom(Charset::Utf8);

    const fn without_bom(charset: Charset) -> Self {
        Self {
            charset,
            has_bom: false,
        }
    }

    /// The encoding that a caller names: as Python does, or as the web does.
    pub(super) fn named(label: &str) -> Result<Self, FileError> {
        // As the web does, blanks around it do not count.
        let folded = label.trim_ascii().to_ascii_lowercase().replace('_', "-");
        let charset = match folded.as_str() {
            "utf-8" | "utf8" => Charset::Utf8,
            "utf-8-sig" => {
                return Ok(Self {
                    charset: Charset::Utf8,
                    has_bom: true,
                });
            }
            "utf-16" | "utf16" => {
                return Ok(Self {
                    charset: Charset::Utf16Le,
                    has_bom: true,
                });
            }
            "utf-16le" | "utf-16-le" => Charset::Utf16Le,
            "utf-16be" | "utf-16-be" => Charset::Utf16Be,
            "latin1" | "latin-1" | "iso-8859-1" | "iso8859-1" | "l1" => Charset::Latin1,
            "ascii" | "us-ascii" => {
                return Err(FileError::input(
                    "encoding",
                    "use \"utf-8\", of which ascii is a part",
                ));
            }
            other => match encoding_rs::Encoding::for_label_no_replacement(other.as_bytes()) {
                Some(known) => Charset::of(known),
                None => {
                    let why = format!(
                        "there is no encoding {label:?}: use \"utf-8\", \"utf-16\", \"latin1\", \"windows-1252\", \"shift_jis\", \"gb18030\" or another of the WHATWG's"
                    );
                    return Err(FileError::input("encoding", why));
                }
            },
        };
        Ok(Self::without_bom(charset))
    }

    /// The encoding that a byte order mark at the beginning shows.
    pub(super) fn of_bom(bytes: &[u8]) -> Option<Self> {
        if bytes.starts_with(b"\xff\xfe\0\0") {
            // UTF-32's, or no text at all.
            return None;
        }
        let charsets = [Charset::Utf8, Charset::Utf16Le, Charset::Utf16Be];
        let shown = charsets
            .into_iter()
            .find(|charset| bytes.starts_with(charset.bom()));
        shown.map(|charset| Self {
            charset,
            has_bom: true,
        })
    }

    /// The encoding of a file that begins with `head`: the named one, else what it shows. `None`
    /// for bytes that are no text.
    pub(super) fn of_file(named: Option<&str>, head: &[u8]) -> Result<Option<Self>, FileError> {
        let shown = Self::of_bom(head);
        if let Some(label) = named {
            let named = Self::named(label)?;
            let shown = shown.map(|shown| (named.in_order_of(shown), shown));
            return Ok(Some(match shown {
                Some((named, shown)) if shown.charset == named.charset => shown,
                _ => Self::without_bom(named.charset),
            }));
        }
        let head = &head[..head.len().min(HEAD)];
        match shown {
            Some(shown) => Ok(Some(shown)),
            None if memchr::memchr(0, head).is_some() => Ok(None),
            None => Ok(Some(Self::UTF_8)),
        }
    }

    /// What a caller has named where a file is there: "utf-16" leaves the order of its bytes to a mark.
    pub(super) fn in_order_of(self, file: Self) -> Self {
        let is_marked_utf_16 = |encoding: Self| encoding.has_bom && !encoding.has_byte_lines();
        match is_marked_utf_16(self) && is_marked_utf_16(file) {
            true => file,
            false => self,
        }
    }

    /// Whether a line ends with the byte 0x0A and nothing else does.
    pub(super) fn has_byte_lines(self) -> bool {
        !matches!(self.charset, Charset::Utf16Le | Charset::Utf16Be)
    }

    /// How many bytes a character stands for, where each does for as many wherever it is.
    pub(super) fn width(self) -> Option<Width> {
        match self.charset {
            Charset::Utf8 => Some(Width::Utf8),
            Charset::Utf16Le | Charset::Utf16Be => Some(Width::Utf16),
            Charset::Latin1 => Some(Width::One),
            Charset::Other(_) => None,
        }
    }

    /// How many bytes the mark has with which the text begins.
    pub(super) fn mark_bytes(self) -> usize {
        match self.has_bom {
            true => self.charset.bom().len(),
            false => 0,
        }
    }

    /// How many bytes at the beginning of a part of a file are the end of a character that begins before it, as far as
    /// the part shows.
    pub(super) fn cut_before(self, part: &[u8]) -> usize {
        match self.charset {
            Charset::Utf8 => {
                let is_inner = |byte: &&u8| (0x80..0xc0).contains(*byte);
                part.iter().take(3).take_while(is_inner).count()
            }
            Charset::Utf16Le => half(part.first_chunk(), u16::from_le_bytes, LOW_SURROGATES),
            Charset::Utf16Be => half(part.first_chunk(), u16::from_be_bytes, LOW_SURROGATES),
            Charset::Latin1 | Charset::Other(_) => 0,
        }
    }

    /// How many bytes at the end of a part of a file are the beginning of a character that ends behind it.
    pub(super) fn cut_behind(self, part: &[u8]) -> usize {
        let (pairs, odd) = part.as_chunks::<2>();
        match self.charset {
            Charset::Utf8 => {
                let lacks_more = |count: &usize| {
                    let end = part.len().checked_sub(*count).map(|at| &part[at..]);
                    let error = end.and_then(|end| std::str::from_utf8(end).err());
                    error.is_some_and(|error| error.error_len().is_none())
                };
                (1..=3).find(lacks_more).unwrap_or(0)
            }
            Charset::Utf16Le => odd.len() + half(pairs.last(), u16::from_le_bytes, HIGH_SURROGATES),
            Charset::Utf16Be => odd.len() + half(pairs.last(), u16::from_be_bytes, HIGH_SURROGATES),
            Charset::Latin1 | Charset::Other(_) => 0,
        }
    }

    /// The name, as in answers and for the next call.
    pub(super) fn name(self) -> String {
        match (self.charset, self.has_bom) {
            (Charset::Utf8, false) => "utf-8".to_owned(),
            (Charset::Utf8, true) => "utf-8-sig".to_owned(),
            (Charset::Utf16Le | Charset::Utf16Be, true) => "utf-16".to_owned(),
            (Charset::Utf16Le, false) => "utf-16le".to_owned(),
            (Charset::Utf16Be, false) => "utf-16be".to_owned(),
            (Charset::Latin1, _) => "latin1".to_owned(),
            (Charset::Other(encoding), _) => encoding.name().to_lowercase(),
        }
    }

    /// The text of a whole file, without the mark.
    pub(super) fn decode(self, bytes: &[u8]) -> Decoded {
        match self.has_bom {
            true => self.decode_part(bytes.strip_prefix(self.charset.bom()).unwrap_or(bytes)),
            false => self.decode_part(bytes),
        }
    }

    /// The text of a part of a file.
    pub(super) fn decode_part(self, bytes: &[u8]) -> Decoded {
        match self.charset {
            Charset::Utf8 => from_utf8(bytes),
            Charset::Utf16Le => from_utf16(bytes, u16::from_le_bytes),
            Charset::Utf16Be => from_utf16(bytes, u16::from_be_bytes),
            Charset::Latin1 => Decoded {
                text: bytes.iter().map(|byte| char::from(*byte)).collect(),
                invalid_bytes: 0,
            },
            Charset::Other(encoding) => from_other(bytes, encoding),
        }
    }

    /// The bytes of a whole file, with its mark.
    pub(super) fn encode(self, text: &str) -> Result<Vec<u8>, FileError> {
        let mut bytes = match self.has_bom {
            true => self.charset.bom().to_vec(),
            false => Vec::new(),
        };
        self.encode_part(text, &mut bytes)?;
        Ok(bytes)
    }

    /// Adds the bytes of a part of a file.
    pub(super) fn encode_part(self, text: &str, bytes: &mut Vec<u8>) -> Result<(), FileError> {
        match self.charset {
            Charset::Utf8 => bytes.extend(text.as_bytes()),
            Charset::Utf16Le => bytes.extend(text.encode_utf16().flat_map(u16::to_le_bytes)),
            Charset::Utf16Be => bytes.extend(text.encode_utf16().flat_map(u16::to_be_bytes)),
            Charset::Latin1 => {
                for character in text.chars() {
                    let byte = u8::try_from(character);
                    bytes.push(byte.map_err(|_| self.lacks(character))?);
                }
            }
            Charset::Other(encoding) => {
                let mut encoder = encoding.new_encoder();
                let mut rest = text;
                while let (EncoderResult::OutputFull, read) =
                    step(&mut encoder, rest, bytes).map_err(|character| self.lacks(character))?
                {
                    rest = &rest[read..];
                }
            }
        }
        Ok(())
    }

    fn lacks(self, character: char) -> FileError {
        let why = format!(
            "{} has no {character:?}: name another, such as \"utf-8\"",
            self.name()
        );
        FileError::input("encoding", why)
    }
}

impl Charset {
    /// What a label of the web's stands for. Its UTF-16 is read only: what would write it there writes UTF-8.
    fn of(known: &'static encoding_rs::Encoding) -> Self {
        if known == encoding_rs::UTF_8 {
            Self::Utf8
        } else if known == encoding_rs::UTF_16LE {
            Self::Utf16Le
        } else if known == encoding_rs::UTF_16BE {
            Self::Utf16Be
        } else {
            Self::Other(known)
        }
    }

    fn bom(self) -> &'static [u8] {
        match self {
            Self::Utf8 => b"\xef\xbb\xbf",
            Self::Utf16Le => b"\xff\xfe",
            Self::Utf16Be => b"\xfe\xff",
            Self::Latin1 | Self::Other(_) => b"",
        }
    }
}

/// The first halves of the characters that are two units of UTF-16.
const HIGH_SURROGATES: RangeInclusive<u16> = 0xd800..=0xdbff;

/// The second halves.
const LOW_SURROGATES: RangeInclusive<u16> = 0xdc00..=0xdfff;

/// How many bytes a unit of UTF-16 has that is one of these halves; none if it is not.
fn half(bytes: Option<&[u8; 2]>, unit: fn([u8; 2]) -> u16, halves: RangeInclusive<u16>) -> usize {
    let is_half = bytes.is_some_and(|bytes| halves.contains(&unit(*bytes)));
    if is_half { 2 } else { 0 }
}

fn from_utf8(bytes: &[u8]) -> Decoded {
    let invalid = bytes
        .utf8_chunks()
        .map(|chunk| chunk.invalid().len() as u64);
    Decoded {
        invalid_bytes: invalid.sum(),
        text: String::from_utf8_lossy(bytes).into_owned(),
    }
}

fn from_utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Decoded {
    let (pairs, odd) = bytes.as_chunks::<2>();
    let mut invalid_bytes = odd.len() as u64;
    let mut text: String = char::decode_utf16(pairs.iter().copied().map(unit))
        .map(|character| {
            character.unwrap_or_else(|_| {
                invalid_bytes += 2;
                char::REPLACEMENT_CHARACTER
            })
        })
        .collect();
    text.extend(odd.iter().map(|_| char::REPLACEMENT_CHARACTER));
    Decoded {
        text,
        invalid_bytes,
    }
}

fn from_other(bytes: &[u8], encoding: &'static encoding_rs::Encoding) -> Decoded {
    let mut decoder = encoding.new_decoder_without_bom_handling();
    let (mut text, mut rest, mut invalid_bytes) = (String::new(), bytes, 0);
    // Not into the text at once: all the room there is would be written to for each byte that is invalid.
    let mut piece = [0; 4096];
    loop {
        let (result, read, written) =
            decoder.decode_to_utf8_without_replacement(rest, &mut piece, true);
        text.push_str(&String::from_utf8_lossy(&piece[..written]));
        rest = &rest[read..];
        match result {
            DecoderResult::InputEmpty => {
                return Decoded {
                    text,
                    invalid_bytes,
                };
            }
            DecoderResult::OutputFull => {}
            DecoderResult::Malformed(length, _) => {
                invalid_bytes += u64::from(length);
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
    }
}

/// Encodes as much as fits; the character that cannot be is the error.
fn step(
    encoder: &mut encoding_rs::Encoder,
    text: &str,
    bytes: &mut Vec<u8>,
) -> Result<(EncoderResult, usize), char> {
    bytes.reserve(text.len().max(64));
    let (result, read) = encoder.encode_from_utf8_to_vec_without_replacement(text, bytes, true);
    match result {
        EncoderResult::Unmappable(character) => Err(character),
        done @ (EncoderResult::InputEmpty | EncoderResult::OutputFull) => Ok((done, read)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bytes: &[u8]) -> Option<String> {
        let encoding = Encoding::of_file(None, bytes).expect("nothing is named");
        encoding.map(Encoding::name)
    }

    #[test]
    fn marks_and_nul_bytes_tell_what_a_file_is() {
        for (bytes, expected) in [
            (&b"plain"[..], Some("utf-8")),
            (b"", Some("utf-8")),
            (b"\xef\xbb\xbfmarked", Some("utf-8-sig")),
            (b"\xff\xfea\0", Some("utf-16")),
            (b"\xfe\xff\0a", Some("utf-16")),
            (b"\xff\xfe\0\0a\0\0\0", None),
            (b"\x7fELF\0", None),
        ] {
            assert_eq!(shown(bytes).as_deref(), expected, "{bytes:?}");
        }
    }

    /// However many bytes are invalid: it takes a time that grows as the file does.
    #[test]
    fn invalid_bytes_stand_where_the_library_has_them() {
        for encoding in [
            encoding_rs::SHIFT_JIS,
            encoding_rs::EUC_JP,
            encoding_rs::GB18030,
            encoding_rs::ISO_2022_JP,
            encoding_rs::WINDOWS_1252,
        ] {
            let many = vec![0xff; 4 << 20];
            for bytes in [
                &many[..],
                "\u{65e5}\u{672c} x".repeat(3000).as_bytes(),
                b"\x81",
                b"\xff\x81\x30\x1b(",
            ] {
                let (text, _) = encoding.decode_without_bom_handling(bytes);
                let Decoded { text: own, .. } = from_other(bytes, encoding);
                assert!(own == text, "{}: {} bytes", encoding.name(), bytes.len());
            }
        }
    }

    #[test]
    fn every_text_comes_back_in_every_encoding_that_has_it() {
        let text = "gr\u{fc}n\r\n\u{e9}t\u{e9}";
        for label in [
            "utf-8",
            "utf-8-sig",
            "utf-16",
            "UTF-16LE",
            "utf_16_be",
            "latin1",
            "windows-1252",
            "gb18030",
            "iso-8859-15",
        ] {
            let encoding = Encoding::named(label).expect(label);
            let bytes = encoding.encode(text).expect(label);
            let again = Encoding::of_file(Some(label), &bytes)
                .expect(label)
                .expect(label);
            assert_eq!(again, encoding, "{label}");
            let expected = Decoded {
                text: text.to_owned(),
                invalid_bytes: 0,
            };
            assert_eq!(again.decode(&bytes), expected, "{label}");
        }
        // Long enough for more than one step.
        let long = "\u{3042}\u{4e9c}".repeat(100_000);
        let encoding = Encoding::named("shift_jis").expect("known");
        let bytes = encoding.encode(&long).expect("it has them");
        assert_eq!(encoding.decode(&bytes).text, long);
    }

    #[test]
    fn whatever_utf_16_is_called_it_is_written_as_such() {
        let [little, big] = [&b"a\0\n\0"[..], b"\0a\0\n"];
        for (label, expected) in [
            ("unicode", little),
            ("ucs-2", little),
            ("ISO-10646-UCS-2", little),
            ("csunicode", little),
            ("unicodefeff", little),
            ("unicodefffe", big),
            (" utf-16le ", little),
        ] {
            let encoding = Encoding::named(label).expect(label);
            assert_eq!(encoding.encode("a\n").expect(label), expected, "{label}");
            assert!(!encoding.has_byte_lines(), "{label}");
            assert_eq!(encoding.decode(expected).text, "a\n", "{label}");
        }
        // The mark is found by whatever name, too.
        for (label, bytes) in [
            ("unicode", &b"\xff\xfea\0"[..]),
            ("x-unicode20utf8", b"\xef\xbb\xbfa"),
        ] {
            let encoding = Encoding::of_file(Some(label), bytes).expect(label);
            assert_eq!(encoding.expect(label).decode(bytes).text, "a", "{label}");
        }
        let bytes = Encoding::named("x-user-defined")
            .expect("known")
            .encode("a\u{f7ff}");
        assert_eq!(bytes.expect("it has them"), b"a\xff");
        // It has no text but one that says so.
        for label in ["replacement", "iso-2022-kr"] {
            assert!(Encoding::named(label).is_err(), "{label}");
        }
    }

    #[test]
    fn bytes_of_characters_that_are_cut_through_are_known() {
        for (label, part, before, behind) in [
            ("utf-8", &b"ab"[..], 0, 0),
            ("utf-8", b"", 0, 0),
            ("utf-8", b"\xa9b\xc3", 1, 1),
            ("utf-8", b"\x82\xacb\xe2\x82", 2, 2),
            ("utf-8", b"\x9f\xa6\x80b\xf0\x9f\xa6", 3, 3),
            ("utf-8", b"\xc3\xa9b\xc3\xa9", 0, 0),
            // What no character begins or ends with.
            ("utf-8", b"\xffb\xff", 0, 0),
            ("utf-16le", b"\x00\xdca\0\x00\xd8", 2, 2),
            ("utf-16le", b"a\0\x00\xd8\x00", 0, 3),
            ("utf-16be", b"\xdc\x00\0a\0", 2, 1),
            ("latin1", b"\x80b\xc3", 0, 0),
        ] {
            let encoding = Encoding::named(label).expect(label);
            let cut = (encoding.cut_before(part), encoding.cut_behind(part));
            assert_eq!(cut, (before, behind), "{label} {part:?}");
        }
    }

    #[test]
    fn invalid_bytes_are_counted() {
        for (label, bytes, text, count) in [
            ("utf-8", &b"a\xff\xe2\x82b"[..], "a\u{fffd}\u{fffd}b", 3),
            ("utf-16le", b"a\0\x00\xd8b\0c", "a\u{fffd}b\u{fffd}", 3),
            ("shift_jis", b"a\xff", "a\u{fffd}", 1),
            ("latin1", b"a\x80\xff", "a\u{80}\u{ff}", 0),
        ] {
            let decoded = Encoding::named(label).expect(label).decode(bytes);
            assert_eq!(
                (decoded.text.as_str(), decoded.invalid_bytes),
                (text, count),
                "{label}"
            );
        }
    }

    #[test]
    fn what_an_encoding_has_not_is_refused_with_what_to_do() {
        for label in ["latin1", "windows-1252", "shift_jis"] {
            let encoding = Encoding::named(label).expect(label);
            let refusal = encoding.encode("a\u{1f980}").expect_err(label).to_string();
            assert!(
                refusal.contains("utf-8") && refusal.contains(label),
                "{refusal}"
            );
        }
        for label in ["ascii", "klingon"] {
            let refusal = Encoding::named(label).expect_err(label).to_string();
            assert!(refusal.contains("utf-8"), "{refusal}");
        }
    }
}

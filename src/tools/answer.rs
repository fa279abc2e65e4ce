use serde_json::Value;

use crate::domain::CUT_MARK;

/// What a tool answers in its own words.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Answer {
    /// The text for the model.
    pub content: String,
    /// How who reads a part of the text comes to the rest.
    pub read_on: ReadOn,
    /// What is said behind the text, however much of that is cut off: some lines at the most, whatever was found.
    pub note: String,
    /// The structured output, which fits the tool's output schema.
    pub output: Option<Value>,
    /// Whether it could not do what it was asked for.
    pub is_error: bool,
}

/// What a text is made of that can be read piece by piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReadOn {
    /// Lines of a file, which may begin with their numbers.
    Lines {
        /// The number of the first, counted from 1.
        first: u64,
        /// How many the file has, if that is known.
        total: Option<u64>,
    },
    /// Bytes of a file from an offset.
    Bytes {
        /// Where the text begins in the file.
        first: u64,
        /// How many characters at the beginning stand for one byte each, because the rest of theirs is not part of the text.
        stray: usize,
        /// How many bytes each of the others stands for, if that can be told.
        width: Option<Width>,
        /// Where it goes on behind the text, if not all that was asked for was read.
        next: Option<u64>,
    },
    /// Nothing of the kind.
    #[default]
    Nothing,
}

/// How many bytes of a file a character stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// One, whatever it is.
    One,
    /// As many as in UTF-8.
    Utf8,
    /// As many as in UTF-16.
    Utf16,
}

impl Width {
    fn of(self, text: &str) -> u64 {
        let bytes = match self {
            Self::One => text.chars().count(),
            Self::Utf8 => text.len(),
            Self::Utf16 => 2 * text.encode_utf16().count(),
        };
        bytes as u64
    }
}

impl Answer {
    /// That it could not, and why.
    pub(crate) fn failed(why: String) -> Self {
        Self {
            content: why,
            is_error: true,
            ..Self::default()
        }
    }

    /// Takes the text for the model, of which `cap` bytes are shown at the most besides what is said about it, and says
    /// whether that is not all. Lines are shown whole, if one is.
    pub(crate) fn take_text(&mut self, cap: usize) -> (String, bool) {
        let mut content = std::mem::take(&mut self.content);
        if content.len() <= cap {
            content.push_str(&self.read_on.rest());
            content.push_str(&self.note);
            return (content, false);
        }
        let shown = &content[..content.floor_char_boundary(cap)];
        let lines = match self.read_on {
            ReadOn::Lines { .. } => shown.rfind('\n').map_or(shown, |end| &shown[..end]),
            ReadOn::Bytes { .. } | ReadOn::Nothing => shown,
        };
        let hint = self.read_on.hint(lines, shown);
        let note = self.note.trim_start_matches('\n');
        let end = if note.is_empty() { "" } else { "\n" };
        (format!("{lines}{CUT_MARK}{hint}{end}{note}"), true)
    }
}

impl ReadOn {
    /// The same for a text in which something was masked: how much of the file what is shown of it stands for is not known.
    pub(crate) fn of_masked(self) -> Self {
        match self {
            Self::Bytes {
                first, stray, next, ..
            } => Self::Bytes {
                first,
                stray,
                width: None,
                next,
            },
            Self::Lines { .. } | Self::Nothing => self,
        }
    }

    /// How to come to what is behind `shown`, of which `lines` are whole ones.
    fn hint(self, lines: &str, shown: &str) -> String {
        match self {
            Self::Lines { .. } if lines.len() == shown.len() => {
                "\n[the first line is longer than what is shown of a text (max_output_bytes): read it with offset and length]"
                    .to_owned()
            }
            Self::Lines { first, total } => {
                let last = first + lines.matches('\n').count() as u64;
                let of = total.map_or_else(String::new, |total| format!(" of {total}"));
                format!(
                    "\n[lines {first} to {last}{of}: read on with start_line {}]",
                    last + 1
                )
            }
            Self::Bytes {
                first,
                stray,
                width,
                ..
            } => match width {
                Some(width) => {
                    let mut chars = shown.chars();
                    let strays = chars.by_ref().take(stray).count() as u64;
                    more_from(first + strays + width.of(chars.as_str()))
                }
                None => "\n[more follows: read on from a higher offset]".to_owned(),
            },
            Self::Nothing => String::new(),
        }
    }

    /// How to come to what was asked for and is no part of the text, of which all is shown.
    fn rest(self) -> String {
        match self {
            Self::Bytes { next, .. } => next.map_or_else(String::new, more_from),
            Self::Lines { .. } | Self::Nothing => String::new(),
        }
    }
}

fn more_from(offset: u64) -> String {
    format!("\n[more follows: read on from offset {offset}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(content: &str, read_on: ReadOn) -> Answer {
        Answer {
            content: content.to_owned(),
            read_on,
            note: "\n[a note]".to_owned(),
            ..Answer::default()
        }
    }

    #[test]
    fn lines_are_shown_whole_with_where_to_read_on() {
        let total = Some(9);
        let answer = |content: &str| answer(content, ReadOn::Lines { first: 5, total });
        let of = |content: &str, cap| answer(content).take_text(cap);
        assert_eq!(of("ab\ncd\n", 6), ("ab\ncd\n\n[a note]".to_owned(), false));
        for cap in 6..9 {
            let expected =
                "ab\ncd\n...(truncated)\n[lines 5 to 6 of 9: read on with start_line 7]\n[a note]";
            assert_eq!(
                of("ab\ncd\nef\n", cap),
                (expected.to_owned(), true),
                "{cap}"
            );
        }
        // A line end is no line.
        let (text, is_cut) = of("ab\ncd\nef\n", 5);
        assert!(
            text.starts_with("ab\n...(truncated)\n[lines 5 to 5 of 9: "),
            "{text}"
        );
        assert!(is_cut);
        let (text, _) = of("éééé\n", 3);
        assert!(
            text.starts_with("é\n...(truncated)\n[the first line is longer "),
            "{text}"
        );
    }

    #[test]
    fn a_note_stays_whatever_is_cut_off() {
        let plain = Answer {
            note: "a note\n".to_owned(),
            ..answer("0123\n", ReadOn::Nothing)
        };
        assert_eq!(plain.clone().take_text(5).0, "0123\na note\n");
        assert_eq!(plain.clone().take_text(2).0, "01\n...(truncated)\na note\n");
        let (text, is_cut) = answer("0123456789", ReadOn::Nothing).take_text(4);
        assert_eq!(text, "0123\n...(truncated)\n[a note]");
        assert!(is_cut);
    }

    #[test]
    fn where_bytes_go_on_is_named() {
        let bytes = |width, next| ReadOn::Bytes {
            first: 10,
            stray: 0,
            width,
            next,
        };
        let cut = |width| {
            answer("a\u{e9}\u{1f980}bcd", bytes(width, Some(99)))
                .take_text(7)
                .0
        };
        for (width, from) in [
            (Some(Width::One), "offset 13"),
            (Some(Width::Utf8), "offset 17"),
            (Some(Width::Utf16), "offset 18"),
            (None, "a higher offset"),
        ] {
            let expected = format!(
                "a\u{e9}\u{1f980}\n...(truncated)\n[more follows: read on from {from}]\n[a note]"
            );
            assert_eq!(cut(width), expected, "{width:?}");
        }
        let behind_strays = ReadOn::Bytes {
            first: 10,
            stray: 2,
            width: Some(Width::Utf8),
            next: None,
        };
        let (text, _) = answer("\u{fffd}\u{fffd}\u{e9}bcd", behind_strays).take_text(9);
        assert!(text.contains("from offset 15]"), "{text}");
        let whole = |next| answer("abc", bytes(Some(Width::Utf8), next)).take_text(3);
        let text = "abc\n[more follows: read on from offset 13]\n[a note]";
        assert_eq!(whole(Some(13)), (text.to_owned(), false));
        assert_eq!(whole(None), ("abc\n[a note]".to_owned(), false));
    }
}

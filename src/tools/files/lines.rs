/// How many lines a text has; a last one without its newline counts.
pub(super) fn count(text: &str) -> u64 {
    let newlines = memchr::memchr_iter(b'\n', text.as_bytes()).count() as u64;
    newlines + u64::from(!text.is_empty() && !text.ends_with('\n'))
}

/// The number of the line that the byte at `at` is in, counted from 1.
pub(super) fn number_at(text: &str, at: usize) -> u64 {
    memchr::memchr_iter(b'\n', &text.as_bytes()[..at]).count() as u64 + 1
}

/// The text with its lines numbered, the first being `first`.
pub(super) fn numbered(text: &str, first: u64) -> String {
    let last = first + count(text).saturating_sub(1);
    let width = last.to_string().len();
    let mut numbered = String::with_capacity(text.len() * 2);
    for (number, line) in (first..).zip(text.split_inclusive('\n')) {
        numbered.push_str(&format!("{number:>width$}\t{line}"));
    }
    numbered
}

/// A line of two parts, of which so many characters are shown at the most: where it is longer, those around the place
/// where the parts meet.
pub(super) fn around((before, after): (&str, &str), most: usize) -> String {
    if before.chars().chain(after.chars()).nth(most).is_none() {
        return format!("{before}{after}");
    }
    // What precedes the place says where it is, and less of it than of what follows.
    let lead = most / 4;
    let mut back = before.char_indices().rev();
    let start = match before.chars().count() > most - lead {
        true => back.nth(lead.saturating_sub(1)).map_or(0, |(at, _)| at),
        false => 0,
    };
    let mut rest = before[start..].chars().chain(after.chars());
    let shown: String = rest.by_ref().take(most).collect();
    let [cut_before, cut_after] = [
        if start > 0 { "(cut) ..." } else { "" },
        if rest.next().is_some() {
            "... (cut)"
        } else {
            ""
        },
    ];
    format!("{cut_before}{shown}{cut_after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_line_the_place_is_shown() {
        assert_eq!(around(("abc", "def"), 8), "abcdef");
        assert_eq!(around(("ébcdefg", "h"), 8), "ébcdefgh");
        assert_eq!(around(("abc", "defghi"), 8), "abcdefgh... (cut)");
        assert_eq!(around(("é23456789", "abc"), 8), "(cut) ...89abc");
        assert_eq!(
            around(("0123456789", "abcdefgh"), 8),
            "(cut) ...89abcdef... (cut)"
        );
        assert_eq!(around(("", "é"), 1), "é");
        assert_eq!(around(("é", "é"), 1), "é... (cut)");
    }
}

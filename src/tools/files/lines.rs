use crate::domain::Secrets;

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
/// where the parts meet. Where it is longer it is masked, too: what a cut leaves of a secret nobody would recognise.
pub(super) fn around((before, after): (&str, &str), most: usize, secrets: &Secrets) -> String {
    if before.chars().chain(after.chars()).nth(most).is_none() {
        return format!("{before}{after}");
    }
    // More than that is not shown, and need not be looked at; a character has four bytes at the most.
    let (looked_at, reach) = (4 * most + 2 * secrets.reach(), secrets.reach());
    let start = before.ceil_char_boundary(before.len().saturating_sub(looked_at));
    let end = after.floor_char_boundary(looked_at);
    let is_cut = (start > 0, end < after.len());
    let line = format!("{}{}", &before[start..], &after[..end]);
    let masked = secrets.mask_text(&line);
    let before = secrets.mask_text(&before[start..]);
    let (before, after) = parted(&masked, &before);
    // What the ends go through may not have been recognised.
    let first = if is_cut.0 { reach.min(before.len()) } else { 0 };
    let last = after.len() - if is_cut.1 { reach.min(after.len()) } else { 0 };
    let parts = (
        &before[before.ceil_char_boundary(first)..],
        &after[..after.floor_char_boundary(last)],
    );
    let shown = cut(parts, most);
    let [more_before, more_after] = [
        if is_cut.0 && !shown.starts_with(CUT_BEFORE) {
            CUT_BEFORE
        } else {
            ""
        },
        if is_cut.1 && !shown.ends_with(CUT_AFTER) {
            CUT_AFTER
        } else {
            ""
        },
    ];
    format!("{more_before}{shown}{more_after}")
}

/// What says that a line has more before, and behind.
const CUT_BEFORE: &str = "(cut) ...";
const CUT_AFTER: &str = "... (cut)";

/// A masked line in two parts, the first of which by itself was masked to `before`: that differs from the line where a
/// secret lies across the place, which is then where the secret was.
fn parted<'a>(line: &'a str, before: &str) -> (&'a str, &'a str) {
    let is_same = |(one, other): &(u8, u8)| one == other;
    let common = line.bytes().zip(before.bytes()).take_while(is_same).count();
    line.split_at(line.floor_char_boundary(common))
}

/// Those of a line's characters that are shown of two parts.
fn cut((before, after): (&str, &str), most: usize) -> String {
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
        if start > 0 { CUT_BEFORE } else { "" },
        if rest.next().is_some() { CUT_AFTER } else { "" },
    ];
    format!("{cut_before}{shown}{cut_after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(parts: (&str, &str), most: usize) -> String {
        super::around(parts, most, &Secrets::default())
    }

    #[test]
    fn of_a_long_line_only_what_is_near_is_looked_at() {
        let mut secrets = Secrets::default();
        secrets.add("hunter2-and-more");
        let long = "hunter2-and-more".repeat(100_000);
        let around = |before: &str, after: &str| super::around((before, after), 8, &secrets);
        for (before, after) in [
            (&*long, &*long),
            ("", &*long),
            (&*long, ""),
            (&long[5..], &long[3..]),
        ] {
            let shown = around(before, after);
            let masked = |c: char| c == '*' || "(cut) ...".contains(c);
            assert!(shown.chars().all(masked), "{shown}");
        }
        let long = "é".repeat(1_000_000);
        assert_eq!(around(&long, &long).matches('é').count(), 8);
        assert!(around("", &long).ends_with("é... (cut)"));
    }

    #[test]
    fn of_a_secret_no_part_is_shown() {
        let mut secrets = Secrets::default();
        secrets.add("hunter2-and-more");
        let around = |before: &str, after: &str| super::around((before, after), 8, &secrets);
        assert_eq!(around("", "abcdhunter2-and-more"), "abcd***");
        assert_eq!(around("", "abcdef hunter2-and-more"), "abcdef *... (cut)");
        assert_eq!(around("hunter2-and-more456789", "ab"), "(cut) ...89ab");
        // The place is in the secret, and then where that was.
        assert_eq!(around("xhunter2", "-and-more23456"), "x***2345... (cut)");
        assert_eq!(around("0123456789hunter2", "-and-more"), "(cut) ...89***");
    }

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

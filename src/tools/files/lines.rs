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

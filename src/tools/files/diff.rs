use std::time::Duration;

use similar::{Algorithm, Change, DiffOp, TextDiff};

use super::lines::around;
use crate::domain::Secrets;

/// The lines around a change that are shown with it, as `diff -u` does.
const CONTEXT: usize = 3;

/// How long the smallest difference is looked for before a larger one must do.
const TIME: Duration = Duration::from_millis(500);

/// The most of a difference that is shown, in bytes: a model reads it, and the change itself is
/// not smaller for it.
const LONGEST: usize = 128 * 1024;

/// The most of a line that is shown, in characters: what is longer was not written by people.
const LONGEST_LINE: usize = 2000;

/// What changes, as `diff -u` would say it; empty when nothing does. Lines that are cut are masked.
pub(super) fn unified(path: &str, (old, new): (Option<&str>, &str), secrets: &Secrets) -> String {
    let before = match old {
        Some(_) => path,
        None => "/dev/null",
    };
    let old = old.unwrap_or_default();
    let same = Same::of(old, new);
    let [old, new]: [Vec<&str>; 2] = [old, new].map(|text| {
        let middle = &text.as_bytes()[same.start..text.len() - same.end];
        // It begins and ends where lines do, and so characters.
        let middle = str::from_utf8(middle).unwrap_or_default();
        middle.split_inclusive('\n').collect()
    });
    let diff = TextDiff::configure()
        .algorithm(Algorithm::Myers)
        .timeout(TIME)
        .diff_slices(&old, &new);
    let mut text = String::new();
    // How many lines there are more by now than before.
    let mut grown = 0;
    for ops in diff.grouped_ops(CONTEXT) {
        if text.is_empty() {
            text.push_str(&format!("--- {before}\n+++ {path}\n"));
        }
        text.push_str(&heading(&ops, same.lines, &mut grown));
        let changes = ops
            .iter()
            .flat_map(|op| diff.iter_changes(op).map(move |change| (op, change)));
        for (op, change) in changes {
            if text.len() > LONGEST {
                text.push_str("... (the rest of the diff is not shown)\n");
                return text;
            }
            let apart = apart(op, &change, (&old, &new));
            let shown = shown(change.value(), apart, secrets);
            push_line(&mut text, &change, &shown);
        }
    }
    text
}

/// The heading of a hunk. `before`: how many lines precede what is compared. `grown`: by how many lines the hunks
/// so far made the new text longer; this hunk is added to it.
///
/// `similar` moves insertions and deletions to join them with others, and then leaves the index into the other text
/// (the old one of an insertion, the new one of a deletion) as it was. So that index is worked out from `grown`.
fn heading(ops: &[DiffOp], before: usize, grown: &mut isize) -> String {
    let Some(first) = ops.first() else {
        return String::new();
    };
    let (old, new) = match first {
        DiffOp::Insert { new_index, .. } => (new_index.saturating_add_signed(-*grown), *new_index),
        DiffOp::Equal { old_index, .. }
        | DiffOp::Delete { old_index, .. }
        | DiffOp::Replace { old_index, .. } => {
            (*old_index, old_index.saturating_add_signed(*grown))
        }
    };
    let old_lines: usize = ops.iter().map(|op| op.old_range().len()).sum();
    let new_lines: usize = ops.iter().map(|op| op.new_range().len()).sum();
    *grown += new_lines as isize - old_lines as isize;
    let range = |start: usize, lines: usize| match (before + start, lines) {
        // By the line before it.
        (start, 0) => format!("{start},0"),
        (start, 1) => format!("{}", start + 1),
        (start, _) => format!("{},{lines}", start + 1),
    };
    format!(
        "@@ -{} +{} @@\n",
        range(old, old_lines),
        range(new, new_lines)
    )
}

/// What is shown of a line, of which so many bytes are not what is to be seen.
fn shown(line: &str, apart: usize, secrets: &Secrets) -> String {
    let line = line.strip_suffix('\n').unwrap_or(line);
    let parts = line.split_at(line.floor_char_boundary(apart));
    around(parts, LONGEST_LINE, secrets)
}

fn push_line(text: &mut String, change: &Change<&str>, shown: &str) {
    text.push_str(&change.tag().to_string());
    text.push_str(shown);
    text.push('\n');
    if !change.value().ends_with('\n') {
        text.push_str("\\ No newline at end of file\n");
    }
}

/// How many bytes of a changed line are as they were, or stay as they are, at its beginning: of a long one that is
/// not what is to be seen.
fn apart(op: &DiffOp, change: &Change<&str>, (old, new): (&[&str], &[&str])) -> usize {
    let &DiffOp::Replace {
        old_index,
        old_len,
        new_index,
        new_len,
    } = op
    else {
        return 0;
    };
    let line = change.value();
    if line.len() <= LONGEST_LINE {
        return 0;
    }
    // The line in its place, if there is one.
    let partner = match (change.old_index(), change.new_index()) {
        (Some(at), None) => new[new_index..new_index + new_len].get(at - old_index),
        (None, Some(at)) => old[old_index..old_index + old_len].get(at - new_index),
        (Some(_), Some(_)) | (None, None) => None,
    };
    let is_same = |(a, b): &(u8, u8)| a == b;
    let common = |other: &&str| line.bytes().zip(other.bytes()).take_while(is_same).count();
    partner.map_or(0, common)
}

/// What is the same at both ends of two texts, less the lines that are shown with a change: most
/// edits change little of much, and to compare all of it may take seconds.
struct Same {
    /// How many bytes that are at the start.
    start: usize,
    /// How many lines these are.
    lines: usize,
    /// How many bytes that are at the end.
    end: usize,
}

impl Same {
    fn of(old: &str, new: &str) -> Self {
        let (old, new) = (old.as_bytes(), new.as_bytes());
        let is_same = |(old, new): &(&u8, &u8)| old == new;
        let common = old.iter().zip(new).take_while(is_same).count();
        let mut line_ends = memchr::memrchr_iter(b'\n', &old[..common]);
        // What is the same at the end must not reach into this.
        let apart = line_ends.next().map_or(0, |at| at + 1);
        let start = line_ends.nth(CONTEXT - 1).map_or(0, |at| at + 1);
        let backwards = old[apart..].iter().rev().zip(new[apart..].iter().rev());
        let common = backwards.take_while(is_same).count();
        let tail = &old[old.len() - common..];
        // The first of them ends a line that may have begun otherwise.
        let end = memchr::memchr_iter(b'\n', tail).nth(CONTEXT);
        Self {
            start,
            lines: memchr::memchr_iter(b'\n', &old[..start]).count(),
            end: end.map_or(0, |at| tail.len() - (at + 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unified(path: &str, old: Option<&str>, new: &str) -> String {
        super::unified(path, (old, new), &Secrets::default())
    }

    #[test]
    fn a_diff_says_what_diff_would() {
        let diff = unified("/a", Some("1\n2\n3\n4\n5\n6"), "1\n2\n3\n4\nfive\n6");
        let expected = "--- /a\n+++ /a\n@@ -2,5 +2,5 @@\n 2\n 3\n 4\n-5\n+five\n 6\n\\ No newline at end of file\n";
        assert_eq!(diff, expected);
        assert_eq!(unified("/a", Some("1\n"), "1\n"), "");
        assert!(unified("/a", None, "1\n").starts_with("--- /dev/null\n+++ /a\n"));
    }

    /// What `similar` would say of the whole of both.
    fn whole(old: &str, new: &str) -> String {
        let diff = TextDiff::from_lines(old, new);
        diff.unified_diff().header("f", "f").to_string()
    }

    proptest::proptest! {
        /// To leave out what is the same changes nothing, be there one change or several.
        #[test]
        fn what_is_the_same_may_be_left_out(
            before in "(a\n|b\n){0,12}", old in "[ab\n]{0,20}", new in "[ab\n]{0,20}", after in "(a\n|b\n){0,12}b?",
        ) {
            let [old, new] = [old, new].map(|middle| format!("{before}{middle}{after}"));
            let diff = unified("f", Some(&old), &new);
            let applied = apply(&old, &diff);
            proptest::prop_assert_eq!(applied, new.clone(), "{}", diff);
            if old == new {
                proptest::prop_assert_eq!(diff, whole(&old, &new));
            }
        }
    }

    #[test]
    fn what_is_deleted_at_the_end_is_where_it_was() {
        let old = "ébbbbbb\n\n\n\n\n\n\n\nbb";
        let new = old.replace('b', "\n");
        let diff = unified("f", Some(old), &new);
        assert_eq!(apply(old, &diff), new, "{diff}");
    }

    /// Where a hunk begins in one of the texts, by lines, and how many it has of that.
    fn range(text: &str) -> (usize, usize) {
        let (start, count) = text.split_once(',').unwrap_or((text, "1"));
        let number = |text: &str| text.parse::<usize>().expect("a number");
        let (start, count) = (number(start), number(count));
        (start - usize::from(count > 0), count)
    }

    /// What `patch` makes of a text and a difference, which must name its lines as they are.
    fn apply(old: &str, diff: &str) -> String {
        let old: Vec<&str> = old.split_inclusive('\n').collect();
        let (mut new, mut at) = (Vec::new(), 0);
        let lines: Vec<&str> = diff.split_inclusive('\n').skip(2).collect();
        // What is still to come of the hunk.
        let (mut old_lines, mut new_lines) = (0, 0);
        for (number, line) in lines.iter().enumerate() {
            let is_cut = lines
                .get(number + 1)
                .is_some_and(|next| next.starts_with('\\'));
            let text = if is_cut {
                line[1..].trim_end_matches('\n')
            } else {
                &line[1..]
            };
            match line.as_bytes()[0] {
                b'@' => {
                    assert_eq!((old_lines, new_lines), (0, 0), "{diff}");
                    let mut ranges = line[4..].split([' ', '+']).filter(|part| !part.is_empty());
                    let mut next = || range(ranges.next().expect("a range"));
                    let (from, to) = (next(), next());
                    (old_lines, new_lines) = (from.1, to.1);
                    new.extend(&old[at..from.0]);
                    assert_eq!(new.len(), to.0, "{diff}");
                    at = from.0;
                }
                b'+' => {
                    new_lines -= 1;
                    new.push(text);
                }
                b'\\' => {}
                tag => {
                    assert_eq!(old[at], text, "{diff}");
                    (at, old_lines) = (at + 1, old_lines - 1);
                    if tag == b' ' {
                        new_lines -= 1;
                        new.push(text);
                    }
                }
            }
        }
        assert_eq!((old_lines, new_lines), (0, 0), "{diff}");
        new.extend(&old[at..]);
        new.concat()
    }

    #[test]
    fn of_a_long_line_the_change_is_shown() {
        let line = |word: &str| format!("{{{}{word}{}}}", "x".repeat(9000), "y".repeat(9000));
        let (old, new) = (line("éold"), line("ènew"));
        for end in ["", "\n"] {
            let [old, new] = [&old, &new].map(|line| format!("first\n{line}{end}"));
            let diff = unified("/a", Some(&old), &new);
            assert!(
                diff.contains("-(cut) ...xx") && diff.contains("+(cut) ...xx"),
                "{diff}"
            );
            assert!(
                diff.contains("xéoldyy") && diff.contains("xènewyy"),
                "{diff}"
            );
            assert_eq!(diff.matches("y... (cut)\n").count(), 2, "{diff}");
            assert_eq!(
                diff.matches("\n\\ No newline").count(),
                2 * usize::from(end.is_empty())
            );
        }
    }

    #[test]
    fn a_long_one_is_cut_at_a_line() {
        let diff = unified("/a", None, &"line\n".repeat(100_000));
        assert!(diff.len() <= LONGEST + 100, "{}", diff.len());
        let line = unified("/a", None, &"x".repeat(1 << 20));
        assert!(line.len() <= LONGEST_LINE + 100, "{}", line.len());
        assert!(diff.ends_with("\n+line\n... (the rest of the diff is not shown)\n"));
    }
}

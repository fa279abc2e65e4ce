use std::time::{Duration, Instant};

use super::Work;

/// How many lines are told.
const TOLD: usize = 3;

/// How long lines are compared, which is time that the caller waits to hear of a mistake.
const TIME: Duration = Duration::from_millis(300);

/// How much of a line is compared and told, in characters.
const LONGEST: usize = 200;

/// How alike a line must be to be of use: below, two lines of one language are.
const ALIKE: f64 = 0.5;

/// The lines of a text that are most like the first line of a pattern, best first, with their
/// numbers.
pub(super) fn nearest(pattern: &str, text: &str, work: &Work<'_>) -> Vec<(usize, String)> {
    let Some(wanted) = pattern.lines().map(trimmed).find(|line| !line.is_empty()) else {
        return Vec::new();
    };
    let until = Instant::now() + TIME;
    let mut best: Vec<(f64, usize, &str)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if number % 256 == 0 && ((work.should_stop)() || Instant::now() > until) {
            break;
        }
        let line_trimmed = trimmed(line);
        let score = match line_trimmed.contains(&wanted) {
            // Something else about the pattern is wrong: a space, or its next line.
            true => 2.0,
            false => strsim::sorensen_dice(&wanted, &line_trimmed),
        };
        if score < ALIKE {
            continue;
        }
        let at = best.partition_point(|(other, _, _)| *other >= score);
        if at < TOLD {
            best.insert(at, (score, number, line));
            best.truncate(TOLD);
        }
    }
    best.into_iter()
        .map(|(_, number, line)| {
            // Masked before it is cut: what is left of a secret nobody would recognise.
            let line = work.secrets.mask_text(line);
            (number, line.chars().take(LONGEST).collect())
        })
        .collect()
}

fn trimmed(line: &str) -> String {
    line.trim().chars().take(LONGEST).collect()
}

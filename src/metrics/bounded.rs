use std::borrow::Cow;
use std::collections::HashSet;

use parking_lot::Mutex;

/// How many values a label may take that others have a say in: each makes a series of its own, for
/// as long as the daemon runs, here and in whatever keeps them. More than a policy has rules or a
/// daemon tools; what comes after them is [`OTHER`].
pub(super) const MOST: usize = 100;

/// How long such a value may be, in characters.
const LONGEST: usize = 120;

/// Stands for all values that are too many.
const OTHER: &str = "other";

/// The values of a label that are not the program's own: the first so many.
#[derive(Debug, Default)]
pub(super) struct Bounded(Mutex<HashSet<String>>);

impl Bounded {
    /// What is to be the label's value for `value`.
    pub(super) fn label<'a>(&self, value: &'a str) -> Cow<'a, str> {
        let value = shortened(value);
        let mut known = self.0.lock();
        if known.contains(value.as_ref()) {
            return value;
        }
        if known.len() >= MOST {
            return Cow::Borrowed(OTHER);
        }
        known.insert(value.clone().into_owned());
        value
    }
}

fn shortened(value: &str) -> Cow<'_, str> {
    // A character has a byte at least, which is counted faster.
    if value.len() <= LONGEST || value.chars().nth(LONGEST).is_none() {
        return Cow::Borrowed(value);
    }
    let begin: String = value.chars().take(LONGEST - 1).collect();
    Cow::Owned(format!("{begin}…"))
}

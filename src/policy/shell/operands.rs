//! Which words of a command its programs work with: no commands, whatever they come to.

use std::borrow::Cow;

use super::super::glob::UNKNOWN_WORDS;
use super::super::paths::base_name;
use super::remote::{command_elsewhere, keeps_its_words};
use super::shells::{is_shell, seen_by_script};
use super::text::is_known;
use super::wrappers::{Wrapped, is_wrapper, may_run, values_of_wrapper};

/// Wrappers of which all options are known: those without a value. What stands behind the command is its own.
const EXACT: &[(&[&str], &[&str])] = &[
    (&["env"], &["-", "-i", "-v"]),
    (&["sudo"], &["-E", "-H", "-S", "-b", "-k", "-n"]),
    (&["exec"], &["-c", "-l"]),
    (&["timeout"], &["--foreground", "--preserve-status", "-v"]),
    (&["time"], &["-p", "-v"]),
    (&["setsid"], &["-w", "--wait"]),
    (&["npx", "pnpx"], &["-q", "--quiet", "-y", "--yes"]),
    (&["bunx", "ionice", "nice", "nohup", "stdbuf", "uvx"], &[]),
];

/// Wrappers that run a program out of a package.
pub(super) const RUN_PACKAGES: [&str; 4] = ["bunx", "npx", "pnpx", "uvx"];

/// What is known of the words of a command, in which others may be.
pub(super) struct Operands {
    /// Whether of all programs so far it is known where the command begins that they run, if they run one.
    is_exact: bool,
    has_find: bool,
    /// Whether a word that is not known was looked at as what may be a command.
    is_behind_unknown: bool,
    is_data: Vec<bool>,
    /// Which are programs that are run elsewhere.
    is_program: Vec<bool>,
}

impl Operands {
    /// Of so many words.
    pub(super) fn new(count: usize) -> Self {
        Self {
            is_exact: true,
            has_find: false,
            is_behind_unknown: false,
            is_data: vec![false; count],
            is_program: vec![false; count],
        }
    }

    /// Learns of the program `name`, whose `words` begin at `start`, and which runs what is `inner`. Answers the words that
    /// are its own.
    pub(super) fn learn<'w>(
        &mut self,
        start: usize,
        name: &str,
        words: &'w [String],
        inner: &[Wrapped],
    ) -> Cow<'w, [String]> {
        let mut own = Cow::Borrowed(words);
        // Words before the command that it runs, and behind that those which are data where they are not known. Where it
        // is not known that a program is one, nothing is.
        let (mut begin, mut data) = (0, 0..0);
        if !self.is_exact {
            self.has_find |= name == "find";
        } else if is_exact(name, words, inner) {
            begin = inner[0].0.min(words.len());
            own = Cow::Owned(own_words(name, words, begin));
        } else if let Some(found) = command_elsewhere(name, words) {
            begin = found;
            self.is_exact = words.get(begin).is_none_or(|word| runs_nothing(word));
            if let Some(program) = self.is_program.get_mut(start + begin) {
                *program = true;
            }
            if self.is_exact {
                data = begin + 1..words.len();
            }
        } else if name == "find" {
            self.has_find = true;
        } else if !inner.is_empty()
            || !is_known(name)
            || is_shell(name)
            || may_run(name) && !keeps_its_words(name, words)
        {
            if let Some(behind) = seen_by_script(name, &words[1..]) {
                data = 1 + behind..words.len();
            }
            self.is_exact = false;
        } else {
            data = 1..words.len();
        }
        let data = data.filter(|at| !is_known(&words[*at]));
        for at in (1..begin).chain(data) {
            self.is_data[start + at] = true;
        }
        own
    }

    /// Whether the word at `at` is an operand.
    pub(super) fn has(&self, words: &[String], at: usize) -> bool {
        if self.is_program[at] {
            return false;
        }
        if self.is_data[at] && !self.has_find {
            return true;
        }
        // One that is behind words that are known is neither an option of find's nor what such an option has run.
        let is_word = !is_known(&words[at]) && !words[at].contains(UNKNOWN_WORDS);
        self.is_exact && is_word && is_known(&words[at - 1])
    }

    /// The word was looked at as what may be a command.
    pub(super) fn pass(&mut self, word: &str) {
        let name = base_name(word);
        let may_run_next = may_run(name) || is_shell(name) || is_wrapper(name);
        // What is not known before it may have been an option of find's which has this one run.
        self.is_exact &= !(self.is_behind_unknown && may_run_next);
    }

    /// A word was passed over or looked at.
    pub(super) fn pass_over(&mut self, word: &str) {
        self.is_behind_unknown |= !is_known(word);
    }
}

/// Whether it is known where the only command in these words begins, whatever is unknown in them.
fn is_exact(name: &str, words: &[String], inner: &[Wrapped]) -> bool {
    let (Some(values), [(begin, _)]) = (values_of_wrapper(name), inner) else {
        return false;
    };
    let Some((_, flags)) = EXACT.iter().find(|(names, _)| names.contains(&name)) else {
        return false;
    };
    let mut own = words[..(*begin).min(words.len())].windows(2);
    own.all(|pair| {
        let (before, word) = (pair[0].as_str(), pair[1].as_str());
        if !is_known(word) {
            let name = word.split_once('=').map_or(word, |(name, _)| name);
            let is_value = values.contains(&before) || is_known(name);
            return is_value && !word.contains(UNKNOWN_WORDS);
        }
        // `-oL`, but no group of letters that have no value.
        let has_value = values.iter().any(|value| word.starts_with(value));
        let is_option = word.starts_with('-') && word != "--";
        !is_option || flags.contains(&word) || has_value
    })
}

/// Those that are the wrapper's own, without the values of which something is known only when it runs. What it runs out of a
/// package may be given scripts, and nobody knows which program that is.
fn own_words(name: &str, words: &[String], begin: usize) -> Vec<String> {
    // A variable has its name, and so has the program, if it stands behind a directory.
    let is_kept = |at: usize, word: &str| match at < begin {
        true => at == 0 || is_known(word) || word.contains('='),
        false => RUN_PACKAGES.contains(&name) && is_known(word),
    };
    let own = words.iter().enumerate();
    let kept = own.filter(|(at, word)| is_kept(*at, word));
    kept.map(|(_, word)| word.clone()).collect()
}

/// Whether a program is known to run nothing of what its words say.
pub(super) fn runs_nothing(program: &str) -> bool {
    let name = base_name(program);
    let is_name = is_known(name) && !program.starts_with('-');
    is_name && !may_run(name) && !is_shell(name) && !is_wrapper(name)
}

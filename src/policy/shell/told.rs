//! Options and settings that a script keeps in variables or makes of braces: what programs may be told by `$x`.
//!
//! Which variable a word is made of is not followed. Whatever may be an option or a setting is tried in the place of each
//! word that is known only when it runs, of programs that run what those name.

use std::collections::BTreeSet;

use super::super::glob::{INNER_BLANK, UNKNOWN, UNKNOWN_WORDS};
use super::super::paths::base_name;
use super::hazards::{is_listed, runs_elsewhere};
use super::loose::Reader;
use super::shells::is_shell;
use super::text::is_known;
use super::walk::Walk;
use super::wrappers::name_of;

/// How many texts are kept, and how many commands that may be told one. Of more it is not known what is run.
const MAX_KEPT: usize = 1024;

/// How many commands are looked at with something in the place of what is not known.
const MAX_TRIES: usize = 2048;

/// How often what is found so may have others in it.
const MAX_ROUNDS: usize = 4;

#[derive(Default)]
pub(super) struct Told {
    /// What variables are set to, functions are given, and braces become.
    texts: BTreeSet<String>,
    /// Commands with a word of which a part is not known.
    commands: BTreeSet<Vec<String>>,
    /// Whether there were more.
    is_more: bool,
    /// Whether what is looked at now is one of them.
    is_trying: bool,
}

impl Told {
    /// Keeps a text that some word may become, or a part of one.
    pub(super) fn keep(&mut self, text: &str) {
        if text.contains('\n') {
            // One of its lines, as `read` and `mapfile` take them.
            text.lines().for_each(|line| self.keep(line));
        }
        if is_known(text) && !text.is_empty() && !self.texts.contains(text) {
            self.is_more |= self.texts.len() == MAX_KEPT;
            self.texts.extend((!self.is_more).then(|| text.to_owned()));
        }
    }

    /// Keeps a command of the program `name`, if it may be told something that it does not say itself.
    pub(super) fn keep_command(&mut self, name: &str, words: &[String]) {
        let is_open = || words.iter().skip(1).any(|word| !is_known(word));
        if !self.is_trying && is_listed(name) && is_open() && !self.commands.contains(words) {
            self.is_more |= self.commands.len() == MAX_KEPT;
            self.commands
                .extend((!self.is_more).then(|| words.to_vec()));
        }
    }
}

impl Reader {
    /// Reads what programs run that are told what variables say, or what braces become.
    pub(super) fn told(&mut self) -> Walk {
        if self.told.commands.is_empty() || self.is_over() {
            return Ok(());
        }
        self.keep_arguments();
        let mut tries = 0;
        let mut is_more = self.told.is_more;
        for _ in 0..MAX_ROUNDS {
            let commands = std::mem::take(&mut self.told.commands);
            let texts = self.told.texts.clone();
            for words in commands {
                let open = (1..words.len()).filter(|at| !is_known(&words[*at]));
                for (at, text) in open.flat_map(|at| texts.iter().map(move |text| (at, text))) {
                    if !may_tell(&words[at], text) {
                        continue;
                    }
                    tries += 1;
                    if tries > MAX_TRIES || self.is_over() {
                        self.unknown();
                        return Ok(());
                    }
                    self.told_so(&words, at, text)?;
                }
            }
        }
        is_more |= !self.told.commands.is_empty();
        if is_more && !self.told.texts.is_empty() {
            self.unknown();
        }
        Ok(())
    }

    /// Reads what a command runs with `text` in the place of what is not known of its word `at`.
    fn told_so(&mut self, words: &[String], at: usize, text: &str) -> Walk {
        let (before, behind) = words.split_at(at);
        let mut told = before.to_vec();
        let is_word = !words[at].contains(UNKNOWN_WORDS);
        let inner = text.replace(' ', &INNER_BLANK.to_string());
        let text = if is_word { &inner } else { text };
        let name = name_of(&words[0]).to_owned();
        let put = words[at].replace([UNKNOWN, UNKNOWN_WORDS], text);
        told.extend(put.split(' ').map(str::to_owned));
        // What stands where an option is not is a host or a container, and the rest its command, mostly.
        let kept = usize::from(!runs_elsewhere(&name));
        told.extend_from_slice(&behind[kept..]);
        let mut nested = Vec::new();
        self.told.is_trying = true;
        self.named(&name, &told, false, None, &mut nested);
        self.told.is_trying = false;
        self.all(&nested, false)
    }

    /// Keeps what functions and shells are given, and what the script gives itself.
    fn keep_arguments(&mut self) {
        /// So much takes as long as the rest of a long script does. Of more it is not known what it is for.
        const MAX_BYTES: usize = 256 * 1024;
        let mut bytes = 0;
        for command in &self.reading.commands {
            let mut words = command.text().split(' ');
            let name = words.next().unwrap_or_default();
            // `set -e` gives nothing.
            let is_option =
                |word: &&str| word.starts_with(['-', '+']) && !matches!(*word, "-" | "--");
            let words: Vec<&str> = match name {
                "set" => words.skip_while(is_option).collect(),
                name if is_shell(base_name(name)) => words.collect(),
                name if self.functions.iter().any(|one| one == name) => words.collect(),
                _ => continue,
            };
            bytes += command.text().len();
            if bytes > MAX_BYTES {
                self.told.is_more = true;
                return;
            }
            self.told.keep(&words.join(" "));
            words.iter().for_each(|word| self.told.keep(word));
        }
    }
}

/// Whether a word may be an option or a setting with a text in the place of what is not known of it.
fn may_tell(word: &str, text: &str) -> bool {
    let is_one = |word: &str| word.starts_with('-') || word.contains('=');
    let may_be_words = word.contains(UNKNOWN_WORDS);
    let mut words = text.split([' ', INNER_BLANK, '\t', '\n']);
    let known = word.split([UNKNOWN, UNKNOWN_WORDS]).next();
    match known.unwrap_or_default() {
        // The value of one whose name is known: what is not known of that was looked at.
        name if name.contains('=') => may_be_words && words.skip(1).any(is_one),
        _ => words.any(is_one) || is_one(word),
    }
}

/// The words that braces make of one: `{-I,program}`, `{,-}I`. Of what is quoted in it nothing is known here. `None` for
/// more, or more of them, than anybody writes.
pub(super) fn expanded(text: &str) -> Option<Vec<String>> {
    const MAX_BYTES: usize = 1024;
    const MAX_BRACES: usize = 8;
    const MAX_WORDS: usize = 64;
    if text.len() > MAX_BYTES || text.matches('{').count() > MAX_BRACES {
        return None;
    }
    let mut words = vec![text.to_owned()];
    let mut at = 0;
    while at < words.len() {
        match alternatives(&words[at]) {
            Some(alternatives) => drop(words.splice(at..=at, alternatives)),
            None => at += 1,
        }
        if words.len() > MAX_WORDS {
            return None;
        }
    }
    Some(words)
}

/// What the first braces of a word that have a comma in them make of it.
fn alternatives(word: &str) -> Option<Vec<String>> {
    word.match_indices('{').find_map(|(open, _)| {
        let mut depth = 0_usize;
        let mut commas = vec![open];
        let signs = word.match_indices(['{', '}', ',']);
        for (at, sign) in signs.filter(|(at, _)| *at >= open) {
            match sign {
                "{" => depth += 1,
                "," if depth == 1 => commas.push(at),
                "}" if depth == 1 && commas.len() > 1 => {
                    commas.push(at);
                    let (before, behind) = (&word[..open], &word[at + 1..]);
                    let between = commas.windows(2).map(|pair| &word[pair[0] + 1..pair[1]]);
                    let words = between.map(|one| format!("{before}{one}{behind}"));
                    return Some(words.collect());
                }
                "}" if depth == 1 => return None,
                "}" => depth -= 1,
                _ => {}
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_make_words() {
        for (text, words) in [
            ("{-I,a}", &["-I", "a"][..]),
            ("{,-}Ia", &["Ia", "-Ia"]),
            ("x{a,{b,c}d}y", &["xay", "xbdy", "xcdy"]),
            ("{a}{b,c}", &["{a}b", "{a}c"]),
            ("{a,b}{c,d}", &["ac", "ad", "bc", "bd"]),
            ("{a", &["{a"]),
            ("{{a,b}", &["{a", "{b"]),
            ("{}", &["{}"]),
        ] {
            let expanded = expanded(text).expect("few");
            assert_eq!(expanded, words, "{text:?}");
        }
        for much in [
            "{a,b}".repeat(7),
            "{".repeat(60_000) + "=,}",
            "{a,b}".to_owned() + &"x".repeat(2000),
        ] {
            assert_eq!(expanded(&much), None);
        }
    }
}

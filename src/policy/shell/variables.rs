//! What variables are set to, by a script or for it: programs read commands there.

use super::super::glob::{UNKNOWN, UNKNOWN_WORDS};
use super::super::paths::base_name;
use super::hidden::hidden;
use super::inner::with_options;
use super::loose::{Nested, Reader, opens, reads_variable, redefines};
use super::shells::{is_input, is_shell};
use super::text::{flatten_unquoted, is_known, literal, plain};
use super::walk::{Given, Walk};
use super::{Command, Shell};

/// The longest value of a variable that is tried as a command, in bytes.
const MAX_VALUE_BYTES: usize = 4096;

/// How many variables, or values of one, are looked at before it is not known what they are.
pub(super) const MAX_SET: usize = 32;

/// Who sees what a variable is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// The script alone, unless it is exported.
    Script,
    /// Programs as well.
    Programs,
}

impl Reader {
    /// Looks at what a variable is set to.
    pub(super) fn set(&mut self, name: &str, text: &str, scope: Scope, certain: bool) -> Walk {
        self.all(&hidden(text), certain)?;
        if redefines(text) {
            self.unknown();
        }
        self.read_by_bash(name, text);
        self.may_be_recoded |= recodes(name, text);
        if is_known(text) && text.contains('/') && is_input(text) {
            // BASH_ENV=/dev/stdin.
            self.unknown();
        }
        self.told.keep(&plain(text));
        self.passes_on |= scope == Scope::Programs && !is_known(text);
        let before = self.reading.commands.len();
        self.value(name, text, certain)?;
        if scope == Scope::Script && !self.is_exported(name) {
            // `pattern='[0-9]+'`: where a command is made of it, that is asked about.
            let found = self.reading.commands.split_off(before);
            let (known, unknown) = found.into_iter().partition(Command::is_known);
            self.reading.commands.extend::<Vec<Command>>(known);
            self.withheld.extend::<Vec<Command>>(unknown);
        }
        Ok(())
    }

    /// Whether programs may see what a variable of that name is set to although nothing exports it here.
    fn is_exported(&self, name: &str) -> bool {
        let is_own = !is_read_by_programs(name);
        !is_own && (self.depth > 1 || self.exported.contains(name) || may_be_exported(name))
    }

    /// Looks at what bash reads itself.
    fn read_by_bash(&mut self, name: &str, text: &str) {
        if name == "PS4" && (!is_known(text) || flatten_unquoted(&plain(text)).is_err()) {
            // It is expanded, and of a prompt with an error what stands before that.
            self.unknown();
        }
        let is_file = is_known(text) && text.starts_with('/');
        if name == "BASH_ENV" && !text.is_empty() && !is_file {
            // A file that bash reads before its script, wherever that is.
            self.unknown();
        }
    }

    /// Looks at a variable in the words of a command that sets some, to something of which a part is known only when
    /// it runs, and adds the script that it may be to `nested`. Says whether the word is such a one.
    pub(super) fn set_in_words(&mut self, word: &str, nested: &mut Vec<Nested>) -> bool {
        let Some((name, text)) = assignment(word) else {
            return false;
        };
        // In parentheses are the values of an array, which are expanded once more.
        if is_known(text) || text.starts_with('(') {
            return false;
        }
        self.read_by_bash(name, text);
        if is_read_by_programs(name) {
            nested.extend(self.unknown_value(&plain(text)));
        }
        true
    }

    /// Looks at what built-ins set variables to: `printf -v NAME`, `read NAME <<< TEXT`.
    pub(super) fn set_by(&mut self, words: &[String], given: &Given, certain: bool) -> Walk {
        let Some(at) = words
            .iter()
            .position(|word| word == "printf" || reads_variable(word))
        else {
            return Ok(());
        };
        let (before, behind) = words[at..].split_at(1);
        let is_unknown = |word: &String| !is_known(word);
        let may_be_any = match before[0].as_str() {
            "printf" => {
                let sets = behind.first().is_some_and(|word| word.starts_with("-v"));
                sets && behind.iter().take(2).any(is_unknown)
            }
            _ => behind.iter().any(is_unknown),
        };
        // It may be POSIXLY_CORRECT.
        self.may_be_posix |= may_be_any;
        let texts = given.texts().chain(behind);
        texts.for_each(|text| self.told.keep(&plain(text)));
        if before[0] != "printf" {
            let mut names = behind.iter().filter(|word| is_read_by_programs(word));
            for name in names.by_ref().take(MAX_SET) {
                let mut texts = given.texts();
                texts.try_for_each(|text| self.set(name, text, Scope::Script, certain))?;
                let own = self.input.as_deref().filter(|_| given.input.is_none());
                if let Some(own) = own.map(literal) {
                    self.set(name, &own, Scope::Script, false)?;
                }
            }
            if names.next().is_some() {
                self.unknown();
            }
            return Ok(());
        }
        let name = match behind.first().and_then(|word| word.strip_prefix("-v")) {
            Some("") => behind.get(1).map(String::as_str),
            attached => attached,
        };
        match name.filter(|name| is_read_by_programs(name)) {
            // Which of them it is, the format says.
            Some(name) => {
                if behind.len() > MAX_SET {
                    self.unknown();
                }
                let mut texts = behind[1..].iter().take(MAX_SET);
                texts.try_for_each(|text| self.set(name, text, Scope::Script, false))
            }
            None => Ok(()),
        }
    }

    /// The value of a variable as a command: PAGER=rm, or X=rm; $X.
    fn value(&mut self, name: &str, text: &str, certain: bool) -> Walk {
        // Others are known when they are expanded, or not.
        let is_own = !is_read_by_programs(name);
        // LESSOPEN='|rm %s' is read from, with a `-` for standard input as well. Elsewhere that begins an option.
        let signs: &[char] = match name {
            "LESSOPEN" => &['|', '-'],
            _ => &['|'],
        };
        let command = plain(text);
        let command = command.trim_start_matches(signs);
        if let Some(options) = with_options(name, text) {
            self.nested(&options, certain)?;
        }
        if text.len() > MAX_VALUE_BYTES {
            if !is_own {
                self.unknown();
            }
        } else if !is_known(text) {
            if !is_own && let Some(script) = self.unknown_value(command) {
                self.nested(&script, false)?;
            }
        } else if !text.is_empty() {
            let value = Nested {
                shell: (!is_own).then_some(Shell::Posix),
                ..Nested::new(command.to_owned(), false)
            };
            self.nested(&value, false)?;
        }
        Ok(())
    }

    /// Adds the commands of a value with something in it that is not known, and answers it as the script that it may be.
    /// What the first word is has to be known: most of them are no commands.
    pub(super) fn unknown_value(&mut self, text: &str) -> Option<Nested> {
        // It is parted into words only where it is used.
        let text = text.replace(UNKNOWN, &UNKNOWN_WORDS.to_string());
        for piece in text.split([';', '|', '&', '(', ')', '`', '\n']) {
            // What is set before a command, or opened, is none of it.
            let is_before = |word: &str| assignment(word).is_some() || word.contains(['<', '>']);
            let words = piece.split_whitespace();
            let words = words.skip_while(|word| !is_known(word) || opens(word) || is_before(word));
            let words: Vec<String> = words.map(str::to_owned).collect();
            self.wrapped(&words);
        }
        // Words of it are quoted, some of which may be a script for another shell.
        text.contains(['\'', '"', '\\']).then(|| Nested {
            shell: Some(Shell::Posix),
            ..Nested::new(text.replace([UNKNOWN, UNKNOWN_WORDS], "x"), false)
        })
    }
}

/// The name and the value in a word that sets a variable.
pub(super) fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let name = name.strip_suffix('+').unwrap_or(name);
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_name = !name.is_empty() && name.chars().all(is_of_name);
    is_name.then_some((name, value))
}

/// Whether a variable of that name may be one that programs read: those are in capitals.
pub(super) fn is_read_by_programs(name: &str) -> bool {
    !name.contains(|c: char| c.is_ascii_lowercase())
}

/// Whether a variable of that name may be in the environment of a script: those that the daemon sets, and those that
/// programs read commands from, which an operator may have set.
fn may_be_exported(name: &str) -> bool {
    const NAMES: [&str; 11] = [
        "_", "CC", "CXX", "HOME", "IFS", "LANG", "LOGNAME", "TERM", "USER", "VISUAL", "ZIP",
    ];
    const PARTS: [&str; 20] = [
        "BASH", "BROWSER", "CMD", "COMMAND", "EDITOR", "ENV", "EXEC", "FLAGS", "GIT", "HOOK",
        "LESS", "MAKE", "OPEN", "OPT", "PAGER", "PATH", "PROG", "RUN", "SH", "TOOL",
    ];
    NAMES.contains(&name)
        || ["LD_", "PROMPT", "PS"]
            .iter()
            .any(|begin| name.starts_with(begin))
        || PARTS.iter().any(|part| name.contains(part))
}

/// Whether a command may let programs see variables that are set elsewhere: `export X`, `set -a`, `declare -x X`, `env X="$Y"`.
pub(super) fn exports(command: &str) -> bool {
    let words: Vec<&str> = command.split(' ').collect();
    let passes_on = |word: &&str| assignment(word).is_some_and(|(_, value)| !is_known(value));
    if !words.first().is_some_and(|name| declares(name)) && words.iter().any(passes_on) {
        return true;
    }
    let has = |names: &[&str]| words.iter().any(|word| names.contains(word));
    let has_option = |letter| {
        let mut options = words.iter().take_while(|word| **word != "--");
        options.any(|word| {
            let is_group = word.starts_with(['-', '+']) && word.contains(letter);
            is_group || word.starts_with([UNKNOWN, UNKNOWN_WORDS])
        })
    };
    has(&["export", "allexport"])
        || has(&["declare", "local", "typeset"]) && has_option('x')
        || (has(&["set"]) || words.iter().any(|word| is_shell(base_name(word)))) && has_option('a')
}

/// Whether a text names a variable that bash expands itself, or one with a file that it runs; also once `read` has taken
/// its backslashes.
pub(super) fn names_own(text: &str) -> bool {
    let has_name = |text: &str| ["PS4", "BASH_ENV"].iter().any(|name| text.contains(name));
    has_name(text) || text.contains('\\') && has_name(&text.replace('\\', ""))
}

/// Whether what a variable is set to may have bash take its script for another encoding than UTF-8.
pub(super) fn recodes(name: &str, value: &str) -> bool {
    let names_locale = matches!(name, "LANG" | "LC_ALL" | "LC_CTYPE");
    let is_usual = || {
        let lower = value.to_ascii_lowercase();
        matches!(value, "" | "C" | "POSIX") || lower.ends_with(".utf-8") || lower.ends_with(".utf8")
    };
    names_locale && !is_usual()
}

/// Whether a command may have a variable stand for the one that another text names: `declare -n`.
pub(super) fn refers(words: &[String]) -> bool {
    let behind = |is: &dyn Fn(&str) -> bool| {
        let at = words.iter().position(|word| is(word));
        at.map_or(&[][..], |at| &words[at + 1..])
    };
    let is_option = |word: &String| word.starts_with('-') && word.contains('n');
    let may_be_option = |word: &String| is_option(word) || !is_known(word) && !word.contains('=');
    // Of what is not known, one may be such a command or its option, and not both.
    behind(&declares).iter().any(may_be_option)
        || behind(&|word| !is_known(word)).iter().any(is_option)
}

/// Whether a command is a built-in for variables, in whose words arrays may be set.
pub(super) fn declares(name: &str) -> bool {
    matches!(
        name,
        "declare" | "export" | "local" | "readonly" | "typeset"
    )
}

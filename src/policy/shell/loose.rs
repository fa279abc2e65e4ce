//! The reader that refuses. It finds every command that a script may run, rather one too many:
//! nested scripts (`bash -c`, `eval`, substitutions) are read in turn.

use std::collections::BTreeSet;

use super::super::glob::{INNER_BLANK, UNKNOWN_WORDS};
use super::command::Joined;
use super::dialect::{Apart, names_extended, names_posix};
use super::fence::in_time;
use super::hazards::looks;
use super::hidden::{hidden, may_run};
use super::nested::takes_scripts;
use super::text::{joined, literal};
use super::told::Told;
use super::variables::{MAX_SET, Scope, assignment, exports, names_own};
use super::wrappers::Wrapped;
use super::{Command, Reading, Setting, Shell, Unreadable, bash, strict};

/// Scripts in scripts.
const MAX_DEPTH: usize = 16;

/// All text that is read for one script, in bytes: nested scripts are read again.
const MAX_TOTAL_BYTES: usize = 512 * 1024;

/// The longest script that is read without a thread of its own, in bytes.
const MAX_SIMPLE_BYTES: usize = 4096;

/// All commands found in one script, and the texts that may be scripts, in bytes: room for the
/// longest command behind a wrapper whose words are as long as names of files are.
const MAX_FOUND_BYTES: usize = 512 * 1024;

/// What each counts that shares the text of a longer one, and each script besides its text.
const ENTRY_BYTES: usize = 48;

/// Collects what a script and the scripts in it run.
pub(super) struct Reader {
    pub(super) reading: Reading,
    /// What the script is given as input, and whether it was read for a script: for certain, or
    /// as what may be one.
    pub(super) input: Option<String>,
    pub(super) input_read: Option<bool>,
    /// Whether that was looked at as what is read into a variable.
    pub(super) input_expanded: bool,
    /// Variables that it finds set.
    variables: Vec<(String, String)>,
    /// Those that programs see.
    pub(super) exported: BTreeSet<String>,
    /// Of the values of others, commands of which a part is not known. They are some once one is exported.
    pub(super) withheld: Vec<Command>,
    /// Whether a program is given something that is not known for the value of a variable.
    pub(super) passes_on: bool,
    /// What programs may be told by variables.
    pub(super) told: Told,
    /// Functions, and which commands are given which texts.
    pub(super) functions: Vec<String>,
    pub(super) fed: Vec<(String, String)>,
    /// Whether what is read now is run in a directory that is not known.
    pub(super) elsewhere: bool,
    /// Whether what is read now may have its input from a pipe.
    pub(super) is_piped: bool,
    /// Whether something is opened to be read that a write to a descriptor's name would open once more.
    pub(super) opens: bool,
    /// Whether the name of a descriptor is written to.
    pub(super) reopens: bool,
    /// Who reads what is read now.
    pub(super) shell: Shell,
    /// Whether bash may at some time be in POSIX mode, and whether there is something that it then has otherwise.
    pub(super) may_be_posix: bool,
    posix_matters: bool,
    /// The same of extended patterns.
    pub(super) may_be_extended: bool,
    extended_matters: bool,
    /// Whether a variable may stand for another, and whether one is named that bash reads itself.
    pub(super) may_refer: bool,
    pub(super) names_own: bool,
    /// Whether the script may have bash part bytes otherwise, and whether there are any of which that makes something else.
    pub(super) may_be_recoded: bool,
    is_beyond_ascii: bool,
    /// How many commands of git's are around what is looked at, by the names of their programs.
    pub(super) by_git: usize,
    pub(super) depth: usize,
    bytes: usize,
    /// Bytes of what was found.
    found: usize,
}

/// A text that some command takes for a script.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Nested {
    pub text: String,
    pub certain: bool,
    /// Whether it is run in a directory that is not known.
    pub elsewhere: bool,
    /// Who reads it; `None` where that is who reads what it was found in.
    pub shell: Option<Shell>,
}

impl Nested {
    /// One that is run where the script is in which it was found.
    pub(super) fn new(text: String, certain: bool) -> Self {
        Self {
            text,
            certain,
            elsewhere: false,
            shell: None,
        }
    }
}

/// Whether there is something in it that gives other words another meaning, wherever it stands.
pub(super) fn redefines(text: &str) -> bool {
    let names = [
        "BASH_ALIASES",
        "BASH_CMDS",
        "histexpand",
        "interactive_comments",
        "GIT_CONFIG_",
        "--config-env",
        "${PS4",
    ];
    names.iter().any(|name| text.contains(name))
}

/// Whether a character may be more than a part of a word to a shell, quotes aside.
fn is_sign(c: char) -> bool {
    "\n;&|<>()[]{}`$\\".contains(c)
}

/// Whether it is a built-in that reads its input into a variable.
pub(super) fn reads_variable(word: &str) -> bool {
    matches!(word, "mapfile" | "read" | "readarray")
}

/// Whether a command may follow a word of the shell's own.
pub(super) fn opens(word: &str) -> bool {
    matches!(
        word,
        "!" | "{" | "do" | "elif" | "else" | "if" | "then" | "until" | "while"
    )
}

/// Whether it begins what has other commands in it.
fn begins_compound(word: &str) -> bool {
    matches!(
        word,
        "case" | "coproc" | "for" | "function" | "if" | "select" | "until" | "while"
    )
}

impl Reader {
    pub(super) fn new(setting: Setting<'_>) -> Self {
        Self {
            reading: Reading::default(),
            input: setting.input.map(str::to_owned),
            input_read: None,
            input_expanded: false,
            variables: (setting.variables.iter())
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            exported: setting.variables.keys().cloned().collect(),
            withheld: Vec::new(),
            passes_on: false,
            told: Told::default(),
            functions: Vec::new(),
            fed: Vec::new(),
            elsewhere: false,
            is_piped: false,
            opens: false,
            reopens: false,
            shell: setting.shell,
            may_be_posix: false,
            posix_matters: false,
            may_be_extended: false,
            extended_matters: false,
            may_refer: false,
            names_own: false,
            may_be_recoded: false,
            is_beyond_ascii: false,
            by_git: 0,
            depth: 0,
            bytes: 0,
            found: 0,
        }
    }

    /// Reads a script of the simplest form, as are those in it; none when one is not.
    pub(super) fn read_simple(mut self, script: &str) -> Option<Reading> {
        let simple = self.variables.is_empty() && self.simple(script, true, 0);
        self.restore();
        (simple && !self.is_full()).then_some(self.reading)
    }

    /// Whether more was found than any script for people has: `sudo sudo sudo …` is a command
    /// in each of its words.
    pub(super) fn is_full(&self) -> bool {
        self.found > MAX_FOUND_BYTES
    }

    /// Whether no more is to be looked for: there is too much of it, or no time left.
    pub(super) fn is_over(&mut self) -> bool {
        if in_time().is_err() {
            self.found = MAX_FOUND_BYTES + 1;
        }
        self.is_full()
    }

    fn simple(&mut self, script: &str, certain: bool, depth: usize) -> bool {
        if script.len() > MAX_SIMPLE_BYTES || self.shell == Shell::Other {
            return false;
        }
        // Not every shell, nor bash in every mode, has these as they are read there.
        if script.contains(['!', '#']) || script.contains('"') && script.contains('\\') {
            return false;
        }
        let Ok(segments) = strict::read(script) else {
            return false;
        };
        let words = || segments.iter().flat_map(|segment| &segment.words);
        let reads_input = self.input.is_some() && words().any(|word| reads_variable(word));
        let sets =
            words().any(|word| word == "printf") && words().any(|word| word.starts_with("-v"));
        let is_hidden = words().any(|word| may_run(word) || names_own(word));
        let is_recoded = !script.is_ascii() && (script.contains("LANG") || script.contains("LC_"));
        if redefines(script) || reads_input || sets || is_hidden || is_recoded {
            return false;
        }
        segments.iter().all(|segment| {
            let words: Vec<String> = segment.words.iter().map(|word| literal(word)).collect();
            let settings = words.iter().filter_map(|word| assignment(word));
            // A template (`-o jsonpath={.items}`) is no command.
            let is_template = |value: &str| {
                let inside = value.strip_prefix('{');
                inside.is_some_and(|inside| !inside.starts_with(INNER_BLANK))
            };
            let mut settings = settings.filter(|(_, value)| !is_template(value));
            let scope = match words.iter().all(|word| assignment(word).is_some()) {
                true => Scope::Script,
                false => Scope::Programs,
            };
            if settings.any(|(name, value)| self.set(name, value, scope, certain).is_err()) {
                return false;
            }
            let nested = self.command(&words, certain, None);
            depth < 4
                && nested.iter().all(|nested| {
                    let shell = self.shell;
                    self.shell = nested.shell.unwrap_or(shell);
                    // What may be no script at all need not be a simple one.
                    let simple = self.simple(&nested.text, nested.certain && certain, depth + 1);
                    self.shell = shell;
                    simple
                })
        })
    }

    pub(super) fn read(mut self, script: &str) -> Result<Reading, Unreadable> {
        let variables = std::mem::take(&mut self.variables);
        if variables.len() > MAX_SET {
            self.unknown();
        }
        for (name, value) in variables.into_iter().take(MAX_SET) {
            if redefines(&name) {
                self.unknown();
            }
            self.set(&name, &literal(&value), Scope::Programs, false)?;
        }
        self.script(script, true)?;
        self.functions_fed()?;
        self.told()?;
        if self.opens && self.reopens {
            self.reading.writes.push(None);
        }
        let is_otherwise = self.may_be_posix && self.posix_matters
            || self.may_be_extended && self.extended_matters
            || self.may_refer && self.names_own
            || self.may_be_recoded && self.is_beyond_ascii;
        if is_otherwise {
            self.unknown();
        }
        self.restore();
        match self.is_full() {
            true => Err(Unreadable::TooMuch),
            false => Ok(self.reading),
        }
    }

    /// Adds what was withheld where something may be exported.
    fn restore(&mut self) {
        if self.withheld.is_empty() {
            return;
        }
        let mut last = None;
        let mut commands = self.reading.commands.iter();
        let exports = commands.any(|command| {
            // Behind a wrapper each word begins one.
            let is_part = last
                .replace(command)
                .is_some_and(|longer| command.ends(longer));
            !is_part && exports(command.text())
        });
        if self.passes_on || exports {
            self.reading.commands.append(&mut self.withheld);
        }
    }

    /// Reads `text` and adds what it runs.
    pub(super) fn script(&mut self, text: &str, certain: bool) -> Result<(), Unreadable> {
        self.depth += 1;
        self.bytes += text.len();
        in_time()?;
        if self.depth > MAX_DEPTH {
            return Err(Unreadable::TooDeep);
        }
        if self.bytes > MAX_TOTAL_BYTES {
            return Err(Unreadable::TooMuch);
        }
        // Lines that go on in the next may part a word; quotes that do are looked behind where words are.
        let joined = joined(text);
        // Nor need those part a word that is none of a command's, as in arithmetic.
        let bare = joined.replace(['"', '\'', '\\'], "");
        let says = |names: fn(&str) -> bool| names(&joined) || names(&bare);
        if says(redefines) || self.shell == Shell::Other {
            self.unknown();
        }
        self.may_be_posix |= says(names_posix);
        self.may_be_extended |= says(names_extended);
        self.is_beyond_ascii |= !text.is_ascii();
        let mut lines = bash::Lines::new(text);
        while let Some(line) = lines.next()? {
            self.extended_matters |= line.extended;
            self.walk(&line, certain)?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// Reads a text that may be a script. When it is none, it runs nothing that we could name.
    pub(super) fn nested(&mut self, nested: &Nested, certain: bool) -> Result<(), Unreadable> {
        if nested
            .text
            .contains([UNKNOWN_WORDS, super::super::glob::UNKNOWN])
        {
            self.unknown();
        }
        let depth = self.depth;
        let (elsewhere, shell) = (self.elsewhere, self.shell);
        self.elsewhere |= nested.elsewhere;
        self.shell = nested.shell.unwrap_or(shell);
        let read = match self.script(&nested.text, nested.certain && certain) {
            Err(Unreadable::Grammar) if !nested.certain => {
                self.depth = depth;
                self.begun(&nested.text)
            }
            Err(Unreadable::Ambiguous) if !nested.certain => {
                self.depth = depth;
                self.unknown();
                Ok(())
            }
            read => read,
        };
        (self.elsewhere, self.shell) = (elsewhere, shell);
        read
    }

    /// What is run of a text that is no script as a whole: lines before the one with the error, what stands before that,
    /// and what is quoted in it.
    fn begun(&mut self, text: &str) -> Result<(), Unreadable> {
        /// Of more lines nothing is known.
        const LINES: usize = 16;
        // With words and quotes alone it is none to anybody.
        if self.shell != Shell::Bash && text.contains(is_sign) {
            self.unknown();
            return Ok(());
        }
        // So may bash in its other mode.
        self.posix_matters = true;
        for hidden in hidden(text) {
            self.nested(&hidden, false)?;
        }
        let mut words = text.split(|c: char| c.is_whitespace() || "();&|`".contains(c));
        if text.contains("<<") || words.any(begins_compound) {
            // A here-document that nothing ends is one all the same, and what stands beside it is run; and of `case` and
            // `for` there are forms that the parser does not know, or the text ends at a parenthesis within.
            self.unknown();
        }
        let mut lines = text.lines();
        if text.contains('\n') {
            for line in lines.by_ref().take(LINES) {
                self.nested(&Nested::new(line.to_owned(), false), false)?;
            }
            if lines.next().is_some() {
                self.unknown();
            }
            return Ok(());
        }
        let first = text.split(|c: char| "();&|`<>".contains(c)).next();
        let words = first.unwrap_or_default().split_whitespace();
        let words: Vec<&str> = words.skip_while(|word| opens(word)).collect();
        if !words.is_empty() {
            self.add(words.join(" "), false);
        }
        Ok(())
    }

    /// Something that bash alone has so: what others run of it is not known.
    pub(super) fn bash_only(&mut self) {
        if self.shell != Shell::Bash {
            self.unknown();
        }
    }

    /// What of a word others may have otherwise.
    pub(super) fn apart(&mut self, apart: Apart) {
        if apart > Apart::Nobody {
            self.bash_only();
        }
        self.posix_matters |= apart == Apart::Posix;
    }

    /// A command of which nothing is known.
    pub(super) fn unknown(&mut self) {
        self.add(UNKNOWN_WORDS.to_string(), false);
    }

    pub(super) fn add(&mut self, text: String, certain: bool) {
        self.found += text.len();
        self.push(Command::new(text, certain));
    }

    /// Words of which commands will be added.
    pub(super) fn joined(&mut self, words: &[String]) -> Joined {
        let joined = Joined::new(words);
        self.found += joined.len();
        joined
    }

    /// Counts what it takes to look through words for what the program `name` makes of them.
    pub(super) fn count_words(&mut self, name: &str, words: &[String]) {
        /// So many take about the time in which one is added.
        const LOOKS: usize = 32;
        self.found += match name {
            // It may name a command in each of them.
            "find" => words.len(),
            // Each may be a script.
            name if takes_scripts(name) => 4 * words.len(),
            name => words.len() * looks(name) / LOOKS,
        };
    }

    /// Counts texts that may be scripts.
    pub(super) fn count(&mut self, nested: &[Nested]) {
        let bytes = nested.iter().map(|one| one.text.len() + ENTRY_BYTES);
        self.found += bytes.sum::<usize>();
    }

    /// Adds the command of these words of `joined`, if there are any.
    pub(super) fn add_words(&mut self, joined: &Joined, (first, end): Wrapped, certain: bool) {
        if first > 0 {
            self.found += ENTRY_BYTES;
        }
        let command = joined.command(first, end, certain);
        command.into_iter().for_each(|command| self.push(command));
    }

    fn push(&mut self, command: Command) {
        if self.is_full() {
            return;
        }
        if self.reading.commands.last() != Some(&command) {
            self.reading.commands.push(command);
        }
    }
}

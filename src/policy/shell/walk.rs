//! Through the tree of a script: every command, redirect, substitution and assignment.

use super::super::glob::{UNKNOWN, UNKNOWN_WORDS};
use super::super::paths::{absolute, base_name};
use super::Unreadable;
use super::bash::{
    Command, Compound, Document, Item, Kind, Line, List, Piece, Pipeline, Redirect, Simple, Word,
};
use super::dialect::Apart;
use super::fence::in_time;
use super::hidden::hidden;
use super::loose::{Nested, Reader, reads_variable};
use super::nested::Input;
use super::shells::is_shell;
use super::text::{
    Flat, flatten, flatten_arithmetic, flatten_pieces, flatten_unquoted, is_known, literal, plain,
};
use super::variables::{MAX_SET, Scope, declares, is_read_by_programs, names_own};

pub(super) type Walk = Result<(), Unreadable>;

/// Files that are no files.
const NOWHERE: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/stdout",
    "/dev/stderr",
];

/// A descriptor, and what can be read there.
type Fed = (i32, Input);

const STDIN: i32 = 0;
const STDOUT: i32 = 1;

/// What redirects give a command to read.
#[derive(Default)]
pub(super) struct Given {
    /// As its standard input; `None` where that is what it was.
    pub(super) input: Option<Input>,
    /// Texts on other descriptors.
    elsewhere: Vec<String>,
}

impl Given {
    fn add(&mut self, (descriptor, found): Fed) {
        match (descriptor, found) {
            (STDIN, found) => self.input = Some(found),
            (_, Input::Text(text)) => self.elsewhere.push(text),
            (_, Input::Unknown) => {}
        }
    }

    pub(super) fn texts(&self) -> impl Iterator<Item = &String> {
        let input = match &self.input {
            Some(Input::Text(text)) => Some(text),
            Some(Input::Unknown) | None => None,
        };
        self.elsewhere.iter().chain(input)
    }
}

/// Whether one of the redirects gives something to read that the script says itself.
fn reads_text(redirects: &[Redirect<'_>]) -> bool {
    redirects
        .iter()
        .any(|redirect| matches!(redirect, Redirect::Document(..) | Redirect::Text(..)))
}

impl Reader {
    pub(super) fn walk(&mut self, line: &Line<'_>, certain: bool) -> Walk {
        let mut walker = Walker {
            reader: self,
            documents: &line.documents,
            certain,
        };
        walker.list(&line.list)
    }

    /// Looks at the script's own input as what is read into a variable, once.
    fn own_input_expanded(&mut self, certain: bool) -> Walk {
        if std::mem::replace(&mut self.input_expanded, true) {
            return Ok(());
        }
        let own = self.input.as_deref().map(hidden).unwrap_or_default();
        self.all(&own, certain)
    }

    /// Looks at what was given to commands that are functions, or may be: these do with it what they like.
    pub(super) fn functions_fed(&mut self) -> Walk {
        if self.functions.is_empty() {
            return Ok(());
        }
        self.own_input_expanded(false)?;
        for (name, text) in std::mem::take(&mut self.fed) {
            if self.functions.contains(&name) || !is_known(&name) || name == "eval" {
                self.all(&hidden(&text), false)?;
                // What reads it there may be anything.
                self.nested(&Nested::new(plain(&text), false), false)?;
            }
        }
        Ok(())
    }

    pub(super) fn all(&mut self, nested: &[Nested], certain: bool) -> Walk {
        nested
            .iter()
            .try_for_each(|nested| self.nested(nested, certain))
    }

    fn write(&mut self, path: &str) {
        let path = plain(path);
        let known = absolute(&path, None);
        let name = known.as_deref().unwrap_or_default();
        self.reopens |= is_descriptor(name);
        if name == "/dev/stdin" || is_descriptor(name) && name.ends_with("/fd/0") {
            // What that is, was opened to be read.
            self.reading.writes.push(None);
        }
        if !NOWHERE.contains(&path.as_str()) {
            let known = is_known(&path) && (path.starts_with('/') || !self.elsewhere);
            self.reading.writes.push(known.then_some(path));
        }
    }
}

/// Whether the path is the name of a descriptor, by which what is open there is opened once more.
fn is_descriptor(path: &str) -> bool {
    let names = ["/dev/fd/", "/dev/std", "/proc/"];
    names.iter().any(|name| path.starts_with(name))
}

/// Goes through what the parser has found.
struct Walker<'r> {
    reader: &'r mut Reader,
    documents: &'r [Document],
    /// Whether it is for certain that this is a script.
    certain: bool,
}

impl Walker<'_> {
    fn list(&mut self, list: &List<'_>) -> Walk {
        list.iter().try_for_each(|pipeline| self.pipeline(pipeline))
    }

    fn pipeline(&mut self, pipeline: &Pipeline<'_>) -> Walk {
        if pipeline.timed && pipeline.commands.first().is_some_and(begins_with_option) {
            // That is `time` itself in POSIX mode and in other shells, which runs the program behind its options.
            self.reader.unknown();
        }
        let is_simple = matches!(pipeline.commands.first(), Some(Command::Simple(_)) | None);
        if pipeline.timed && !is_simple {
            // To others it is a command, and so is what follows the words of this one below.
            self.reader.bash_only();
            if pipeline.has_option {
                self.reader.apart(Apart::Posix);
            }
        }
        let is_piped = self.reader.is_piped;
        for command in &pipeline.commands {
            self.command(command)?;
            self.reader.is_piped = true;
        }
        self.reader.is_piped = is_piped;
        Ok(())
    }

    fn command(&mut self, command: &Command<'_>) -> Walk {
        in_time()?;
        match command {
            Command::Simple(simple) => self.simple(simple),
            Command::Compound(compound, redirects) => {
                let is_piped = self.reader.is_piped;
                self.reader.is_piped |= reads_text(redirects);
                self.compound(compound)?;
                self.reader.is_piped = is_piped;
                self.redirects(redirects)
            }
            Command::Function {
                name,
                is_named,
                body,
            } => {
                if *is_named {
                    self.reader.bash_only();
                }
                self.reader.functions.push(name.clone());
                self.command(body)
            }
            Command::Coprocess(body) => {
                self.reader.bash_only();
                self.command(body)
            }
        }
    }

    fn compound(&mut self, compound: &Compound<'_>) -> Walk {
        match compound {
            Compound::Lists(lists) => lists.iter().try_for_each(|list| self.list(list)),
            Compound::For {
                selects,
                name,
                words,
                body,
            } => {
                if *selects {
                    self.reader.bash_only();
                }
                let is_read = is_read_by_programs(name);
                if is_read && words.len() > MAX_SET {
                    self.reader.unknown();
                }
                for (at, word) in words.iter().enumerate() {
                    let text = self.text(flatten(word)?)?;
                    self.reader.told.keep(&plain(&text));
                    if is_read && at < MAX_SET {
                        self.reader.set(name, &text, Scope::Script, self.certain)?;
                    }
                }
                self.list(body)
            }
            Compound::ArithmeticFor(expressions, body) => {
                self.arithmetic(expressions)?;
                self.list(body)
            }
            Compound::Case {
                word,
                patterns,
                lists,
            } => {
                self.word(word)?;
                for pattern in patterns {
                    self.word(pattern)?;
                }
                lists.iter().try_for_each(|list| self.list(list))
            }
            Compound::Arithmetic(expression) => self.arithmetic(expression),
            Compound::Test(words) => {
                self.reader.bash_only();
                words
                    .iter()
                    .try_for_each(|word| self.text(flatten(word)?).map(drop))
            }
        }
    }

    fn simple(&mut self, simple: &Simple<'_>) -> Walk {
        let mut words = Vec::new();
        let mut given = Given::default();
        let name = simple.name.and_then(|at| match simple.items.get(at) {
            Some(Item::Word(word)) => Some(word),
            Some(Item::Redirect(_)) | None => None,
        });
        let declares = name.is_some_and(|name| declares(&name.raw));
        for (at, item) in simple.items.iter().enumerate() {
            match item {
                Item::Redirect(redirect) => {
                    let found = self.redirect(redirect)?;
                    given.add(found);
                }
                Item::Word(word) => {
                    let scope = match name {
                        None => Scope::Script,
                        Some(name) if declares && name.raw != "export" => Scope::Script,
                        Some(_) => Scope::Programs,
                    };
                    let text = self.word_or_assignment(word, declares, scope)?;
                    // Assignments before the name are no words of the command.
                    if simple.name.is_some_and(|name| at >= name) {
                        words.push(text);
                    }
                }
            }
        }
        self.reader.set_by(&words, &given, self.certain)?;
        if may_read(&words) {
            // Into a variable, which is expanded once more.
            for text in given.texts() {
                self.reader.all(&hidden(text), self.certain)?;
            }
            if given.input.is_none() {
                self.reader.own_input_expanded(self.certain)?;
            }
        } else if let Some(name) = words.first() {
            let fed = given.texts().map(|text| (name.clone(), text.clone()));
            self.reader.fed.extend(fed);
        }
        for text in &given.elsewhere {
            // `. /dev/fd/3`, or whatever is told to read it there.
            let text = Nested::new(plain(text), false);
            self.reader.nested(&text, false)?;
        }
        // Only a word of unknown value may leave the next to be the command.
        let nested = self
            .reader
            .command(&words, self.certain, given.input.as_ref());
        self.reader.all(&nested, self.certain)
    }

    /// A word of a command, which may set a variable. Written without quotes a built-in that `declares` some takes a value
    /// for one word.
    fn word_or_assignment(
        &mut self,
        word: &Word<'_>,
        declares: bool,
        scope: Scope,
    ) -> Result<String, Unreadable> {
        let (Some(at), Some(name)) = (word.value, word.variable()) else {
            return self.word(word);
        };
        let (before, value) = word.pieces.split_at(at);
        self.text(flatten_pieces(before)?)?;
        let Some(Piece::Array(elements)) = value.first() else {
            let text = self.take(flatten_pieces(value)?)?;
            self.reader.set(name, &text, scope, self.certain)?;
            let text = flatten(word)?.text;
            return Ok(match declares {
                true => text.replace(UNKNOWN_WORDS, &UNKNOWN.to_string()),
                false => text,
            });
        };
        let mut all = String::new();
        for element in elements {
            let (key, value) = element.pieces.split_at(element.value.unwrap_or_default());
            self.text(flatten_pieces(key)?)?;
            let text = self.take(flatten_pieces(value)?)?;
            self.reader.set(name, &text, scope, self.certain)?;
            all.push_str(&text);
            all.push(' ');
        }
        self.reader.told.keep(all.trim_end());
        self.text(flatten_pieces(&value[1..])?)?;
        Ok(match declares {
            true => format!("{name}=()"),
            false => UNKNOWN_WORDS.to_string(),
        })
    }

    fn arithmetic(&mut self, expression: &str) -> Walk {
        self.reader.bash_only();
        self.text(flatten_arithmetic(expression)?).map(drop)
    }

    fn word(&mut self, word: &Word<'_>) -> Result<String, Unreadable> {
        self.take(flatten(word)?)
    }

    /// A word that is none of a command's, but that something may yet expand.
    fn text(&mut self, flat: Flat) -> Result<String, Unreadable> {
        let text = self.take(flat)?;
        self.reader.all(&hidden(&text), self.certain)?;
        Ok(text)
    }

    /// Reads what a word runs, and answers its text.
    fn take(&mut self, flat: Flat) -> Result<String, Unreadable> {
        self.reader.apart(flat.apart);
        self.reader.names_own |= names_own(&flat.text);
        for words in &flat.lists {
            self.reader.told.keep(words);
        }
        self.reader.all(&flat.nested, self.certain)?;
        Ok(flat.text)
    }

    fn redirects(&mut self, redirects: &[Redirect<'_>]) -> Walk {
        // Which command within reads it is not known, nor is what a shell there gets.
        redirects.iter().try_for_each(|redirect| {
            // Something in it may read it into a variable.
            let (_, input) = self.redirect(redirect)?;
            match input {
                Input::Text(text) => {
                    self.reader.told.keep(&plain(&text));
                    self.reader.all(&hidden(&text), self.certain)
                }
                Input::Unknown => Ok(()),
            }
        })
    }

    /// Answers which descriptor it changes, and what can be read there.
    fn redirect(&mut self, redirect: &Redirect<'_>) -> Result<Fed, Unreadable> {
        match redirect {
            Redirect::File {
                descriptor,
                kind,
                target,
            } => {
                let path = self.word(target)?;
                let is_process = matches!(&target.pieces[..], [Piece::Process(_)]);
                if *kind != Kind::Read && !is_process {
                    self.reader.write(&path);
                }
                let usual = match kind {
                    Kind::Read | Kind::ReadAndWrite => STDIN,
                    Kind::Write => STDOUT,
                };
                self.opens(*descriptor, *kind != Kind::Write);
                Ok((descriptor.unwrap_or(usual), Input::Unknown))
            }
            Redirect::Duplicate {
                descriptor,
                writes,
                target,
            } => {
                let text = self.word(target)?;
                let number = text.trim_end_matches('-');
                let is_descriptor = number.bytes().all(|byte| byte.is_ascii_digit());
                if *writes && !is_descriptor {
                    self.reader.write(&text);
                    let expands = ["$", "`", "<(", ">("]
                        .iter()
                        .any(|sign| text.contains(sign));
                    if descriptor.is_none_or(|one| one == STDOUT) && (expands || !is_known(&text)) {
                        // Bash expands it twice.
                        self.reader.unknown();
                    }
                }
                self.opens(*descriptor, !writes);
                let usual = if *writes { STDOUT } else { STDIN };
                Ok((descriptor.unwrap_or(usual), Input::Unknown))
            }
            Redirect::OutputAndError(target) => {
                self.reader.bash_only();
                let path = self.word(target)?;
                self.reader.write(&path);
                Ok((STDOUT, Input::Unknown))
            }
            Redirect::Document(descriptor, place) => {
                let text = match self.documents.get(*place) {
                    Some(document) => self.document(document)?,
                    None => return Err(Unreadable::Ambiguous),
                };
                Ok((descriptor.unwrap_or(STDIN), Input::Text(text)))
            }
            Redirect::Text(descriptor, word) => {
                let text = self.word(word)?;
                Ok((descriptor.unwrap_or(STDIN), Input::Text(text)))
            }
        }
    }

    fn document(&mut self, document: &Document) -> Result<String, Unreadable> {
        if !document.expands {
            return Ok(literal(&document.text));
        }
        if document.is_joined && document.text.contains(['$', '`']) {
            // Where a comment or another here-document is in it, others join no lines.
            self.reader.apart(Apart::Others);
        }
        let flat = match flatten_unquoted(&document.text) {
            // What stands before the error is run, and the command is not.
            Err(Unreadable::Grammar) => Flat::unknown(),
            flat => flat?,
        };
        self.take(flat)
    }

    /// Notes what is opened to be read at a descriptor that is not the usual one.
    fn opens(&mut self, descriptor: Option<i32>, reads: bool) {
        let is_other = descriptor.is_some_and(|descriptor| descriptor != STDIN);
        self.reader.opens |= reads && is_other;
    }
}

/// Whether a command is one whose name looks like an option.
fn begins_with_option(command: &Command<'_>) -> bool {
    let Command::Simple(simple) = command else {
        return false;
    };
    let name = simple.name.and_then(|at| simple.items.get(at));
    let Some(Item::Word(name)) = name else {
        return false;
    };
    flatten(name).is_ok_and(|flat| flat.text.starts_with('-'))
}

/// Whether a command may read its input into a variable of a shell's, or have later ones do so.
fn may_read(words: &[String]) -> bool {
    let first = words.first().map(String::as_str);
    let keeps = |word: &String| word == "exec";
    let keeps = match first {
        Some("builtin" | "command") => words.iter().any(keeps),
        _ => words.first().is_some_and(keeps),
    };
    let reads = |word: &String| reads_variable(word);
    keeps || words.iter().any(reads) || words.first().is_some_and(|name| is_shell(base_name(name)))
}

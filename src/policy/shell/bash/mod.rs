//! A parser of bash's grammar, as bash's own reads it (`parse.y` of 5.2): one pass over the text, in which what stands in
//! a substitution is parsed where it stands, for nothing else tells where that ends. It keeps what may run something and
//! leaves out the rest. It never goes deeper than [`MAX_LEVELS`] nor takes more than [`MAX_STEPS`], and where shells, or
//! versions of bash, part ways it answers that the script is [ambiguous](Unreadable::Ambiguous).

mod commands;
mod compounds;
mod documents;
mod pairs;
mod redirects;
mod source;
#[cfg(test)]
mod tests;
mod words;

use super::Unreadable;
use source::Source;

/// How deeply something may be within something else. People do not go so far; it is the parser's stack, and that of who
/// goes through what it found.
pub(super) const MAX_LEVELS: usize = 100;

/// How many characters are looked at for one text. What stands in `((` is looked through once for each of them around it.
pub(super) const MAX_STEPS: usize = 4 << 20;

/// What stands between the ends of commands: pipelines, in the order in which they are written.
pub(super) type List<'a> = Vec<Pipeline<'a>>;

/// A line of a script, and those that it goes on in.
#[derive(Debug)]
pub(super) struct Line<'a> {
    pub list: List<'a>,
    /// The texts of here-documents, which redirects name by their place.
    pub documents: Vec<Document>,
    /// Whether something in it is a pattern with `extglob` and else none.
    pub extended: bool,
}

/// The text of a here-document, without the end of a line that goes on in the next.
#[derive(Debug)]
pub(super) struct Document {
    pub text: String,
    /// Whether what it names is expanded.
    pub expands: bool,
    /// Whether there was such an end in it.
    pub is_joined: bool,
}

#[derive(Debug)]
pub(super) struct Pipeline<'a> {
    /// Whether `time` stands before it, and an option behind that.
    pub timed: bool,
    pub has_option: bool,
    pub commands: Vec<Command<'a>>,
}

#[derive(Debug)]
pub(super) enum Command<'a> {
    Simple(Simple<'a>),
    Compound(Compound<'a>, Vec<Redirect<'a>>),
    Function {
        name: String,
        /// Whether the word `function` stands before it.
        is_named: bool,
        body: Box<Command<'a>>,
    },
    Coprocess(Box<Command<'a>>),
}

/// Assignments, words and redirects as they are written.
#[derive(Debug, Default)]
pub(super) struct Simple<'a> {
    pub items: Vec<Item<'a>>,
    /// Where among them the word stands that names the command.
    pub name: Option<usize>,
}

#[derive(Debug)]
pub(super) enum Item<'a> {
    Word(Word<'a>),
    Redirect(Redirect<'a>),
}

#[derive(Debug)]
pub(super) enum Compound<'a> {
    /// `{ }`, `( )`, `if`, `while` and `until`: all that may run.
    Lists(Vec<List<'a>>),
    /// `for` and `select`.
    For {
        selects: bool,
        name: String,
        words: Vec<Word<'a>>,
        body: List<'a>,
    },
    /// `for ((…))`, its three expressions as one text.
    ArithmeticFor(&'a str, List<'a>),
    Case {
        word: Word<'a>,
        patterns: Vec<Word<'a>>,
        lists: Vec<List<'a>>,
    },
    /// `((…))`.
    Arithmetic(&'a str),
    /// `[[ … ]]`, without its operators.
    Test(Vec<Word<'a>>),
}

#[derive(Debug)]
pub(super) enum Redirect<'a> {
    File {
        descriptor: Option<i32>,
        kind: Kind,
        target: Word<'a>,
    },
    /// `<&` and `>&`, without a target where the descriptor is closed.
    Duplicate {
        descriptor: Option<i32>,
        writes: bool,
        target: Word<'a>,
    },
    /// `&>` and `&>>`.
    OutputAndError(Word<'a>),
    /// `<<` and `<<-`, by the place of its text.
    Document(Option<i32>, usize),
    /// `<<<`.
    Text(Option<i32>, Word<'a>),
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    ReadAndWrite,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Word<'a> {
    /// As it is written, without the ends of lines that go on in the next.
    pub raw: String,
    pub pieces: Vec<Piece<'a>>,
    /// Where its value begins among the pieces, if it has the form of an assignment.
    pub value: Option<usize>,
}

/// A part of a word. The texts of what is expanded are as they are written.
#[derive(Debug, PartialEq)]
pub(super) enum Piece<'a> {
    /// Neither quoted nor expanded, but for `~`, braces and patterns.
    Text(String),
    /// What was quoted, without the quotes.
    Quoted(String),
    /// `$'…'`, without the quotes.
    Escaped(&'a str),
    /// `"…"`.
    Double(Vec<Piece<'a>>),
    /// `$"…"`, which is a `$` and `"…"` to others.
    Translated(Vec<Piece<'a>>),
    /// `$x` or `${…}`, with the sign and the braces.
    Parameter(&'a str),
    /// `$(…)`, without the parentheses.
    Command(&'a str),
    /// `` `…` ``, without the quotes.
    Backquoted(&'a str),
    /// `$((…))`, without the parentheses.
    Arithmetic(&'a str),
    /// `$[…]`, without the brackets.
    Bracketed(&'a str),
    /// `<(…)` and `>(…)`, without the parentheses.
    Process(&'a str),
    /// What stands in the parentheses of a pattern or a regular expression.
    Pattern(&'a str),
    /// What stands in the brackets of an array's element.
    Subscript(&'a str),
    /// The words of an array.
    Array(Vec<Word<'a>>),
}

impl Word<'_> {
    /// The name of the variable that it sets, with its subscript, if it has the form of an assignment.
    pub fn variable(&self) -> Option<&str> {
        let before = self.value.map(|_| self.raw.split('=').next());
        // A subscript may have such a sign in it.
        let name = before??.split('[').next()?;
        Some(name.strip_suffix('+').unwrap_or(name))
    }
}

/// Parses a script line by line, as bash runs it: what it is made of takes no more memory than the longest.
pub(super) struct Lines<'a>(Parser<'a>);

impl<'a> Lines<'a> {
    pub fn new(script: &'a str) -> Self {
        Self(Parser::new(script))
    }

    /// The next line; `None` at the end.
    ///
    /// # Errors
    /// That it is not in the grammar, goes too deep, takes too long, or is ambiguous.
    pub fn next(&mut self) -> Result<Option<Line<'a>>, Unreadable> {
        let parser = &mut self.0;
        let list = parser.line()?;
        let documents = std::mem::take(&mut parser.documents);
        Ok(list.map(|list| Line {
            list,
            documents,
            extended: parser.extended,
        }))
    }
}

/// Which signs mean something in a text that is no word of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signs {
    /// Expansions, as in a here-document.
    Expansions,
    /// Those and quotes: what stands in `${…}` or in a pattern.
    All,
}

/// Parses a text that is not parted into words.
///
/// # Errors
/// As [`Lines::next`].
pub(super) fn parse_text(text: &str, signs: Signs) -> Result<Vec<Piece<'_>>, Unreadable> {
    Parser::new(text).text(signs)
}

struct Parser<'a> {
    source: Source<'a>,
    levels: usize,
    /// In how many substitutions that are closed by a parenthesis, and in how many functions.
    substitutions: usize,
    functions: usize,
    /// Here-documents whose lines are still to come.
    pending: Vec<documents::Pending>,
    documents: Vec<Document>,
    extended: bool,
    /// In how many `case` within the substitution, and whether there was `<<` in it that begins no here-document: bash
    /// 5.1 looks for its end in a way of its own.
    cases: usize,
    has_shift: bool,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            source: Source::new(text),
            levels: 0,
            substitutions: 0,
            functions: 0,
            pending: Vec::new(),
            documents: Vec::new(),
            extended: false,
            cases: 0,
            has_shift: false,
        }
    }

    /// Does something one level deeper.
    fn deeper<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, Unreadable>,
    ) -> Result<T, Unreadable> {
        self.levels += 1;
        if self.levels > MAX_LEVELS {
            return Err(Unreadable::TooDeep);
        }
        let parsed = parse(self);
        self.levels -= 1;
        parsed
    }
}

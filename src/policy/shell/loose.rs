//! The reader that refuses. It finds every command that a script may run, rather one too many:
//! nested scripts (`bash -c`, `eval`, substitutions) are read in turn.

use brush_parser::{ParserOptions, Token, parse_tokens, uncached_tokenize_str};

use super::super::glob::UNKNOWN_WORDS;
use super::{Command, Reading, Unreadable, strict};

/// The most openings of anything in one script: each may be a level of recursion, and the time
/// for some shapes grows with the square of it.
pub(super) const MAX_OPENINGS: usize = 400;

/// Scripts in scripts.
const MAX_DEPTH: usize = 16;

/// All text that is read for one script, in bytes: nested scripts are read again.
const MAX_TOTAL_BYTES: usize = 512 * 1024;

/// The longest script that is read without a thread of its own, in bytes.
const MAX_SIMPLE_BYTES: usize = 4096;

/// All commands found in one script, in bytes.
const MAX_FOUND_BYTES: usize = 512 * 1024;

/// Steps that the parser may take, roughly. A token inside `n` constructs that are tried in
/// several ways is looked at up to 4^n times.
const MAX_STEPS: u64 = 400_000;

/// Collects what a script and the scripts in it run.
pub(super) struct Reader {
    pub(super) reading: Reading,
    /// What the script is given as input, and whether it was read for a script: for certain, or
    /// as what may be one.
    pub(super) input: Option<String>,
    pub(super) input_read: Option<bool>,
    /// Whether what is read now is run in a directory that is not known.
    pub(super) elsewhere: bool,
    depth: usize,
    bytes: usize,
    /// Bytes of commands found.
    found: usize,
}

/// A text that some command takes for a script.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Nested {
    pub text: String,
    pub certain: bool,
    /// Whether it is run in a directory that is not known.
    pub elsewhere: bool,
}

impl Nested {
    /// One that is run where the script is in which it was found.
    pub(super) fn new(text: String, certain: bool) -> Self {
        Self {
            text,
            certain,
            elsewhere: false,
        }
    }
}

/// Whether a redirect names a descriptor that no number of 32 bits can: the parser panics there.
fn has_huge_descriptor(text: &str) -> bool {
    let redirects = text.split_inclusive(['<', '>']);
    redirects
        .filter_map(|part| part.strip_suffix(['<', '>']))
        .any(|before| {
            before
                .bytes()
                .rev()
                .take(10)
                .filter(u8::is_ascii_digit)
                .count()
                == 10
        })
}

/// Whether there may be a command substitution of bash 5.3 (`${ command; }`, `${| command; }`), which is none
/// to the parser.
fn has_braced_substitution(text: &str) -> bool {
    // Where a line goes on in the next the shell sees nothing at all.
    let text = text.replace("\\\n", "");
    let mut after = text.split("${").skip(1);
    after.any(|rest| rest.starts_with([' ', '\t', '\n', '|', '(']))
}

impl Reader {
    pub(super) fn new(input: Option<&str>) -> Self {
        Self {
            reading: Reading::default(),
            input: input.map(str::to_owned),
            input_read: None,
            elsewhere: false,
            depth: 0,
            bytes: 0,
            found: 0,
        }
    }

    /// Reads a script of the simplest form, as are those in it; none when one is not.
    pub(super) fn read_simple(mut self, script: &str) -> Option<Reading> {
        let simple = script.len() <= MAX_SIMPLE_BYTES && self.simple(script, true, 0);
        (simple && !self.is_full()).then_some(self.reading)
    }

    /// Whether more was found than any script for people has: `sudo sudo sudo …` is a command
    /// in each of its words.
    pub(super) fn is_full(&self) -> bool {
        self.found > MAX_FOUND_BYTES
    }

    fn simple(&mut self, script: &str, certain: bool, depth: usize) -> bool {
        let Ok(segments) = strict::read(script) else {
            return false;
        };
        segments.iter().all(|segment| {
            let words: Vec<String> = segment
                .words
                .iter()
                .map(|word| super::text::literal(word))
                .collect();
            let nested = self.command(&words, certain, None);
            depth < 4
                && nested.iter().all(|nested| {
                    // What may be no script at all need not be a simple one.
                    self.simple(&nested.text, nested.certain && certain, depth + 1)
                })
        })
    }

    pub(super) fn read(mut self, script: &str) -> Result<Reading, Unreadable> {
        self.script(script, true)?;
        match self.is_full() {
            true => Err(Unreadable::TooDeep),
            false => Ok(self.reading),
        }
    }

    /// Reads `text` and adds what it runs.
    pub(super) fn script(&mut self, text: &str, certain: bool) -> Result<(), Unreadable> {
        self.depth += 1;
        self.bytes += text.len();
        if self.depth > MAX_DEPTH || self.bytes > MAX_TOTAL_BYTES {
            return Err(Unreadable::TooDeep);
        }
        if has_huge_descriptor(text) || has_braced_substitution(text) {
            return Err(Unreadable::Grammar);
        }
        let tokens = tokens(text)?;
        let program = parse_tokens(&tokens, &options()).map_err(|_| Unreadable::Grammar)?;
        drop(tokens);
        self.program(&program, certain)?;
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
        let elsewhere = self.elsewhere;
        self.elsewhere |= nested.elsewhere;
        let read = self.script(&nested.text, nested.certain && certain);
        self.elsewhere = elsewhere;
        match read {
            Err(Unreadable::Grammar) if !nested.certain => {
                self.depth = depth;
                Ok(())
            }
            read => read,
        }
    }

    /// A command of which nothing is known.
    pub(super) fn unknown(&mut self) {
        self.add(UNKNOWN_WORDS.to_string(), false);
    }

    pub(super) fn add(&mut self, text: String, certain: bool) {
        self.found += text.len();
        if self.is_full() {
            return;
        }
        let command = Command { text, certain };
        if self.reading.commands.last() != Some(&command) {
            self.reading.commands.push(command);
        }
    }
}

pub(super) fn options() -> ParserOptions {
    ParserOptions::default()
}

/// The tokens of `text`, unless parsing them would take too much.
fn tokens(text: &str) -> Result<Vec<Token>, Unreadable> {
    let openings = text
        .bytes()
        .filter(|byte| matches!(byte, b'(' | b'{' | b'`'));
    if openings.count() > MAX_OPENINGS {
        return Err(Unreadable::TooDeep);
    }
    let options = options().tokenizer_options();
    let tokens = uncached_tokenize_str(text, &options).map_err(|_| Unreadable::Grammar)?;
    let mut cost = Cost::default();
    tokens.iter().try_for_each(|token| cost.add(token))?;
    Ok(without_descriptor_names(tokens))
}

/// Takes out the names that redirects give descriptors (`rm x {name}>file`): the parser knows
/// numbers there only, and takes them for words of the command.
fn without_descriptor_names(tokens: Vec<Token>) -> Vec<Token> {
    let names = |at: usize| match tokens.get(at..at + 2) {
        Some(
            [
                Token::Word(word, word_at),
                Token::Operator(operator, operator_at),
            ],
        ) => {
            // With a parenthesis it is a word with a process substitution in it.
            let parenthesis = tokens.get(at + 2).is_some_and(|next| next.to_str() == "(");
            operator.starts_with(['<', '>'])
                && !operator.ends_with('(')
                && !parenthesis
                && word_at.end.index == operator_at.start.index
                && is_descriptor_name(&word.replace("\\\n", ""))
        }
        _ => false,
    };
    let is_name: Vec<bool> = (0..tokens.len()).map(names).collect();
    let kept = tokens.into_iter().zip(is_name);
    kept.filter(|(_, is_name)| !is_name)
        .map(|(token, _)| token)
        .collect()
}

/// Whether `word` is `{name}` or `{name[subscript]}`.
fn is_descriptor_name(word: &str) -> bool {
    let inner = word
        .strip_prefix('{')
        .and_then(|word| word.strip_suffix('}'));
    let Some(inner) = inner else { return false };
    let (name, subscript) = inner.split_once('[').unwrap_or((inner, "]"));
    subscript.ends_with(']')
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// What is open, of which the parser tries several readings.
#[derive(Clone, Copy, PartialEq)]
enum Open {
    Parenthesis,
    Case,
    /// Has no end of its own; nothing closes what stands before it either.
    Coprocess,
}

/// An upper bound of what the parser does with tokens. What may close something does so only
/// where it must, so that the bound is never too low.
#[derive(Default)]
struct Cost {
    open: Vec<Open>,
    keywords: usize,
    steps: u64,
    after_word: bool,
}

impl Cost {
    fn add(&mut self, token: &Token) -> Result<(), Unreadable> {
        let text = token.to_str();
        let is_word = matches!(token, Token::Word(..));
        match text {
            "(" | "<(" | ">(" if !is_word => self.open.push(Open::Parenthesis),
            ")" if !is_word && self.open.last() == Some(&Open::Parenthesis) => {
                self.open.pop();
            }
            "esac" if !self.after_word && self.open.last() == Some(&Open::Case) => {
                self.open.pop();
            }
            "case" => self.open.push(Open::Case),
            "coproc" => self.open.push(Open::Coprocess),
            "if" | "for" | "while" | "until" | "{" | "[[" | "function" | "!" | "elif" => {
                self.keywords += 1;
            }
            _ => {}
        }
        self.after_word = is_word;
        let branching = self.open.len().min(20);
        self.steps += 1 << (2 * branching);
        if self.steps > MAX_STEPS || self.keywords > MAX_OPENINGS {
            return Err(Unreadable::TooDeep);
        }
        Ok(())
    }
}

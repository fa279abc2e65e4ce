//! Through the tree of a script: every command, redirect, substitution and assignment.

use std::borrow::Cow;

use brush_parser::ast;

use super::super::glob::{UNKNOWN, UNKNOWN_WORDS};
use super::super::paths::{absolute, base_name};
use super::Unreadable;
use super::dialect::Apart;
use super::loose::{Nested, Reader, reads_variable};
use super::nested::Input;
use super::shells::is_shell;
use super::text::{Flat, flatten, flatten_unquoted, hidden, is_known, literal, plain};
use super::tokens::joined;
use super::variables::{MAX_SET, declares, is_read_by_programs};

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
fn reads_text(redirects: &ast::RedirectList) -> bool {
    use ast::IoRedirect as R;
    redirects.0.iter().any(|redirect| match redirect {
        R::HereDocument(..) | R::HereString(..) => true,
        R::File(..) | R::OutputAndError(..) => false,
    })
}

impl Reader {
    pub(super) fn program(&mut self, program: &ast::Program, certain: bool) -> Walk {
        program
            .complete_commands
            .iter()
            .try_for_each(|list| self.list(list, certain))
    }

    fn list(&mut self, list: &ast::CompoundList, certain: bool) -> Walk {
        for ast::CompoundListItem(and_or, _) in &list.0 {
            self.pipeline(&and_or.first, certain)?;
            for next in &and_or.additional {
                let (ast::AndOr::And(pipeline) | ast::AndOr::Or(pipeline)) = next;
                self.pipeline(pipeline, certain)?;
            }
        }
        Ok(())
    }

    fn pipeline(&mut self, pipeline: &ast::Pipeline, certain: bool) -> Walk {
        if pipeline.timed.is_some() && pipeline.seq.first().is_some_and(begins_with_option) {
            // That is `time` itself in POSIX mode and in other shells, which runs the program behind its options.
            self.unknown();
        }
        let is_piped = self.is_piped;
        for command in &pipeline.seq {
            self.one(command, certain)?;
            self.is_piped = true;
        }
        self.is_piped = is_piped;
        Ok(())
    }

    fn one(&mut self, command: &ast::Command, certain: bool) -> Walk {
        match command {
            ast::Command::Simple(simple) => self.simple_command(simple, certain),
            ast::Command::Compound(compound, redirects) => {
                let is_piped = self.is_piped;
                self.is_piped |= redirects.as_ref().is_some_and(reads_text);
                self.compound(compound, certain)?;
                self.is_piped = is_piped;
                self.redirects(redirects.as_ref(), certain)
            }
            ast::Command::Function(function) => {
                self.functions.push(function.fname.value.clone());
                let ast::FunctionBody(body, redirects) = &function.body;
                self.compound(body, certain)?;
                self.redirects(redirects.as_ref(), certain)
            }
            ast::Command::ExtendedTest(test, redirects) => {
                self.bash_only();
                self.test(&test.expr, certain)?;
                self.redirects(redirects.as_ref(), certain)
            }
        }
    }

    fn compound(&mut self, compound: &ast::CompoundCommand, certain: bool) -> Walk {
        use ast::CompoundCommand as C;
        match compound {
            C::Arithmetic(command) => {
                self.bash_only();
                self.arithmetic(Some(&command.expr), certain)
            }
            C::ArithmeticForClause(clause) => {
                self.bash_only();
                for part in [&clause.initializer, &clause.condition, &clause.updater] {
                    self.arithmetic(part.as_ref(), certain)?;
                }
                self.list(&clause.body.list, certain)
            }
            C::BraceGroup(group) => self.list(&group.list, certain),
            C::Subshell(subshell) => self.list(&subshell.list, certain),
            C::ForClause(clause) => {
                let values = clause.values.as_deref().unwrap_or_default();
                let is_read = is_read_by_programs(&clause.variable_name);
                if is_read && values.len() > MAX_SET {
                    self.unknown();
                }
                for (at, value) in values.iter().enumerate() {
                    let flat = flatten(&value.value)?;
                    if is_read && at < MAX_SET {
                        self.set(&clause.variable_name, &flat.text, certain)?;
                    }
                    self.text(flat, certain)?;
                }
                self.list(&clause.body.list, certain)
            }
            C::CaseClause(clause) => {
                self.word(&clause.value, certain)?;
                for item in &clause.cases {
                    item.patterns
                        .iter()
                        .try_for_each(|word| self.word(word, certain).map(drop))?;
                    item.cmd
                        .iter()
                        .try_for_each(|list| self.list(list, certain))?;
                }
                Ok(())
            }
            C::IfClause(clause) => {
                self.list(&clause.condition, certain)?;
                self.list(&clause.then, certain)?;
                for part in clause.elses.as_deref().unwrap_or_default() {
                    part.condition
                        .iter()
                        .try_for_each(|list| self.list(list, certain))?;
                    self.list(&part.body, certain)?;
                }
                Ok(())
            }
            C::WhileClause(clause) | C::UntilClause(clause) => {
                self.list(&clause.0, certain)?;
                self.list(&clause.1.list, certain)
            }
            C::Coprocess(coprocess) => self.one(&coprocess.body, certain),
        }
    }

    fn simple_command(&mut self, command: &ast::SimpleCommand, certain: bool) -> Walk {
        let mut words = Vec::new();
        let mut given = Given::default();
        let prefix = command.prefix.iter().flat_map(|prefix| &prefix.0);
        for item in prefix {
            self.item(item, certain, &mut words, &mut given)?;
        }
        // Assignments before the name are no words of the command.
        words.clear();
        if let Some(name) = &command.word_or_name {
            words.push(self.word(name, certain)?);
        }
        let suffix = command.suffix.iter().flat_map(|suffix| &suffix.0);
        let name = command.word_or_name.as_ref();
        let declares = name.is_some_and(|name| declares(&name.value));
        for item in suffix {
            self.item(item, certain, &mut words, &mut given)?;
            if let ast::CommandPrefixOrSuffixItem::AssignmentWord(assignment, _) = item
                && let Some(word) = words.last_mut().filter(|_| declares)
            {
                // Written without quotes such a built-in takes a value for one word; those of an array were looked at.
                *word = match assignment.value {
                    ast::AssignmentValue::Scalar(_) => {
                        word.replace(UNKNOWN_WORDS, &UNKNOWN.to_string())
                    }
                    ast::AssignmentValue::Array(_) => format!("{}=()", assignment.name),
                };
            }
        }
        self.set_by(&words, &given, certain)?;
        if may_read(&words) {
            // Into a variable, which is expanded once more.
            given
                .texts()
                .try_for_each(|text| self.all(&hidden(text), certain))?;
            if given.input.is_none() {
                self.own_input_expanded(certain)?;
            }
        } else if let Some(name) = words.first() {
            self.fed
                .extend(given.texts().map(|text| (name.clone(), text.clone())));
        }
        for text in &given.elsewhere {
            // `. /dev/fd/3`, or whatever is told to read it there.
            self.nested(&Nested::new(plain(text), false), false)?;
        }
        // Only a word of unknown value may leave the next to be the command.
        let nested = self.command(&words, certain, given.input.as_ref());
        self.all(&nested, certain)
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

    fn item(
        &mut self,
        item: &ast::CommandPrefixOrSuffixItem,
        certain: bool,
        words: &mut Vec<String>,
        given: &mut Given,
    ) -> Walk {
        use ast::CommandPrefixOrSuffixItem as I;
        match item {
            I::IoRedirect(redirect) => {
                let found = self.redirect(redirect, certain)?;
                given.add(found);
                Ok(())
            }
            I::Word(word) => {
                words.push(self.word(word, certain)?);
                Ok(())
            }
            I::AssignmentWord(assignment, word) => {
                self.assignment(assignment, certain)?;
                words.push(match assignment.value {
                    ast::AssignmentValue::Scalar(_) => self.word(word, certain)?,
                    ast::AssignmentValue::Array(_) => UNKNOWN_WORDS.to_string(),
                });
                Ok(())
            }
            I::ProcessSubstitution(_, subshell) => {
                words.push(UNKNOWN_WORDS.to_string());
                self.list(&subshell.list, certain)
            }
        }
    }

    fn assignment(&mut self, assignment: &ast::Assignment, certain: bool) -> Walk {
        if let ast::AssignmentName::ArrayElementName(_, index) = &assignment.name {
            self.text(flatten_unquoted(index)?, certain)?;
        }
        let values: Vec<&ast::Word> = match &assignment.value {
            ast::AssignmentValue::Scalar(value) => vec![value],
            ast::AssignmentValue::Array(items) => items
                .iter()
                .flat_map(|(key, value)| key.iter().chain([value]))
                .collect(),
        };
        for value in values {
            let text = self.word(value, certain)?;
            self.set(&assignment.name.to_string(), &text, certain)?;
        }
        Ok(())
    }

    fn test(&mut self, expression: &ast::ExtendedTestExpr, certain: bool) -> Walk {
        use ast::ExtendedTestExpr as E;
        match expression {
            E::And(left, right) | E::Or(left, right) => {
                self.test(left, certain)?;
                self.test(right, certain)
            }
            E::Not(inner) | E::Parenthesized(inner) => self.test(inner, certain),
            E::UnaryTest(_, word) => self.test_word(word, certain),
            E::BinaryTest(_, left, right) => {
                self.test_word(left, certain)?;
                self.test_word(right, certain)
            }
        }
    }

    /// A regular expression need not be a word of the shell.
    fn test_word(&mut self, word: &ast::Word, certain: bool) -> Walk {
        match flatten(&word.value) {
            Ok(flat) => self.text(flat, certain),
            Err(_) if !word.value.contains("$(") && !word.value.contains('`') => {
                self.apart(Apart::Posix);
                Ok(())
            }
            Err(unreadable) => Err(unreadable),
        }
    }

    fn arithmetic(
        &mut self,
        expression: Option<&ast::UnexpandedArithmeticExpr>,
        certain: bool,
    ) -> Walk {
        match expression {
            Some(expression) => self.text(flatten_unquoted(&expression.value)?, certain),
            None => Ok(()),
        }
    }

    fn word(&mut self, word: &ast::Word, certain: bool) -> Result<String, Unreadable> {
        let flat = flatten(&word.value)?;
        self.apart(flat.apart);
        self.all(&flat.nested, certain)?;
        Ok(flat.text)
    }

    /// A word of which only what it runs is of interest.
    fn text(&mut self, flat: Flat, certain: bool) -> Walk {
        self.apart(flat.apart);
        self.all(&flat.nested, certain)?;
        self.all(&hidden(&flat.text), certain)
    }

    pub(super) fn all(&mut self, nested: &[Nested], certain: bool) -> Walk {
        nested
            .iter()
            .try_for_each(|nested| self.nested(nested, certain))
    }

    fn redirects(&mut self, redirects: Option<&ast::RedirectList>, certain: bool) -> Walk {
        let mut redirects = redirects.iter().flat_map(|redirects| &redirects.0);
        // Which command within reads it is not known, nor is what a shell there gets.
        redirects.try_for_each(|redirect| {
            // Something in it may read it into a variable.
            let (_, input) = self.redirect(redirect, certain)?;
            match input {
                Input::Text(text) => self.all(&hidden(&text), certain),
                Input::Unknown => Ok(()),
            }
        })
    }

    /// Answers which descriptor it changes, and what can be read there.
    fn redirect(&mut self, redirect: &ast::IoRedirect, certain: bool) -> Result<Fed, Unreadable> {
        use ast::{IoFileRedirectKind as K, IoFileRedirectTarget as T, IoRedirect as R};
        match redirect {
            R::File(descriptor, kind, target) => {
                let writes = matches!(kind, K::Write | K::Append | K::ReadAndWrite | K::Clobber);
                match target {
                    T::Filename(word) => {
                        let path = self.word(word, certain)?;
                        if writes {
                            self.write(&path);
                        }
                    }
                    T::Fd(_) => {}
                    // To bash the sign that closes is a word of its own, whatever touches it.
                    T::Duplicate(word)
                        if joined(&word.value).len() > 1
                            && joined(&word.value).starts_with('-') =>
                    {
                        return Err(Unreadable::Ambiguous);
                    }
                    T::Duplicate(word) => {
                        let text = self.word(word, certain)?;
                        let number = text.trim_end_matches('-');
                        let is_descriptor = number.bytes().all(|byte| byte.is_ascii_digit());
                        if matches!(kind, K::DuplicateOutput) && !is_descriptor {
                            self.write(&text);
                        }
                    }
                    T::ProcessSubstitution(_, subshell) => self.list(&subshell.list, certain)?,
                }
                if matches!(kind, K::Read | K::ReadAndWrite | K::DuplicateInput)
                    && descriptor.is_some_and(|descriptor| descriptor != STDIN)
                {
                    self.opens = true;
                }
                let usual = match kind {
                    K::Read | K::ReadAndWrite | K::DuplicateInput => STDIN,
                    K::Write | K::Append | K::Clobber | K::DuplicateOutput => STDOUT,
                };
                Ok((descriptor.unwrap_or(usual), Input::Unknown))
            }
            R::HereDocument(descriptor, document) => {
                let body = document_body(document)?;
                let text = match document.requires_expansion {
                    false => literal(&body),
                    true => {
                        let flat = flatten_unquoted(&body)?;
                        self.apart(flat.apart);
                        self.all(&flat.nested, certain)?;
                        flat.text
                    }
                };
                Ok((descriptor.unwrap_or(STDIN), Input::Text(text)))
            }
            R::HereString(descriptor, word) => {
                let text = self.word(word, certain)?;
                Ok((descriptor.unwrap_or(STDIN), Input::Text(text)))
            }
            R::OutputAndError(word, _) => {
                self.bash_only();
                let path = self.word(word, certain)?;
                self.write(&path);
                Ok((STDOUT, Input::Unknown))
            }
        }
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

/// Whether a command is one whose name looks like an option.
fn begins_with_option(command: &ast::Command) -> bool {
    let ast::Command::Simple(simple) = command else {
        return false;
    };
    let name = simple.word_or_name.as_ref();
    let name = name.and_then(|name| flatten(&name.value).ok());
    name.is_some_and(|name| name.text.starts_with('-'))
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

/// The lines of a here-document, as bash has them: where the word behind `<<` is not quoted, lines that go on in the
/// next are joined before they are held against it, which the parser does not do.
fn document_body(document: &ast::IoHereDocument) -> Result<Cow<'_, str>, Unreadable> {
    let (body, end) = (&document.doc.value, &document.here_end.value);
    // What else a quoted word comes to, the parser does not tell as bash does.
    let unquoted = ['\'', '"']
        .iter()
        .find_map(|quote| end.strip_prefix(*quote)?.strip_suffix(*quote));
    let end = unquoted.or_else(|| end.strip_prefix('\\')).unwrap_or(end);
    let is_plain = |c: char| c.is_alphanumeric() || "_-.,:+%@!^".contains(c);
    if !end.chars().all(is_plain) {
        return Err(Unreadable::Ambiguous);
    }
    if !document.requires_expansion || !body.contains("\\\n") {
        return Ok(Cow::Borrowed(body));
    }
    let (joined, goes_on) = without_joints(body);
    let ends_before = joined
        .lines()
        .any(|line| line.trim_start_matches('\t') == end);
    match goes_on || ends_before {
        true => Err(Unreadable::Ambiguous),
        false => Ok(Cow::Owned(joined)),
    }
}

/// `text` with lines joined that go on in the next, and whether the last one does.
fn without_joints(text: &str) -> (String, bool) {
    let mut joined = String::new();
    let mut goes_on = false;
    for line in text.split_inclusive('\n') {
        let whole = line.strip_suffix('\n').unwrap_or(line);
        let backslashes = whole.len() - whole.trim_end_matches('\\').len();
        goes_on = whole.len() < line.len() && backslashes % 2 == 1;
        joined.push_str(if goes_on {
            &whole[..whole.len() - 1]
        } else {
            line
        });
    }
    (joined, goes_on)
}

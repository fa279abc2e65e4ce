//! Simple commands, functions and coprocesses, and what joins commands.

use super::redirects::is_element;
use super::words::{Place, ends_word};
use super::{Command, Item, List, Parser, Piece, Pipeline, Simple, Unreadable, Word};

/// Words that end what other words have begun.
const ENDS: [&str; 8] = ["}", "do", "done", "elif", "else", "esac", "fi", "then"];

/// Words of the grammar's own, where a command may begin.
fn is_reserved(raw: &str) -> bool {
    let begins = [
        "!", "[[", "]]", "case", "coproc", "for", "function", "if", "in", "select", "time",
        "until", "while", "{",
    ];
    begins.contains(&raw) || ENDS.contains(&raw)
}

fn has_subscript(word: &Word<'_>) -> bool {
    let is_subscript = |piece: &Piece<'_>| matches!(piece, Piece::Subscript(_) | Piece::Array(_));
    word.pieces.iter().any(is_subscript)
}

/// Where a command may begin.
const COMMAND: Place = Place {
    assigns: true,
    declares: false,
    is_element: false,
    is_name: false,
    is_pattern: false,
    is_expression: false,
};

/// Built-ins behind which an array may be set.
fn sets_arrays(raw: &str) -> bool {
    matches!(
        raw,
        "alias" | "declare" | "eval" | "export" | "let" | "local" | "readonly" | "typeset"
    )
}

impl<'a> Parser<'a> {
    /// Goes behind blanks, and a comment behind those.
    pub(super) fn blanks(&mut self) -> Result<(), Unreadable> {
        while matches!(self.source.peek(), Some(' ' | '\t')) {
            self.source.next();
        }
        if self.source.peek() == Some('#') {
            while !matches!(self.source.peek_raw(), Some('\n') | None) {
                self.source.next_raw();
            }
        }
        self.source.bound()
    }

    pub(super) fn newlines(&mut self) -> Result<(), Unreadable> {
        self.blanks()?;
        while self.source.peek() == Some('\n') {
            self.newline()?;
            self.blanks()?;
        }
        Ok(())
    }

    /// Reads the next line, and those that it goes on in, with its here-documents; `None` at the end of the script.
    pub(super) fn line(&mut self) -> Result<Option<List<'a>>, Unreadable> {
        self.newlines()?;
        if self.source.peek().is_none() {
            return Ok(None);
        }
        let mut list = List::new();
        loop {
            self.pipelines(&mut list)?;
            self.blanks()?;
            if matches!(self.source.peek(), Some('\n') | None) {
                self.newline()?;
                return Ok(Some(list));
            }
        }
    }

    /// Reads pipelines to what ends them, which is not read: a word such as `done`, a sign such as `)`.
    pub(super) fn list(&mut self) -> Result<List<'a>, Unreadable> {
        let mut list = List::new();
        self.newlines()?;
        while !self.is_end() && self.pipelines(&mut list)? {
            self.newlines()?;
        }
        Ok(list)
    }

    /// Reads pipelines that `&&` and `||` join, and the sign behind them if that ends nothing else. False where they are the
    /// last: it is behind a compound command that one may be ended by a word.
    fn pipelines(&mut self, list: &mut List<'a>) -> Result<bool, Unreadable> {
        loop {
            let pipeline = self.pipeline()?;
            // Behind a word what ends them would be one as well.
            let may_end = match pipeline.commands.last() {
                Some(Command::Compound(_, redirects)) => redirects.is_empty(),
                Some(Command::Function { .. } | Command::Coprocess(_)) => true,
                Some(Command::Simple(_)) | None => false,
            };
            list.push(pipeline);
            self.blanks()?;
            if self.source.eat("&&") || self.source.eat("||") {
                self.newlines()?;
                if self.is_end() {
                    return Err(Unreadable::Grammar);
                }
                continue;
            }
            match (self.source.peek(), self.source.peek_second()) {
                (Some('\n'), _) => {}
                (Some(';'), second) if !matches!(second, Some(';' | '&')) => {
                    self.source.skip();
                }
                (Some('&'), second) if second != Some('>') => self.source.skip(),
                (None | Some(')' | ';'), _) => return Ok(false),
                _ if may_end && self.is_end() => return Ok(false),
                _ => return Err(Unreadable::Grammar),
            }
            return Ok(true);
        }
    }

    /// The same where there has to be one.
    pub(super) fn commands(&mut self) -> Result<List<'a>, Unreadable> {
        let list = self.list()?;
        match list.is_empty() {
            true => Err(Unreadable::Grammar),
            false => Ok(list),
        }
    }

    fn is_end(&mut self) -> bool {
        match self.source.peek() {
            None | Some(')') => true,
            Some(';') => matches!(self.source.peek_second(), Some(';' | '&')),
            Some(_) => ENDS.contains(&&*self.peek_plain()),
        }
    }

    /// The word that comes next, if it has neither quotes nor expansions.
    pub(super) fn peek_plain(&mut self) -> String {
        let at = self.source.at();
        let mut word = String::new();
        while let Some(c) = self.source.peek() {
            if c.is_ascii_alphabetic() || "{}[]!-".contains(c) {
                word.push(c);
                self.source.skip();
                continue;
            }
            // A process substitution goes on with a word.
            let goes_on = matches!(c, '<' | '>') && self.source.peek_second() == Some('(');
            if goes_on || !ends_word(c) {
                word.clear();
            }
            break;
        }
        self.source.go_to(at);
        word
    }

    /// Reads `word` if it comes next.
    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        self.peek_plain() == word && self.source.eat(word)
    }

    pub(super) fn expect(&mut self, word: &str) -> Result<(), Unreadable> {
        match self.eat_word(word) {
            true => Ok(()),
            false => Err(Unreadable::Grammar),
        }
    }

    fn pipeline(&mut self) -> Result<Pipeline<'a>, Unreadable> {
        let mut pipeline = Pipeline {
            timed: false,
            has_option: false,
            commands: Vec::new(),
        };
        let mut is_prefixed = false;
        loop {
            if self.eat_word("time") {
                pipeline.timed = true;
                self.blanks()?;
                if self.eat_word("-p") {
                    pipeline.has_option = true;
                    self.blanks()?;
                }
                pipeline.has_option |= self.eat_word("--");
            } else if self.eat_word("!") {
                self.extended |= self.source.peek() == Some('(');
            } else {
                break;
            }
            is_prefixed = true;
            self.blanks()?;
        }
        if is_prefixed && matches!(self.source.peek(), None | Some('\n' | ';')) {
            return Ok(pipeline);
        }
        let word = self.peek_plain();
        let is_compound = ["case", "for", "if", "select", "until", "while"].contains(&&*word);
        if pipeline.timed && is_compound && self.substitutions > 0 {
            // To some of bash 5.2 those are words there.
            return Err(Unreadable::Ambiguous);
        }
        loop {
            pipeline.commands.push(self.deeper(Self::command)?);
            self.blanks()?;
            let at = self.source.at();
            if !self.source.eat("|") {
                return Ok(pipeline);
            }
            if self.source.peek() == Some('|') {
                self.source.go_to(at);
                return Ok(pipeline);
            }
            self.source.eat("&");
            self.newlines()?;
        }
    }

    fn command(&mut self) -> Result<Command<'a>, Unreadable> {
        if let Some(compound) = self.compound()? {
            return self.redirected(compound);
        }
        let word = self.peek_plain();
        match &*word {
            "coproc" => {
                self.source.eat("coproc");
                self.coprocess()
            }
            "function" => {
                self.source.eat("function");
                self.blanks()?;
                let name = self.word(Place {
                    is_name: true,
                    ..Place::default()
                })?;
                let name = name.ok_or(Unreadable::Grammar)?;
                self.blanks()?;
                let at = self.source.at();
                if self.source.eat("(") {
                    self.blanks()?;
                    if !self.source.eat(")") {
                        self.source.go_to(at);
                    }
                }
                self.function(name, true)
            }
            "!" | "in" | "]]" => Err(Unreadable::Grammar),
            word if ENDS.contains(&word) => Err(Unreadable::Grammar),
            _ => self.simple(),
        }
    }

    /// Reads the body of a function.
    fn function(&mut self, name: Word<'a>, is_named: bool) -> Result<Command<'a>, Unreadable> {
        self.no_case(&name)?;
        self.newlines()?;
        self.functions += 1;
        let body = self.compound()?.ok_or(Unreadable::Grammar)?;
        self.functions -= 1;
        Ok(Command::Function {
            name: name.raw,
            is_named,
            body: Box::new(self.redirected(body)?),
        })
    }

    fn coprocess(&mut self) -> Result<Command<'a>, Unreadable> {
        self.blanks()?;
        if let Some(compound) = self.compound()? {
            let body = self.redirected(compound)?;
            return Ok(Command::Coprocess(Box::new(body)));
        }
        let at = self.source.at();
        if is_reserved(&self.peek_plain()) {
            return Err(Unreadable::Ambiguous);
        }
        if self.word(COMMAND)?.is_some() {
            // The name of what follows.
            self.blanks()?;
            if let Some(compound) = self.compound()? {
                let body = self.redirected(compound)?;
                return Ok(Command::Coprocess(Box::new(body)));
            }
            // Bash reads a subscript there as that of an assignment, others do not.
            while let Some(word) = self.word(COMMAND)? {
                if has_subscript(&word) {
                    return Err(Unreadable::Ambiguous);
                }
                if word.value.is_none() {
                    break;
                }
                self.blanks()?;
            }
        }
        self.source.go_to(at);
        Ok(Command::Coprocess(Box::new(self.simple()?)))
    }

    /// A simple command, or a function whose name is its only word.
    fn simple(&mut self) -> Result<Command<'a>, Unreadable> {
        let mut simple = Simple::default();
        let mut place = COMMAND;
        let mut has_redirect = false;
        loop {
            self.blanks()?;
            if let Some(redirect) = self.redirect()? {
                has_redirect = true;
                simple.items.push(Item::Redirect(redirect));
                continue;
            }
            let Some(word) = self.word(place)? else {
                break;
            };
            // Whether an array may be set there has changed with bash's versions.
            let is_odd = has_redirect && has_subscript(&word);
            // In a substitution bash 5.2 puts redirects behind the words before it is run.
            let is_moved = matches!(simple.items[..], [Item::Redirect(_), ..])
                && word.value.is_none()
                && is_reserved(&word.raw);
            if place.assigns && (is_odd || is_moved) {
                return Err(Unreadable::Ambiguous);
            }
            if matches!(self.source.peek(), Some('<' | '>')) && is_element(&word.raw) {
                // The variable that is to have a descriptor, in whose subscript anything may be run.
                return Err(Unreadable::Ambiguous);
            }
            if place.assigns && word.value.is_none() {
                place = Place {
                    assigns: false,
                    declares: sets_arrays(&word.raw),
                    ..place
                };
                self.blanks()?;
                if simple.items.is_empty() && self.source.eat("(") {
                    self.blanks()?;
                    return match self.source.eat(")") {
                        true => self.function(word, false),
                        false => Err(Unreadable::Grammar),
                    };
                }
                simple.name = Some(simple.items.len());
            }
            simple.items.push(Item::Word(word));
        }
        match simple.items.is_empty() {
            true => Err(Unreadable::Grammar),
            false => Ok(Command::Simple(simple)),
        }
    }
}

//! Compound commands, and the expressions of `[[`.

use super::words::Place;
use super::{Command, Compound, List, Parser, Unreadable, Word};

impl<'a> Parser<'a> {
    /// Reads what redirects a compound command.
    pub(super) fn redirected(&mut self, compound: Compound<'a>) -> Result<Command<'a>, Unreadable> {
        let mut redirects = Vec::new();
        loop {
            self.blanks()?;
            match self.redirect()? {
                Some(redirect) => redirects.push(redirect),
                None => return Ok(Command::Compound(compound, redirects)),
            }
        }
    }

    /// Reads a compound command if one comes next.
    pub(super) fn compound(&mut self) -> Result<Option<Compound<'a>>, Unreadable> {
        if self.source.peek() == Some('(') {
            return self.parenthesis().map(Some);
        }
        let word = self.peek_plain();
        if !matches!(
            &*word,
            "[[" | "case" | "for" | "if" | "select" | "until" | "while" | "{"
        ) {
            return Ok(None);
        }
        let before = self.source.before().trim_end_matches([' ', '\t']);
        let is_behind_sign = before.ends_with(['{', '!']);
        self.source.eat(&word);
        let compound = match &*word {
            "{" => {
                let list = self.commands()?;
                self.expect("}")?;
                Compound::Lists(vec![list])
            }
            "if" => Compound::Lists(self.conditions()?),
            "case" => {
                self.cases += 1;
                let is_odd = self.cases > 1 || is_behind_sign;
                if self.substitutions > 0 && is_odd {
                    // Bash 5.1 knows one of them, and not there.
                    return Err(Unreadable::Ambiguous);
                }
                let case = self.case()?;
                self.cases -= 1;
                case
            }
            "for" | "select" => self.repeat(&word)?,
            "[[" => {
                let mut words = Vec::new();
                self.test(&mut words)?;
                self.expect("]]")?;
                Compound::Test(words)
            }
            _ => {
                let condition = self.commands()?;
                Compound::Lists(vec![condition, self.body()?])
            }
        };
        Ok(Some(compound))
    }

    fn parenthesis(&mut self) -> Result<Compound<'a>, Unreadable> {
        self.source.next();
        if self.source.peek() == Some('(') {
            let at = self.source.at();
            self.source.next();
            if let Some(expression) = self.arithmetic()? {
                return Ok(Compound::Arithmetic(expression));
            }
            self.read_again(self.source.since(at))?;
            self.source.go_to(at);
        }
        let list = self.commands()?;
        match self.source.eat(")") {
            true => Ok(Compound::Lists(vec![list])),
            false => Err(Unreadable::Grammar),
        }
    }

    /// `do …; done`
    fn body(&mut self) -> Result<List<'a>, Unreadable> {
        self.expect("do")?;
        let list = self.commands()?;
        self.expect("done")?;
        Ok(list)
    }

    fn conditions(&mut self) -> Result<Vec<List<'a>>, Unreadable> {
        let mut lists = Vec::new();
        loop {
            let documents = self.documents.len() + self.pending.len();
            lists.push(self.commands()?);
            let has_document = self.documents.len() + self.pending.len() > documents;
            if has_document && self.substitutions + self.functions > 0 {
                // Bash 5.2 writes it behind the next line before that is run, or exported.
                return Err(Unreadable::Ambiguous);
            }
            self.expect("then")?;
            lists.push(self.commands()?);
            if self.eat_word("elif") {
                continue;
            }
            if self.eat_word("else") {
                lists.push(self.commands()?);
            }
            self.expect("fi")?;
            return Ok(lists);
        }
    }

    /// `for` and `select`.
    fn repeat(&mut self, keyword: &str) -> Result<Compound<'a>, Unreadable> {
        self.blanks()?;
        if keyword == "for" && self.source.peek() == Some('(') {
            self.source.next();
            if !self.source.eat("(") {
                return Err(Unreadable::Grammar);
            }
            let expression = self.arithmetic()?.ok_or(Unreadable::Grammar)?;
            self.terminator()?;
            return Ok(Compound::ArithmeticFor(expression, self.group_or_body()?));
        }
        let name = self.word(Place::default())?.ok_or(Unreadable::Grammar)?;
        self.no_case(&name)?;
        let mut words = Vec::new();
        self.blanks()?;
        if self.source.peek() == Some(';') {
            self.terminator()?;
        } else {
            self.newlines()?;
            if self.eat_word("in") {
                words = self.plain_words()?;
                words.iter().try_for_each(|word| self.no_case(word))?;
                self.terminator()?;
            }
        }
        Ok(Compound::For {
            selects: keyword == "select",
            name: name.raw,
            words,
            body: self.group_or_body()?,
        })
    }

    /// Words to the end of a line, or to another sign.
    fn plain_words(&mut self) -> Result<Vec<Word<'a>>, Unreadable> {
        let mut words = Vec::new();
        loop {
            self.blanks()?;
            match self.word(Place::default())? {
                Some(word) => words.push(word),
                None => return Ok(words),
            }
        }
    }

    /// Reads the end of a list of words, and of lines behind it.
    fn terminator(&mut self) -> Result<(), Unreadable> {
        self.blanks()?;
        if self.source.peek() == Some(';') {
            self.source.next();
        }
        self.newlines()
    }

    fn group_or_body(&mut self) -> Result<List<'a>, Unreadable> {
        if !self.eat_word("{") {
            return self.body();
        }
        let list = self.commands()?;
        self.expect("}")?;
        Ok(list)
    }

    fn case(&mut self) -> Result<Compound<'a>, Unreadable> {
        self.blanks()?;
        let word = self.word(Place::default())?.ok_or(Unreadable::Grammar)?;
        self.newlines()?;
        self.expect("in")?;
        let (mut patterns, mut lists) = (Vec::new(), Vec::new());
        loop {
            self.newlines()?;
            if self.eat_word("esac") {
                break;
            }
            if self.source.eat("(") && self.source.peek() == Some('(') {
                return Err(Unreadable::Ambiguous);
            }
            loop {
                self.blanks()?;
                let pattern = self.word(Place::default())?;
                let pattern = pattern.ok_or(Unreadable::Grammar)?;
                if pattern.raw == "esac" {
                    // In a substitution bash 5.2 writes it otherwise before it is run.
                    return Err(Unreadable::Ambiguous);
                }
                patterns.push(pattern);
                self.blanks()?;
                if !self.source.eat("|") {
                    break;
                }
            }
            if !self.source.eat(")") {
                return Err(Unreadable::Grammar);
            }
            lists.push(self.list()?);
            if !(self.source.eat(";;&") || self.source.eat(";;") || self.source.eat(";&")) {
                let before = self.source.before().trim_end_matches([' ', '\t']);
                if self.substitutions > 0 && !before.ends_with([';', '\n']) {
                    // Behind another compound command bash 5.1 does not see it.
                    return Err(Unreadable::Ambiguous);
                }
                self.expect("esac")?;
                break;
            }
        }
        Ok(Compound::Case {
            word,
            patterns,
            lists,
        })
    }

    /// The expression of `[[`, to what ends it.
    fn test(&mut self, words: &mut Vec<Word<'a>>) -> Result<(), Unreadable> {
        loop {
            self.deeper(|parser| parser.term(words))?;
            if !self.source.eat("&&") && !self.source.eat("||") {
                return Ok(());
            }
        }
    }

    /// A part of it, and the blanks behind that.
    fn term(&mut self, words: &mut Vec<Word<'a>>) -> Result<(), Unreadable> {
        self.newlines()?;
        if self.source.eat("(") {
            self.test(words)?;
            if !self.source.eat(")") {
                return Err(Unreadable::Grammar);
            }
            return self.newlines();
        }
        if self.source.peek() == Some('!')
            && matches!(self.source.peek_second(), Some(' ' | '\t' | '\n' | '('))
        {
            self.source.skip();
            self.extended |= self.source.peek() == Some('(');
            return self.deeper(|parser| parser.term(words));
        }
        let first = self.operand(Place::default())?;
        self.blanks()?;
        let is_unary = first.raw.starts_with('-') && first.raw.chars().count() == 2;
        if is_unary
            && !matches!(self.source.peek(), Some(')' | '&' | '|'))
            && self.peek_plain() != "]]"
        {
            // Or a text that begins with a sign, and an operator: a word in either case.
            words.push(self.operand(Place::default())?);
            self.newlines()?;
            if !matches!(self.source.peek(), Some(')' | '&' | '|')) && self.peek_plain() != "]]" {
                words.push(self.operand(Place::default())?);
            }
            return self.newlines();
        }
        words.push(first);
        if matches!(self.source.peek(), Some(')' | '&' | '|')) || self.peek_plain() == "]]" {
            return Ok(());
        }
        let is_sign = self.source.peek_second() != Some('(')
            && (self.source.eat("<") || self.source.eat(">"));
        let operator = match is_sign {
            true => String::new(),
            false => self.operand(Place::default())?.raw,
        };
        self.blanks()?;
        words.push(self.operand(Place {
            is_pattern: matches!(&*operator, "=" | "==" | "!="),
            is_expression: operator == "=~",
            ..Place::default()
        })?);
        self.newlines()
    }

    fn operand(&mut self, place: Place) -> Result<Word<'a>, Unreadable> {
        match self.peek_plain() == "]]" {
            true => Err(Unreadable::Grammar),
            false => {
                let word = self.word(place)?.ok_or(Unreadable::Grammar)?;
                self.no_case(&word)?;
                Ok(word)
            }
        }
    }
}

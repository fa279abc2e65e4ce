//! Commands, and what joins them.

use super::words::{Place, ends_word, is_name};
use super::{
    Command, Compound, Item, Kind, List, Parser, Piece, Pipeline, Redirect, Simple, Unreadable,
    Word,
};

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

/// The least descriptor that bash gives to one with a name.
const FIRST_NAMED: i32 = 10;

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

    fn newlines(&mut self) -> Result<(), Unreadable> {
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
    fn commands(&mut self) -> Result<List<'a>, Unreadable> {
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
    fn peek_plain(&mut self) -> String {
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
    fn eat_word(&mut self, word: &str) -> bool {
        self.peek_plain() == word && self.source.eat(word)
    }

    fn expect(&mut self, word: &str) -> Result<(), Unreadable> {
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

    /// Reads what redirects a compound command.
    fn redirected(&mut self, compound: Compound<'a>) -> Result<Command<'a>, Unreadable> {
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
    fn compound(&mut self) -> Result<Option<Compound<'a>>, Unreadable> {
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

    /// A simple command, or a function whose name is its only word.
    fn simple(&mut self) -> Result<Command<'a>, Unreadable> {
        let mut simple = Simple::default();
        let mut place = COMMAND;
        loop {
            self.blanks()?;
            if let Some(redirect) = self.redirect()? {
                simple.items.push(Item::Redirect(redirect));
                continue;
            }
            let Some(word) = self.word(place)? else {
                break;
            };
            let has_redirect = simple
                .items
                .iter()
                .any(|item| matches!(item, Item::Redirect(_)));
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

    /// Reads a redirect if one comes next.
    fn redirect(&mut self) -> Result<Option<Redirect<'a>>, Unreadable> {
        let at = self.source.at();
        let descriptor = self.descriptor()?;
        // Behind a sign that a process substitution begins with it is a word.
        let begins =
            matches!(self.source.peek(), Some('<' | '>')) && self.source.peek_second() != Some('(');
        let both = descriptor.is_none()
            && self.source.peek() == Some('&')
            && self.source.peek_second() == Some('>');
        if !begins && !both {
            self.source.go_to(at);
            return Ok(None);
        }
        let signs = [
            "&>>", "&>", "<<<", "<<-", "<<", "<&", "<>", "<", ">>", ">&", ">|", ">",
        ];
        let sign = signs.into_iter().find(|sign| self.source.eat(sign));
        let sign = sign.ok_or(Unreadable::Grammar)?;
        self.blanks()?;
        if matches!(sign, "<&" | ">&") && self.source.peek() == Some('-') {
            // Whatever touches it is another word.
            self.source.next();
            return Ok(Some(Redirect::Duplicate {
                descriptor,
                writes: sign == ">&",
                target: Word::default(),
            }));
        }
        let target = self.word(Place::default())?.ok_or(Unreadable::Grammar)?;
        self.no_case(&target)?;
        let kind = match sign {
            "&>>" | "&>" => return Ok(Some(Redirect::OutputAndError(target))),
            "<<<" => return Ok(Some(Redirect::Text(descriptor, target))),
            "<<-" | "<<" => {
                let document = self.document(&target, sign == "<<-")?;
                return Ok(Some(Redirect::Document(descriptor, document)));
            }
            "<&" | ">&" => {
                return Ok(Some(Redirect::Duplicate {
                    descriptor,
                    writes: sign == ">&",
                    target,
                }));
            }
            "<>" => Kind::ReadAndWrite,
            "<" => Kind::Read,
            _ => Kind::Write,
        };
        Ok(Some(Redirect::File {
            descriptor,
            kind,
            target,
        }))
    }

    /// Reads the number of a descriptor, or the name of the variable that is to have it, right before a redirect.
    fn descriptor(&mut self) -> Result<Option<i32>, Unreadable> {
        let begin = self.source.at();
        let mut text = String::new();
        while let Some(c) = self.source.peek() {
            if c.is_ascii_alphanumeric() || "_{}[]".contains(c) {
                text.push(c);
                self.source.next();
                continue;
            }
            if matches!(c, '<' | '>') {
                if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
                    match text.parse() {
                        Ok(number) => return Ok(Some(number)),
                        // Greater ones are words.
                        Err(_) => break,
                    }
                }
                let name = text
                    .strip_prefix('{')
                    .and_then(|text| text.strip_suffix('}'));
                if let Some(name) = name {
                    let (name, subscript) = name.split_once('[').unwrap_or((name, "]"));
                    if is_name(name)
                        && subscript.trim_start_matches(|c: char| c.is_ascii_digit()) == "]"
                    {
                        return Ok(Some(FIRST_NAMED));
                    }
                }
            }
            break;
        }
        self.source.go_to(begin);
        Ok(None)
    }
}

/// Whether it is `{name[…]}`.
fn is_element(raw: &str) -> bool {
    let inner = raw.strip_prefix('{').and_then(|raw| raw.strip_suffix("]}"));
    let name = inner.and_then(|inner| inner.split_once('['));
    name.is_some_and(|(name, _)| is_name(name))
}

//! Words, and the pieces that they are made of.

use super::pairs::{BRACES, BRACKETS, PARENTHESES, SUBSCRIPT, arithmetic};
use super::{Parser, Piece, Signs, Unreadable, Word};

/// What a word may be, where it stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    /// An assignment, whose subscript is read to its bracket.
    pub assigns: bool,
    /// One of an array, also behind the name of a command for such.
    pub declares: bool,
    /// An element of an array.
    pub is_element: bool,
    /// The name of a function, behind which its parentheses may stand.
    pub is_name: bool,
    /// What is held against a text in `[[`.
    pub is_pattern: bool,
    /// The same as a regular expression.
    pub is_expression: bool,
}

/// Signs behind which a parenthesis opens a pattern.
const EXTENDED: [char; 5] = ['?', '*', '+', '@', '!'];

pub(super) fn ends_word(c: char) -> bool {
    matches!(
        c,
        ' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>'
    )
}

pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether an assignment may have this before its sign.
fn is_variable(raw: &str, place: Place) -> bool {
    let raw = raw.strip_suffix('+').unwrap_or(raw);
    match raw.split_once('[') {
        Some((name, subscript)) => {
            let is_named = if place.is_element {
                name.is_empty()
            } else {
                is_name(name)
            };
            is_named && subscript.ends_with(']')
        }
        None => !place.is_element && is_name(raw),
    }
}

impl<'a> Word<'a> {
    fn push(&mut self, c: char) {
        self.raw.push(c);
        // A value begins with a piece of its own.
        let begins = self.value == Some(self.pieces.len());
        match self.pieces.last_mut() {
            Some(Piece::Text(text)) if !begins => text.push(c),
            Some(_) | None => self.pieces.push(Piece::Text(c.to_string())),
        }
    }

    fn piece(&mut self, raw: &str, piece: Piece<'a>) {
        self.raw.push_str(raw);
        self.pieces.push(piece);
    }
}

impl Piece<'_> {
    /// Whether blanks and signs stand in it that part no words.
    fn is_looked_through(&self) -> bool {
        matches!(self, Self::Pattern(_) | Self::Subscript(_) | Self::Array(_))
    }
}

impl<'a> Parser<'a> {
    /// Reads a word; `None` where there is none.
    pub(super) fn word(&mut self, place: Place) -> Result<Option<Word<'a>>, Unreadable> {
        let mut word = Word::default();
        while let Some(c) = self.source.peek() {
            self.source.bound()?;
            let start = self.source.at();
            let second = self.source.peek_second();
            match c {
                '(' if place.is_expression => {
                    self.source.next();
                    self.pair(PARENTHESES)?;
                    let raw = self.source.since(start);
                    self.has_shift |= raw.contains("<<");
                    word.piece(raw, Piece::Pattern(inner(raw, "(", ')')));
                }
                '|' if place.is_expression => self.one(&mut word),
                c if EXTENDED.contains(&c)
                    && second == Some('(')
                    && !self.is_call(&word, place) =>
                {
                    self.source.next();
                    self.source.next();
                    self.pair(PARENTHESES)?;
                    let raw = self.source.since(start);
                    self.has_shift |= raw.contains("<<");
                    let inside = raw.split_once('(').map_or("", |(_, inside)| inside);
                    word.piece(raw, Piece::Pattern(inner(inside, "", ')')));
                }
                '<' | '>' if second == Some('(') => {
                    self.source.next();
                    self.source.next();
                    let inside = self.substitution()?;
                    word.piece(self.source.since(start), Piece::Process(inside));
                }
                '[' if place.assigns && is_name(&word.raw)
                    || place.is_element && word.raw.is_empty() =>
                {
                    self.source.next();
                    self.pair(SUBSCRIPT)?;
                    let raw = self.source.since(start);
                    self.has_shift |= raw.contains("<<");
                    word.piece(raw, Piece::Subscript(inner(raw, "[", ']')));
                }
                '=' if word.value.is_none() && is_variable(&word.raw, place) => {
                    self.one(&mut word);
                    word.value = Some(word.pieces.len());
                    if self.source.peek() == Some('(') && (place.assigns || place.declares) {
                        let start = self.source.at();
                        self.source.next();
                        let words = self.deeper(|parser| parser.array(place))?;
                        word.piece(self.source.since(start), Piece::Array(words));
                    }
                }
                c if ends_word(c) => break,
                // To bash 5.2 it escapes nothing there.
                '\\' if place.is_element && self.substitutions > 0 => {
                    return Err(Unreadable::Ambiguous);
                }
                c => self.quoted_or_plain(c, &mut word)?,
            }
        }
        if word.pieces.iter().any(Piece::is_looked_through) {
            self.no_case(&word)?;
        }
        Ok((!word.raw.is_empty()).then_some(word))
    }

    /// Looks at a word that bash 5.1, which goes by the characters before it alone, takes for the beginning of a `case` within
    /// a substitution: then it takes parentheses for those of patterns.
    pub(super) fn no_case(&self, word: &Word<'_>) -> Result<(), Unreadable> {
        let has_case = || word.raw.split(ends_word).any(|part| part == "case");
        match self.substitutions > 0 && has_case() {
            true => Err(Unreadable::Ambiguous),
            false => Ok(()),
        }
    }

    /// Whether there are no parentheses of a pattern but those of a function behind its name, or those of a subshell behind
    /// a sign that negates it.
    fn is_call(&mut self, word: &Word<'_>, place: Place) -> bool {
        let at = self.source.at();
        let sign = self.source.next();
        self.source.next();
        let is_empty = self.source.peek() == Some(')');
        self.source.go_to(at);
        self.extended |= !place.is_pattern;
        place.is_name
            || !place.is_pattern
                && place.assigns
                && (is_empty || sign == Some('!') && word.raw.is_empty())
    }

    fn one(&mut self, word: &mut Word<'a>) {
        if let Some(c) = self.source.next() {
            word.push(c);
        }
    }

    /// Reads what means the same in every word.
    fn quoted_or_plain(&mut self, c: char, word: &mut Word<'a>) -> Result<(), Unreadable> {
        let start = self.source.at();
        match c {
            '\\' => {
                self.source.next();
                let piece = match self.source.next_raw() {
                    Some(c) => Piece::Quoted(c.to_string()),
                    None => Piece::Text("\\".to_owned()),
                };
                word.piece(self.source.since(start), piece);
            }
            '\'' => {
                self.source.next();
                let text = self.single(false)?;
                word.piece(self.source.since(start), Piece::Quoted(text.to_owned()));
            }
            '"' => {
                self.source.next();
                let pieces = self.deeper(Self::double)?;
                word.piece(self.source.since(start), Piece::Double(pieces));
            }
            '`' => {
                let piece = self.backquoted()?;
                word.piece(self.source.since(start), piece);
            }
            '$' => match self.source.peek_second() {
                Some('\'') => {
                    self.source.next();
                    self.source.next();
                    let text = self.single(true)?;
                    word.piece(self.source.since(start), Piece::Escaped(text));
                }
                Some('"') => {
                    self.source.next();
                    self.source.next();
                    let pieces = self.deeper(Self::double)?;
                    word.piece(self.source.since(start), Piece::Translated(pieces));
                }
                _ => match self.expansion()? {
                    Some(piece) => word.piece(self.source.since(start), piece),
                    None => word.push('$'),
                },
            },
            _ => self.one(word),
        }
        Ok(())
    }

    /// Reads to the end of `'…'`, whose sign was read, or of `$'…'`, in which a backslash escapes.
    pub(super) fn single(&mut self, escapes: bool) -> Result<&'a str, Unreadable> {
        let start = self.source.at();
        loop {
            self.source.bound()?;
            let text = self.source.since(start);
            match self.source.next_raw() {
                Some('\'') => return Ok(text),
                Some('\\') if escapes => drop(self.source.next_raw()),
                Some(_) => {}
                None => return Err(Unreadable::Grammar),
            }
        }
    }

    /// Reads to the end of `"…"`, whose sign was read.
    fn double(&mut self) -> Result<Vec<Piece<'a>>, Unreadable> {
        let mut word = Word::default();
        loop {
            match self.source.peek() {
                Some('"') => {
                    self.source.next();
                    return Ok(word.pieces);
                }
                Some(c) => self.expanded_or_plain(c, &mut word, true)?,
                None => return Err(Unreadable::Grammar),
            }
        }
    }

    /// Reads what means the same in all texts that are expanded: in quotes, in which a quote may be escaped, and in others.
    fn expanded_or_plain(
        &mut self,
        c: char,
        word: &mut Word<'a>,
        is_quoted: bool,
    ) -> Result<(), Unreadable> {
        self.source.bound()?;
        let start = self.source.at();
        match c {
            '\\' => {
                self.source.next();
                match self.source.peek_raw() {
                    Some(c @ ('$' | '`' | '\\')) => {
                        self.source.next_raw();
                        word.piece(self.source.since(start), Piece::Quoted(c.to_string()));
                    }
                    Some('"') if is_quoted => {
                        self.source.next_raw();
                        word.piece(self.source.since(start), Piece::Quoted('"'.to_string()));
                    }
                    _ => word.push('\\'),
                }
            }
            '`' => {
                let piece = self.backquoted()?;
                word.piece(self.source.since(start), piece);
            }
            '$' => match self.expansion()? {
                Some(piece) => word.piece(self.source.since(start), piece),
                None => word.push('$'),
            },
            _ => self.one(word),
        }
        Ok(())
    }

    /// Reads a text that is not parted into words.
    pub(super) fn text(&mut self, signs: Signs) -> Result<Vec<Piece<'a>>, Unreadable> {
        let mut word = Word::default();
        while let Some(c) = self.source.peek() {
            self.source.bound()?;
            match (signs, c) {
                (Signs::Expansions, c) => self.expanded_or_plain(c, &mut word, false)?,
                (Signs::All, '<' | '>') if self.source.peek_second() == Some('(') => {
                    let start = self.source.at();
                    self.source.next();
                    self.source.next();
                    let inside = self.substitution()?;
                    word.piece(self.source.since(start), Piece::Process(inside));
                }
                (Signs::All, c) => self.quoted_or_plain(c, &mut word)?,
            }
        }
        Ok(word.pieces)
    }

    fn backquoted(&mut self) -> Result<Piece<'a>, Unreadable> {
        self.source.next();
        let start = self.source.at();
        self.quotes('`')?;
        Ok(Piece::Backquoted(inner(self.source.since(start), "", '`')))
    }

    /// Reads an expansion; `None` where the sign, which is read, is one like others.
    fn expansion(&mut self) -> Result<Option<Piece<'a>>, Unreadable> {
        let start = self.source.at();
        self.source.next();
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let piece = match self.source.peek() {
            Some('(') => {
                self.source.next();
                let inside = self.substitution()?;
                match arithmetic(inside)? {
                    Some(expression) => Piece::Arithmetic(expression),
                    None => Piece::Command(inside),
                }
            }
            Some('{') => {
                self.source.next();
                // Commands in bash 5.3, and an error before.
                if matches!(self.source.peek(), Some(' ' | '\t' | '\n' | '|' | '(')) {
                    return Err(Unreadable::Ambiguous);
                }
                self.pair(BRACES)?;
                Piece::Parameter(self.source.since(start))
            }
            Some('[') => {
                self.source.next();
                Piece::Bracketed(self.expression(BRACKETS)?)
            }
            Some(c) if is_of_name(c) => {
                self.source.next();
                while !c.is_ascii_digit() && self.source.peek().is_some_and(is_of_name) {
                    self.source.next();
                }
                Piece::Parameter(self.source.since(start))
            }
            Some('@' | '*' | '#' | '?' | '-' | '$' | '!') => {
                self.source.next();
                Piece::Parameter(self.source.since(start))
            }
            Some(_) | None => return Ok(None),
        };
        Ok(Some(piece))
    }

    /// Reads to the end of what `$(`, `<(` or `>(` has begun, and answers what stands before that.
    pub(super) fn substitution(&mut self) -> Result<&'a str, Unreadable> {
        let start = self.source.at();
        if self.source.peek() == Some('(') {
            // It may be arithmetic.
            let inside = self.expression(PARENTHESES)?;
            if arithmetic(inside)?.is_none() {
                self.read_again(inside)?;
            }
            return Ok(inside);
        }
        let pending = std::mem::take(&mut self.pending);
        let cases = std::mem::take(&mut self.cases);
        let had_shift = std::mem::take(&mut self.has_shift);
        self.substitutions += 1;
        self.deeper(Self::list)?;
        self.substitutions -= 1;
        let inside = self.source.since(start);
        if self.has_shift && inside.contains('\n') {
            // To bash 5.1 a here-document begins there.
            return Err(Unreadable::Ambiguous);
        }
        self.cases = cases;
        self.has_shift |= had_shift;
        if self.source.next() != Some(')') {
            return Err(Unreadable::Grammar);
        }
        // Behind which line the text of a here-document stands then is another question to each version.
        if !self.pending.is_empty() || !pending.is_empty() && inside.contains('\n') {
            return Err(Unreadable::Ambiguous);
        }
        self.pending = pending;
        Ok(inside)
    }

    /// Reads the words of an array.
    fn array(&mut self, place: Place) -> Result<Vec<Word<'a>>, Unreadable> {
        let element = Place {
            is_element: true,
            ..Place::default()
        };
        let mut words = Vec::new();
        loop {
            self.blanks()?;
            match self.source.peek() {
                Some(')') => {
                    self.source.next();
                    return Ok(words);
                }
                Some('\n') => self.newline()?,
                Some(_) => {
                    let word = self.word(element)?.ok_or(Unreadable::Grammar)?;
                    if place.declares && word.value.is_some() && self.source.peek() == Some('(') {
                        return Err(Unreadable::Ambiguous);
                    }
                    if word
                        .pieces
                        .iter()
                        .any(|piece| matches!(piece, Piece::Pattern(_)))
                    {
                        // Mostly that is an error, behind which bash goes on in the next line.
                        return Err(Unreadable::Ambiguous);
                    }
                    words.push(word);
                }
                None => return Err(Unreadable::Grammar),
            }
        }
    }
}

/// `text` without what stands at its ends.
pub(super) fn inner<'a>(text: &'a str, begin: &str, end: char) -> &'a str {
    let text = text.strip_prefix(begin).unwrap_or(text);
    text.strip_suffix(end).unwrap_or(text)
}

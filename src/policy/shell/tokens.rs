//! A script's tokens, as bash has them: where the parser's differ they are put right, or nothing is read.

use std::collections::HashSet;
use std::sync::Arc;

use brush_parser::{SourcePosition, SourceSpan, Token, uncached_tokenize_str};

use super::comments::is_hidden_in_word;
use super::loose::options;
use super::{Unreadable, cost, oddities, parts};

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

/// Without the ends of lines that go on in the next, of which the shell sees nothing at all.
pub(super) fn joined(text: &str) -> String {
    if !text.contains("\\\n") {
        return text.to_owned();
    }
    let mut joined = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, chars.as_str().chars().next()) {
            ('\\', Some('\n')) => drop(chars.next()),
            // One that is escaped itself.
            ('\\', Some(next)) => {
                joined.extend([c, next]);
                chars.next();
            }
            (c, _) => joined.push(c),
        }
    }
    joined
}

/// Whether there may be a command substitution of bash 5.3 (`${ command; }`, `${| command; }`), which is none
/// to the parser.
fn has_braced_substitution(text: &str) -> bool {
    let text = joined(text);
    let mut after = text.split("${").skip(1);
    after.any(|rest| rest.starts_with([' ', '\t', '\n', '|', '(']))
}

/// The parser's tokens of `text`. Of a here-document that an empty line ends it may never see the end, while it takes
/// ever more memory, and what is a blank to it alone it leaves out of the word that ends one.
pub(super) fn tokenized(text: &str) -> Result<Vec<Token>, Unreadable> {
    let documents = joined(text).replace("<<<", "   ");
    let has_own_end = |behind: &str| {
        let behind = behind.strip_prefix('-').unwrap_or(behind);
        let end = behind.trim_start_matches([' ', '\t']);
        end.is_empty()
            || end.starts_with(['\n', '#', '\r', '\x0b', '\x0c'])
            || ["''", "\"\"", "$''", "$\"\""]
                .iter()
                .any(|empty| end.starts_with(empty))
    };
    if documents.split("<<").skip(1).any(has_own_end) {
        return Err(Unreadable::Ambiguous);
    }
    let options = options().tokenizer_options();
    uncached_tokenize_str(text, &options).map_err(|_| Unreadable::Grammar)
}

/// The tokens of `text`, unless parsing them would take too much.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, Unreadable> {
    if has_huge_descriptor(text) {
        return Err(Unreadable::Grammar);
    }
    cost::bound_openings(text)?;
    if has_braced_substitution(text) || parts::ways(text) {
        return Err(Unreadable::Ambiguous);
    }
    let tokens = with_starts_written(tokenized(text)?, text);
    cost::bound_parsing(&tokens)?;
    if is_hidden_in_word(text, &tokens) {
        return Err(Unreadable::Ambiguous);
    }
    let script = Script {
        tokens: &tokens,
        may_comment: text.contains('#'),
        goes_on: text.contains("(\\\n"),
    };
    if joined(text).contains("=(") && script.goes_on_behind_array(text) {
        return Err(Unreadable::Ambiguous);
    }
    if script.may_hide_document() || oddities::are_there(&tokens, text) {
        return Err(Unreadable::Ambiguous);
    }
    let apart: Vec<bool> = (0..tokens.len()).map(|at| script.is_apart(at)).collect();
    let tokens = with_subshells_apart(tokens, apart);
    with_descriptors_numbered(tokens)
}

/// Has each token begin where it is written: behind a here-document's sign the parser takes the blank before one for a part
/// of it, so that it touches what stands before that.
fn with_starts_written(tokens: Vec<Token>, text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let written = |at: &SourceSpan| {
        let (start, end) = (at.start.index, at.end.index);
        let blanks = chars.get(start..end).unwrap_or_default();
        let blanks = blanks
            .iter()
            .take_while(|c| matches!(c, ' ' | '\t'))
            .count();
        let start = SourcePosition {
            index: start + blanks,
            line: at.start.line,
            column: at.start.column + blanks,
        };
        SourceSpan {
            start: Arc::new(start),
            end: Arc::clone(&at.end),
        }
    };
    let tokens = tokens.into_iter();
    let written = tokens.map(|token| match token {
        Token::Operator(text, at) => Token::Operator(text, written(&at)),
        body if is_body(&body) => body,
        Token::Word(text, at) => Token::Word(text, written(&at)),
    });
    written.collect()
}

/// Puts a number in place of the names that redirects give descriptors (`rm x {name}>file`): the parser knows
/// no others there, and takes them for words of the command. A subscript is arithmetic, and may run anything
/// (`{name[$(rm x)]}>file`): of more than a number nothing is read.
fn with_descriptors_numbered(tokens: Vec<Token>) -> Result<Vec<Token>, Unreadable> {
    let names = |at: usize| match tokens.get(at..at + 2) {
        Some(
            [
                Token::Word(word, word_at),
                Token::Operator(operator, operator_at),
            ],
        ) => {
            // With a parenthesis it is a word with a process substitution in it.
            let parenthesis = tokens.get(at + 2).is_some_and(|next| next.to_str() == "(");
            let is_redirect = operator.starts_with(['<', '>'])
                && !operator.ends_with('(')
                && !parenthesis
                && word_at.end.index == operator_at.start.index;
            is_redirect
                .then(|| descriptor_name(&joined(word)))
                .flatten()
        }
        _ => None,
    };
    let names: Vec<Option<Subscript>> = (0..tokens.len()).map(names).collect();
    if names.contains(&Some(Subscript::Arithmetic)) {
        return Err(Unreadable::Ambiguous);
    }
    let numbered = tokens
        .into_iter()
        .zip(names)
        .map(|(token, name)| match (name, token) {
            (Some(_), Token::Word(_, at)) => Token::Word(FIRST_NAMED.to_owned(), at),
            (_, token) => token,
        });
    Ok(numbered.collect())
}

/// The least descriptor that bash gives to one with a name.
const FIRST_NAMED: &str = "10";

/// What stands behind the name of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subscript {
    /// Nothing, or a number.
    Plain,
    Arithmetic,
}

/// What `word` is if it is `{name}` or `{name[subscript]}`.
fn descriptor_name(word: &str) -> Option<Subscript> {
    let inner = word.strip_prefix('{')?.strip_suffix('}')?;
    let (name, subscript) = match inner.split_once('[') {
        Some((name, rest)) => (name, rest.strip_suffix(']')?),
        None => (inner, ""),
    };
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then(|| match subscript.bytes().all(|b| b.is_ascii_digit()) {
        true => Subscript::Plain,
        false => Subscript::Arithmetic,
    })
}

/// Has the parser take `( (` for what it is to bash: two subshells. It takes any two parentheses for the beginning
/// of an arithmetic command.
fn with_subshells_apart(tokens: Vec<Token>, apart: Vec<bool>) -> Vec<Token> {
    let tokens = tokens.into_iter().zip(apart);
    let parted = tokens.flat_map(|(token, apart)| {
        let after = apart.then(|| Token::Operator("\n".to_owned(), token.location().clone()));
        [Some(token), after].into_iter().flatten()
    });
    parted.collect()
}

/// The parser's tokens of a script.
struct Script<'a> {
    tokens: &'a [Token],
    /// Whether there may be comments, which are none of the tokens.
    may_comment: bool,
    /// Whether there may be the end of a line between two parentheses.
    goes_on: bool,
}

impl Script<'_> {
    /// Whether something touches the end of an array (`a=(x)b command`, `a=(x)# command`): to bash it is part of that word,
    /// to the parser a command or a comment.
    fn goes_on_behind_array(&self, text: &str) -> bool {
        // For each parenthesis that is open, whether it is an array's.
        let mut open = Vec::new();
        let mut ends = HashSet::new();
        let mut at = 0;
        while let Some(token) = self.tokens.get(at) {
            if self.opens_twice(at)
                && let Some(length) = self.arithmetic(at)
            {
                at += length;
                continue;
            }
            if is_operator(Some(token), "(") {
                let before = at.checked_sub(1).map(|before| &self.tokens[before]);
                open.push(
                    matches!(before, Some(Token::Word(word, _)) if joined(word).ends_with('=')),
                );
            }
            if is_operator(Some(token), ")") && open.pop() == Some(true) {
                ends.insert(token.location().end.index);
            }
            at += 1;
        }
        let behind = text.chars().enumerate();
        behind
            .filter(|(at, _)| ends.contains(at))
            .any(|(_, c)| !c.is_ascii_whitespace() && !";&|)<>".contains(c))
    }

    /// Whether there are two parentheses at `at` that do not begin an arithmetic command.
    fn is_apart(&self, at: usize) -> bool {
        self.opens_twice(at) && self.arithmetic(at).is_none() && !self.is_loop(at)
    }

    fn opens_twice(&self, at: usize) -> bool {
        [at, at + 1]
            .iter()
            .all(|at| is_operator(self.tokens.get(*at), "("))
    }

    /// Whether they are those of `for ((`, which are nothing else.
    fn is_loop(&self, at: usize) -> bool {
        let before = at.checked_sub(1).map(|before| &self.tokens[before]);
        matches!(before, Some(Token::Word(word, _)) if word == "for")
            && touch(&self.tokens[at], &self.tokens[at + 1])
    }

    /// How many tokens the arithmetic command has that begins at `at`. For bash that takes parentheses side by side, of
    /// which the second is closed right before the first.
    fn arithmetic(&self, at: usize) -> Option<usize> {
        let tokens = &self.tokens[at..];
        let mut open = 0;
        for (at, token) in tokens.iter().enumerate() {
            match token {
                // A comment may have closed it before.
                Token::Operator(operator, _) if operator == "\n" && self.may_comment => {
                    return None;
                }
                Token::Operator(operator, _) if operator.ends_with('(') => open += 1,
                Token::Operator(operator, _) if operator == ")" => open -= 1,
                Token::Operator(..) | Token::Word(..) => {}
            }
            if at > 0 && open == 1 {
                let outer = tokens
                    .get(at + 1)
                    .filter(|outer| is_operator(Some(outer), ")"))?;
                let is_closed = touch(&tokens[0], &tokens[1]) && touch(token, outer);
                return is_closed.then_some(at + 2);
            }
        }
        None
    }

    /// Whether a here-document may look like a shift, or a shift like a here-document. The parser goes by whether it
    /// is between `((` and the next `))`, of which there may be none, or several.
    fn may_hide_document(&self) -> bool {
        let mut is_unsure = false;
        let mut at = 0;
        while let Some(token) = self.tokens.get(at) {
            match token {
                Token::Operator(operator, _) if matches!(&**operator, "<<" | "<<-") => {
                    if is_unsure {
                        return true;
                    }
                    // Its body is no part of the script. Without one it is none.
                    if !self.tokens.get(at + 2).is_some_and(is_body) {
                        return true;
                    }
                    at += 2;
                }
                // Then they are side by side to bash only.
                Token::Operator(..) if self.opens_twice(at) && self.goes_on => is_unsure = true,
                Token::Operator(..) if self.opens_twice(at) => match self.arithmetic(at) {
                    Some(length) => {
                        let inner = &self.tokens[at + 2..at + length - 2];
                        let shifts = |token: &Token| token.to_str().starts_with("<<");
                        let ends = |token: &Token| token.to_str().contains(['(', ')', '[']);
                        if inner.iter().any(shifts) && inner.iter().any(ends) {
                            return true;
                        }
                        at += length - 1;
                    }
                    None => is_unsure |= touch(&self.tokens[at], &self.tokens[at + 1]),
                },
                Token::Operator(..) => {}
                Token::Word(word, _) => match shifts_in(word) {
                    Shifts::Clear => {}
                    Shifts::UnsureBehind => is_unsure = true,
                    Shifts::Unsure => return true,
                },
            }
            at += 1;
        }
        false
    }
}

/// Whether `<<` is a shift or begins a here-document, after a word that may hold arithmetic.
enum Shifts {
    Clear,
    /// It cannot be told of one behind the word.
    UnsureBehind,
    /// It cannot be told of one in the word, nor behind it.
    Unsure,
}

fn shifts_in(word: &str) -> Shifts {
    let word = joined(word);
    let expands = ["$(", "`", "$[", "${"]
        .iter()
        .any(|sign| word.contains(sign));
    if !expands {
        return Shifts::Clear;
    }
    let is_simple = |part: &str| behind_arithmetic(part).is_some();
    let is_clear = !word.contains("$[") && word.split("((").skip(1).all(is_simple);
    let shifts = word.replace("<<<", "").contains("<<");
    let arithmetic = word.contains("((") || word.contains("$[");
    if shifts && arithmetic && !is_clear {
        return Shifts::Unsure;
    }
    // That of `$((` ends with it.
    let commands = word.replace("$((", "");
    match commands.contains("((") {
        true => Shifts::UnsureBehind,
        false => Shifts::Clear,
    }
}

/// What follows arithmetic of the simplest form, whose `((` stands before `text`.
pub(super) fn behind_arithmetic(text: &str) -> Option<&str> {
    let end = text.find(['(', ')', '`', '\'', '"', '\\', '\n'])?;
    text[end..].strip_prefix("))")
}

/// Whether it is the body of a here-document: no other word ends with a line.
pub(super) fn is_body(token: &Token) -> bool {
    matches!(token, Token::Word(word, _) if word.is_empty() || word.ends_with('\n'))
}

pub(super) fn is_operator(token: Option<&Token>, text: &str) -> bool {
    matches!(token, Some(Token::Operator(operator, _)) if operator == text)
}

/// Whether there is nothing between them.
fn touch(token: &Token, next: &Token) -> bool {
    let (SourceSpan { end, .. }, SourceSpan { start, .. }) = (token.location(), next.location());
    end.index == start.index
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(script: &str) -> Result<Vec<String>, Unreadable> {
        let reading = super::super::read_shell(script, &super::super::Fence::default())?;
        let certain = reading
            .commands
            .into_iter()
            .filter(|command| command.certain);
        Ok(certain.map(|command| command.text().to_owned()).collect())
    }

    #[test]
    fn subshells_in_one_another_are_no_arithmetic() {
        for script in [
            "( (a b) )",
            "((a b) )",
            "( ((1)); (a b) )",
            "( ( (a b) ) )",
            "f() ( (a b) )",
        ] {
            assert_eq!(commands(script), Ok(vec!["a b".to_owned()]), "{script:?}");
        }
        for script in [
            "((a))",
            "((a=(1+2)*3))",
            "(((a)))",
            "for ((;a;)); do :; done",
        ] {
            let found = commands(script).expect("readable");
            assert!(
                !found.iter().any(|text| text.starts_with('a')),
                "{script:?}"
            );
        }
    }

    #[test]
    fn a_document_is_none_of_arithmetic() {
        let is_read = |script: &&str| commands(script).is_ok();
        for script in [
            "x=$((1 << 2)); cat",
            "x=$((1 + 2))\ncat <<E\nit's\nE",
            "x=$(((1 + 2) * 3))\ncat <<E\nit's\nE",
            "((x = 1 << 2))\ncat <<E\nit's\nE",
            "(((x + 1) > 1)) && cat <<E\nit's\nE",
            "(( $(date +%s) - s > 5 )) && cat <<E\nit's\nE",
            "cat > a.js <<'E'\nfoo.map((x) => x)\nE\ncat <<E\nb((x) y)\nE",
            "git commit -m \"fix ((x) y\" && cat <<E\nx\nE",
            "cat <<<$(( (1) ))",
            "( (a); cat <<E\nit's\nE\n)",
            "[[ ( -n $a && ( -n $b || -n $c ) ) ]]",
            "for ((i=0;\n i<3;\n i++)); do :; done",
            "((t = a * (b + c)\n + d))",
        ] {
            assert!(is_read(&script), "{script:?}");
        }
        for script in [
            "((:);:)\ncat <<E\nit's\nE\n# '",
            "(\\\n(x = 1 << E))\na\nE",
            "((x = $((1)) << E))\na\nE",
            "echo $(( $((1)) << E ))\na\nE",
            "echo $( ((:);:) )\ncat <<E\nit's\nE\n# '",
        ] {
            assert!(!is_read(&script), "{script:?}");
        }
    }
}

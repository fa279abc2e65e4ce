//! Shapes of tokens with which the parser and bash are known to part ways, beside those of texts ([`super::parts`]).

use brush_parser::{SourceSpan, Token};

use super::loose::begins_compound;
use super::quoting::{skip_quoted, skip_to};
use super::tokens::{is_body, is_operator, joined};

/// Signs behind which a parenthesis opens a pattern, to the parser always.
const EXTENDED: [char; 5] = ['?', '*', '+', '@', '!'];

/// Whether there is one among the tokens of `text`. In doubt there is.
pub(super) fn are_there(tokens: &[Token], text: &str) -> bool {
    let chars: Vec<char> = text.chars().collect();
    names_coprocess(tokens)
        || has_odd_document(tokens, &chars)
        || has_odd_expression(tokens, &chars)
        || has_odd_array(tokens)
        || words(tokens).any(|word| is_mixed_up(word, &chars) || has_odd_end(word.to_str()))
        || words(tokens)
            .map(|word| joined(word.to_str()))
            .any(|word| has_open_subscript(&word) || has_odd_pattern(&word))
}

/// The words, without the texts of here-documents.
fn words(tokens: &[Token]) -> impl Iterator<Item = &Token> {
    words_of(tokens.iter())
}

fn words_of<'t>(tokens: impl Iterator<Item = &'t Token>) -> impl Iterator<Item = &'t Token> {
    tokens.filter(|token| matches!(token, Token::Word(..)) && !is_body(token))
}

fn is_word(token: Option<&Token>, text: &str) -> bool {
    matches!(token, Some(Token::Word(word, _)) if joined(word) == text)
}

/// Whether a line ends behind the only word of a coprocess, which the parser takes for a name of what follows.
fn names_coprocess(tokens: &[Token]) -> bool {
    let begins = |at: usize| is_word(tokens.get(at), "coproc");
    let mut begun = (0..tokens.len()).filter(|at| begins(*at));
    begun.any(|at| {
        let behind = tokens.get(at + 2..).unwrap_or_default();
        let ends = |token: &&Token| is_operator(Some(token), "\n");
        let lines = behind.iter().take_while(ends).count();
        lines > 0
            && match behind.get(lines) {
                Some(Token::Operator(operator, _)) => operator.starts_with('('),
                Some(Token::Word(word, _)) => {
                    let word = joined(word);
                    begins_compound(&word) || matches!(&*word, "{" | "[[")
                }
                None => false,
            }
    })
}

/// Whether the line on which a here-document begins may be another to bash, or the word that ends its text.
fn has_odd_document(tokens: &[Token], chars: &[char]) -> bool {
    let substitutes = tokens.iter().any(
        |token| matches!(token, Token::Operator(operator, _) if matches!(&**operator, "<(" | ">(")),
    );
    let begins = |token: &&Token| matches!(token, Token::Operator(operator, _) if matches!(&**operator, "<<" | "<<-"));
    tokens.iter().filter(begins).any(|sign| {
        let behind = chars.get(sign.location().end.index..).unwrap_or_default();
        let behind: String = behind.iter().collect();
        goes_on(&joined(&behind)) || (substitutes && is_odd_end(&behind))
    })
}

/// Whether something begins on the line at the beginning of `text` that goes on in the next one. Bash looks for the text of
/// a here-document behind all of it, the parser behind the line.
fn goes_on(text: &str) -> bool {
    let (mut open, mut last) = (0_usize, ' ');
    let (mut has_case, mut opens) = (false, false);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            // What nothing follows hides nothing.
            '\n' => return open > 0 && !chars.as_str().is_empty() || has_case && opens,
            '#' if " \t\n;&|()<>".contains(last) => {
                let comment = chars.as_str();
                let end = comment.find('\n').unwrap_or(comment.len());
                chars = comment[end..].chars();
            }
            '(' => (open, opens) = (open + 1, true),
            ')' => open = open.saturating_sub(1),
            'c' if !last.is_alphanumeric() => has_case |= chars.as_str().starts_with("ase"),
            _ => {
                let before = chars.clone();
                match skip_quoted(&mut chars, c) {
                    None => {}
                    Some(false) => return true,
                    Some(true) => {
                        let skipped =
                            &before.as_str()[..before.as_str().len() - chars.as_str().len()];
                        let expands = c != '\'' && skipped.contains(['$', '`', '(']);
                        if c != '\\' && skipped.contains('\n') && (expands || c == '$' || c == '`')
                        {
                            return true;
                        }
                    }
                }
            }
        }
        last = c;
    }
    false
}

/// Whether the word behind `<<` may be another to the parser: in substitutions a second blank is one, and in an expansion
/// whatever stands there.
fn is_odd_end(behind: &str) -> bool {
    let behind = behind.strip_prefix('-').unwrap_or(behind);
    let behind = behind.strip_prefix([' ', '\t']).unwrap_or(behind);
    let is_end = |c: char| c.is_whitespace() || ";|&()<>".contains(c);
    let word = behind.split(is_end).next().unwrap_or_default();
    behind.starts_with(is_end) || word.contains(['$', '`'])
}

/// Whether there is such an end in a word with a substitution.
fn has_odd_end(word: &str) -> bool {
    let substitutes = ["$(", "<(", ">(", "`", "$["]
        .iter()
        .any(|sign| word.contains(sign));
    let text = joined(word).replace("<<<", "   ");
    substitutes && text.split("<<").skip(1).any(is_odd_end)
}

/// Whether a word with a here-document in it is not as it was written: the parser may put something else of its line there.
fn is_mixed_up(word: &Token, chars: &[char]) -> bool {
    if !word.to_str().contains("<<") {
        return false;
    }
    let SourceSpan { start, end } = word.location();
    let written = chars.get(start.index..end.index).unwrap_or_default();
    let written: String = written.iter().collect();
    // Behind `<<-` it leaves out the tabs that begin a line.
    let text = |word: &str| joined(word).replace('\t', "");
    text(&written) != text(word.to_str())
}

/// Whether there is no end in `word` of a subscript that begins in it (`a[1|2]=x command`), or who knows: to bash it is one
/// to its bracket.
fn has_open_subscript(word: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let behind = word.trim_start_matches(is_of_name);
    let Some(subscript) = behind
        .strip_prefix('[')
        .filter(|_| behind.len() < word.len())
    else {
        return false;
    };
    let mut chars = subscript.chars();
    let is_closed = skip_to(&mut chars, ']');
    let inner = &subscript[..subscript.len() - chars.as_str().len()];
    // To the parser a pattern begins there, and ends behind the bracket.
    let begins = |(at, _): (usize, &str)| inner[..at].ends_with(EXTENDED);
    !is_closed || inner.match_indices('(').any(begins)
}

/// Whether a word of an array begins with a subscript that has no end in it, or who knows.
fn has_odd_array(tokens: &[Token]) -> bool {
    let begins = |at: usize| {
        let is_named = matches!(&tokens[at], Token::Word(word, _) if joined(word).ends_with('='));
        is_named && is_operator(tokens.get(at + 1), "(")
    };
    let mut begun = (0..tokens.len()).filter(|at| begins(*at));
    begun.any(|at| {
        let mut open = 0_usize;
        let inner = tokens[at + 1..].iter().take_while(|token| {
            open += usize::from(is_operator(Some(token), "("));
            open -= usize::from(is_operator(Some(token), ")") && open > 0);
            open > 0
        });
        words_of(inner).any(|word| {
            let word = joined(word.to_str());
            let subscript = word.strip_prefix('[');
            subscript.is_some_and(|subscript| !skip_to(&mut subscript.chars(), ']'))
        })
    })
}

/// Whether there is an extended pattern in `word` with a quoted parenthesis in it, or a process substitution.
fn has_odd_pattern(word: &str) -> bool {
    let begins = |text: &str| {
        let mut opens = text.match_indices('(');
        opens.any(|(at, _)| text[..at].ends_with(EXTENDED))
    };
    let mut last = ' ';
    let mut chars = word.chars();
    while let Some(c) = chars.next() {
        if c == '(' && EXTENDED.contains(&last) {
            return is_odd_pattern(chars.as_str());
        }
        let behind = chars.as_str();
        if let Some(false) = skip_quoted(&mut chars, c) {
            // Scripts in it are looked at by themselves.
            let is_read = behind.contains("$(") && !behind.contains("<(") && !behind.contains(">(");
            return begins(behind) && !is_read;
        }
        last = c;
    }
    false
}

fn is_odd_pattern(pattern: &str) -> bool {
    let mut quote = None;
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(_), '(' | ')') => return true,
            (Some('\''), '\'') => quote = None,
            (Some('\''), _) => {}
            (_, '\\') if chars.as_str().starts_with(['(', ')']) => return true,
            (_, '\\') => drop(chars.next()),
            (Some(begun), c) if begun == c => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '<' | '>') if chars.as_str().starts_with('(') => return true,
            (None, _) => {}
        }
    }
    quote.is_some()
}

/// Whether there is something in a regular expression that the parser takes for another part of the script: bash reads what
/// is in parentheses as it is, and knows no comments there.
fn has_odd_expression(tokens: &[Token], chars: &[char]) -> bool {
    /// Of more it would take long.
    const TESTS: usize = 64;
    let tests = tokens.iter().filter(|token| is_word(Some(token), "=~"));
    tests.enumerate().any(|(count, test)| {
        if count >= TESTS {
            return true;
        }
        let behind = chars.get(test.location().end.index..).unwrap_or_default();
        let behind: String = behind.iter().collect();
        is_odd_expression(&joined(&behind))
    })
}

fn is_odd_expression(text: &str) -> bool {
    let (mut open, mut last) = (0_usize, ' ');
    let mut chars = text.trim_start_matches([' ', '\t', '\n']).chars();
    while let Some(c) = chars.next() {
        let before = chars.clone();
        match (c, skip_quoted(&mut chars, c)) {
            (_, Some(false)) => return true,
            // To the parser that is a character as well.
            ('\\', Some(true)) => {}
            (_, Some(true)) => {
                let skipped = before.as_str().len() - chars.as_str().len();
                // The parser may end a parenthesis there.
                if open > 0 && before.as_str()[..skipped].contains(['(', ')', '<', '>', '#', '\n'])
                {
                    return true;
                }
            }
            ('(', None) => open += 1,
            (')', None) => open = open.saturating_sub(1),
            ('\n', None) => return open > 0,
            ('<' | '>', None) if open > 0 && chars.as_str().starts_with(['(', '<']) => return true,
            ('#', None) if open > 0 || "|&;()<>".contains(last) => return true,
            (' ' | '\t', None) if open == 0 => return false,
            (_, None) => {}
        }
        last = c;
    }
    false
}

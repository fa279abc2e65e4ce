//! What looks like arithmetic: whether it is that to bash, too.

use brush_parser::word::{self, WordPiece};

use super::loose::options;

/// Whether bash takes it for arithmetic as well: what closes more than it opens ends a subshell (`$((a); b)`). Bash
/// counts the parentheses of expansions in it, too, and passes over what is quoted.
pub(super) fn is_arithmetic(value: &str) -> bool {
    let Ok(pieces) = word::parse_heredoc(value, &options()) else {
        return false;
    };
    let mut text = String::new();
    for piece in &pieces {
        let raw = value.get(piece.start_index..piece.end_index).unwrap_or(")");
        match &piece.piece {
            WordPiece::Text(_) | WordPiece::EscapeSequence(_) => text.push_str(raw),
            WordPiece::SingleQuotedText(_)
            | WordPiece::AnsiCQuotedText(_)
            | WordPiece::DoubleQuotedSequence(_)
            | WordPiece::GettextDoubleQuotedSequence(_)
            | WordPiece::TildeExpansion(_)
            | WordPiece::ParameterExpansion(_)
            | WordPiece::CommandSubstitution(_)
            | WordPiece::BackquotedCommandSubstitution(_)
            | WordPiece::ArithmeticExpression(_) => {
                if !is_balanced(raw) {
                    return false;
                }
            }
        }
    }
    if !is_balanced(&text) {
        return false;
    }
    // A quote is one to bash, and whether it ends where it seems to is not for us to say.
    let has_parentheses = |part: &str| part.contains(['(', ')']);
    let is_simple = |quote: char, other: char| {
        let mut parts = text.split(quote).skip(1).step_by(2);
        text.matches(quote).count().is_multiple_of(2)
            && !text.contains(other)
            && !parts.any(has_parentheses)
    };
    !has_parentheses(&text)
        || !text.contains('\\') && (is_simple('"', '\'') || is_simple('\'', '"'))
}

/// Whether each parenthesis that is closed was open, and none is left open.
fn is_balanced(text: &str) -> bool {
    let mut open = 0_usize;
    for c in text.chars() {
        match c {
            '(' => open += 1,
            ')' if open == 0 => return false,
            ')' => open -= 1,
            _ => {}
        }
    }
    open == 0
}

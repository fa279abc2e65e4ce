//! Here-documents.

use super::{Document, Parser, Piece, Unreadable, Word};

/// A here-document whose lines are still to come.
#[derive(Debug)]
pub(super) struct Pending {
    /// The line that ends it.
    end: String,
    is_quoted: bool,
    /// Whether tabs are left out that begin a line.
    strips: bool,
}

impl<'a> Parser<'a> {
    /// Begins a here-document, and answers which it will be.
    pub(super) fn document(&mut self, word: &Word<'a>, strips: bool) -> Result<usize, Unreadable> {
        let mut end = String::new();
        let mut is_quoted = false;
        for piece in &word.pieces {
            is_quoted |= !matches!(piece, Piece::Text(_));
            match piece {
                Piece::Text(text) | Piece::Quoted(text) => end.push_str(text),
                Piece::Double(pieces) => match &**pieces {
                    [] => {}
                    [Piece::Text(text)] => end.push_str(text),
                    _ => return Err(Unreadable::Ambiguous),
                },
                // It is no expansion there; how it is written back has changed with bash's versions, or others have it otherwise.
                Piece::Escaped(_)
                | Piece::Translated(_)
                | Piece::Parameter(_)
                | Piece::Command(_)
                | Piece::Backquoted(_)
                | Piece::Arithmetic(_)
                | Piece::Bracketed(_)
                | Piece::Process(_)
                | Piece::Pattern(_)
                | Piece::Subscript(_)
                | Piece::Array(_) => return Err(Unreadable::Ambiguous),
            }
        }
        if end.contains(['\n', '\\']) {
            return Err(Unreadable::Ambiguous);
        }
        self.pending.push(Pending {
            end,
            is_quoted,
            strips,
        });
        Ok(self.documents.len() + self.pending.len() - 1)
    }

    /// Reads the end of a line and the here-documents behind it.
    pub(super) fn newline(&mut self) -> Result<(), Unreadable> {
        self.source.next();
        let pending = std::mem::take(&mut self.pending);
        if self.substitutions > 0 && pending.len() > 1 {
            // Bash 5.1 looks for the end of the first only.
            return Err(Unreadable::Ambiguous);
        }
        for pending in pending {
            let document = self.lines(&pending)?;
            self.documents.push(document);
        }
        Ok(())
    }

    /// Reads a here-document to the line that ends it, or to the end of the script, which is none to no shell.
    fn lines(&mut self, pending: &Pending) -> Result<Document, Unreadable> {
        let mut document = Document {
            text: String::new(),
            expands: !pending.is_quoted,
            is_joined: false,
        };
        while let Some((line, parts)) = self.document_line(pending)? {
            let end = pending.end.as_str();
            let stripped = match pending.strips {
                true => line.trim_start_matches('\t'),
                false => &line,
            };
            let ends = |line: &str| line.trim_start_matches('\t') == end;
            // Whether lines are joined before they are held against the end differs.
            if parts.iter().any(|part| ends(part)) || !parts.is_empty() && ends(&line) {
                return Err(Unreadable::Ambiguous);
            }
            if stripped == end || pending.strips && line == end {
                return Ok(document);
            }
            // In a substitution bash 5.2 takes the former for the end, and 5.1 joins the latter.
            let rest = stripped.strip_prefix(end);
            let is_odd = rest.is_some_and(|rest| rest.contains(')'))
                || !pending.is_quoted && line.ends_with("\\\\");
            if self.substitutions > 0 && is_odd {
                return Err(Unreadable::Ambiguous);
            }
            document.is_joined |= !parts.is_empty();
            document.text.push_str(stripped);
            document.text.push('\n');
        }
        Ok(document)
    }

    /// The next line, and those that it was joined of where it is more than one.
    fn document_line(
        &mut self,
        pending: &Pending,
    ) -> Result<Option<(String, Vec<String>)>, Unreadable> {
        let mut line = String::new();
        let mut parts = Vec::new();
        let mut begin = 0;
        let mut is_escaped = false;
        if self.source.peek_raw().is_none() {
            return Ok(None);
        }
        while let Some(c) = self.source.next_raw() {
            self.source.bound()?;
            match c {
                '\n' if is_escaped && !pending.is_quoted => {
                    line.pop();
                    parts.push(line[begin..].to_owned());
                    begin = line.len();
                    is_escaped = false;
                }
                '\n' => break,
                c => {
                    line.push(c);
                    is_escaped = c == '\\' && !is_escaped;
                }
            }
        }
        if !parts.is_empty() {
            parts.push(line[begin..].to_owned());
        }
        Ok(Some((line, parts)))
    }
}

//! The text index: what goes in, what comes out again, and how it is asked.
//!
//! FTS5 keeps no copy of the texts, so what is taken out must be said exactly as it went in: it is
//! always made from the columns of a row that has ended, which never change.

use super::convert::signed;
use super::store::{Fault, Store, Totals};
use super::words::apart;
use super::{Json, LedgerError};

/// What is indexed of a row.
const TEXT: &str = "CAST(facet AS TEXT), words_of_call(call), words_of_answer(content)";

/// Rows by an array of their numbers, for one statement: FTS5 writes what it has gathered at the end of each, and
/// wherever a row comes that is not behind the one before.
const ALL_OF_THEM: &str =
    "FROM executions WHERE number IN (SELECT value FROM json_each(?)) ORDER BY number";

impl Store {
    /// Puts the next ended executions into the index and into the totals. How many are left?
    pub(super) fn index(&mut self, at_most: usize) -> Result<usize, Fault> {
        let count = at_most.min(self.pending.len());
        let Some(last) = count.checked_sub(1).and_then(|last| self.pending.get(last)) else {
            return Ok(0);
        };
        self.set_meta("indexed", signed(last.audit))?;
        let mut totals = self.totals;
        for pending in self.pending.iter().take(count) {
            totals.count += 1;
            totals.bytes += pending.bytes;
        }
        let indexed = self.pending.iter().take(count);
        let sql = format!(
            "INSERT INTO search (rowid, facet, call, content) SELECT number, {TEXT} {ALL_OF_THEM}"
        );
        self.for_all(&sql, &numbers(indexed.map(|pending| pending.number)))?;
        self.set_totals(totals)?;
        self.pending.drain(..count);
        Ok(self.pending.len())
    }

    pub(super) fn set_totals(&mut self, totals: Totals) -> Result<(), Fault> {
        self.set_meta("count", signed(totals.count))?;
        self.set_meta("bytes", signed(totals.bytes))?;
        self.totals = totals;
        Ok(())
    }

    /// Takes ended, indexed executions out of the index: the rows with the numbers of this array.
    pub(super) fn unindex(&self, numbers: &Json) -> Result<(), Fault> {
        let sql = format!(
            "INSERT INTO search (search, rowid, facet, call, content) SELECT 'delete', number, {TEXT} {ALL_OF_THEM}"
        );
        self.for_all(&sql, numbers)
    }

    /// Does something to all rows whose numbers are in this array, in one statement.
    pub(super) fn for_all(&self, sql: &str, numbers: &Json) -> Result<(), Fault> {
        self.connection
            .prepare_cached(sql)?
            .execute([numbers.as_str()])?;
        Ok(())
    }
}

/// Numbers of rows as an array, which one parameter of a statement can be.
pub(super) fn numbers(of: impl Iterator<Item = i64>) -> Json {
    Json::of(&of.collect::<Vec<_>>())
}

/// What FTS5 is asked for: all words of `text` in call or answer, in one of these facets.
pub(super) fn expression(text: &str, facets: Option<&[i64]>) -> Result<String, LedgerError> {
    let words: Vec<String> = text
        .split_whitespace()
        .filter(|word| word.chars().any(char::is_alphanumeric))
        .map(|word| {
            let (word, star) = match word.strip_suffix('*') {
                Some(beginning) => (beginning, " *"),
                None => (word, ""),
            };
            // As a string of FTS5's: nothing in it is syntax, and several words are looked for in a row.
            let string = apart(word).replace('"', "\"\"").replace('\0', " ");
            format!("\"{string}\"{star}")
        })
        .collect();
    if words.is_empty() {
        return Err(LedgerError::NoWords {
            text: text.chars().take(200).collect(),
        });
    }
    let mut expression = format!("({{call content}} : ({}))", words.join(" AND "));
    if let Some(facets) = facets {
        let facets: Vec<String> = facets.iter().map(|facet| format!("\"{facet}\"")).collect();
        expression.push_str(&format!(" AND (facet : ({}))", facets.join(" OR ")));
    }
    Ok(expression)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_words_and_never_syntax() {
        for (text, facets, expected) in [
            (
                "git status",
                None,
                r#"({call content} : ("git" AND "status"))"#,
            ),
            (
                "a OR -b",
                None,
                r#"({call content} : ("a" AND "OR" AND "-b"))"#,
            ),
            (
                "say \"hi\" &&",
                None,
                r#"({call content} : ("say" AND """hi"""))"#,
            ),
            ("部署", None, r#"({call content} : (" 部  署 "))"#),
            (
                "gi*",
                Some(&[3, 4][..]),
                r#"({call content} : ("gi" *)) AND (facet : ("3" OR "4"))"#,
            ),
        ] {
            assert_eq!(expression(text, facets).expect("words"), expected);
        }
        assert!(expression(" && || ", None).is_err());
    }
}

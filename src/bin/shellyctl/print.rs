//! Text for people: colours where they are wanted, tables that fit, notes on standard error.

use std::io::{self, IsTerminal, Write};

use crate::failure::Failure;

/// How text stands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    Heading,
    Good,
    Bad,
}

impl Look {
    const fn code(self) -> &'static str {
        match self {
            Self::Heading => "\x1b[1m",
            Self::Good => "\x1b[1;32m",
            Self::Bad => "\x1b[1;31m",
        }
    }
}

/// What standard output can show.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    colour: bool,
    width: Option<usize>,
}

impl Page {
    /// Standard output as it is: colours and a width only on a terminal.
    pub fn stdout() -> Self {
        let terminal = io::stdout().is_terminal();
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let size = terminal_size::terminal_size_of(io::stdout());
        Self {
            colour: terminal && !dumb && !set("NO_COLOR"),
            width: size
                .map(|(width, _)| usize::from(width.0))
                .filter(|_| terminal),
        }
    }

    pub fn look(self, look: Look, text: &str) -> String {
        if self.colour {
            format!("{}{text}\x1b[0m", look.code())
        } else {
            text.to_owned()
        }
    }

    /// Rows of two columns under their headings. Only the second is cut, and only on a terminal.
    pub fn table(self, headings: [&str; 2], rows: &[[String; 2]]) -> String {
        const GAP: usize = 2;
        let first = rows
            .iter()
            .map(|row| row[0].chars().count())
            .chain([headings[0].len()])
            .max();
        let first = first.unwrap_or_default() + GAP;
        let heading = format!("{:first$}{}", headings[0], headings[1]);
        let mut text = self.look(Look::Heading, &heading) + "\n";
        for [name, rest] in rows {
            let rest = match self.width {
                Some(width) => cut(rest, width.saturating_sub(first)),
                None => rest.clone(),
            };
            text += format!("{name:first$}{rest}").trim_end();
            text.push('\n');
        }
        text
    }
}

/// At most `width` characters, the last of them an ellipsis where something is missing.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept.trim_end().to_owned() + "…"
}

/// One line, without anything that would move a terminal's cursor.
pub fn one_line(text: &str) -> String {
    let plain = text.replace(|character: char| character.is_control(), " ");
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Text as it is, but for control characters other than line ends and tabs.
pub fn plain(text: &str) -> String {
    text.replace(
        |character: char| character.is_control() && !matches!(character, '\n' | '\t'),
        " ",
    )
}

/// Writes `text` to standard output.
pub fn text(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    written.map_err(|source| Failure::Stdout { source })
}

/// Writes `content` to standard output and ends its last line.
pub fn line(content: &str) -> Result<(), Failure> {
    let end = if content.ends_with('\n') { "" } else { "\n" };
    text(&format!("{content}{end}"))
}

/// Tells something on standard error. Where even that cannot be written, nobody listens.
pub fn note(message: &str) {
    let _ = writeln!(io::stderr(), "shellyctl: {}", one_line(message));
}

/// Tells on standard error what can be done.
pub fn hint(message: &str) {
    let _ = writeln!(io::stderr(), "hint: {message}");
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIPE: Page = Page {
        colour: false,
        width: None,
    };

    #[test]
    fn tables_line_up_and_are_cut_on_a_terminal_only() {
        let rows = [
            ["bash".to_owned(), "Run a command".to_owned()],
            ["a-longer-one".to_owned(), String::new()],
        ];
        let text = PIPE.table(["NAME", "DESCRIPTION"], &rows);
        assert_eq!(
            text,
            "NAME          DESCRIPTION\nbash          Run a command\na-longer-one\n"
        );
        let narrow = Page {
            width: Some(20),
            ..PIPE
        };
        assert!(
            narrow
                .table(["NAME", "DESCRIPTION"], &rows)
                .contains("bash          Run a…\n")
        );
    }

    #[test]
    fn colours_only_where_wanted() {
        assert_eq!(PIPE.look(Look::Good, "ok"), "ok");
        let terminal = Page {
            colour: true,
            width: Some(80),
        };
        assert_eq!(terminal.look(Look::Good, "ok"), "\x1b[1;32mok\x1b[0m");
    }

    #[test]
    fn nothing_from_the_daemon_moves_the_cursor() {
        assert_eq!(one_line("a\x1b[2J\n b\t"), "a [2J b");
        assert_eq!(plain("a\x1b[2J\n\tb"), "a [2J\n\tb");
    }
}

//! Text for people: colours where they are wanted, tables that fit, notes on standard error.

use std::io::{self, IsTerminal, Write};

use shelly_executor::client::misleads;

use crate::columns;
use crate::failure::Failure;

/// How text stands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    Heading,
    Good,
    Bad,
    Selected,
}

impl Look {
    const fn code(self) -> &'static str {
        match self {
            Self::Heading => "\x1b[1m",
            Self::Good => "\x1b[1;32m",
            Self::Bad => "\x1b[1;31m",
            Self::Selected => "\x1b[7m",
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

    /// No colours, and no end to a line.
    #[cfg(test)]
    pub const fn plain() -> Self {
        Self {
            colour: false,
            width: None,
        }
    }

    /// No colours, and lines of at most so many columns.
    #[cfg(test)]
    pub const fn of_width(width: usize) -> Self {
        Self {
            colour: false,
            width: Some(width),
        }
    }

    /// The same without colours.
    pub const fn without_colour(self) -> Self {
        Self {
            colour: false,
            ..self
        }
    }

    pub fn look(self, look: Look, text: &str) -> String {
        if self.colour {
            format!("{}{text}\x1b[0m", look.code())
        } else {
            text.to_owned()
        }
    }

    /// An id in a table; where a whole one would leave little room for the rest, its end, by which commands take it as
    /// well.
    pub fn id(self, id: &str) -> String {
        const ROOMY: usize = 120;
        const END: usize = 12;
        let id = one_line(id);
        let is_narrow = self.width.is_some_and(|width| width < ROOMY);
        let end = id.len().checked_sub(END).filter(|_| is_narrow);
        end.and_then(|end| id.get(end..))
            .map_or_else(|| id.clone(), str::to_owned)
    }

    /// One line, as much of it as the terminal has room for.
    pub fn cut(self, text: &str) -> String {
        match self.width {
            Some(width) => columns::cut(text, width),
            None => text.to_owned(),
        }
    }

    /// One line, as many of the terminal's lines as it takes.
    pub fn wrap(self, text: &str) -> Vec<String> {
        columns::wrap(text, self.width.unwrap_or(usize::MAX).max(1))
    }

    /// Rows under their headings. Only the last column is cut, and only on a terminal.
    pub fn table<const N: usize>(self, headings: [&str; N], rows: &[[String; N]]) -> String {
        const GAP: usize = 2;
        let widths: [usize; N] = std::array::from_fn(|column| {
            let cells = rows.iter().map(|row| columns::width(&row[column]));
            GAP + cells
                .chain([headings[column].len()])
                .max()
                .unwrap_or_default()
        });
        let before: usize = widths[..N - 1].iter().sum();
        let line = |cells: [&str; N]| {
            let mut text = String::new();
            for (cell, width) in cells[..N - 1].iter().zip(widths) {
                text += &columns::pad(cell, width);
            }
            text += &match self.width {
                // A screen too narrow for the other columns is no reason to leave out the last.
                Some(width) => columns::cut(cells[N - 1], width.saturating_sub(before).max(LEAST)),
                None => cells[N - 1].to_owned(),
            };
            text.trim_end().to_owned() + "\n"
        };
        let mut text = self.look(Look::Heading, line(headings).trim_end()) + "\n";
        for row in rows {
            text += &line(row.each_ref().map(String::as_str));
        }
        text
    }
}

/// What of a table's last column is shown on any screen.
const LEAST: usize = 12;

/// Lines of `label: value`, their colons below each other.
#[derive(Debug, Default)]
pub struct Fields {
    rows: Vec<(&'static str, Vec<String>)>,
}

impl Fields {
    /// One value; none, or an empty one, leaves the line out.
    pub fn add(&mut self, label: &'static str, value: Option<impl AsRef<str>>) {
        self.all(label, value);
    }

    /// Any number of values, a line each.
    pub fn all(&mut self, label: &'static str, values: impl IntoIterator<Item = impl AsRef<str>>) {
        let lines = values.into_iter().map(|value| one_line(value.as_ref()));
        let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
        self.rows.push((label, lines));
    }

    /// Those of another, below.
    pub fn extend(&mut self, other: Option<Self>) {
        self.rows
            .extend(other.into_iter().flat_map(|other| other.rows));
    }

    /// The text, its labels right-aligned.
    pub fn render(&self) -> String {
        let shown = self.rows.iter().filter(|(_, lines)| !lines.is_empty());
        let width = shown.clone().map(|(label, _)| label.len()).max();
        let width = width.unwrap_or_default() + INDENT;
        let mut text = String::new();
        for (label, lines) in shown {
            for (at, line) in lines.iter().enumerate() {
                let (label, colon) = if at == 0 { (*label, ':') } else { ("", ' ') };
                text += &format!("{label:>width$}{colon} {line}\n");
            }
        }
        text
    }
}

/// How far labels stand in from the left.
const INDENT: usize = 2;

/// One line, without anything that would move a terminal's cursor.
pub fn one_line(text: &str) -> String {
    let plain = text.replace(misleads, " ");
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Text as it is, but for control characters other than line ends and tabs.
pub fn plain(text: &str) -> String {
    text.replace(
        |character| misleads(character) && !matches!(character, '\n' | '\t'),
        " ",
    )
}

/// Writes `text` to standard output.
pub fn text(text: &str) -> Result<(), Failure> {
    bytes(text.as_bytes())
}

/// Writes `bytes` to standard output as they are.
pub fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
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

/// Asks something on standard error; the answer comes on the same line.
pub fn ask(question: &str) {
    let _ = write!(io::stderr(), "{question}");
}

/// A user by name and number, where the number has a name here.
pub fn user(uid: u32) -> String {
    match nix::unistd::User::from_uid(uid.into()) {
        Ok(Some(user)) => format!("{} ({uid})", user.name),
        Ok(None) | Err(_) => uid.to_string(),
    }
}

/// Tells on standard error what can be done.
pub fn hint(message: &str) {
    let _ = writeln!(io::stderr(), "hint: {message}");
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIPE: Page = Page::plain();

    #[test]
    fn an_id_is_whole_where_there_is_room() {
        let id = "01980000-0000-7000-8000-0123456789ab";
        let screen = |width| Page {
            colour: false,
            width: Some(width),
        };
        assert_eq!(PIPE.id(id), id);
        assert_eq!(screen(120).id(id), id);
        assert_eq!(screen(80).id(id), "0123456789ab");
        assert_eq!(screen(80).id("short"), "short");
    }

    /// People approve what they see.
    #[test]
    fn nothing_begins_another_line_or_turns_text_around() {
        let text = "a\u{2028}b\u{2029}c\u{202e}d\u{1b}e\tf\ng";
        assert_eq!(plain(text), "a b c d e\tf\ng");
        assert_eq!(one_line(text), "a b c d e f g");
    }

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
            width: Some(26),
            ..PIPE
        };
        assert!(
            narrow
                .table(["NAME", "DESCRIPTION"], &rows)
                .contains("bash          Run a comma…\n")
        );
    }

    #[test]
    fn only_the_last_column_gives_way() {
        let rows = [[
            "1".to_owned(),
            "bash".to_owned(),
            "a long, long summary".to_owned(),
        ]];
        let narrow = Page {
            width: Some(24),
            ..PIPE
        };
        assert_eq!(
            narrow.table(["ID", "TOOL", "SUMMARY"], &rows),
            "ID  TOOL  SUMMARY\n1   bash  a long, long…\n"
        );
    }

    #[test]
    fn what_is_wrapped_is_all_there() {
        let narrow = Page {
            width: Some(4),
            ..PIPE
        };
        assert_eq!(narrow.wrap("rm -rf é"), ["rm -", "rf é"]);
        assert_eq!(narrow.wrap(""), [""]);
        assert_eq!(PIPE.wrap("rm -rf é"), ["rm -rf é"]);
    }

    #[test]
    fn fields_line_up_and_absent_ones_are_left_out() {
        let mut fields = Fields::default();
        fields.add("Status", Some("success"));
        fields.add("Replay of", None::<&str>);
        fields.all("Rules", ["a\nb", "c"]);
        assert_eq!(
            fields.render(),
            "  Status: success\n   Rules: a b\n          c\n"
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
        assert_eq!(plain("rm \u{202e}fdp.x"), "rm  fdp.x");
    }
}

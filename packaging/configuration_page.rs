//! The default configuration as a man page: its comments are the text, everything else is shown as
//! it stands.

use crate::roff::{Page, references};

/// The man page of a commented TOML file. A block of lines without a blank one between them stays
/// together: first its comment, then the settings that it is about. A block that opens a table
/// begins a section, also where the table is commented out.
pub fn configuration_page(toml: &str, date: &str) -> String {
    let mut page = Page::new("executor.toml", "5", date);
    page.section("NAME");
    page.raw("executor.toml \\- configuration of shelly\\-executord");
    page.section("SYNOPSIS");
    page.raw("\\fI/etc/shelly\\-executor/executor.toml\\fR");
    page.section("DESCRIPTION");
    page.raw("What follows is the default configuration, which is compiled in and installed.");
    for block in blocks(toml) {
        if let Some(table) = block.iter().find_map(|line| table(line)) {
            page.section(table);
        }
        let (text, settings): (Vec<&str>, Vec<&str>) =
            block.iter().partition(|line| prose(line).is_some());
        page.raw(".PP");
        for line in text.into_iter().filter_map(prose) {
            page.text(line);
        }
        page.example(settings.into_iter().filter(|line| table(line).is_none()));
    }
    page.section("SEE ALSO");
    page.raw(&references(&["shelly-executord(8)", "shellyctl(1)"]));
    page.finish()
}

/// The runs of lines between blank ones, where an empty comment counts as blank.
fn blocks(toml: &str) -> Vec<Vec<&str>> {
    let lines: Vec<&str> = toml.lines().collect();
    lines
        .split(|line| matches!(line.trim_end(), "" | "#"))
        .filter(|block| !block.is_empty())
        .map(<[&str]>::to_vec)
        .collect()
}

/// The heading of a table, commented out or not: `[limits]`, `# [[hooks]]`.
fn table(line: &str) -> Option<&str> {
    let line = line.strip_prefix('#').unwrap_or(line).trim();
    (line.starts_with('[') && line.ends_with(']')).then_some(line)
}

/// The text of a comment, unless it is a setting or a table that is commented out: `key = value`.
fn prose(line: &str) -> Option<&str> {
    let comment = line.strip_prefix('#')?.trim();
    if table(line).is_some() {
        return None;
    }
    let key = comment.split_once(" = ").map(|(key, _)| key);
    let is_setting = key.is_some_and(|key| !key.contains(char::is_whitespace));
    (!is_setting).then_some(comment)
}

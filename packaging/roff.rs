//! The little of troff's language that our man pages are written in.

use std::fmt::Write as _;

/// A man page in the making.
pub struct Page(String);

impl Page {
    /// A page that only has its title yet.
    pub fn new(name: &str, section: &str, date: &str) -> Self {
        Self(format!(
            ".TH \"{}\" {section} {date} \"shelly\\-executor {}\" \"Shelly Executor\"\n",
            escape(&name.to_uppercase()),
            env!("CARGO_PKG_VERSION")
        ))
    }

    /// Opens a section.
    pub fn section(&mut self, heading: &str) {
        self.raw(&format!(".SH \"{}\"", escape(heading)));
    }

    /// A line of running text, in which `this` is set in bold.
    pub fn text(&mut self, line: &str) {
        self.raw(&quotes_in_bold(&escape(line)));
    }

    /// Lines that are shown as they stand; nothing if there are none.
    pub fn example<'a>(&mut self, lines: impl Iterator<Item = &'a str>) {
        let lines: String = lines.fold(String::new(), |all, line| all + &escape(line) + "\n");
        if !lines.is_empty() {
            self.raw(&format!(".PP\n.RS 4\n.nf\n.ft B\n{lines}.ft R\n.fi\n.RE"));
        }
    }

    /// A term and what it means, below it.
    pub fn entry(&mut self, term: &str, meaning: &str) {
        self.raw(&format!(
            ".TP\n\\fI{}\\fR\n{}",
            escape(term),
            quotes_in_bold(&escape(meaning))
        ));
    }

    /// Lines of troff.
    pub fn raw(&mut self, lines: &str) {
        writeln!(self.0, "{lines}").expect("writing to a string");
    }

    /// The whole page.
    pub fn finish(self) -> String {
        self.0
    }
}

/// References like `ls(1)`, as man pages set them: the name in bold.
pub fn references(pages: &[&str]) -> String {
    let set = |page: &&str| match page.split_once('(') {
        Some((name, section)) => format!("\\fB{}\\fR({section}", escape(name)),
        None => escape(page),
    };
    pages.iter().map(set).collect::<Vec<_>>().join(",\n")
}

/// A line of troff in which `this` is set in bold, and the backticks are gone.
pub fn quotes_in_bold(line: &str) -> String {
    let mut parts = line.split('`');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for (font, part) in ["\\fB", "\\fR"].into_iter().cycle().zip(parts) {
        out.push_str(font);
        out.push_str(part);
    }
    out
}

/// Text as troff input: no escapes, no hyphens where minus signs are meant, and no line that starts
/// like a request.
pub fn escape(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    match escaped.starts_with(['.', '\'']) {
        true => format!("\\&{escaped}"),
        false => escaped,
    }
}

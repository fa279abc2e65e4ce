//! make: what it runs of its words and of what it is given to read.

use super::super::glob::{INNER_BLANK, UNKNOWN_WORDS};
use super::hazards::values_of;
use super::loose::{Nested, Reader};
use super::nested::{Input, MAX_BEGINNINGS, script};
use super::shells::{is_input, is_standard_input};
use super::text::is_known;

impl Reader {
    /// Adds what make runs of its words, and of its input where a makefile is read from there.
    pub(super) fn scripts_of_make(
        &mut self,
        arguments: &[String],
        input: Option<&Input>,
        nested: &mut Vec<Nested>,
    ) {
        self.told_to_make(arguments, nested);
        let files = ["-f", "--file", "--makefile"].into_iter();
        let mut files = files.flat_map(|option| values_of(option, "CIEjloW", arguments));
        if let Some(file) = files.find(|file| is_input(file)) {
            match input {
                Some(Input::Text(text)) if is_standard_input(file) => {
                    self.makefile(text, nested);
                }
                Some(_) | None => self.unknown(),
            }
        }
    }

    /// Variables that are set for make, and text that it is to read: both may run scripts, and the shell runs all others.
    fn told_to_make(&mut self, arguments: &[String], nested: &mut Vec<Nested>) {
        for (name, value) in arguments.iter().filter_map(|word| word.split_once('=')) {
            let assigned = name.trim_matches(BLANKS);
            let name = assigned.trim_end_matches([':', '+', '?']);
            let name = name.trim_end_matches(BLANKS);
            if name == "SHELL" {
                let shell = value.trim_start_matches(BLANKS);
                self.add(format!("{shell} {UNKNOWN_WORDS}"), false);
            }
            if name == ".SHELLFLAGS" {
                nested.push(script(&format!("sh {value}"), false));
            }
            let text = as_script(value);
            let is_plain = is_known(value) && !value.contains('$');
            if ["(call", "{call"].iter().any(|sign| value.contains(sign)) {
                self.unknown();
            }
            if is_plain || assigned.ends_with('!') || text != *value {
                nested.push(script(&text, false));
            }
        }
        for option in ["--eval", "-E"] {
            let texts = values_of(option, "CfIjloW", arguments);
            texts.for_each(|text| self.makefile(text, nested));
        }
    }

    /// Adds what make runs of a text that it reads: recipes, and what its variables are set to.
    fn makefile(&mut self, text: &str, nested: &mut Vec<Nested>) {
        // A line goes on behind a backslash, in a recipe without what it is begun with.
        let joined = text.replace("\\\n\t", "").replace("\\\n", "");
        for text in [text, &joined]
            .into_iter()
            .take(1 + usize::from(joined != text))
        {
            add_recipes(&as_script(text), nested);
        }
        let mut settings = joined.lines().filter_map(|line| line.split_once('='));
        for (name, value) in settings.by_ref().take(MAX_BEGINNINGS) {
            if name.contains("SHELLFLAGS") {
                nested.push(script(&format!("sh {value}"), false));
            } else if name.contains("SHELL") {
                self.add(format!("{value} {UNKNOWN_WORDS}"), false);
            }
            nested.push(script(&as_script(value), false));
        }
        if settings.next().is_some() {
            self.unknown();
        }
    }
}

/// Adds what make runs of a text that it reads.
fn add_recipes(text: &str, nested: &mut Vec<Nested>) {
    nested.push(script(text, false));
    // `x:;@command`: what stands before the command of a recipe is make's.
    let lines = text.split([';', '\n', '\t']);
    let marks = [INNER_BLANK, ' ', '@', '-', '+'];
    let recipes = lines.map(|line| line.trim_start_matches(marks));
    let mut recipes = recipes.filter(|line| !line.is_empty());
    let looked_at = recipes.by_ref().take(MAX_BEGINNINGS);
    nested.extend(looked_at.map(|line| script(line, false)));
    let unknown = || script(&UNKNOWN_WORDS.to_string(), false);
    nested.extend(recipes.next().map(|_| unknown()));
}

/// What stands for blanks in a word of make's.
const BLANKS: [char; 3] = [INNER_BLANK, ' ', '\t'];

/// A text for make as a shell would have it: `$(shell COMMAND)` and `${shell COMMAND}` are what `$(COMMAND)` is there;
/// `$(NAME)` is a variable.
fn as_script(text: &str) -> String {
    let mut script = String::with_capacity(text.len());
    // What closes the braces that are open.
    let mut closing = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let Some(behind) = rest.strip_prefix("$$") {
            // One for the shell.
            script.push('$');
            rest = behind;
            continue;
        }
        let is_braced = rest.starts_with("${");
        let called = ["$(shell", "${shell"]
            .iter()
            .find_map(|sign| rest.strip_prefix(sign));
        if let Some(behind) = called.filter(|behind| behind.starts_with(BLANKS)) {
            closing.extend(is_braced.then_some(')'));
            script.push_str("$(");
            rest = behind;
            continue;
        }
        script.push(match first {
            '}' => closing.pop().unwrap_or('}'),
            other => other,
        });
        closing.extend((first == '{').then_some('}'));
        rest = &rest[first.len_utf8()..];
    }
    script
}

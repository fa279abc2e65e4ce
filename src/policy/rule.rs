use serde_json::Value;

use super::glob::{Glob, Kind};
use super::input::{self, SHELL_PARAMETER, is_path_parameter, is_shell_tool};
use super::judge::{WRITE_PARAMETER, WRITE_TOOL};
use super::pattern;
use super::question::{Question, RuleSource, Verdict};
use super::shell::hazards::{self, Hazard, hazard};
use super::shell::strict::is_grammar;
use super::tools::{Tools, UnknownTool};
use crate::domain::Principal;

/// One rule of a policy.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// The list it is on.
    pub list: Verdict,
    /// As written.
    pub text: String,
    pub tool: Tools,
    pub subject: Subject,
    /// Whom it concerns; none: everybody.
    pub principals: Option<Vec<Principal>>,
    /// The tools it concerns the calls of, whether or not others are between; none: all calls.
    pub called_by: Option<Vec<Tools>>,
    pub reason: Option<String>,
    pub suggest: Option<String>,
    pub source: RuleSource,
}

/// What of a call a rule is about.
#[derive(Clone, Debug)]
pub(super) enum Subject {
    /// The call as such: `Tool`, `*`.
    Whole,
    /// Each command of the script: `bash(command:…)`.
    Script(Glob),
    /// A parameter: `Tool(param:…)`.
    Parameter {
        name: String,
        kind: Kind,
        glob: Glob,
    },
}

/// The part of a rule that its text says.
pub(super) fn parse(text: &str) -> Result<(Tools, Subject), String> {
    let expected = "expected `Tool`, `Tool(param:pattern)` or `*`";
    let (tool, subject) = match text.split_once('(') {
        None => (text, None),
        Some((tool, rest)) => {
            let inner = rest
                .strip_suffix(')')
                .ok_or_else(|| format!("{text:?} does not end in `)`: {expected}"))?;
            let (name, pattern) = inner
                .split_once(':')
                .ok_or_else(|| format!("{text:?} names no parameter: {expected}"))?;
            (tool, Some((name, pattern)))
        }
    };
    let tools = Tools::new(tool).map_err(|detail| format!("{detail}: {expected}"))?;
    let Some((name, pattern)) = subject else {
        return Ok((tools, Subject::Whole));
    };
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(format!("{name:?} is no parameter's name: {expected}"));
    }
    let shell = name == SHELL_PARAMETER && (is_shell_tool(tool) || !tools.is_literal());
    if shell {
        return Ok((tools, Subject::Script(Glob::new(pattern, Kind::Command)?)));
    }
    if tool == WRITE_TOOL && name != WRITE_PARAMETER && is_path_parameter(name) {
        return Err(format!(
            "{text:?} would never match, for `{tool}` and redirects name their file `{WRITE_PARAMETER}`: expected `{tool}({WRITE_PARAMETER}:{pattern})`"
        ));
    }
    let kind = match is_path_parameter(name) {
        true => Kind::Path,
        false => Kind::Text,
    };
    let subject = Subject::Parameter {
        name: name.to_owned(),
        kind,
        glob: Glob::new(pattern, kind)?,
    };
    Ok((tools, subject))
}

/// Why a pattern allows no command whatever, and what was expected.
fn never_allows(tool: &Tools, glob: &Glob) -> Option<String> {
    const NO_RULE: &str = "expected no rule for it";
    let mut words = glob.literal_words();
    if !tool.is_literal() {
        // Tools that are no shell may have such a parameter as well: of them the text says less.
        words.truncate(1);
    }
    let program = words.first()?;
    if tool.is_literal() && is_grammar(program) {
        return Some(format!(
            "`{program}` is a word of the shell's grammar, not a command: {NO_RULE}"
        ));
    }
    let (hazard, expected) = match (hazards::always(program), hazard(&words)) {
        (Some(hazard @ Hazard::Shell(_)), _) => (hazard, NO_RULE),
        (None, Some(hazard @ Hazard::Shell(_)))
            if tool.is_literal() && (glob.is_literal() || words.len() > 1) =>
        {
            (hazard, NO_RULE)
        }
        (Some(hazard @ Hazard::Runs(_)), _) if !glob.is_literal() => {
            (hazard, "expected the whole command without `*` and `?`")
        }
        // What else it matches may be harmless, as `set` is with some options.
        (Some(_) | None, _) => return None,
    };
    Some(format!("`{program}` {}: {expected}", hazard.what()))
}

impl Rule {
    /// The rule that `text` says, for everybody.
    ///
    /// # Errors
    /// What is wrong with it and what was expected.
    pub(super) fn new(list: Verdict, text: &str, source: RuleSource) -> Result<Self, String> {
        let (tool, subject) = parse(text)?;
        if let (Verdict::Allow, Subject::Script(glob)) = (list, &subject)
            && let Some(why) = never_allows(&tool, glob)
        {
            return Err(format!("{text:?} would never allow anything, for {why}"));
        }
        Ok(Self {
            list,
            text: text.to_owned(),
            tool,
            subject,
            principals: None,
            called_by: None,
            reason: None,
            suggest: None,
            source,
        })
    }

    /// Refuses a rule that matches next to nothing because of a slip in its spacing, such as `rm  -rf`. This is
    /// for rules that people write. A rule remembered from a call is exempt: if the call had an empty word (`''`),
    /// so does its rule, and the two blanks there are meant.
    ///
    /// # Errors
    /// What is wrong with it and what was expected.
    pub(super) fn check_meant(&self) -> Result<(), String> {
        let pattern = self.text.split_once(':').map(|(_, rest)| rest);
        match (&self.subject, pattern) {
            (Subject::Script(_), Some(pattern)) => {
                pattern::refuse_blanks(pattern.strip_suffix(')').unwrap_or(pattern))
            }
            _ => Ok(()),
        }
    }

    /// Whether it concerns this tool and this caller at all. What refuses or asks concerns a tool
    /// that does the same and more, too.
    pub(super) fn concerns(&self, question: &Question<'_>) -> bool {
        let also = match self.list {
            Verdict::Deny | Verdict::Ask => input::does_as_well(question.tool),
            Verdict::Allow => &[],
        };
        let mut tools = std::iter::once(&question.tool).chain(also);
        tools.any(|tool| self.tool.matches(tool)) && self.concerns_caller(question)
    }

    /// Whether it concerns what this caller does, by way of the tools that led to it.
    pub(super) fn concerns_caller(&self, question: &Question<'_>) -> bool {
        let is_in_chain = |tool: &Tools| question.chain.iter().any(|one| tool.matches(one));
        let is_caller = |principal: &Principal| question.caller.is(principal);
        (self.called_by.as_deref()).is_none_or(|tools| tools.iter().any(is_in_chain))
            && (self.principals.as_deref()).is_none_or(|all| all.iter().any(is_caller))
    }

    /// Whether the call as a whole, or a parameter that is no script, matches.
    pub(super) fn matches_input(&self, question: &Question<'_>) -> bool {
        match &self.subject {
            Subject::Whole => true,
            // A tool that is no shell and yet has a parameter of that name.
            Subject::Script(glob) => {
                !is_shell_tool(question.tool)
                    && input::matches(question, SHELL_PARAMETER, Kind::Text, self.list, glob)
            }
            Subject::Parameter { name, kind, glob } => {
                input::matches(question, name, *kind, self.list, glob)
            }
        }
    }

    /// The tool it is about, if that is written out.
    pub(super) fn tool_name(&self) -> Option<&str> {
        (self.tool.is_literal()).then_some(self.tool.text.as_str())
    }

    /// What it names that no tool of `known` is called.
    pub(super) fn unknown_tools(&self, known: &[&str]) -> impl Iterator<Item = UnknownTool> {
        let callers = self.called_by.iter().flatten().map(|tools| (tools, true));
        let named = std::iter::once((&self.tool, false)).chain(callers);
        let unknown = named.filter(|(tools, _)| !known.iter().any(|tool| tools.matches(tool)));
        unknown.map(|(tools, is_caller)| UnknownTool {
            name: tools.text.clone(),
            is_literal: tools.is_literal(),
            rule: self.text.clone(),
            is_caller,
            source: self.source.clone(),
        })
    }

    /// The parameter it is about; none when it is about the call as such.
    pub(super) fn parameter(&self) -> Option<&str> {
        match &self.subject {
            Subject::Whole => None,
            Subject::Script(_) => Some(SHELL_PARAMETER),
            Subject::Parameter { name, .. } => Some(name),
        }
    }

    /// The pattern on the commands of a script, if that is what it is about.
    pub(super) fn script(&self) -> Option<&Glob> {
        match &self.subject {
            Subject::Script(glob) => Some(glob),
            Subject::Whole | Subject::Parameter { .. } => None,
        }
    }

    /// The parameter it is about, as the example of a value for it.
    pub(super) fn example_input(&self, example: &str) -> Value {
        match &self.subject {
            Subject::Whole => Value::Object(serde_json::Map::new()),
            Subject::Script(_) => serde_json::json!({ SHELL_PARAMETER: example }),
            Subject::Parameter { name, .. } => {
                let mut input = serde_json::Map::new();
                input.insert(name.clone(), example.into());
                Value::Object(input)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_forms_are_read() {
        assert!(matches!(parse("*"), Ok((_, Subject::Whole))));
        assert!(matches!(parse("read_file"), Ok((_, Subject::Whole))));
        assert!(matches!(
            parse("bash(command:echo (a) : b*)"),
            Ok((_, Subject::Script(_)))
        ));
        assert!(matches!(
            parse("read_file(file_path:/etc/**)"),
            Ok((
                _,
                Subject::Parameter {
                    kind: Kind::Path,
                    ..
                }
            ))
        ));
        assert!(matches!(
            parse("fetch(url:https://*)"),
            Ok((
                _,
                Subject::Parameter {
                    kind: Kind::Text,
                    ..
                }
            ))
        ));
    }

    #[test]
    fn others_are_refused_with_what_was_expected() {
        for text in [
            "",
            "bash(",
            "bash(command)",
            "bash(command:)",
            "b ash",
            "bash(:x)",
            "bash(command:x",
            "x(a b:c)",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}

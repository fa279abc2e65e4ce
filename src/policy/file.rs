use std::path::{Component, Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::PolicyError;
use super::examples::Example;
use super::question::{RuleSource, Verdict};
use super::rule::Rule;
use super::tools::Tools;
use crate::config::principal;
use crate::domain::{Principal, or_meant};

/// The shipped policy: everything is allowed, and how to tighten it.
pub const SHIPPED_POLICY: &str = include_str!("../../config/policy.toml");
/// What stands for its file where there is none.
pub const BUILT_IN_POLICY: &str = "built-in policy.toml";
/// Ready-made: everything, but for what nobody means to do.
pub const OPEN_POLICY: &str = include_str!("../../config/policies/open.toml");
/// Ready-made: reads only.
pub const OBSERVE_POLICY: &str = include_str!("../../config/policies/observe.toml");
/// Ready-made: asks before anything that changes the system.
pub const GUARDED_POLICY: &str = include_str!("../../config/policies/guarded.toml");

/// One file of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Where the text comes from, for messages.
    pub path: &'a Path,
    /// The text.
    pub text: &'a str,
}

/// What becomes of a call that no rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Default {
    Verdict(Verdict),
    /// It runs, in the sandbox.
    Untrusted,
}

impl Default {
    /// The words for them.
    const WORDS: [(&str, Self); 4] = [
        ("allow", Self::Verdict(Verdict::Allow)),
        ("ask", Self::Verdict(Verdict::Ask)),
        ("untrusted", Self::Untrusted),
        ("deny", Self::Verdict(Verdict::Deny)),
    ];
}

/// What is expected of `default`.
pub(super) fn expected_default() -> String {
    one_of(&Default::WORDS.map(|(word, _)| format!("{word:?}")))
}

/// That these are the keys there may be.
fn expected<const N: usize>(keys: [&str; N]) -> String {
    one_of(&keys.map(|key| format!("`{key}`")))
}

/// That one of several is expected.
fn one_of(words: &[String]) -> String {
    words
        .split_last()
        .map_or_else(String::new, |(last, others)| {
            format!("expected {} or {last}", others.join(", "))
        })
}

/// What the files say, before it is put together.
#[derive(Debug, std::default::Default)]
pub(super) struct Parsed {
    pub default: Option<(Default, RuleSource)>,
    pub rules: Vec<Rule>,
    /// The list `untrusted`: what matches runs in the sandbox. A script is read for them as for
    /// rules that ask, and so they are of that list.
    pub untrusted: Vec<Rule>,
    /// The list `workspace`: what is covered as by `allow` may write to that directory in the sandbox.
    pub workspaces: Vec<(Rule, PathBuf)>,
    pub examples: Vec<Example>,
}

/// The keys of a policy.
const TOP: [&str; 6] = ["default", "deny", "ask", "untrusted", "workspace", "allow"];
/// The keys of a rule that is a table.
const ITEM: [&str; 8] = [
    "rule",
    "reason",
    "suggest",
    "users",
    "groups",
    "called_by",
    "match",
    "not_match",
];

/// That `key` is none of the keys of `what`.
fn no_key<const N: usize>(key: &str, what: &str, keys: [&str; N]) -> String {
    let meant = or_meant(key, keys);
    format!("is no key of {what}{meant}: {}", expected(keys))
}

/// Adds what `source` says to `parsed`.
pub(super) fn read(source: Source<'_>, parsed: &mut Parsed) -> Result<(), PolicyError> {
    let file = File(source);
    let root = file.root()?;
    for (key, value) in root.get_ref() {
        match key.get_ref().as_ref() {
            "default" => file.default(value, parsed)?,
            "deny" => file.list(Verdict::Deny, "deny", value, parsed)?,
            "ask" => file.list(Verdict::Ask, "ask", value, parsed)?,
            "untrusted" => {
                let verdicts = std::mem::take(&mut parsed.rules);
                file.list(Verdict::Ask, "untrusted", value, parsed)?;
                let untrusted = std::mem::replace(&mut parsed.rules, verdicts);
                parsed.untrusted.extend(untrusted);
            }
            "workspace" => file.workspaces(value, parsed)?,
            "allow" => file.list(Verdict::Allow, "allow", value, parsed)?,
            other => {
                let detail = no_key(other, "a policy", TOP);
                return Err(file.error(key.span().start, Some(other), detail));
            }
        }
    }
    Ok(())
}

/// Finds its way about a text, and says where it went wrong.
pub(super) struct File<'a>(pub Source<'a>);

pub(super) type Value<'i> = Spanned<DeValue<'i>>;

impl<'a> File<'a> {
    pub(super) fn root(&self) -> Result<Spanned<DeTable<'a>>, PolicyError> {
        DeTable::parse(self.0.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            self.error(at, None, error.message().trim().replace('\n', " "))
        })
    }

    fn line(&self, at: usize) -> usize {
        let text = self.0.text.as_bytes();
        let before = &text[..at.min(text.len())];
        before.iter().filter(|&&byte| byte == b'\n').count() + 1
    }

    pub(super) fn error(&self, at: usize, key: Option<&str>, detail: String) -> PolicyError {
        PolicyError {
            path: self.0.path.to_owned(),
            line: self.line(at),
            key: key.map(str::to_owned),
            detail,
        }
    }

    pub(super) fn text<'v>(&self, key: &str, value: &'v Value<'_>) -> Result<&'v str, PolicyError> {
        value.get_ref().as_str().ok_or_else(|| {
            let kind = value.get_ref().type_str();
            let detail = format!("is of type {kind}: expected a string");
            self.error(value.span().start, Some(key), detail)
        })
    }

    pub(super) fn items<'v, 'i>(
        &self,
        key: &str,
        value: &'v Value<'i>,
    ) -> Result<&'v [Value<'i>], PolicyError> {
        match value.get_ref().as_array() {
            Some(items) => Ok(items),
            None => {
                let kind = value.get_ref().type_str();
                let detail = format!("is of type {kind}: expected a list");
                Err(self.error(value.span().start, Some(key), detail))
            }
        }
    }

    fn default(&self, value: &Value<'_>, parsed: &mut Parsed) -> Result<(), PolicyError> {
        let at = value.span().start;
        let error = |detail| self.error(at, Some("default"), detail);
        let Some(text) = value.get_ref().as_str() else {
            let kind = value.get_ref().type_str();
            return Err(error(format!("is of type {kind}: {}", expected_default())));
        };
        let mut words = Default::WORDS.into_iter();
        let Some((_, default)) = words.find(|(word, _)| *word == text) else {
            return Err(error(format!("{text:?}: {}", expected_default())));
        };
        if let Some((_, earlier)) = &parsed.default {
            let place = format!("{}:{}", earlier.file.display(), earlier.line);
            return Err(error(format!(
                "is already set at {place}: expected it once"
            )));
        }
        parsed.default = Some((default, self.source(at)));
        Ok(())
    }

    pub(super) fn source(&self, at: usize) -> RuleSource {
        RuleSource {
            file: PathBuf::from(self.0.path),
            line: self.line(at),
        }
    }

    fn list(
        &self,
        list: Verdict,
        key: &str,
        value: &Value<'_>,
        parsed: &mut Parsed,
    ) -> Result<(), PolicyError> {
        for item in self.items(key, value)? {
            let at = item.span().start;
            if let Some(text) = item.get_ref().as_str() {
                let rule = self.rule(list, key, at, text)?;
                parsed.rules.push(rule);
            } else if let Some(table) = item.get_ref().as_table() {
                let rule = self.table(list, key, at, table, &mut parsed.examples)?;
                parsed.rules.push(rule);
            } else {
                let kind = item.get_ref().type_str();
                let detail =
                    format!("holds an item of type {kind}: expected a rule or a table with one");
                return Err(self.error(at, Some(key), detail));
            }
        }
        Ok(())
    }

    /// Tables with a `dir` each, besides what a rule that allows has.
    fn workspaces(&self, value: &Value<'_>, parsed: &mut Parsed) -> Result<(), PolicyError> {
        const KEY: &str = "workspace";
        let expected = "expected { rule = \"...\", dir = \"/...\" }";
        for item in self.items(KEY, value)? {
            let at = item.span().start;
            let Some(table) = item.get_ref().as_table() else {
                let detail = format!("holds something that is no table: {expected}");
                return Err(self.error(at, Some(KEY), detail));
            };
            let (dir, rest): (Vec<_>, Vec<_>) = table
                .clone()
                .into_iter()
                .partition(|(key, _)| key.get_ref() == "dir");
            let Some((_, dir)) = dir.first() else {
                let detail = format!("an item without `dir`: {expected}");
                return Err(self.error(at, Some(KEY), detail));
            };
            let path = PathBuf::from(self.text("dir", dir)?);
            let goes_up = path.components().any(|part| part == Component::ParentDir);
            if !path.is_absolute() || goes_up {
                let detail = format!("{path:?} is no absolute path without `..`: {expected}");
                return Err(self.error(dir.span().start, Some("dir"), detail));
            }
            if path.parent().is_none() {
                let detail = "`/` is the whole machine: expected a directory to work in".to_owned();
                return Err(self.error(dir.span().start, Some("dir"), detail));
            }
            let rest = rest.into_iter().collect();
            let rule = self.table(Verdict::Allow, KEY, at, &rest, &mut parsed.examples)?;
            parsed.workspaces.push((rule, path));
        }
        Ok(())
    }

    fn rule(&self, list: Verdict, key: &str, at: usize, text: &str) -> Result<Rule, PolicyError> {
        let rule = Rule::new(list, text, self.source(at));
        let rule = rule.and_then(|rule| rule.check_meant().map(|()| rule));
        rule.map_err(|detail| self.error(at, Some(key), detail))
    }

    fn table(
        &self,
        list: Verdict,
        key: &str,
        at: usize,
        table: &DeTable<'_>,
        checked: &mut Vec<Example>,
    ) -> Result<Rule, PolicyError> {
        let Some((_, value)) = table.iter().find(|(key, _)| key.get_ref() == "rule") else {
            let detail = format!("an item without `rule`: {}", expected(ITEM));
            return Err(self.error(at, Some(key), detail));
        };
        let text = self.text("rule", value)?;
        let mut rule = self.rule(list, "rule", value.span().start, text)?;
        let mut examples = Vec::new();
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            match name {
                "rule" => {}
                "reason" => rule.reason = Some(self.text(name, value)?.to_owned()),
                "suggest" => rule.suggest = Some(self.text(name, value)?.to_owned()),
                "users" | "groups" => {
                    let found = self.principals(name, value)?;
                    rule.principals.get_or_insert_default().extend(found);
                }
                "called_by" => rule.called_by = Some(self.tools(name, value)?),
                "match" | "not_match" => {
                    for item in self.items(name, value)? {
                        let text = self.text(name, item)?.to_owned();
                        examples.push((text, name == "match", item.span().start));
                    }
                }
                other => {
                    let detail = no_key(other, "a rule", ITEM);
                    return Err(self.error(key.span().start, Some(other), detail));
                }
            }
        }
        for (text, matches, at) in examples {
            let example = Example::new(&rule, text, matches, self.source(at));
            example.check(&rule).map_err(|detail| {
                let key = if matches { "match" } else { "not_match" };
                self.error(at, Some(key), detail)
            })?;
            checked.push(example);
        }
        Ok(rule)
    }

    fn tools(&self, key: &str, value: &Value<'_>) -> Result<Vec<Tools>, PolicyError> {
        let items = self.items(key, value)?;
        if items.is_empty() {
            let detail = "names no tool, so that the rule would concern no call: expected one or more, or no `called_by`".to_owned();
            return Err(self.error(value.span().start, Some(key), detail));
        }
        let tools = items.iter().map(|item| {
            let expected = "expected a tool's name, `*` and `?` allowed";
            Tools::new(self.text(key, item)?).map_err(|detail| {
                let detail = format!("{detail}: {expected}");
                self.error(item.span().start, Some(key), detail)
            })
        });
        tools.collect()
    }

    fn principals(&self, key: &str, value: &Value<'_>) -> Result<Vec<Principal>, PolicyError> {
        let kind = if key == "users" { "user" } else { "group" };
        let items = self.items(key, value)?;
        if items.is_empty() {
            let detail = format!(
                "names no {kind}, so that the rule would concern nobody: expected one or more, or no `{key}`"
            );
            return Err(self.error(value.span().start, Some(key), detail));
        }
        let resolve = |item: &Value<'_>| {
            let name = self.text(key, item)?;
            let refused = |detail| self.error(item.span().start, Some(key), detail);
            let found = principal(&format!("{kind}:{name}")).map_err(refused)?;
            found.ok_or_else(|| {
                refused(format!(
                    "this machine knows no {kind} {name:?}: expected a name or a number"
                ))
            })
        };
        items.iter().map(resolve).collect()
    }
}

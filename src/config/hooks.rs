//! `[[hooks]]` of `executor.toml`: programs of the operator that are asked on a call's way.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::{Table, Value};

use super::executor::Need;
use super::values::{Bounded, word};
use crate::domain::{Point, Stage, does_as, words};

/// The time limit of a hook that sets none: the caller waits for it.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest name, in characters: it stands in answers, events and the log.
const NAME_CHARS: usize = 64;

/// A program that is asked at one point of a call's way.
#[derive(Clone, Debug, PartialEq)]
pub struct Hook {
    /// What it is called in records, events and the log; no two are called the same.
    pub name: String,
    /// Where it is asked.
    pub point: Point,
    /// What is asked.
    pub asked: Asked,
    /// The tools it concerns; `None` for all.
    pub tools: Option<BTreeSet<String>>,
    /// Its time limit.
    pub timeout: Duration,
    /// What its failure means.
    pub on_failure: OnFailure,
}

/// What a hook is.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    /// A program that decides.
    Program {
        /// By absolute path.
        program: PathBuf,
        /// Its arguments, without its own name.
        args: Vec<String>,
    },
    /// A skill that decides nothing: what it answers is kept for the skills of the call.
    Skill {
        /// Its name.
        name: String,
        /// Its input, with templates over what a program would be given.
        input: Value,
    },
}

words! {
    /// What it means when a hook gives no answer that counts.
    pub enum OnFailure {
        /// The call is refused.
        Deny = "deny",
        /// It goes on.
        Allow = "allow",
    }
}

impl Hook {
    /// Whether it is asked about calls of this tool: one about `bash` is about commands by whatever name.
    pub fn concerns(&self, tool: &str) -> bool {
        let names = |tools: &BTreeSet<String>| {
            tools.contains(tool) || does_as(tool).is_some_and(|other| tools.contains(other))
        };
        self.tools.as_ref().is_none_or(names)
    }

    /// What it needs of the file system.
    pub fn need(&self) -> Option<Need<'_>> {
        match &self.asked {
            Asked::Program { program, .. } => Some(Need::program("[[hooks]]", program)),
            Asked::Skill { .. } => None,
        }
    }
}

/// One `[[hooks]]` as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HookFile {
    #[serde(deserialize_with = "name")]
    name: String,
    #[serde(default, deserialize_with = "word")]
    before: Option<Stage>,
    #[serde(default, deserialize_with = "word")]
    after: Option<Stage>,
    #[serde(default, deserialize_with = "command")]
    command: Vec<String>,
    skill: Option<String>,
    input: Option<Table>,
    #[serde(default, deserialize_with = "tools")]
    tools: Option<BTreeSet<String>>,
    timeout_secs: Option<Bounded<1, 3600>>,
    #[serde(default, deserialize_with = "word")]
    on_failure: Option<OnFailure>,
}

impl HookFile {
    /// Checks what concerns several keys.
    fn hook(self, others: &[Hook]) -> Result<Hook, String> {
        let name = self.name;
        if others.iter().any(|other| other.name == name) {
            return Err(format!("`name`: another hook is called {name:?}, too"));
        }
        let point = match (self.before, self.after) {
            (Some(stage), None) => Point::before(stage),
            (None, Some(stage)) => Point::after(stage),
            (Some(_), Some(_)) => return Err("`before` and `after`: set one of them".to_owned()),
            (None, None) => {
                return Err("`before` or `after`: set one of them to a stage".to_owned());
            }
        };
        let asked = match (self.skill, self.command.is_empty(), self.input) {
            (Some(_), true, _) if point == Point::before(Stage::Discovery) => {
                let detail = "`before`: a skill is called by the call's tool, which is not found yet: expected a later stage";
                return Err(detail.to_owned());
            }
            (Some(name), true, input) => Asked::Skill {
                name,
                input: Value::Table(input.unwrap_or_default()),
            },
            (None, false, None) => {
                let mut command = self.command.into_iter();
                Asked::Program {
                    program: command.next().map(PathBuf::from).unwrap_or_default(),
                    args: command.collect(),
                }
            }
            (None, false, Some(_)) => {
                return Err("`input` is for a `skill`: a program is given the call".to_owned());
            }
            (_, _, _) => return Err("`command` or `skill`: set one of them".to_owned()),
        };
        let decides = matches!(asked, Asked::Program { .. });
        let on_failure = match (self.on_failure, point.precedes_the_run()) {
            (Some(OnFailure::Deny), false) => {
                let detail = "`on_failure`: \"deny\" is of no use once the call was run: expected \"allow\", or a hook before the execution stage";
                return Err(detail.to_owned());
            }
            (None, true) if decides => OnFailure::Deny,
            (None, _) => OnFailure::Allow,
            (Some(given), _) => given,
        };
        Ok(Hook {
            name,
            point,
            asked,
            tools: self.tools,
            timeout: self.timeout_secs.map_or(DEFAULT_TIMEOUT, Bounded::secs),
            on_failure,
        })
    }
}

fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if (1..=NAME_CHARS).contains(&name.len()) && name.chars().all(is_plain) {
        return Ok(name);
    }
    Err(D::Error::custom(format!(
        "{name:?} is no name: expected 1 to {NAME_CHARS} letters, digits, `-` and `_`"
    )))
}

fn command<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let command = Vec::<String>::deserialize(deserializer)?;
    let Some(program) = command.first() else {
        let detail = "expected the absolute path of a program, then its arguments";
        return Err(D::Error::custom(detail));
    };
    if !Path::new(program).is_absolute() {
        return Err(D::Error::custom(format!(
            "{program:?} is no absolute path, and no shell looks for it: expected one such as `/usr/local/bin/check`"
        )));
    }
    match command.iter().find(|word| word.contains('\0')) {
        Some(word) => Err(D::Error::custom(format!(
            "{word:?} holds NUL, which no command can"
        ))),
        None => Ok(command),
    }
}

fn tools<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BTreeSet<String>>, D::Error> {
    let tools = BTreeSet::<String>::deserialize(deserializer)?;
    if tools.is_empty() {
        let detail = "an empty list concerns no tool: leave it out for all, or name some";
        return Err(D::Error::custom(detail));
    }
    Ok(Some(tools))
}

/// All of them, in their order.
#[derive(Default)]
pub(super) struct Hooks(pub(super) Vec<Hook>);

impl<'de> Deserialize<'de> for Hooks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(AllHooks).map(Self)
    }
}

struct AllHooks;

impl<'de> Visitor<'de> for AllHooks {
    type Value = Vec<Hook>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tables, each `[[hooks]]`")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut tables: A) -> Result<Vec<Hook>, A::Error> {
        let mut hooks = Vec::new();
        while let Some(hook) = tables.next_element_seed(Next(&hooks))? {
            hooks.push(hook);
        }
        Ok(hooks)
    }
}

/// The next one, after these. Refused from within a visitor, for the parser adds the line to what
/// that says.
struct Next<'a>(&'a [Hook]);

impl<'de> DeserializeSeed<'de> for Next<'_> {
    type Value = Hook;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Hook, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Next<'_> {
    type Value = Hook;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Hook, A::Error> {
        let file = HookFile::deserialize(MapAccessDeserializer::new(map))?;
        file.hook(self.0).map_err(A::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    fn parse(text: &str) -> Result<Vec<Hook>, String> {
        Settings::parse(Path::new("e.toml"), text)
            .map(|settings| settings.executor.hooks)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_left_out_has_the_value_that_suits_the_place() {
        let text = "[[hooks]]\nname = \"a\"\nbefore = \"execution\"\ncommand = [\"/bin/a\", \"-x\"]\n\
                    [[hooks]]\nname = \"b\"\nafter = \"execution\"\ncommand = [\"/bin/b\"]\ntools = [\"bash\"]\ntimeout_secs = 9\n";
        let hooks = parse(text).expect("valid");
        assert_eq!(hooks[0].point, Point::before(Stage::Execution));
        let program = Asked::Program {
            program: PathBuf::from("/bin/a"),
            args: vec!["-x".to_owned()],
        };
        assert_eq!(hooks[0].asked, program);
        assert_eq!(
            (hooks[0].timeout, hooks[0].on_failure),
            (DEFAULT_TIMEOUT, OnFailure::Deny)
        );
        assert!(hooks[0].concerns("anything"));
        assert_eq!(
            (hooks[1].timeout, hooks[1].on_failure),
            (Duration::from_secs(9), OnFailure::Allow)
        );
        assert!(
            hooks[1].concerns("bash")
                && hooks[1].concerns("execute_command")
                && !hooks[1].concerns("read_file")
        );
    }

    #[test]
    fn a_skill_stands_in_the_place_of_a_program() {
        let hook = |keys: &str| parse(&format!("[[hooks]]\nname = \"a\"\n{keys}\n"));
        let hooks = hook("before = \"execution\"\nskill = \"s\"\ninput = { q = \"{{ tool }}\" }");
        let [hook_of_skill] = &hooks.expect("valid")[..] else {
            panic!("one hook");
        };
        let asked = Asked::Skill {
            name: "s".to_owned(),
            input: Value::Table(
                [("q".to_owned(), Value::from("{{ tool }}"))]
                    .into_iter()
                    .collect(),
            ),
        };
        assert_eq!(
            (&hook_of_skill.asked, hook_of_skill.on_failure),
            (&asked, OnFailure::Allow)
        );
        for (keys, part) in [
            ("before = \"discovery\"\nskill = \"s\"", "a later stage"),
            (
                "before = \"execution\"\nskill = \"s\"\ncommand = [\"/bin/a\"]",
                "set one of them",
            ),
            ("before = \"execution\"", "set one of them"),
            (
                "before = \"execution\"\ncommand = [\"/bin/a\"]\ninput = {}",
                "`input` is for a `skill`",
            ),
        ] {
            let refusal = hook(keys).expect_err(keys);
            assert!(refusal.contains(part), "{refusal}");
        }
    }

    #[test]
    fn refusals_name_line_key_and_what_was_expected() {
        let good = "[[hooks]]\nname = \"a\"\nbefore = \"permission\"\ncommand = [\"/bin/a\"]\n";
        assert_eq!(parse(good).map(|hooks| hooks.len()), Ok(1));
        for (from, to, parts) in [
            ("\"a\"", "\"a b\"", &["e.toml:2: `name`", "letters"][..]),
            ("name = \"a\"\n", "", &["e.toml:1: ", "missing", "name"]),
            (
                "\"permission\"",
                "\"lunch\"",
                &["e.toml:3: `before`", "confirmation"],
            ),
            (
                "before = \"permission\"\n",
                "",
                &["e.toml:1: ", "`before` or `after`"],
            ),
            (
                "command",
                "after = \"validation\"\ncommand",
                &["e.toml:1: ", "set one of them"],
            ),
            (
                "\"/bin/a\"",
                "\"a\"",
                &["e.toml:4: `command`", "absolute path"],
            ),
            ("\"/bin/a\"", "", &["e.toml:4: `command`", "absolute path"]),
            (
                "\"/bin/a\"",
                "\"/bin/a\", \"\\u0000\"",
                &["e.toml:4: `command`", "NUL"],
            ),
            (
                "command",
                "tools = []\ncommand",
                &["e.toml:4: `tools`", "no tool"],
            ),
            (
                "command",
                "timeout_secs = 0\ncommand",
                &["e.toml:4: `timeout_secs`", "from 1 to 3600"],
            ),
            (
                "command",
                "on_failure = \"shrug\"\ncommand",
                &["e.toml:4: `on_failure`", "deny"],
            ),
            (
                "command",
                "on_failure = false\ncommand",
                &["e.toml:4: `on_failure`", "boolean `false`", "deny"],
            ),
            (
                "before = \"permission\"\n",
                "after = \"execution\"\non_failure = \"deny\"\n",
                &["e.toml:1: ", "`on_failure`", "of no use"],
            ),
            (
                "command",
                "colour = 1\ncommand",
                &["e.toml:4: `colour`", "expected one of"],
            ),
        ] {
            let text = good.replacen(from, to, 1);
            let refusal = parse(&text).expect_err(&text);
            for part in parts {
                assert!(
                    refusal.contains(part),
                    "{text} gave {refusal:?}, which lacks {part:?}"
                );
            }
        }
        let refusal = parse(&format!("{good}{good}")).expect_err("twice the same");
        assert!(
            refusal.contains("e.toml:5: ") && refusal.contains("\"a\""),
            "{refusal}"
        );
    }
}

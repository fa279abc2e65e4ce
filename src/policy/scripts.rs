//! Judging a script: every command in it, and the strictest verdict wins.

use super::glob::{Glob, INNER_BLANK, UNKNOWN, UNKNOWN_WORDS};
use super::judge::{Cause, Decision, Policy, WRITE_PARAMETER, WRITE_TOOL};
use super::paths::{absolute, goes_up};
use super::question::{Question, Verdict};
use super::remembered;
use super::rule::Rule;
use super::shell::hazards::{Hazard, hazard};
use super::shell::strict::{self, Segment, join};
use super::shell::{Command, Reading, Setting, Shell, Unreadable, read_shell_in};

/// The longest script that a pattern allows, in bytes: nobody who wrote the pattern meant more,
/// and it bounds the work.
const MAX_ALLOWED_BYTES: usize = 64 * 1024;

/// Variables of a call that change nothing about which programs run.
const HARMLESS: [&str; 8] = [
    "CI",
    "COLUMNS",
    "LINES",
    "NO_COLOR",
    "FORCE_COLOR",
    "CLICOLOR",
    "TERM",
    "TZ",
];

/// Whether a variable makes a shell run something else than its script says.
fn decides_what_runs(name: &str) -> bool {
    let names = [
        "BASH_ENV",
        "ENV",
        "PATH",
        "POSIXLY_CORRECT",
        "PROMPT_COMMAND",
        "SHELLOPTS",
        "BASHOPTS",
        "IFS",
        "PS4",
    ];
    names.contains(&name) || name.starts_with("BASH_FUNC_") || name.starts_with("LD_")
}

/// `whole` is what the rules on the call as such say.
pub(super) fn judge_script<'p>(
    policy: &'p Policy,
    question: &'p Question<'_>,
    text: &str,
    whole: Option<Decision<'p>>,
) -> Decision<'p> {
    // What no remembered approval changes, and what one may quiet.
    let mut found = Strictest(None);
    let mut asked = Asked::default();
    let reads = policy.reads_scripts(question);
    if reads && let Some(name) = question.env.keys().find(|name| decides_what_runs(name)) {
        found.add(Decision {
            verdict: Verdict::Ask,
            cause: Cause::Environment(name),
            segment: None,
        });
    }
    if reads {
        let setting = Setting {
            shell: Shell::at(question.shell),
            input: question.stdin,
            variables: question.env,
        };
        match read_shell_in(text, setting, policy.fence()) {
            Ok(reading) => judge_reading(policy, question, &reading, &mut found, &mut asked),
            Err(unreadable) => found.add(Decision {
                verdict: Verdict::Ask,
                cause: Cause::Unreadable(unreadable.to_string()),
                segment: None,
            }),
        }
    }
    if found.0.is_none()
        && let Some(decision) =
            remembered::judge_commands(policy, question, text, whole.as_ref(), &asked)
    {
        return decision;
    }
    if let Some(first) = asked.first {
        // What is asked about for certain says why, before what may have to be asked about.
        match &mut found.0 {
            Some(Decision {
                cause: Cause::MayMatch(rule),
                ..
            }) if rule.list == Verdict::Ask => found.0 = Some(first),
            _ => found.add(first),
        }
    }
    match whole {
        Some(whole) => found.add(whole),
        None => judge_allowance(policy, question, text, &mut found),
    }
    found.0.unwrap_or_else(|| by_default(policy, None, None))
}

/// The first of the strictest.
struct Strictest<'p>(Option<Decision<'p>>);

impl<'p> Strictest<'p> {
    fn add(&mut self, decision: Decision<'p>) {
        let verdict = decision.verdict;
        if self.0.as_ref().is_none_or(|found| verdict > found.verdict) {
            self.0 = Some(decision);
        }
    }
}

fn by_default<'p>(policy: &Policy, segment: Option<String>, why: Option<String>) -> Decision<'p> {
    Decision {
        verdict: policy.default_verdict(),
        cause: Cause::Default(why),
        segment,
    }
}

/// What rules ask about.
#[derive(Default)]
pub(super) struct Asked<'p> {
    /// The commands, as the loose reader has them.
    pub commands: Vec<Command>,
    first: Option<Decision<'p>>,
}

/// What refuses or asks about the commands and the files written.
fn judge_reading<'p>(
    policy: &'p Policy,
    question: &'p Question<'_>,
    reading: &Reading,
    found: &mut Strictest<'p>,
    asked: &mut Asked<'p>,
) {
    let mut rules: Vec<Held> = policy
        .script_rules(question)
        .filter_map(Held::new)
        .collect();
    let mut may = None;
    for command in &reading.commands {
        if may.is_some() && !command.certain {
            continue;
        }
        for held in &mut rules {
            let fit = held.against(command);
            let rule = held.rule;
            let decision = |verdict, cause| Decision {
                verdict,
                cause,
                segment: Some(shown(command.text())),
            };
            match fit {
                Fit::Not => {}
                Fit::Certain if rule.list == Verdict::Ask => {
                    // Several rules may ask about one.
                    if asked.commands.last() != Some(command) {
                        asked.commands.push(command.clone());
                    }
                    let asks = || decision(rule.list, Cause::Rule(rule));
                    asked.first.get_or_insert_with(asks);
                }
                Fit::Certain => found.add(decision(rule.list, Cause::Rule(rule))),
                Fit::Perhaps => {
                    may.get_or_insert_with(|| decision(Verdict::Ask, Cause::MayMatch(rule)));
                }
                Fit::TooMuch => {
                    let cause = || Cause::Unreadable(Unreadable::TooMuch.to_string());
                    may.get_or_insert_with(|| decision(Verdict::Ask, cause()));
                }
            }
        }
    }
    for path in &reading.writes {
        judge_write(policy, question, path.as_deref(), reading, found);
    }
    // Who runs what nobody has read may write anywhere.
    let is_anything = |command: &&Command| command.text().chars().eq([UNKNOWN_WORDS]);
    if let Some(anything) = reading.commands.iter().find(is_anything)
        && let Some(rule) = policy.write_rules(question).next()
    {
        found.add(Decision {
            verdict: Verdict::Ask,
            cause: Cause::MayMatch(rule),
            segment: Some(shown(anything.text())),
        });
    }
    if let Some(may) = may {
        found.add(may);
    }
}

/// How many bytes of a script's commands a rule is held against: commands that begin as its pattern does count, and
/// of a script that people write few do. Behind a wrapper a command may begin at each word, so that without a bound
/// the time would grow with the square of the script's length.
const MAX_HELD_BYTES: usize = 512 * 1024;

/// A rule that is held against one command of a script after another.
struct Held<'p, 'r> {
    rule: &'p Rule,
    glob: &'p Glob,
    /// Bytes that it may still be held against.
    left: usize,
    /// The last command that it does not match, however it turns out.
    unlike: Option<&'r Command>,
}

/// How a rule stands to a command.
enum Fit {
    Not,
    Certain,
    Perhaps,
    /// Nobody has looked, for there is too much to look at.
    TooMuch,
}

impl<'p, 'r> Held<'p, 'r> {
    fn new(rule: &'p Rule) -> Option<Self> {
        Some(Self {
            rule,
            glob: rule.script()?,
            left: MAX_HELD_BYTES,
            unlike: None,
        })
    }

    fn against(&mut self, command: &'r Command) -> Fit {
        // What begins with `*` and does not match a command matches no end of it.
        let is_seen = self.unlike.is_some_and(|unlike| command.ends(unlike));
        if is_seen && self.glob.begins_with_any() {
            return Fit::Not;
        }
        let mut fit = Fit::Not;
        for (form, text) in forms(command.text()).enumerate() {
            // A file in a directory that is known only when it runs goes by its name, where the rule has no path.
            let is_path = form == 0 && text.starts_with(UNKNOWN);
            if is_path && self.glob.names_program() && has_known_name(text) {
                continue;
            }
            if !self.glob.may_begin(text) {
                continue;
            }
            let Some(left) = self.left.checked_sub(text.len()) else {
                return Fit::TooMuch;
            };
            self.left = left;
            if command.certain && self.glob.matches(text) {
                return Fit::Certain;
            }
            let is_open = !command.certain || !command.is_known();
            if is_open && self.glob.may_match(text) {
                fit = Fit::Perhaps;
            }
        }
        if let Fit::Not = fit {
            self.unlike = Some(command);
        }
        fit
    }
}

/// The command as written, and with its program's name only.
pub(super) fn forms(text: &str) -> impl Iterator<Item = &str> {
    let program = text.split(' ').next().unwrap_or_default();
    // What ends in a slash is no program.
    let directory = program.rfind('/').filter(|at| at + 1 < program.len());
    std::iter::once(text).chain(directory.map(|at| &text[at + 1..]))
}

/// Whether the program of a command is a path, the last name in which is known.
fn has_known_name(text: &str) -> bool {
    let program = text.split(' ').next().unwrap_or_default();
    let name = program.rsplit_once('/').map(|(_, name)| name);
    !program.contains(UNKNOWN_WORDS)
        && name.is_some_and(|name| !name.is_empty() && !name.contains(UNKNOWN))
}

fn judge_write<'p>(
    policy: &'p Policy,
    question: &'p Question<'_>,
    path: Option<&str>,
    reading: &Reading,
    found: &mut Strictest<'p>,
) {
    // After a change of directory nobody knows where a relative path leads.
    let base = question.working_dir.filter(|_| !reading.moves);
    let known = path.and_then(|path| absolute(path, base));
    // Where it leads as text, it may not lead: rules see both.
    let misleads = known.as_ref().filter(|known| {
        let may_be_elsewhere = |path: &str| reading.may_move && !path.starts_with('/');
        path.is_some_and(|path| goes_up(path) || may_be_elsewhere(path))
            || leads_through_process(known)
    });
    for rule in policy.write_rules(question) {
        let Some(known) = &known else {
            return found.add(Decision {
                verdict: Verdict::Ask,
                cause: Cause::MayMatch(rule),
                segment: Some(format!(
                    "> {}",
                    path.unwrap_or("(a path known only when it runs)")
                )),
            });
        };
        let input = serde_json::json!({ WRITE_PARAMETER: known });
        let write = Question {
            tool: WRITE_TOOL,
            input: &input,
            paths: &[],
            ..*question
        };
        if rule.matches_input(&write) {
            found.add(Decision {
                verdict: rule.list,
                cause: Cause::Write(rule),
                segment: Some(format!("> {known}")),
            });
        } else if misleads.is_some() {
            found.add(Decision {
                verdict: Verdict::Ask,
                cause: Cause::MayMatch(rule),
                segment: path.map(|path| format!("> {path}")),
            });
        }
    }
}

/// Whether an absolute path goes through links of the kernel's that lead anywhere: the root, the
/// directory and the open files of a process.
fn leads_through_process(path: &str) -> bool {
    let names: Vec<&str> = path.split('/').skip(1).collect();
    match names.as_slice() {
        ["dev", "fd", _] => false,
        ["dev", "fd", _, ..] => true,
        ["proc", process, rest @ ..] => {
            let is_process = matches!(*process, "self" | "thread-self")
                || process.bytes().all(|byte| byte.is_ascii_digit());
            let is_own = *process == "self";
            is_process
                && match rest {
                    // What the script itself has open was judged when it was opened.
                    ["fd", _] => !is_own,
                    rest => rest
                        .iter()
                        .any(|name| matches!(*name, "cwd" | "exe" | "fd" | "map_files" | "root")),
                }
        }
        _ => false,
    }
}

/// What each command is without rules that refuse: allowed by a pattern, or left to the default.
fn judge_allowance<'p>(
    policy: &'p Policy,
    question: &'p Question<'_>,
    text: &str,
    found: &mut Strictest<'p>,
) {
    let allowing: Vec<&Rule> = policy
        .rules(Verdict::Allow, question)
        .filter(|rule| rule.script().is_some())
        .collect();
    let asking: Vec<&Rule> = policy
        .rules(Verdict::Ask, question)
        .filter(|rule| rule.script().is_some())
        .collect();
    if allowing.is_empty() && asking.is_empty() {
        return found.add(by_default(policy, None, None));
    }
    let segments = match allowable(text, question) {
        Ok(segments) => segments,
        Err(why) => return found.add(by_default(policy, None, Some(why))),
    };
    let mut moved = false;
    let mut ruled = false;
    for segment in &segments {
        let words = join(segment.words.iter().map(String::as_str));
        let asks = |rule: &&&Rule| rule.script().is_some_and(|glob| glob.matches(&words));
        // What a rule asks about was found above, and is not the default's as well.
        let decision = match asking.iter().find(asks) {
            Some(rule) => Decision {
                verdict: Verdict::Ask,
                cause: Cause::Rule(rule),
                segment: Some(shown(&words)),
            },
            None => judge_segment(policy, &allowing, segment, &words, moved),
        };
        found.add(decision);
        ruled = true;
        moved |= moves(segment);
    }
    if !ruled {
        found.add(by_default(policy, None, None));
    }
}

pub(super) fn judge_segment<'p>(
    policy: &Policy,
    allowing: &[&'p Rule],
    segment: &Segment,
    words: &str,
    moved: bool,
) -> Decision<'p> {
    let matching = allowing.iter().find(|rule| covers(rule, segment, words));
    let program = segment.words.first().map_or("", String::as_str);
    match matching {
        Some(rule) if !is_elsewhere(segment, moved) => Decision {
            verdict: Verdict::Allow,
            cause: Cause::Rule(rule),
            segment: Some(shown(words)),
        },
        Some(_) => {
            let why = format!("after `cd` nobody knows which program `{program}` is");
            by_default(policy, Some(shown(words)), Some(why))
        }
        None => {
            let hazard = hazard(&segment.words);
            let why = hazard.map(|hazard| format!("`{program}` {}", hazard.what()));
            by_default(policy, Some(shown(words)), why)
        }
    }
}

/// Whether the rule allows the command, as far as its text says.
pub(super) fn covers(rule: &Rule, segment: &Segment, words: &str) -> bool {
    rule.script().is_some_and(|glob| {
        glob.matches(words)
            && match hazard(&segment.words) {
                None => true,
                Some(Hazard::Runs(_)) => glob.is_literal(),
                Some(Hazard::Shell(_)) => false,
            }
    })
}

/// Whether its program is looked for in a directory that nobody knows.
pub(super) fn is_elsewhere(segment: &Segment, moved: bool) -> bool {
    let program = segment.words.first().map_or("", String::as_str);
    moved && program.contains('/') && !program.starts_with('/')
}

/// Whether a command has those behind it run elsewhere. dash has a second name for it.
pub(super) fn moves(segment: &Segment) -> bool {
    let program = segment.words.first();
    program.is_some_and(|program| matches!(program.as_str(), "cd" | "chdir"))
}

/// The commands of a script that patterns may allow, or why none may.
pub(super) fn allowable(text: &str, question: &Question<'_>) -> Result<Vec<Segment>, String> {
    if Shell::at(question.shell) == Shell::Other {
        return Err(format!(
            "the shell `{}` may read it otherwise than bash and dash do",
            question.shell.display()
        ));
    }
    if let Some(name) = question
        .env
        .keys()
        .find(|name| !HARMLESS.contains(&name.as_str()))
    {
        return Err(format!(
            "the call sets the variable {name}, which may decide what runs"
        ));
    }
    if text.len() > MAX_ALLOWED_BYTES {
        return Err(format!(
            "the script is longer than {MAX_ALLOWED_BYTES} bytes"
        ));
    }
    strict::read(text).map_err(|opaque| {
        format!(
            "{} at byte {} is more than a pattern can allow",
            opaque.what, opaque.at
        )
    })
}

/// A command's text for people.
pub(super) fn shown(text: &str) -> String {
    let parts = text.chars().map(|c| match c {
        INNER_BLANK => ' ',
        UNKNOWN | UNKNOWN_WORDS => '…',
        c => c,
    });
    parts.collect()
}

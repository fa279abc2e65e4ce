use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::PolicyError;
use super::examples::Example;
use super::explain::explain;
use super::file::{self, Default as Unmatched, Parsed, Source};
use super::input::{is_shell_tool, script};
use super::question::{Judgement, Question, RuleSource, Verdict};
use super::remembered::{self, Grant, Remembered};
use super::rule::{Rule, Subject};
use super::scripts::judge_script;
use super::shell::Fence;
use super::tools::UnknownTool;
use crate::domain::{ApprovalId, RiskLevel};

/// A policy in force: immutable, cheap to clone.
#[derive(Clone, Debug)]
pub struct Policy {
    inner: Arc<Inner>,
    /// Changes while the rest stays.
    grants: Arc<Vec<Grant>>,
}

#[derive(Debug)]
struct Inner {
    default: Verdict,
    default_source: Option<RuleSource>,
    rules: Vec<Rule>,
    examples: Vec<Example>,
    /// The texts it was read from, and where they were.
    texts: Vec<(PathBuf, String)>,
    fence: Fence,
    /// Policies that say which calls are trusted: what one of them does not allow runs in the
    /// sandbox.
    trust: Vec<Arc<Inner>>,
    /// Policies that say which calls may write to a directory in the sandbox: those that one of them
    /// allows.
    workspaces: Vec<(Arc<Inner>, PathBuf)>,
}

/// What was found and why, before it is put into words.
#[derive(Clone, Debug)]
pub(super) struct Decision<'p> {
    pub verdict: Verdict,
    pub cause: Cause<'p>,
    /// The command or value that decided.
    pub segment: Option<String>,
}

/// Why a verdict is what it is.
#[derive(Clone, Debug)]
pub(super) enum Cause<'p> {
    /// A rule matches.
    Rule(&'p Rule),
    /// A remembered approval covers it.
    Remembered(&'p Grant),
    /// A rule matches a file that the script writes.
    Write(&'p Rule),
    /// A rule would match for some value of what is known only when the script runs.
    MayMatch(&'p Rule),
    /// The script cannot be read, and there are rules it could break.
    Unreadable(String),
    /// The call sets this variable, which decides what a script runs.
    Environment(&'p str),
    /// No rule matches; and why none that allows could, if so.
    Default(Option<String>),
}

impl Inner {
    /// Rules and nothing else.
    fn of(default: Verdict, rules: Vec<Rule>, fence: Fence) -> Self {
        Self {
            default,
            default_source: None,
            rules,
            examples: Vec::new(),
            texts: Vec::new(),
            fence,
            trust: Vec::new(),
            workspaces: Vec::new(),
        }
    }
}

impl<'p> Cause<'p> {
    /// The rule in it.
    pub(super) fn rule(&self) -> Option<&'p Rule> {
        match self {
            Self::Rule(rule) | Self::Write(rule) | Self::MayMatch(rule) => Some(*rule),
            Self::Remembered(grant) => Some(&grant.rule),
            Self::Unreadable(_) | Self::Environment(_) | Self::Default(_) => None,
        }
    }
}

impl Default for Policy {
    /// Everything is allowed.
    fn default() -> Self {
        Self::new(Inner::of(Verdict::Allow, Vec::new(), Fence::default()))
    }
}

impl Policy {
    /// Puts a policy together from `sources`: their lists are joined in this order, and one of
    /// them at most sets `default` (otherwise it is "allow"). Whom rules name is looked up now.
    ///
    /// # Errors
    /// Anything in any of them that is not understood completely, with file and line.
    pub fn parse(sources: &[Source<'_>]) -> Result<Self, PolicyError> {
        Self::parse_with(sources, Fence::default())
    }

    /// The same, with other bounds for reading scripts.
    ///
    /// # Errors
    /// As [`Policy::parse`].
    pub fn parse_with(sources: &[Source<'_>], fence: Fence) -> Result<Self, PolicyError> {
        let mut parsed = Parsed::default();
        for source in sources {
            file::read(*source, &mut parsed)?;
        }
        let (default, default_source) = match parsed.default {
            Some((default, source)) => (default, Some(source)),
            None => (Unmatched::Verdict(Verdict::Allow), None),
        };
        let mut trust = Vec::new();
        if !parsed.untrusted.is_empty() {
            let rules = parsed.untrusted;
            trust.push(Arc::new(Inner::of(Verdict::Allow, rules, fence.clone())));
        }
        let workspaces = parsed.workspaces.into_iter().map(|(rule, dir)| {
            let inner = Inner::of(Verdict::Deny, vec![rule], fence.clone());
            (Arc::new(inner), dir)
        });
        let workspaces = workspaces.collect();
        let default = match default {
            Unmatched::Verdict(verdict) => verdict,
            Unmatched::Untrusted => {
                let allows = |rule: &&Rule| rule.list == Verdict::Allow;
                let rules = parsed.rules.iter().filter(allows).cloned().collect();
                trust.push(Arc::new(Inner::of(Verdict::Ask, rules, fence.clone())));
                Verdict::Allow
            }
        };
        Ok(Self::new(Inner {
            default_source,
            examples: parsed.examples,
            texts: sources
                .iter()
                .map(|source| (source.path.to_owned(), source.text.to_owned()))
                .collect(),
            trust,
            workspaces,
            ..Inner::of(default, parsed.rules, fence)
        }))
    }

    fn new(inner: Inner) -> Self {
        Self {
            inner: Arc::new(inner),
            grants: Arc::default(),
        }
    }

    /// A policy of one rule, to hold its examples against.
    pub(super) fn of_one(default: Verdict, rule: Rule) -> Self {
        Self::new(Inner::of(default, vec![rule], Fence::default()))
    }

    /// Judges a call. Usually in microseconds; where [`Policy::reads_scripts`], a script that is
    /// not of the simplest form may take as long as the fence lets it (100 ms of a processor).
    pub fn judge(&self, question: &Question<'_>) -> Judgement {
        self.judge_for(question.tool, question)
    }

    /// The same where the question is what a call of another tool comes to: that one is named.
    pub(crate) fn judge_for(&self, tool: &str, question: &Question<'_>) -> Judgement {
        let mut judgement = explain(self, (tool, question), self.decide(question));
        for trust in self.trust() {
            let decision = trust.decide(question);
            if decision.verdict != Verdict::Allow {
                judgement.risk_level = RiskLevel::Untrusted;
                judgement.risk_rule = decision.cause.rule().map(|rule| rule.text.clone());
                break;
            }
        }
        let mut workspaces = self.inner.workspaces.iter();
        let granted = workspaces.find(|(inner, _)| {
            let decision = Self::alone(inner);
            decision.decide(question).verdict == Verdict::Allow
        });
        judgement.workspace = granted.map(|(_, dir)| dir.clone());
        judgement
    }

    /// The policies that say which calls are trusted. An approval that is remembered is none of their
    /// business: somebody has said that a call may run, and not where.
    fn trust(&self) -> impl Iterator<Item = Self> {
        self.inner.trust.iter().map(Self::alone)
    }

    /// A policy in which nothing is remembered.
    fn alone(inner: &Arc<Inner>) -> Self {
        Self {
            inner: Arc::clone(inner),
            grants: Arc::default(),
        }
    }

    /// Whether judging this call may take longer than a look at its text: there are rules that
    /// refuse or ask about commands, or files written, and it has a script.
    pub fn reads_scripts(&self, question: &Question<'_>) -> bool {
        script(question).is_some()
            && (self.script_rules(question).next().is_some()
                || self.write_rules(question).next().is_some()
                || self.trust().any(|trust| trust.reads_scripts(question)))
    }

    /// Whether it has some calls run in the sandbox.
    pub fn has_untrusted(&self) -> bool {
        !self.inner.trust.is_empty()
    }

    /// What happens to a call that no rule matches.
    pub fn default_verdict(&self) -> Verdict {
        self.inner.default
    }

    /// The same as its file says it.
    pub(super) fn default_word(&self) -> &'static str {
        let is_untrusted = |trust: &Arc<Inner>| trust.default == Verdict::Ask;
        match self.inner.trust.iter().any(is_untrusted) {
            true => RiskLevel::Untrusted.as_str(),
            false => self.inner.default.as_str(),
        }
    }

    /// The file that says what happens to a call that no rule matches; none when none does, or only
    /// what is built in.
    pub fn main_file(&self) -> Option<&Path> {
        let source = self.inner.default_source.as_ref();
        let file = source.map(|source| source.file.as_path());
        file.filter(|file| *file != Path::new(file::BUILT_IN_POLICY))
    }

    /// The same policy, if its files say what happens to a call that no rule matches.
    ///
    /// # Errors
    /// That `default` is missing from `main`: a file that is only half written, or was emptied by
    /// accident, permits nothing.
    pub fn with_default_set(self, main: &Path) -> Result<Self, PolicyError> {
        match self.inner.default_source {
            Some(_) => Ok(self),
            None => Err(PolicyError {
                path: main.to_owned(),
                line: 1,
                key: Some("default".to_owned()),
                detail: format!("is missing: {}", file::expected_default()),
            }),
        }
    }

    /// The same policy, with another text in place of the one that came from where `source` does. What it was read
    /// from besides stays as it was, whatever is there by now.
    ///
    /// # Errors
    /// As [`Policy::parse`].
    pub fn with_source(&self, source: Source<'_>) -> Result<Self, PolicyError> {
        let texts = self.inner.texts.iter();
        let sources = texts.map(|(path, text)| match path == source.path {
            true => source,
            false => Source { path, text },
        });
        let sources: Vec<Source<'_>> = sources.collect();
        let policy = Self::parse_with(&sources, self.inner.fence.clone())?;
        Ok(policy.with_grants(self.grants.to_vec()))
    }

    /// The same policy, in which these approvals are remembered besides those that are already.
    ///
    /// # Errors
    /// A rule that cannot be remembered, with its place. Nothing is remembered then.
    pub fn with_remembered(&self, approvals: &[Remembered]) -> Result<Self, PolicyError> {
        let new = approvals.iter().map(Grant::new);
        let new = new.collect::<Result<Vec<Grant>, PolicyError>>()?;
        Ok(self.with_grants(new))
    }

    /// The same policy, in which what `earlier` remembers for the session is remembered as well:
    /// a policy that is read anew knows only what is written down.
    #[must_use]
    pub fn with_session_of(&self, earlier: &Self) -> Self {
        let session = |grant: &&Grant| grant.remembered.source.is_none();
        self.with_grants(earlier.grants.iter().filter(session).cloned().collect())
    }

    /// The same policy without what an approval has left behind.
    #[must_use]
    pub fn without_remembered(&self, approval: ApprovalId) -> Self {
        let stays = |grant: &&Grant| grant.remembered.approval != approval;
        Self {
            inner: Arc::clone(&self.inner),
            grants: Arc::new(self.grants.iter().filter(stays).cloned().collect()),
        }
    }

    fn with_grants(&self, new: Vec<Grant>) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            grants: Arc::new(self.grants.iter().cloned().chain(new).collect()),
        }
    }

    /// The approvals that are remembered, in the order in which they were.
    pub fn remembered(&self) -> impl Iterator<Item = &Remembered> {
        self.grants.iter().map(|grant| &grant.remembered)
    }

    /// Whether it is the very same, and not only one that reads like it.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner) && Arc::ptr_eq(&self.grants, &other.grants)
    }

    /// Whether both were read from the same text, and remember the same for good.
    pub fn reads_like(&self, other: &Self) -> bool {
        let written = |approval: &&Remembered| approval.source.is_some();
        self.inner.texts == other.inner.texts
            && (self.remembered().filter(written)).eq(other.remembered().filter(written))
    }

    /// The number of rules, those that are remembered among them.
    pub fn rule_count(&self) -> usize {
        self.written().count() + self.grants.len()
    }

    /// The rules of all lists in its files.
    fn written(&self) -> impl Iterator<Item = &Rule> {
        let untrusted = self.inner.trust.iter().flat_map(|trust| &trust.rules);
        // Where the default is "untrusted", those that allow are there once more.
        let untrusted = untrusted.filter(|rule| rule.list == Verdict::Ask);
        let workspaces = self.inner.workspaces.iter();
        let workspaces = workspaces.flat_map(|(inner, _)| &inner.rules);
        self.inner.rules.iter().chain(untrusted).chain(workspaces)
    }

    /// What its files name and no tool of `known` is called. Such rules guard nothing, if only for
    /// now: skills come and go. What is remembered was about a tool that there was.
    pub fn unknown_tools(&self, known: &[&str]) -> Vec<UnknownTool> {
        let unknown = self.written().flat_map(|rule| rule.unknown_tools(known));
        unknown.collect()
    }

    /// Refuses rules on parameters that their tool does not have: they would never match.
    /// `parameters` says what a tool has; none of one that is not known, which may yet come.
    ///
    /// # Errors
    /// The first of them, with file and line.
    pub fn check_parameters(
        &self,
        parameters: impl Fn(&str) -> Option<Vec<String>>,
    ) -> Result<(), PolicyError> {
        let remembered = self.grants.iter().map(|grant| &grant.rule);
        for rule in self.written().chain(remembered) {
            let Some((tool, parameter)) = rule.tool_name().zip(rule.parameter()) else {
                continue;
            };
            let known = parameters(tool).filter(|known| known.iter().all(|one| one != parameter));
            if let Some(known) = known {
                return Err(PolicyError {
                    path: rule.source.file.clone(),
                    line: rule.source.line,
                    key: None,
                    detail: format!(
                        "{:?} would never match, for `{tool}` has no parameter `{parameter}`: expected one of `{}`",
                        rule.text,
                        known.join("`, `")
                    ),
                });
            }
        }
        Ok(())
    }

    /// All examples, which hold, or the policy would not be.
    pub fn examples(&self) -> &[Example] {
        &self.inner.examples
    }

    pub(super) fn fence(&self) -> &Fence {
        &self.inner.fence
    }

    pub(super) fn default_source(&self) -> Option<&RuleSource> {
        self.inner.default_source.as_ref()
    }

    /// The rules of `list` that concern this tool and caller, in order.
    pub(super) fn rules<'p>(
        &'p self,
        list: Verdict,
        question: &'p Question<'_>,
    ) -> impl Iterator<Item = &'p Rule> {
        let rules = self.inner.rules.iter();
        rules.filter(move |rule| rule.list == list && rule.concerns(question))
    }

    /// What is remembered for this tool and caller, in order.
    pub(super) fn grants<'p>(
        &'p self,
        question: &'p Question<'_>,
    ) -> impl Iterator<Item = &'p Grant> {
        let grants = self.grants.iter();
        grants.filter(|grant| grant.rule.concerns(question))
    }

    /// The rules on commands that refuse or ask, the strictest first.
    pub(super) fn script_rules<'p>(
        &'p self,
        question: &'p Question<'_>,
    ) -> impl Iterator<Item = &'p Rule> {
        let strict = [Verdict::Deny, Verdict::Ask].into_iter();
        strict
            .flat_map(move |list| self.rules(list, question))
            .filter(|rule| rule.script().is_some())
    }

    /// The rules on writing files that refuse or ask, the strictest first.
    pub(super) fn write_rules<'p>(
        &'p self,
        question: &'p Question<'_>,
    ) -> impl Iterator<Item = &'p Rule> {
        let concerns = |rule: &&Rule| {
            // A redirect shows nothing of what there was: rules on reading have no part in it.
            let is_about_writing = rule.tool.matches(WRITE_TOOL) && rule.concerns_caller(question);
            is_about_writing
                && match &rule.subject {
                    // Such a rule concerns the shell itself as well, and is judged there.
                    Subject::Whole => !rule.tool.matches(question.tool),
                    Subject::Parameter { name, .. } => name == WRITE_PARAMETER,
                    Subject::Script(_) => false,
                }
        };
        let strict = [Verdict::Deny, Verdict::Ask].into_iter();
        strict.flat_map(move |list| {
            let rules = self.inner.rules.iter();
            rules.filter(move |rule| rule.list == list).filter(concerns)
        })
    }

    /// What the rules on the call as such, and on parameters that are no scripts, say.
    pub(super) fn decide_whole<'p>(&'p self, question: &'p Question<'_>) -> Option<Decision<'p>> {
        let lists = [Verdict::Deny, Verdict::Ask, Verdict::Allow].into_iter();
        let rules = lists.flat_map(|list| self.rules(list, question));
        let mut matching = rules.filter(|rule| rule.matches_input(question));
        matching.next().map(|rule| Decision {
            verdict: rule.list,
            cause: Cause::Rule(rule),
            segment: None,
        })
    }

    /// The strictest of everything that is found; of equals, the first.
    pub(super) fn decide<'p>(&'p self, question: &'p Question<'_>) -> Decision<'p> {
        let whole = self.decide_whole(question);
        match (whole, script(question)) {
            (Some(denied), _) if denied.verdict == Verdict::Deny => denied,
            (whole, Some(text)) => judge_script(self, question, text, whole),
            (whole, None) => remembered::judge_input(self, question)
                .or(whole)
                .unwrap_or_else(|| Decision {
                    verdict: self.inner.default,
                    cause: Cause::Default(
                        is_shell_tool(question.tool).then(|| "there is no script".to_owned()),
                    ),
                    segment: None,
                }),
        }
    }
}

/// A redirect to a file is judged as a call of this tool.
pub(super) const WRITE_TOOL: &str = "write_file";
/// And this parameter of it.
pub(super) const WRITE_PARAMETER: &str = "file_path";

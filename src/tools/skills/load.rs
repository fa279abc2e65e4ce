//! A directory of skills, read as one.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use semver::Version;

use super::FILE;
use super::document::{self, Fault, lines_of};
use super::files::{Dir, Lack, told};
use super::manifest::{self, Place};
use super::set::{self, Found, Known};
use super::skill::Skill;
use crate::domain::brief;

/// The largest of them, in bytes: it is a page or two.
const FILE_LIMIT: u64 = 1 << 20;
/// How many skills are loaded, so that what is no directory of skills does not fill the memory.
const SKILL_LIMIT: usize = 1_000;
/// How many things wrong with one skill are told: somebody is to mend them, and a file that is no manifest at all
/// may have a hundred thousand.
const TOLD_OF_ONE: usize = 20;
/// How many are told of all skills. Every answer about the daemon's health repeats them.
const TOLD_OF_ALL: usize = 100;

/// How often a skill is read again that was replaced meanwhile.
const TRIES: usize = 10;

/// What a directory of skills comes to.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// Those that hold together, by directory.
    pub skills: Vec<Skill>,
    /// Why others do not.
    pub problems: Vec<SkillProblem>,
    /// Whether descriptors were lacking: there may be more.
    pub is_lacking: bool,
}

/// One thing wrong with one skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillProblem {
    /// The file, or the directory when it is about that.
    pub path: PathBuf,
    /// Counted from 1; none when it is about the file as a whole.
    pub line: Option<usize>,
    /// What is wrong, and what was expected.
    pub detail: String,
}

impl fmt::Display for SkillProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.path.display())?;
        match self.line {
            Some(line) => write!(f, "{line}: {}", self.detail),
            None => write!(f, " {}", self.detail),
        }
    }
}

/// A skill that is fine by itself, with its text.
pub(super) struct Draft {
    pub(super) skill: Skill,
    path: PathBuf,
    text: String,
}

/// What a file comes to: a skill, unless too much is wrong with it, and what is.
pub(super) struct Read {
    pub(super) draft: Option<Draft>,
    pub(super) problems: Vec<SkillProblem>,
}

impl Draft {
    fn problems(&self, faults: Vec<Fault>) -> Vec<SkillProblem> {
        let mut problems = problems(&self.path, &self.text, faults);
        tell(TOLD_OF_ONE, &self.path, &mut problems);
        problems
    }
}

fn problems(path: &Path, text: &str, faults: Vec<Fault>) -> Vec<SkillProblem> {
    let pointers: Vec<&str> = faults.iter().map(|fault| fault.pointer.as_str()).collect();
    let lines = lines_of(text, &pointers);
    let faults = faults.into_iter().zip(lines);
    let problems = faults.map(|(fault, line)| SkillProblem {
        path: path.to_owned(),
        line: Some(line),
        detail: brief(fault.detail),
    });
    problems.collect()
}

/// Puts them in the order of their lines and keeps the first, saying of `path` how many there are besides.
fn tell(most: usize, path: &Path, problems: &mut Vec<SkillProblem>) {
    sort(problems);
    if let Some(more @ 1..) = problems.len().checked_sub(most) {
        problems.truncate(most);
        let detail = format!("and {more} things more are wrong: mend those that are told first");
        problems.push(whole(path, detail));
    }
}

/// In the order of their lines, and last what is said of a file as a whole.
pub(super) fn sort(problems: &mut [SkillProblem]) {
    let place = |problem: &SkillProblem| (problem.line.is_none(), problem.line);
    problems.sort_by(|a, b| (&a.path, place(a)).cmp(&(&b.path, place(b))));
}

pub(super) fn whole(path: &Path, detail: impl Into<String>) -> SkillProblem {
    SkillProblem {
        path: path.to_owned(),
        line: None,
        detail: detail.into(),
    }
}

/// Reads every `<dir>/*/skill.json`. A directory that is not there holds none.
pub(crate) fn load(dir: &Path, known: &dyn Known) -> Loaded {
    let (mut problems, lack) = (Vec::new(), Lack::default());
    let root = match Dir::open(dir, &lack) {
        Ok(root) => root,
        // A link that leads to nothing is a mistake.
        Err(error) if error.kind() == io::ErrorKind::NotFound && !dir.is_symlink() => {
            return Loaded::default();
        }
        Err(error) => {
            problems.push(whole(dir, told(&error)));
            return Loaded {
                skills: Vec::new(),
                problems,
                is_lacking: lack.was_felt(),
            };
        }
    };
    let mut drafts = Vec::new();
    for name in names(dir, &mut problems, &lack) {
        match read(&root, dir, name.as_ref()) {
            Ok(Some(Read {
                draft: Some(draft),
                problems,
            })) if problems.is_empty() => drafts.push(draft),
            Ok(Some(read)) => problems.extend(read.problems),
            Ok(None) => {}
            Err(problem) => problems.push(problem),
        }
    }
    refuse(&mut drafts, &mut problems, |drafts| clashes(drafts, known));
    // A skill that is refused may have been called by others, which are then refused too.
    while refuse(&mut drafts, &mut problems, |drafts| {
        wrong_calls(drafts, known)
    }) {}
    if refuse(&mut drafts, &mut problems, cycles) {
        while refuse(&mut drafts, &mut problems, |drafts| {
            wrong_calls(drafts, known)
        }) {}
    }
    tell(TOLD_OF_ALL, dir, &mut problems);
    let skills = drafts.into_iter().map(|draft| draft.skill).collect();
    let is_lacking = lack.was_felt();
    Loaded {
        skills,
        problems,
        is_lacking,
    }
}

/// The entries of `dir` that may be skills, in order; of too many the first.
pub(super) fn names(
    dir: &Path,
    problems: &mut Vec<SkillProblem>,
    lack: &Lack,
) -> BTreeSet<PathBuf> {
    let mut cannot_read = |error: io::Error| {
        lack.note(&error);
        problems.push(whole(dir, told(&error)));
    };
    let entries = std::fs::read_dir(dir).map_err(&mut cannot_read);
    let (mut names, mut left_out) = (BTreeSet::new(), 0);
    for entry in entries.into_iter().flatten() {
        let name = match entry {
            Ok(entry) => entry.file_name(),
            Err(error) => {
                cannot_read(error);
                break;
            }
        };
        let text = name.to_string_lossy();
        // What editors and installers leave behind on their way.
        if text.starts_with('.') || text.ends_with('~') || text.ends_with(".tmp") {
            continue;
        }
        names.insert(PathBuf::from(name));
        if names.len() > SKILL_LIMIT {
            names.pop_last();
            left_out += 1;
        }
    }
    if let Some(last) = names.last().filter(|_| left_out > 0) {
        let last = last.display();
        let detail = format!(
            "holds more than {SKILL_LIMIT} skills: the {left_out} behind `{last}` are left out"
        );
        problems.push(whole(dir, detail));
    }
    names
}

/// The skill in the directory `name`; none when that is no directory of one.
pub(super) fn read(root: &Dir, parent: &Path, name: &OsStr) -> Result<Option<Read>, SkillProblem> {
    let path = parent.join(name);
    let mut tries = 0..TRIES;
    loop {
        let dir = match root.dir(Path::new(name)) {
            Ok(dir) => dir,
            Err(error) if error.raw_os_error() == Some(Errno::ENOTDIR as i32) => return Ok(None),
            // It was removed since it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => {
                return Ok(None);
            }
            Err(error) => return Err(whole(&path, told(&error))),
        };
        let read = read_from(&dir, &path);
        // What is missing or wrong in a directory that was replaced meanwhile says nothing of what is there now.
        let is_fine = matches!(&read, Ok(Some(read)) if read.problems.is_empty());
        if is_fine || dir.is_at(&path) || tries.next().is_none() {
            return read;
        }
    }
}

fn read_from(dir: &Dir, path: &Path) -> Result<Option<Read>, SkillProblem> {
    let file = path.join(FILE);
    if !dir.has(FILE) {
        return Ok(None);
    }
    let text = dir
        .read(Path::new(FILE), FILE_LIMIT)
        .map_err(|detail| whole(&file, detail))?;
    let value = document::parse(&text).map_err(|(line, detail)| SkillProblem {
        path: file.clone(),
        line: Some(line),
        detail: brief(detail),
    })?;
    let mut place = Place {
        path,
        dir,
        elsewhere: Vec::new(),
    };
    let (skill, faults) = manifest::read(&value, &mut place);
    let mut problems = problems(&file, &text, faults);
    problems.extend(
        place
            .elsewhere
            .into_iter()
            .map(|(name, line, detail)| SkillProblem {
                path: path.join(name),
                line,
                detail,
            }),
    );
    tell(TOLD_OF_ONE, &file, &mut problems);
    let draft = skill.map(|skill| Draft {
        skill,
        path: file,
        text,
    });
    Ok(Some(Read { draft, problems }))
}

/// Takes out of `drafts` what `judge` finds something wrong with. Was there anything?
fn refuse(
    drafts: &mut Vec<Draft>,
    problems: &mut Vec<SkillProblem>,
    judge: impl Fn(&[Draft]) -> Vec<(usize, SkillProblem)>,
) -> bool {
    let found = judge(drafts);
    let refused: BTreeSet<usize> = found.iter().map(|(at, _)| *at).collect();
    problems.extend(found.into_iter().map(|(_, problem)| problem));
    let mut at = 0..;
    drafts.retain(|_| at.next().is_none_or(|at| !refused.contains(&at)));
    !refused.is_empty()
}

/// Skills of one name and version, and of the name of a tool that is there anyway.
pub(super) fn clashes(drafts: &[Draft], known: &dyn Known) -> Vec<(usize, SkillProblem)> {
    let mut same: BTreeMap<(&str, &Version), Vec<usize>> = BTreeMap::new();
    for (at, draft) in drafts.iter().enumerate() {
        same.entry((&draft.skill.name, &draft.skill.version))
            .or_default()
            .push(at);
    }
    let mut found = Vec::new();
    for ((name, version), all) in same {
        for &at in &all {
            let mut faults = Vec::new();
            if !matches!(known.find(name), Found::Nothing) {
                let detail = format!(
                    "`name` is {name:?}, which is a tool that is built in: expected another"
                );
                faults.push(Fault {
                    pointer: "/name".to_owned(),
                    detail,
                });
            }
            if let Some(other) = all.iter().find(|other| **other != at) {
                let other = drafts[*other].path.display();
                let detail = format!(
                    "`version` {version} of {name:?} is in `{other}` as well: expected it once"
                );
                faults.push(Fault {
                    pointer: "/version".to_owned(),
                    detail,
                });
            }
            found.extend(of_draft(drafts, at, faults));
        }
    }
    found
}

pub(super) fn wrong_calls(drafts: &[Draft], known: &dyn Known) -> Vec<(usize, SkillProblem)> {
    let names = set::by_name(drafts.iter().map(|draft| &draft.skill));
    let each = drafts
        .iter()
        .enumerate()
        .flat_map(|(at, draft)| of_draft(drafts, at, set::calls(&draft.skill, &names, known)));
    each.collect()
}

pub(super) fn cycles(drafts: &[Draft]) -> Vec<(usize, SkillProblem)> {
    let names = set::by_name(drafts.iter().map(|draft| &draft.skill));
    let each = drafts.iter().enumerate().flat_map(|(at, draft)| {
        let fault = set::cycle(&draft.skill, &names);
        of_draft(drafts, at, fault.into_iter().collect())
    });
    each.collect()
}

fn of_draft(drafts: &[Draft], at: usize, faults: Vec<Fault>) -> Vec<(usize, SkillProblem)> {
    if faults.is_empty() {
        return Vec::new();
    }
    let problems = drafts[at].problems(faults).into_iter();
    problems.map(|problem| (at, problem)).collect()
}

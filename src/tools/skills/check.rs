//! One skill judged by itself, before it is put among others.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::FILE;
use super::files::{Dir, Lack, told};
use super::load::{self, Draft, Read, SkillProblem};
use super::set::{Found, Known};

/// What a check of one skill found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillCheck {
    /// What it is called and which version it is, as far as that can be read.
    pub name: Option<String>,
    /// See `name`.
    pub version: Option<String>,
    /// What is wrong with it, in the order of its lines: all of it, or the first things and how many there are besides.
    pub problems: Vec<SkillProblem>,
}

/// Everything wrong with the skill in `dir`, if it stood among those of the directories `others`: in the
/// place of one there whose directory is called the same.
pub(crate) fn check(dir: &Path, others: &[PathBuf], known: &dyn Known) -> SkillCheck {
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
        return refused(load::whole(&dir, "is no directory of a skill"));
    };
    let root = match Dir::open(parent, &Lack::default()) {
        Ok(root) => root,
        Err(error) => return refused(load::whole(parent, told(&error))),
    };
    match load::read(&root, parent, name) {
        Ok(None) => refused(load::whole(&dir.join(FILE), "is not there")),
        Err(problem) => refused(problem),
        Ok(Some(read)) => judge(read, others, name, known),
    }
}

fn refused(problem: SkillProblem) -> SkillCheck {
    SkillCheck {
        problems: vec![problem],
        ..SkillCheck::default()
    }
}

/// Whatever else is wrong with it, what it is to others is looked at, too.
fn judge(read: Read, others: &[PathBuf], name: &OsStr, known: &dyn Known) -> SkillCheck {
    let Read {
        draft,
        mut problems,
    } = read;
    let Some(draft) = draft else {
        return SkillCheck {
            problems,
            ..SkillCheck::default()
        };
    };
    let mut check = SkillCheck {
        name: Some(draft.skill.name.clone()),
        version: Some(draft.skill.version.to_string()),
        problems: Vec::new(),
    };
    let mut drafts = vec![draft];
    for dir in others {
        // What is called like a tool that is there anyway is refused, and stands in nobody's way.
        let fine = standing(dir, name).into_iter();
        drafts.extend(fine.filter(|other| matches!(known.find(&other.skill.name), Found::Nothing)));
    }
    let found = [
        load::clashes(&drafts, known),
        load::wrong_calls(&drafts, known),
        load::cycles(&drafts),
    ];
    let found = found.concat().into_iter();
    problems.extend(found.filter(|(at, _)| *at == 0).map(|(_, problem)| problem));
    load::sort(&mut problems);
    check.problems = problems;
    check
}

/// The skills of a directory that are fine by themselves, but for the one called `except`.
fn standing(dir: &Path, except: &OsStr) -> Vec<Draft> {
    let lack = Lack::default();
    let Ok(root) = Dir::open(dir, &lack) else {
        return Vec::new();
    };
    let names = load::names(dir, &mut Vec::new(), &lack).into_iter();
    names
        .filter(|name| name.as_os_str() != except)
        .filter_map(|name| {
            load::read(&root, dir, name.as_os_str())
                .ok()??
                .draft_if_fine()
        })
        .collect()
}

impl Read {
    fn draft_if_fine(self) -> Option<Draft> {
        self.draft.filter(|_| self.problems.is_empty())
    }
}

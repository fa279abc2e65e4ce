//! `shellyctl tools install`: checked, then in its place at once.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::{Value, json};
use shelly_executor::client;

use super::copy::copy;
use super::error::{Problem, ToolsError, cannot};
use crate::args::tools::InstallArgs;
use crate::config;
use crate::failure::Failure;
use crate::print;

/// What `shelly-executord --check-skill --json` says, as far as it matters here.
#[derive(Deserialize)]
struct Checked {
    name: Option<String>,
    version: Option<String>,
    problems: Vec<Problem>,
}

/// Installs a skill and says which.
pub fn run(args: InstallArgs, json: bool) -> Result<ExitCode, Failure> {
    let dir = fs::canonicalize(&args.dir).map_err(cannot("find", &args.dir))?;
    let Some(name) = dir.file_name() else {
        let why = "is no directory of a skill".to_owned();
        return Err(ToolsError::Refused { path: dir, why }.into());
    };
    let skills = args
        .place
        .skills_dir
        .unwrap_or_else(client::default_skills_dir);
    // As the daemon's program names what is in it.
    let skills = std::path::absolute(&skills).unwrap_or(skills);
    // A directory of skills is made, a place that is not there is a slip.
    match fs::create_dir(&skills) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(ToolsError::Nowhere { path: skills }.into());
        }
        made => made.map_err(cannot("make", &skills))?,
    }
    let staging = Staging::make(&skills)?;
    // What is checked is the copy: nobody changes that afterwards.
    let made = staging.0.join(name);
    copy(&dir, &made)?;
    let checked = check(&dir, &made, &skills)?;
    let place = skills.join(name);
    let before = version_of(&place);
    put(&made, &place, &staging)?;
    let (name, version) = (
        checked.name.unwrap_or_default(),
        checked.version.unwrap_or_default(),
    );
    if json {
        let done = json!({
            "done": true, "name": name, "version": version, "path": place.display().to_string(),
            "replaced": before,
        });
        print::line(&done.to_string())?;
    } else {
        let instead = before.map(|version| format!(" in place of {version}"));
        let path = place.display();
        print::line(&format!(
            "installed {name} {version} in {path}{}",
            instead.unwrap_or_default()
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Holds the copy `made` of `dir` against what the daemon would say of it.
fn check(dir: &Path, made: &Path, skills: &Path) -> Result<Checked, Failure> {
    let said = config::checked_skill(made, skills)?;
    let mut checked: Checked =
        serde_json::from_slice(&said).map_err(|source| ToolsError::Unreadable {
            dir: dir.to_owned(),
            source,
        })?;
    if checked.problems.is_empty() {
        return Ok(checked);
    }
    // Of the copy nobody knows; what is to be mended is there.
    let (copy, given) = (made.display().to_string(), dir.display().to_string());
    for problem in &mut checked.problems {
        problem.path = problem.path.replacen(&copy, &given, 1);
        problem.detail = problem.detail.replace(&copy, &given);
    }
    let problems = checked.problems;
    Err(ToolsError::Invalid { problems }.into())
}

/// The version of the skill in a directory, as far as there is one.
pub fn version_of(dir: &Path) -> Option<String> {
    member_of(dir, "version")
}

/// What the skill in a directory is called, as far as there is one.
pub fn name_of(dir: &Path) -> Option<String> {
    member_of(dir, "name")
}

fn member_of(dir: &Path, member: &str) -> Option<String> {
    let text = fs::read(dir.join("skill.json")).ok()?;
    let manifest: Value = serde_json::from_slice(&text).ok()?;
    manifest[member].as_str().map(str::to_owned)
}

/// Puts `made` at `place`. What was there is then in the staging directory, and goes with it.
fn put(made: &Path, place: &Path, staging: &Staging) -> Result<(), ToolsError> {
    let swapped = match renameat_with(CWD, made, CWD, place, RenameFlags::EXCHANGE) {
        Err(Errno::NOENT) => fs::rename(made, place),
        // A file system that cannot do both at once.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            replace(place, made, &staging.0.with_extension("old"))
        }
        done => done.map_err(Into::into),
    };
    swapped.map_err(cannot("replace", place))?;
    sync(place.parent().unwrap_or(place))
}

/// Puts `made` at `place` in two steps, between which there is nothing; `old` is where the skill that was there is
/// meanwhile. It is put back where the second step fails, and stays where it is if even that does: the daemon
/// passes over it, and somebody can.
fn replace(place: &Path, made: &Path, old: &Path) -> io::Result<()> {
    fs::rename(place, old)?;
    if let Err(error) = fs::rename(made, place) {
        if let Err(error) = fs::rename(old, place) {
            print::note(&format!(
                "what was there is in `{}`: {error}",
                old.display()
            ));
        }
        return Err(error);
    }
    // The new one is in its place, whatever becomes of the other.
    if let Err(error) = fs::remove_dir_all(old) {
        print::note(&format!("cannot remove `{}`: {error}", old.display()));
    }
    Ok(())
}

/// Sees to it that what was renamed in a directory is so on disk.
pub fn sync(dir: &Path) -> Result<(), ToolsError> {
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(cannot("write", dir))
}

/// A directory of our own among the skills, whose name the daemon passes over. It goes when it is
/// dropped, with whatever is in it.
pub struct Staging(pub PathBuf);

impl Staging {
    pub fn make(skills: &Path) -> Result<Self, ToolsError> {
        let path = skills.join(format!(".shellyctl-{}", std::process::id()));
        // Left behind by a process of the same number that was killed.
        let _ = fs::remove_dir_all(&path);
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(cannot("make", &path))?;
        Ok(Self(path))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            print::note(&format!("cannot remove `{}`: {error}", self.0.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skill_that_cannot_be_replaced_is_put_back() {
        let name = format!("shellyctl-install-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let (place, made, old) = (dir.join("a"), dir.join("made"), dir.join(".old"));
        let file = place.join("skill.json");
        fs::create_dir_all(&place).expect("made");
        fs::write(&file, "the old one").expect("written");
        // There is none to put in its place.
        let error = replace(&place, &made, &old).expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(fs::read_to_string(&file).expect("there"), "the old one");
        assert!(!old.exists());

        fs::create_dir(&made).expect("made");
        fs::write(made.join("skill.json"), "the new one").expect("written");
        replace(&place, &made, &old).expect("replaced");
        assert_eq!(fs::read_to_string(&file).expect("there"), "the new one");
        assert!(!old.exists());
        fs::remove_dir_all(&dir).expect("removed");
    }
}

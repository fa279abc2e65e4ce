//! What can be said of files without starting anything.

use std::path::{Path, PathBuf};

use super::policy::PolicyFiles;
use super::{Options, UnusablePolicy, config_path, policy_files, read_settings};
use crate::config::{
    ConfigError, ExecutorConfig, FilesConfig, SkillsConfig, ToolDescriptions, skills_dir,
};
use crate::pipeline::{Executor, SkillCheck};
use crate::policy::Policy;

/// What a check of the configuration found.
#[derive(Debug)]
pub struct ConfigCheck {
    /// The file that was named, else the one at the usual place.
    pub path: PathBuf,
    /// Whether it is there. Where none was named, the built-in configuration does without one.
    pub exists: bool,
    /// What is valid but hardly meant; or the first thing that is wrong.
    pub verdict: Result<Vec<String>, InvalidConfig>,
}

/// A file of the configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InvalidConfig {
    /// `executor.toml` or `tools.toml`.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// `policy.toml`.
    #[error(transparent)]
    Policy(#[from] UnusablePolicy),
}

/// Validates the configuration and says what it found; starts nothing.
pub fn check_config(options: &Options) -> ConfigCheck {
    let path = config_path(options);
    let verdict = check_files(&path, options);
    ConfigCheck {
        exists: path.exists(),
        path,
        verdict,
    }
}

/// What a check of a policy found.
#[derive(Debug)]
pub struct PolicyCheck {
    /// The file that was named, else the one beside the configuration.
    pub path: PathBuf,
    /// What it says; or the first thing that is wrong.
    pub verdict: Result<Policy, UnusablePolicy>,
    /// What is valid but hardly meant.
    pub warnings: Vec<String>,
}

/// Validates a policy file with the examples in it; where none is named, the daemon's, with the
/// approvals that it remembers. The tools it names are looked for among the skills beside it, too,
/// or where it has none the daemon's.
pub fn check_policy(options: &Options, path: Option<PathBuf>) -> PolicyCheck {
    let named = path.is_some();
    let files = match path {
        // Another file is judged for what it says, not for what this daemon remembers.
        Some(path) => PolicyFiles {
            path,
            remembered: None,
        },
        None => policy_files(options),
    };
    let verdict = files.read(named, &FilesConfig::default());
    let warnings = verdict.as_ref().map(|policy| {
        let beside = skills_dir(&files.path);
        let skills = match beside.is_dir() {
            true => beside,
            false => skills_dir(&config_path(options)),
        };
        // What else the configuration says is not what is checked.
        let executor = with_skills(ExecutorConfig::default(), skills);
        executor.set_policy(policy.clone());
        executor.unknown_tools()
    });
    PolicyCheck {
        warnings: warnings.unwrap_or_default(),
        path: files.path,
        verdict,
    }
}

/// What a check of a skill found, and among which others it was judged.
#[derive(Debug)]
pub struct CheckedSkill {
    /// Its directory.
    pub path: PathBuf,
    /// Where what it calls was looked for.
    pub others: Vec<PathBuf>,
    /// What was found.
    pub found: SkillCheck,
}

/// Says what is wrong with the skill in `path`, if it stood among those of the directory `among`;
/// where none is named, among those beside it and the daemon's.
pub fn check_skill(options: &Options, path: PathBuf, among: Option<PathBuf>) -> CheckedSkill {
    let path = std::path::absolute(&path).unwrap_or(path);
    let others = match among {
        Some(dir) => vec![dir],
        None => {
            let beside = path.parent().map(Path::to_owned);
            let daemons = skills_dir(&config_path(options));
            let daemons = (beside.as_ref() != Some(&daemons)).then_some(daemons);
            beside.into_iter().chain(daemons).collect()
        }
    };
    CheckedSkill {
        found: Executor::check_skill(&path, &others),
        path,
        others,
    }
}

fn check_files(path: &Path, options: &Options) -> Result<Vec<String>, InvalidConfig> {
    let (settings, _) = read_settings(options)?;
    let policy_files = policy_files(options);
    let policy = policy_files.read(false, &settings.executor.files)?;
    let tools = path.with_file_name("tools.toml");
    let descriptions = ToolDescriptions::read(&tools)?;
    let executor = with_skills(settings.executor.clone(), skills_dir(path));
    executor.set_policy(policy);
    let described = executor.unknown_among(&tools.display().to_string(), descriptions.names());
    let doubts = settings.doubts().into_iter().chain(described);
    let doubts = doubts.chain(emptied(path));
    let doubts = doubts.chain(policy_files.absence());
    let doubts = doubts.chain(policy_files.foreign_hands(path));
    let doubts = doubts.chain(executor.unknown_tools());
    let doubts = doubts.chain(executor.wrong_hooks());
    let doubts = doubts.chain(executor.broken_skills());
    Ok(doubts.chain(executor.lacks_sandbox()).collect())
}

/// That a file has no content, if that is so.
fn emptied(path: &Path) -> Option<String> {
    let is_empty = std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() == 0);
    let path = path.display();
    is_empty.then(|| format!("{path}: the file is empty, which a daemon that runs refuses, and starts with all defaults: a comment in it says that they are meant"))
}

/// One with the tools that a daemon would have.
fn with_skills(config: ExecutorConfig, dir: PathBuf) -> Executor {
    let executor = Executor::new(ExecutorConfig {
        skills: SkillsConfig {
            dir: Some(dir),
            ..config.skills
        },
        ..config
    });
    executor.load_skills();
    executor
}

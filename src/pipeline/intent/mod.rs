//! What a call would do, as far as it can be known beforehand: an approval is given for that and for
//! nothing else.

mod files;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use files::{Identity, named};

use crate::config::ExecutorConfig;
use crate::domain::{Background, Call, Caller, Digest, Hasher, RiskLevel, ScopedValues};
use crate::tools::Tool;

/// How many files a tool may be made of. What is made of more is not to be approved, for one may hide among them.
const PARTS: usize = 4096;

/// Exactly what would run, as far as it can be known beforehand: what an approval is given for.
/// One that is made later is another if anything has changed meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Intent {
    caller_uid: u32,
    tool: String,
    version: String,
    input: Digest,
    stdin: Option<Digest>,
    keeps_background: bool,
    risk_level: RiskLevel,
    workspace: Option<PathBuf>,
    shell: PathBuf,
    env: BTreeMap<String, String>,
    working_dir: Option<PathBuf>,
    directory: Option<Identity>,
    files: BTreeMap<PathBuf, Identity>,
    // Approvals outlast a daemon that did not know of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Digest>,
    is_whole: bool,
}

/// By what a call is carried out.
#[derive(Default)]
pub(super) struct Means {
    /// The tool.
    pub(super) tool: Option<Arc<Tool>>,
    /// Where the paths lead that the call names.
    pub(super) paths: Vec<PathBuf>,
    /// The values that the call would find, if its tool is one that reads them.
    pub(super) values: Option<ScopedValues>,
}

impl Means {
    fn version(&self) -> String {
        let tool = self.tool.as_ref();
        tool.map_or_else(String::new, |tool| tool.implementation.version().to_owned())
    }

    /// Whether what the input says may be a script, or name one.
    fn reads_input(&self) -> bool {
        let tool = self.tool.as_ref();
        tool.is_none_or(|tool| tool.implementation.may_run_its_input())
    }

    /// Adds what the tool is made of and what it will touch. Says whether that is all.
    fn add_files(&self, files: &mut BTreeMap<PathBuf, Identity>) -> bool {
        for path in &self.paths {
            if let Ok(metadata) = std::fs::metadata(path) {
                let is_file = metadata.is_file();
                files.insert(path.clone(), Identity::new(&metadata, is_file));
            }
        }
        let tool = self.tool.as_ref();
        let made_of = tool.and_then(|tool| tool.implementation.made_of());
        made_of.is_none_or(|dir| add_all_of(dir, files))
    }
}

/// Adds every file in a directory and below it; says whether these are all.
fn add_all_of(dir: &Path, files: &mut BTreeMap<PathBuf, Identity>) -> bool {
    let mut dirs = vec![dir.to_owned()];
    let mut looks = 0;
    while let Some(dir) = dirs.pop() {
        // One that cannot be read cannot be told of either.
        let Ok(entries) = std::fs::read_dir(&dir) else {
            return false;
        };
        for entry in entries {
            looks += 1;
            let Some(entry) = entry.ok().filter(|_| looks <= PARTS) else {
                return false;
            };
            let path = entry.path();
            match std::fs::symlink_metadata(&path) {
                Ok(metadata) if metadata.is_dir() => dirs.push(path),
                Ok(_) => {
                    // A link counts for what it leads to.
                    if let Ok(metadata) = std::fs::metadata(&path) {
                        let is_file = metadata.is_file();
                        files.insert(path, Identity::new(&metadata, is_file));
                    }
                }
                Err(_) => return false,
            }
        }
    }
    true
}

impl Intent {
    /// That of a call. Reads all of it and looks at the disk, as long as that takes: for a thread that may. A system
    /// call for each word that could name a file.
    pub(super) fn of(call: &Call, caller: &Caller, config: &ExecutorConfig, means: &Means) -> Self {
        let options = &call.options;
        let working_dir = options.working_dir.as_ref().or(config.working_dir.as_ref());
        let mut env = config.env.clone();
        env.extend(options.env.clone());
        let home = env.get("HOME").cloned();
        let home = home.or_else(|| std::env::var("HOME").ok());
        let mut texts = Vec::new();
        if means.reads_input() {
            collect_texts(&call.input, &mut texts);
        }
        let stdin = options.stdin.as_deref();
        let dir = working_dir.map(PathBuf::as_path);
        let (mut files, mut is_whole) = named(&texts, stdin, dir, home.as_deref());
        is_whole &= means.add_files(&mut files);
        Self {
            caller_uid: caller.uid,
            tool: call.tool.clone(),
            version: means.version(),
            stdin: options
                .stdin
                .as_ref()
                .map(|stdin| Digest::of(stdin.as_bytes())),
            keeps_background: options.background == Background::Keep,
            risk_level: options.risk_level,
            workspace: options.workspace.clone(),
            shell: config.shell.clone(),
            env,
            directory: working_dir
                .and_then(|dir| std::fs::metadata(dir).ok())
                .map(|metadata| Identity::new(&metadata, false)),
            files,
            values: means.values.as_ref().map(digest_of),
            is_whole,
            working_dir: working_dir.cloned(),
            input: digest_of(&call.input),
        }
    }

    /// Of all of it.
    pub(super) fn digest(&self) -> Digest {
        Digest::of(&serde_json::to_vec(self).unwrap_or_default())
    }

    /// The version of the tool; empty for none.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Whether all files that it could depend on are part of it.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// In what it differs from what was meant earlier.
    pub(super) fn difference(&self, earlier: &Self) -> String {
        let changed = |(path, identity): (&PathBuf, &Identity)| {
            (self.files.get(path) != Some(identity)).then(|| path.clone())
        };
        let file = earlier.files.iter().find_map(changed);
        let file = file.or_else(|| {
            let mut new = self.files.keys();
            new.find(|path| !earlier.files.contains_key(*path)).cloned()
        });
        if let Some(file) = file {
            return format!("`{}` has changed since", file.display());
        }
        if self.directory != earlier.directory || self.working_dir != earlier.working_dir {
            return "the directory it runs in has changed since".to_owned();
        }
        if self.version != earlier.version {
            return "the tool has changed since".to_owned();
        }
        if self.env != earlier.env {
            return "its environment has changed since".to_owned();
        }
        if self.values != earlier.values {
            return "the values that it would find (`context`) are not there any more".to_owned();
        }
        "what would run has changed since".to_owned()
    }
}

/// Of it as JSON.
fn digest_of(value: &impl Serialize) -> Digest {
    let mut hasher = Hasher::default();
    // What hashes does not fail, and neither does what is JSON already.
    let _ = serde_json::to_writer(&mut hasher, value);
    hasher.digest()
}

fn collect_texts<'a>(value: &'a serde_json::Value, texts: &mut Vec<&'a str>) {
    match value {
        serde_json::Value::String(text) => texts.push(text),
        serde_json::Value::Array(items) => {
            items.iter().for_each(|item| collect_texts(item, texts));
        }
        serde_json::Value::Object(members) => {
            members.values().for_each(|item| collect_texts(item, texts));
        }
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests;

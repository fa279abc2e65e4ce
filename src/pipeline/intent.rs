use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::Chars;
use std::sync::Arc;

use nix::unistd::User;
use serde::Serialize;
use tokio::task::JoinError;

use crate::config::ExecutorConfig;
use crate::domain::{Background, Call, Caller, Digest, Hasher, RiskLevel};
use crate::policy::ansi_c;
use crate::policy::hazards::{default_files, obeys_files};
use crate::tools::Tool;

/// How many words of each text of a call are looked at for files they name. What has more is not
/// to be approved, for it may hide one.
const WORDS: usize = 16_384;

/// How many scripts may be quoted in one another.
const QUOTED: usize = 3;

/// How many letters may stand before the value of an option in the same word.
const GROUPED: usize = 4;

/// How many directories are looked in, likewise.
const BASES: usize = 64;

/// How many files a tool may be made of, likewise.
const PARTS: usize = 4096;

/// How many names are looked up, likewise: some microseconds each.
const LOOKS: usize = 262_144;

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
    is_whole: bool,
}

/// By what a call is carried out.
#[derive(Default)]
pub(super) struct Means {
    /// The tool.
    pub(super) tool: Option<Arc<Tool>>,
    /// Where the paths lead that the call names.
    pub(super) paths: Vec<PathBuf>,
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

/// A file as it is now: another one of that name, or other content, has another (stat(2)).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Identity {
    device: u64,
    inode: u64,
    /// Of what it holds; a directory's change with every file in it.
    content: Option<(u64, i64, i64, i64, i64)>,
}

impl Intent {
    /// That of a call, which it gives back. Reads all of it and looks at the disk, as long as that
    /// takes, where it holds up nobody.
    ///
    /// # Errors
    /// When it panicked.
    pub(super) async fn of(
        call: Call,
        caller: &Caller,
        config: &Arc<ExecutorConfig>,
        means: Means,
    ) -> Result<(Call, Self), JoinError> {
        let (caller, config) = (caller.clone(), Arc::clone(config));
        tokio::task::spawn_blocking(move || {
            let intent = Self::new(&call, &caller, &config, &means);
            (call, intent)
        })
        .await
    }

    /// A system call for each word that could name a file.
    fn new(call: &Call, caller: &Caller, config: &ExecutorConfig, means: &Means) -> Self {
        let options = &call.options;
        let working_dir = options.working_dir.as_ref().or(config.working_dir.as_ref());
        let mut env = config.env.clone();
        env.extend(options.env.clone());
        let home = env.get("HOME").cloned();
        let home = home.or_else(|| std::env::var("HOME").ok());
        let mut input = Hasher::default();
        // What hashes does not fail, and neither does what is JSON already.
        let _ = serde_json::to_writer(&mut input, &call.input);
        let mut texts = Vec::new();
        if means.reads_input() {
            collect_texts(&call.input, &mut texts);
        }
        let stdin = options.stdin.as_deref();
        let dir = working_dir.map(PathBuf::as_path);
        let (mut files, mut is_whole) = files(&texts, stdin, dir, home.as_deref());
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
            is_whole,
            working_dir: working_dir.cloned(),
            input: input.digest(),
        }
    }

    /// Of all of it.
    pub(super) fn digest(&self) -> Digest {
        Digest::of(&serde_json::to_vec(self).unwrap_or_default())
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
        "what would run has changed since".to_owned()
    }
}

impl Identity {
    fn new(metadata: &Metadata, with_content: bool) -> Self {
        let content = (
            metadata.size(),
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.ctime(),
            metadata.ctime_nsec(),
        );
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            content: with_content.then_some(content),
        }
    }
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

/// The scripts and programs that words of these texts name, and whether these are all: from the
/// directory it runs in, and from every directory that is named, for it may go there. What only
/// holds data is none of them, lest a log that grows makes every approval stale; with something
/// about that does what files say, any file may be a script.
fn files(
    texts: &[&str],
    stdin: Option<&str>,
    dir: Option<&Path>,
    home: Option<&str>,
) -> (BTreeMap<PathBuf, Identity>, bool) {
    let mut all = Vec::new();
    let mut is_whole = true;
    for text in texts {
        is_whole &= words(text, QUOTED, &mut all);
    }
    let own = all.len();
    let reads_all = stdin.is_none_or(|stdin| words(stdin, QUOTED, &mut all));
    let obeys = all.iter().any(|word| obeys_files(word));
    if obeys {
        is_whole &= reads_all;
    } else if !reads_all || all.len() > LOOKS / BASES {
        // For what obeys no files it is data, and need not be looked through.
        all.truncate(own);
    }
    all.extend(attached_values(&all));
    let programs = all.iter().map(|word| default_files(word));
    let defaults: Vec<String> = programs.flatten().map(|&file| file.to_owned()).collect();
    all.extend(defaults);
    if all.iter().any(|word| word == "cd") {
        // By itself it goes there.
        all.push("~".to_owned());
    }
    all.sort_unstable();
    all.dedup();
    is_whole &= expand_homes(&mut all, home);
    let start = dir.map_or_else(|| PathBuf::from("."), Path::to_owned);
    let mut known: BTreeSet<(u64, u64)> = std::fs::metadata(&start)
        .map(|start| (start.dev(), start.ino()))
        .into_iter()
        .collect();
    let mut bases = vec![start];
    let mut files = BTreeMap::new();
    let mut looks = 0;
    // Directories that are named from those that are named, as far as that goes: one and the same
    // has many names with `..` in them.
    let mut at = 0;
    while let Some(base) = bases.get(at).cloned() {
        at += 1;
        looks += all.len();
        if looks > LOOKS {
            return (files, false);
        }
        for word in &all {
            let path = base.join(word);
            let Ok(metadata) = std::fs::metadata(&path) else {
                continue;
            };
            if metadata.is_dir() && known.insert((metadata.dev(), metadata.ino())) {
                if bases.len() == BASES {
                    return (files, false);
                }
                bases.push(path);
                continue;
            }
            let is_program = metadata.mode() & 0o111 != 0;
            if metadata.is_file() && (obeys || is_program) {
                files.insert(path, Identity::new(&metadata, true));
            }
        }
    }
    (files, is_whole)
}

/// Puts a path in the place of words that begin with the home of who runs it (`~/x`), or of somebody else (`~root/x`).
/// Says whether all were looked up.
fn expand_homes(words: &mut [String], own: Option<&str>) -> bool {
    /// How many users are looked up, which may take a while each.
    const USERS: usize = 16;
    let mut homes = BTreeMap::new();
    homes.insert(String::new(), own.map(PathBuf::from));
    for word in words {
        let Some(tilde) = word.strip_prefix('~') else {
            continue;
        };
        let (user, rest) = tilde.split_once('/').unwrap_or((tilde, ""));
        let rest = rest.trim_start_matches('/');
        if user.starts_with(|c: char| !c.is_ascii_alphabetic() && c != '_') {
            // No name of a user.
            continue;
        }
        if !homes.contains_key(user) {
            if homes.len() > USERS {
                return false;
            }
            let found = User::from_name(user).ok().flatten();
            homes.insert(user.to_owned(), found.map(|user| user.dir));
        }
        let path = homes
            .get(user)
            .and_then(|home| Some(home.as_ref()?.join(rest)));
        if let Some(path) = path.and_then(|path| path.into_os_string().into_string().ok()) {
            *word = path;
        }
    }
    true
}

/// What may be the value of an option that stands in the same word (`-fx.mk`, `-kfx.mk`).
fn attached_values(words: &[String]) -> Vec<String> {
    let mut values = Vec::new();
    for word in words {
        let group = word
            .strip_prefix('-')
            .filter(|group| !group.starts_with('-'));
        let group = group.unwrap_or_default();
        let ends = group.char_indices().skip(1).take(GROUPED);
        values.extend(ends.map(|(at, _)| group[at..].to_owned()));
    }
    values
}

/// The text of `$'…'`, of which the beginning is taken; as it stands where it has what we do not know.
fn escaped(characters: &mut Chars<'_>) -> String {
    let mut text = String::new();
    while let Some(c) = characters.next().filter(|c| *c != '\'') {
        text.push(c);
        if c == '\\' {
            text.extend(characters.next());
        }
    }
    ansi_c(&text).unwrap_or(text)
}

/// Adds the words of a script, quotes and backslashes taken away as a shell does, and besides them
/// those between any of its signs: what is quoted may be a script of its own. Says whether these
/// are all.
fn words(text: &str, depth: usize, all: &mut Vec<String>) -> bool {
    let limit = all.len() + WORDS;
    let first = all.len();
    let (mut word, mut quote) = (String::new(), None);
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match (c, quote) {
            // A line that goes on in the next: the shell sees neither sign.
            ('\\', None | Some('"')) => {
                word.extend(characters.next().filter(|next| *next != '\n'));
            }
            (_, Some(open)) if c == open => quote = None,
            ('\'', None) if word.ends_with('$') => {
                word.pop();
                word.push_str(&escaped(&mut characters));
            }
            ('"' | '\'', None) => quote = Some(c),
            (_, None) if c.is_whitespace() || ";&|()<>`=,".contains(c) => {
                if !word.is_empty() {
                    all.push(std::mem::take(&mut word));
                }
                if all.len() >= limit {
                    return false;
                }
            }
            _ => word.push(c),
        }
    }
    all.extend((!word.is_empty()).then_some(word));
    let mut is_whole = true;
    if let Some(depth) = depth.checked_sub(1) {
        let is_script = |word: &&String| word.contains(char::is_whitespace) && *word != text;
        let inner: Vec<String> = all[first..].iter().filter(is_script).cloned().collect();
        for script in &inner {
            is_whole &= all.len() < limit && words(script, depth, all);
        }
    }
    let signs = |c: char| c.is_whitespace() || "\"'`;&|()<>{}$=,".contains(c);
    let mut between = text.split(signs).filter(|word| !word.is_empty());
    all.extend(between.by_ref().take(WORDS).map(str::to_owned));
    is_whole && between.next().is_none()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;
    use crate::domain::ExecutionId;

    fn scratch() -> PathBuf {
        let dir = std::env::temp_dir().join(format!("shelly-intent-{}", ExecutionId::new()));
        fs::create_dir(&dir).expect("writable");
        dir
    }

    #[test]
    fn all_of_a_long_call_is_meant_and_little_of_it_kept() {
        let config = ExecutorConfig::default();
        let intent = |command: &str, stdin: &str| {
            let mut call = Call::new("bash", json!({"command": command}));
            call.options.stdin = Some(stdin.to_owned());
            Intent::new(&call, &Caller::this_process(), &config, &Means::default())
        };
        let long = "a b\n".repeat(1 << 20);
        let mut all = Vec::new();
        assert!(!words(&long, QUOTED, &mut all) && all.len() <= WORDS);
        all.clear();
        assert!(words("( \n ) sh x", QUOTED, &mut all) && all.contains(&"sh".to_owned()));
        let mut other = long.clone();
        other.pop();
        let meant = intent("cat", &long);
        assert_ne!(meant.digest(), intent("cat", &other).digest());
        assert!(serde_json::to_vec(&meant).expect("JSON").len() < 4096);
        // As data it may be as long as it likes; as what decides, it is to be looked through.
        assert!(meant.is_whole());
        assert!(!intent("python3 -", &long).is_whole());
        assert!(!intent(&long, "").is_whole());
        assert!(intent(&"x y\n".repeat(1000), "").is_whole());
    }

    #[test]
    fn any_number_of_directories_is_one_where_they_are_one() {
        let dir = scratch();
        let names: Vec<String> = (0..30).map(|n| format!("d{n}")).collect();
        names
            .iter()
            .for_each(|name| fs::create_dir(dir.join(name)).expect("writable"));
        let config = ExecutorConfig {
            working_dir: Some(dir.clone()),
            ..ExecutorConfig::default()
        };
        let is_whole = |command: &str, stdin: &str| {
            let mut call = Call::new("bash", json!({"command": command}));
            call.options.stdin = Some(stdin.to_owned());
            Intent::new(&call, &Caller::this_process(), &config, &Means::default()).is_whole()
        };
        let all = names.join(" ");
        assert!(is_whole("cd .. && cd ./ && cd ../.. && make", ""));
        assert!(is_whole(&format!("cd .. && ls {all} && sh x"), ""));
        // Many words and many directories: as data nobody cares, as a script nobody could tell.
        let words: String = (0..10_000).map(|n| format!("word{n} ")).collect();
        assert!(is_whole(&format!("ls {all}; cat"), &words));
        assert!(!is_whole(&format!("ls {all}; sh"), &words));
        fs::remove_dir_all(&dir).expect("ours");
    }

    #[test]
    fn what_a_word_names_is_part_of_it() {
        let dir = scratch();
        let script = dir.join("deploy.sh");
        fs::write(&script, "echo one\n").expect("writable");
        fs::write(dir.join("log"), "1\n").expect("writable");
        let config = ExecutorConfig {
            working_dir: Some(dir.clone()),
            env: BTreeMap::from([("HOME".to_owned(), dir.display().to_string())]),
            ..ExecutorConfig::default()
        };
        let intent = |command: &str| {
            let call = Call::new("bash", json!({"command": command}));
            Intent::new(&call, &Caller::this_process(), &config, &Means::default())
        };
        fs::create_dir(dir.join("sub")).expect("writable");
        fs::write(dir.join("sub/inner"), "").expect("writable");
        fs::copy(&script, dir.join("a b.sh")).expect("writable");
        let parent = dir.parent().expect("one").display().to_string();
        let name = dir.file_name().expect("one").to_string_lossy().into_owned();
        for command in [
            "bash deploy.sh",
            ". ./deploy.sh",
            "python3.11 'deploy.sh'",
            "bash deploy\\\n.sh",
            "bash \"deploy\\\n.sh\"",
            "make -fdeploy.sh",
            "make -kfdeploy.sh",
            "awk -fdeploy.sh x",
            "gawk -f deploy.sh",
            "/usr/bin/tclsh8.6 deploy.sh",
            "dpkg -i deploy.sh",
            "bash de'pl'oy.\\sh",
            "bash $'deploy\\x2esh'",
            "eval \"$(cat deploy.sh)\"",
            "$SHELL deploy.sh prod",
            "\"${SHELL}\" deploy.sh",
            "cd ~ && bash deploy.sh",
            "cd; bash deploy.sh",
            "bash ~/deploy.sh",
            "cd sub; bash ../deploy.sh",
            "cd sub && cd .. && cd ./ && bash deploy.sh",
            &format!("cd {parent} && cd {name} && bash deploy.sh"),
        ] {
            fs::write(&script, "echo one\n").expect("writable");
            let before = intent(command);
            assert_eq!(before.digest(), intent(command).digest(), "{command}");
            assert!(before.is_whole(), "{command}");
            // As long, and as old: the kernel's own time of change tells.
            fs::write(&script, "echo two\n").expect("writable");
            let after = intent(command);
            assert_ne!(before.digest(), after.digest(), "{command}");
            assert!(after.difference(&before).contains("deploy.sh"), "{command}");
        }
        for command in [
            "bash 'a b.sh'",
            "bash a\\ b.sh",
            "bash -c 'bash \"a b.sh\"'",
            "cd sub && sh inner",
        ] {
            let before = intent(command);
            for file in ["a b.sh", "sub/inner"] {
                let more = fs::read_to_string(dir.join(file)).expect("there") + "echo more\n";
                fs::write(dir.join(file), more).expect("writable");
            }
            assert_ne!(before, intent(command), "{command}");
        }
        // What a program reads without being told, there or not.
        for (command, file) in [
            ("make", "Makefile"),
            ("cd . && /usr/bin/make all", "GNUmakefile"),
            ("make -C sub", "sub/makefile"),
            ("make -Csub", "sub/Makefile"),
            ("nice just x", "justfile"),
            ("npm test", "package.json"),
        ] {
            for text in ["a:\n", "another:\n"] {
                let before = intent(command);
                fs::write(dir.join(file), text).expect("writable");
                assert_ne!(before, intent(command), "{command}");
            }
            fs::remove_file(dir.join(file)).expect("ours");
        }
        let before = intent("./deploy.sh");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("ours");
        assert_ne!(before, intent("./deploy.sh"));

        let before = intent("tail log");
        fs::write(dir.join("log"), "1\n2\n").expect("writable");
        assert_eq!(before, intent("tail log"));
        fs::remove_dir_all(&dir).expect("ours");
        assert!(intent("tail log").difference(&before).contains("directory"));
    }
}

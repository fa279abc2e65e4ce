//! The files that the words of a call name, and as what they are there: scripts and programs, which decide
//! what it does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::Chars;

use nix::unistd::User;
use serde::Serialize;

use crate::config::found;
use crate::policy::ansi_c;
use crate::policy::hazards::{default_files, obeys_files};

/// How many words of each text of a call are looked at for files they name. What has more is not
/// to be approved, for it may hide one.
const WORDS: usize = 16_384;

/// How many scripts may be quoted in one another.
const QUOTED: usize = 3;

/// How many letters may stand before the value of an option in the same word.
const GROUPED: usize = 4;

/// How many directories are looked in, likewise.
const BASES: usize = 64;

/// How many names are looked up, likewise: some microseconds each.
const LOOKS: usize = 262_144;

/// A file as it is now: another one of that name, or other content, has another (stat(2)).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    /// Of what it holds; a directory's change with every file in it.
    content: Option<(u64, i64, i64, i64, i64)>,
}

impl Identity {
    pub(super) fn new(metadata: &Metadata, with_content: bool) -> Self {
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

/// The scripts and programs that words of these texts name, and whether these are all: from the
/// directory it runs in, and from every directory that is named, for it may go there. What only
/// holds data is none of them, lest a log that grows makes every approval stale; with something
/// about that does what files say, any file may be a script.
pub(super) fn named(
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
    is_whole &= expand_homes(&mut all, home, home_of);
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

/// The home of a user, if there is one of that name.
fn home_of(user: &str) -> nix::Result<Option<PathBuf>> {
    found(User::from_name(user)).map(|user| Some(user?.dir))
}

/// Puts a path in the place of words that begin with the home of who runs it (`~/x`), or of somebody else (`~root/x`).
/// Says whether all were looked up.
fn expand_homes(
    words: &mut [String],
    own: Option<&str>,
    home_of: impl Fn(&str) -> nix::Result<Option<PathBuf>>,
) -> bool {
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
            // Where it leads is known to the shell that runs it later, maybe.
            let Ok(home) = home_of(user) else {
                return false;
            };
            homes.insert(user.to_owned(), home);
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
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn a_home_that_cannot_be_looked_up_is_not_taken_for_none() {
        let expanded = |home: nix::Result<Option<PathBuf>>| {
            let mut words = ["~u/x".to_owned()];
            let is_whole = expand_homes(&mut words, None, |user| {
                assert_eq!(user, "u");
                home.clone()
            });
            let [word] = words;
            (word, is_whole)
        };
        let here = |word: &str, is_whole| (word.to_owned(), is_whole);
        assert_eq!(
            expanded(Ok(Some("/home/u".into()))),
            here("/home/u/x", true)
        );
        assert_eq!(expanded(Ok(None)), here("~u/x", true));
        assert_eq!(expanded(Err(Errno::EIO)), here("~u/x", false));
    }

    #[test]
    fn so_many_words_are_looked_at_and_signs_are_none_of_them() {
        let mut all = Vec::new();
        assert!(!words(&"a b\n".repeat(WORDS), QUOTED, &mut all));
        assert!(all.len() <= WORDS, "{}", all.len());
        all.clear();
        assert!(words("( \n ) sh x", QUOTED, &mut all));
        assert!(all.contains(&"sh".to_owned()), "{all:?}");
    }
}

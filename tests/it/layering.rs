//! A room only names rooms below it, and knows only what is its business.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// One row of the house: what a room may name, and which crates it has not heard of.
struct Room {
    name: &'static str,
    below: &'static [&'static str],
    unheard_of: &'static [&'static str],
}

/// From the bottom up. A row may name rows above it in this table only.
#[rustfmt::skip]
const HOUSE: &[Room] = &[
    Room { name: "domain",   below: &[], unheard_of: &["axum", "hyper", "hyperlocal", "libc", "notify", "sd_notify", "tokio", "toml"] },
    Room { name: "config",   below: &["domain"], unheard_of: &["axum", "hyper", "hyperlocal", "libc", "sd_notify", "serde_json"] },
    Room { name: "runner",   below: &["config", "domain"], unheard_of: &["axum", "hyper", "hyperlocal", "sd_notify", "serde", "serde_json", "toml"] },
    Room { name: "tools",    below: &["runner", "config", "domain"], unheard_of: &["axum", "hyper", "hyperlocal", "libc", "nix", "sd_notify"] },
    Room { name: "pipeline", below: &["tools", "runner", "config", "domain"], unheard_of: &["axum", "hyper", "hyperlocal", "libc", "nix", "sd_notify"] },
    Room { name: "client",   below: &["config"], unheard_of: &["axum", "notify", "sd_notify", "toml"] },
    Room { name: "api",      below: &["pipeline", "runner", "config", "domain"], unheard_of: &["hyperlocal", "notify", "sd_notify", "toml"] },
    Room { name: "daemon",   below: &["api", "client", "pipeline", "config", "domain"], unheard_of: &["axum", "hyper", "hyperlocal", "serde_json"] },
];

/// What the programs use of the library.
#[rustfmt::skip]
const PROGRAMS: &[Room] = &[
    Room { name: "shelly-executord", below: &["daemon"], unheard_of: &["axum", "hyper", "hyperlocal", "tokio"] },
    Room { name: "shellyctl",        below: &["client"], unheard_of: &["axum", "hyper", "hyperlocal", "nix", "toml"] },
];

/// Where lib.rs has the names from that it hands on.
const FACE: [(&str, &str); 5] = [
    ("Executor", "pipeline"),
    ("ExecutorConfig", "config"),
    ("ExecutorError", "domain"),
    ("ToolDefinition", "domain"),
    ("ToolOutput", "domain"),
];

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// All Rust files of a room, with their code.
fn files(dir: &Path) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).expect("a room") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("UTF-8");
            files.push((path, code(&text)));
        }
    }
    files
}

/// The text without its comments, whose links may point anywhere.
fn code(text: &str) -> String {
    let lines = text
        .lines()
        .map(|line| match line.trim_start().starts_with("//") {
            true => "",
            false => line.split(" // ").next().unwrap_or(line),
        });
    lines.collect::<Vec<_>>().join("\n")
}

/// The first names of the paths that begin with `root::`, those of a group included.
fn named<'a>(code: &'a str, root: &str) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices(root) {
        let is_path = !code[..at].ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c));
        let Some(rest) = code[at + root.len()..]
            .strip_prefix("::")
            .filter(|_| is_path)
        else {
            continue;
        };
        match rest.strip_prefix('{') {
            Some(group) => names.extend(members(group)),
            None => names.extend([word(rest)]),
        }
    }
    names
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_'));
    &text[..end.unwrap_or(text.len())]
}

/// The first name of each member of `a::b, c::{d, e}, …}`.
fn members(group: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut depth = 0;
    let mut start = Some(0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => start = Some(at + 1),
            c if !c.is_whitespace() && depth == 0 && start.take().is_some() => {
                names.push(word(&group[at..]))
            }
            _ => {}
        }
    }
    names
}

/// How many `super::` it takes from a file's top to leave its room.
fn depth(path: &Path, room: &Path) -> usize {
    let inside = path
        .strip_prefix(room)
        .expect("in the room")
        .components()
        .count();
    let is_mod = path.file_name().is_some_and(|name| name == "mod.rs");
    if is_mod { inside } else { inside + 1 }
}

/// What breaks the law in one room.
fn offences(dir: &Path, root: &str, room: &Room) -> Vec<String> {
    let mut offences = Vec::new();
    for (path, code) in files(dir) {
        let mut offend = |text: String| offences.push(format!("{}: {text}", path.display()));
        for name in named(&code, root) {
            let target = FACE
                .iter()
                .find(|(face, _)| *face == name)
                .map_or(name, |(_, room)| room);
            if target != room.name && !room.below.contains(&target) {
                offend(format!(
                    "names {root}::{name}, which is not below {}",
                    room.name
                ));
            }
        }
        for stranger in room.unheard_of {
            if !named(&code, stranger).is_empty() {
                offend(format!(
                    "names {stranger}, which {} has not heard of",
                    room.name
                ));
            }
        }
        // Inside `mod tests { … }` it takes one more.
        let (body, tests) = code.split_once("mod tests {").unwrap_or((&code, ""));
        let out = depth(&path, dir);
        for (part, out) in [(body, out), (tests, out + 1)] {
            if part.contains(&"super::".repeat(out)) {
                offend(format!("leaves {} through super::", room.name));
            }
        }
    }
    offences
}

#[test]
fn rooms_name_only_rooms_below_them() {
    let mut offences = Vec::new();
    for room in HOUSE {
        offences.extend(self::offences(&src().join(room.name), "crate", room));
    }
    for program in PROGRAMS {
        let dir = src().join("bin").join(program.name);
        offences.extend(self::offences(&dir, "shelly_executor", program));
    }
    assert!(offences.is_empty(), "{offences:#?}");
}

#[test]
fn every_room_has_a_row_and_no_row_leads_back_up() {
    let mut rooms = BTreeSet::new();
    let mut programs = BTreeSet::new();
    for (dir, found) in [(src(), &mut rooms), (src().join("bin"), &mut programs)] {
        for entry in fs::read_dir(dir).expect("a directory") {
            let name = entry.expect("an entry").file_name();
            found.insert(name.to_string_lossy().trim_end_matches(".rs").to_owned());
        }
    }
    rooms.remove("lib");
    rooms.remove("bin");
    let rows = |table: &[Room]| {
        table
            .iter()
            .map(|room| room.name.to_owned())
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(rooms, rows(HOUSE));
    assert_eq!(programs, rows(PROGRAMS));
    for (at, room) in HOUSE.iter().enumerate() {
        for name in room.below {
            assert!(
                HOUSE[..at].iter().any(|other| other.name == *name),
                "{} names {name}",
                room.name
            );
        }
    }
}

#[test]
fn paths_are_found_in_code() {
    let code = code(
        "use crate::{api::{x, y}, daemon};\n/// [`crate::client`]\nfn f() { crate::tools::g() } // crate::domain::X\nmycrate::nope::x",
    );
    assert_eq!(
        named(&code, "crate"),
        BTreeSet::from(["api", "daemon", "tools"])
    );
    assert_eq!(
        named("let x = hyper::Body; hyper_util::y()", "hyper"),
        BTreeSet::from(["Body"])
    );
}

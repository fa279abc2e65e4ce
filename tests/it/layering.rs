//! A request only moves forward, and a room only names rooms below it. The rooms are the
//! directories of `src/`; `src/bin/` stands apart, above all of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Each room, top down, with the rooms it may name.
#[rustfmt::skip]
const ROOMS: &[(&str, &[&str])] = &[
    ("daemon",   &["grpc", "api", "pipeline", "policy", "client", "config", "domain"]),
    ("grpc",     &["api", "pipeline", "runner", "domain"]),
    ("api",      &["pipeline", "runner", "config", "domain"]),
    ("pipeline", &["flow", "policy", "tools", "ledger", "metrics", "otlp", "sandbox", "runner", "config", "domain"]),
    ("flow",     &["config", "domain"]),
    ("policy",   &["config", "domain"]),
    ("tools",    &["sandbox", "runner", "config", "domain"]),
    ("ledger",   &["metrics", "config", "domain"]),
    ("metrics",  &["domain"]),
    ("otlp",     &["config", "domain"]),
    ("sandbox",  &["egress", "runner", "config", "domain"]),
    ("egress",   &["config", "domain"]),
    ("client",   &["config", "domain"]),
    ("runner",   &["config", "domain"]),
    ("config",   &["domain"]),
    ("domain",   &[]),
];

/// What a room must not even have heard of, as crates: reasons stand in docs/ARCHITECTURE.md.
#[rustfmt::skip]
const UNHEARD_OF: &[(&str, &[&str])] = &[
    ("daemon",   &["axum", "http", "hyper", "tonic", "prost", "utoipa", "rusqlite"]),
    ("grpc",     &["nix", "libc", "rustix", "notify", "toml", "rusqlite"]),
    ("client",   &["axum", "tonic", "prost", "utoipa", "toml", "nix", "libc", "rusqlite"]),
    ("egress",   &["axum", "tonic", "serde_json", "utoipa", "toml", "rusqlite"]),
    ("runner",   &["axum", "http", "hyper", "rusqlite", "serde", "serde_json", "utoipa", "toml"]),
    ("sandbox",  &["axum", "rusqlite", "utoipa", "toml"]),
    ("domain",   &["tokio", "axum", "http", "hyper", "tracing", "toml", "rusqlite"]),
    ("policy",   &["tokio", "axum", "http", "hyper", "nix", "libc", "rustix", "rusqlite"]),
    ("config",   &["axum", "http", "hyper", "serde_json", "utoipa", "rusqlite"]),
    ("api",      &["tonic", "tonic_types", "prost", "rusqlite"]),
    ("pipeline", &["axum", "http", "hyper", "tonic", "utoipa", "prometheus", "opentelemetry_proto", "rusqlite"]),
    ("tools",    &["axum", "http", "hyper", "utoipa", "rusqlite"]),
    ("flow",     &["axum", "http", "hyper", "nix", "libc", "rustix", "serde_json", "utoipa", "toml", "rusqlite"]),
    ("ledger",   &["axum", "http", "hyper", "utoipa", "toml", "prometheus"]),
    ("otlp",     &["axum", "tonic", "prometheus", "utoipa", "toml", "rusqlite"]),
    ("metrics",  &["tokio", "axum", "http", "hyper", "utoipa", "toml", "nix", "libc", "rustix", "rusqlite"]),
];

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The Rust files below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The source without comments, which may speak of anything (and link to it).
fn code(path: &Path) -> String {
    let source = fs::read_to_string(path).expect("readable");
    let lines = source.lines().map(|line| match line.find("//") {
        Some(at) if line[..at].matches('"').count() % 2 == 0 => &line[..at],
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The first segment of every path that begins with `root::`, groups opened.
fn first_segments(code: &str, root: &str) -> BTreeSet<String> {
    let start = format!("{root}::");
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices(&start) {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
            continue;
        }
        let rest = &code[at + start.len()..];
        match rest.strip_prefix('{') {
            Some(group) => found.extend(group_heads(group)),
            None => found.extend(identifier(rest)),
        }
    }
    found
}

/// The first identifier of each branch of a `{…}` whose opening brace is gone.
fn group_heads(group: &str) -> Vec<String> {
    let (mut depth, mut branch, mut heads) = (0, String::new(), Vec::new());
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => heads.extend(identifier(&std::mem::take(&mut branch))),
            _ if depth == 0 => branch.push(c),
            _ => {}
        }
    }
    heads.extend(identifier(&branch));
    heads
}

fn identifier(text: &str) -> Option<String> {
    let text = text.trim_start();
    let end = text
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(text.len());
    (end > 0).then(|| text[..end].to_owned())
}

/// The room that a name at the crate's root stands for: a room itself, or what `lib.rs` exports
/// from one.
fn room_of(name: &str) -> String {
    if ROOMS.iter().any(|(room, _)| *room == name) {
        return name.to_owned();
    }
    let lib = code(&src().join("lib.rs"));
    let export = lib.lines().find_map(|line| {
        let path = line.strip_prefix("pub use ")?;
        let (room, exported) = path.split_once("::")?;
        let exported = exported
            .trim_end_matches(';')
            .trim_start_matches('{')
            .trim_end_matches('}');
        exported
            .split(',')
            .any(|item| item.trim() == name)
            .then(|| room.to_owned())
    });
    export.unwrap_or_else(|| panic!("`crate::{name}` is neither a room nor exported by lib.rs"))
}

/// Every arrow that `code`, which stands in `room`, draws to where it may not.
fn forbidden(room: &str, allowed: &[&str], code: &str) -> Vec<String> {
    let named = first_segments(code, "crate")
        .into_iter()
        .map(|name| room_of(&name));
    named
        .filter(|named| named != room && !allowed.contains(&named.as_str()))
        .collect()
}

/// Whatever it can do, others can who have the client.
#[test]
fn shellyctl_uses_the_client_and_nothing_else() {
    for file in files(&src().join("bin/shellyctl")) {
        let named = first_segments(&code(&file), "shelly_executor");
        let others: Vec<&String> = named.iter().filter(|name| *name != "client").collect();
        assert!(others.is_empty(), "{}: {others:?}", file.display());
    }
}

#[test]
fn every_room_has_a_row_and_stands_below_those_that_name_it() {
    let mut rooms: Vec<String> = fs::read_dir(src())
        .expect("src")
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().expect("UTF-8"))
        .filter(|name| name != "bin")
        .collect();
    rooms.sort();
    let mut rows: Vec<&str> = ROOMS.iter().map(|(room, _)| *room).collect();
    for (row, (room, allowed)) in ROOMS.iter().enumerate() {
        for below in *allowed {
            let at = rows.iter().position(|room| room == below);
            assert!(
                at.is_some_and(|at| at > row),
                "`{room}` may not name `{below}`, which is not below it"
            );
        }
    }
    rows.sort_unstable();
    assert_eq!(
        rooms, rows,
        "each directory of src/ has a row in this test, and no other has"
    );
}

#[test]
fn no_room_names_one_above_it() {
    let mut arrows = 0;
    for (room, allowed) in ROOMS {
        for path in files(&src().join(room)) {
            let code = code(&path);
            arrows += first_segments(&code, "crate").len();
            let forbidden = forbidden(room, allowed, &code);
            assert!(
                forbidden.is_empty(),
                "{} names {forbidden:?}, which `{room}` may not",
                path.display()
            );
        }
    }
    assert!(
        arrows > 50,
        "only {arrows} found: is this looking at the right thing?"
    );
}

#[test]
fn rooms_have_not_heard_of_what_is_not_theirs() {
    for (room, crates) in UNHEARD_OF {
        for path in files(&src().join(room)) {
            let code = code(&path);
            for name in *crates {
                let named = !first_segments(&code, name).is_empty();
                assert!(
                    !named,
                    "{} names the crate `{name}`, of which `{room}` has not heard",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn an_arrow_up_is_seen_however_it_is_written() {
    for code in [
        "use crate::api::Api;",
        "use crate::{config::Access, api::{self, Api}};",
        "fn f() { crate::api::serve(); }",
        "use crate::Executor;",
        "pub(crate) use crate::pipeline;",
    ] {
        assert_eq!(
            forbidden("runner", &["config", "domain"], code).len(),
            1,
            "{code}"
        );
    }
    for code in [
        "use crate::config::Access;",
        "use crate::runner::Live;",
        "use other_crate::api::Api;",
        "super::api()",
    ] {
        assert!(
            forbidden("runner", &["config", "domain"], code).is_empty(),
            "{code}"
        );
    }
    assert_eq!(
        first_segments("use tokio::net::UnixStream;", "tokio").len(),
        1
    );
    assert!(first_segments("sd_tokio::x", "tokio").is_empty());
}

/// The map in the documentation is one of this house.
#[test]
fn the_code_map_names_the_rooms_that_there_are() {
    let map = include_str!("../../docs/ARCHITECTURE.md");
    let names = map.lines().filter_map(|line| {
        let name = line.strip_prefix("| `")?.split('`').next()?;
        name.strip_suffix('/').map(str::to_owned)
    });
    let named: Vec<String> = names.collect();
    let rooms: BTreeSet<&str> = ROOMS.iter().map(|(room, _)| *room).collect();
    assert_eq!(named.len(), rooms.len(), "{named:?}");
    for name in &named {
        assert!(rooms.contains(name.as_str()), "{name}");
    }
}

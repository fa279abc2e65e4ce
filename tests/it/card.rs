//! The owner's design card: what it names is there, and does its job.

use std::fs;
use std::path::{Path, PathBuf};

/// The packages, each with something of it that only its job needs, and where.
const PACKAGES: [(&str, &str, &str); 10] = [
    ("tokio", "src/daemon", "tokio::runtime::Builder"),
    ("axum", "src/api", "axum::Router"),
    ("hyperlocal", "src/client", "hyperlocal::"),
    ("serde_json", "src/api", "serde_json::from_slice"),
    ("toml", "src/config", "toml::from_str"),
    ("notify", "src/config", "notify::recommended_watcher"),
    ("sd-notify", "src/daemon", "sd_notify::notify"),
    ("tracing-journald", "src/daemon", "tracing_journald::"),
    ("nix", "src/runner", "nix::"),
    ("thiserror", "src/domain", "thiserror::Error"),
];

const TOP_LEVEL: [&str; 7] = [
    "Cargo.toml",
    "src",
    "packaging",
    "systemd",
    "config",
    "tests",
    "Makefile",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources(dir: PathBuf) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            text.push_str(&sources(path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(path).expect("readable"));
        }
    }
    text
}

#[test]
fn its_packages_are_direct_dependencies_that_do_their_jobs() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("readable");
    let manifest: toml::Table = manifest.parse().expect("TOML");
    let dependencies = manifest["dependencies"].as_table().expect("a table");
    for (package, room, use_of_it) in PACKAGES {
        let dependency = dependencies
            .get(package)
            .unwrap_or_else(|| panic!("`{package}` is no direct dependency"));
        let optional = dependency.get("optional").and_then(toml::Value::as_bool);
        assert_ne!(optional, Some(true), "`{package}` is optional");
        let sources = sources(root().join(room));
        assert!(
            sources.contains(use_of_it),
            "`{use_of_it}` does not occur in {room}: does `{package}` do its job elsewhere?"
        );
    }
}

#[test]
fn its_top_level_entries_are_there() {
    for entry in TOP_LEVEL {
        assert!(root().join(entry).exists(), "{entry}");
    }
}

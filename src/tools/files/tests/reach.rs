use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, RenameFlags, mkfifoat, renameat_with};
use serde_json::json;

use super::{Ends, Room, skip};
use crate::config::{BaseDir, Durability, LedgerConfig};
use crate::tools::Place;
use crate::tools::files::edit::edit_file;
use crate::tools::files::list::list_dir;
use crate::tools::files::read::read_file;
use crate::tools::files::search::search_files;
use crate::tools::files::write::write_file;
use crate::tools::files::{Access, FileError};

fn is_denied(room: &Room, path: &str) -> bool {
    let denied = |done| matches!(done, Err(FileError::Denied { .. }));
    let read = denied(room.call(read_file, json!({"file_path": path})));
    let write = json!({"file_path": path, "content": "x", "create_dirs": true});
    let written = denied(room.call(write_file, write));
    assert_eq!(read, written, "{path}: reading and writing differ");
    read
}

#[test]
fn nothing_leads_out_of_the_base_directory() {
    let room = Room::new();
    room.put("dir/file", "inside\n");
    symlink("../outside", room.at("relative")).expect("linked");
    symlink(room.root.join("outside"), room.at("absolute")).expect("linked");
    symlink("../../outside/secret", room.at("dir/secret")).expect("linked");
    symlink("relative", room.at("twice")).expect("linked");
    for path in [
        "../outside/secret",
        "dir/../../outside/secret",
        "relative/secret",
        "absolute/secret",
        "dir/secret",
        "twice/secret",
        "relative/new",
        "absolute/new/deep",
        "/proc/self/root/etc/passwd",
        "/etc/passwd",
        "/",
    ] {
        assert!(is_denied(&room, path), "{path}");
    }
    let secret = room.root.join("outside/secret");
    assert!(is_denied(&room, secret.to_str().expect("UTF-8")));
    assert_eq!(fs::read_to_string(secret).expect("there"), "secret\n");
    assert_eq!(
        fs::read_dir(room.root.join("outside"))
            .expect("there")
            .count(),
        1
    );
}

#[test]
fn a_refusal_names_the_base_directories() {
    let room = Room::new();
    let base = room.at("").display().to_string();
    let base = base.trim_end_matches('/');
    room.refusal(
        read_file,
        json!({"file_path": "/etc/passwd"}),
        &["/etc/passwd", base, "base_dirs"],
    );
}

#[test]
fn links_that_stay_inside_are_followed_and_stay_links() {
    let room = Room::new();
    room.put("dir/file", "old\n");
    symlink("dir/file", room.at("relative")).expect("linked");
    symlink(room.at("dir/../relative"), room.at("absolute")).expect("linked");
    symlink(room.at("dir"), room.at("directory")).expect("linked");
    for path in [
        "relative",
        "absolute",
        "directory/file",
        "dir/../directory/file",
        "./dir//file",
    ] {
        room.put("dir/file", "old\n");
        let read = room.output(read_file, json!({"file_path": path}));
        assert_eq!(read["content"], "old\n", "{path}");
        room.call(write_file, json!({"file_path": path, "content": "new\n"}))
            .expect(path);
        assert_eq!(room.bytes("dir/file"), b"new\n", "{path}");
    }
    for link in ["relative", "absolute", "directory"] {
        assert!(room.at(link).is_symlink(), "{link}");
    }
    room.call(
        write_file,
        json!({"file_path": "directory/another", "content": "x"}),
    )
    .expect("made");
    assert_eq!(room.bytes("dir/another"), b"x");
}

#[test]
fn links_in_a_circle_and_to_nothing_are_told() {
    let room = Room::new();
    symlink(room.at("b"), room.at("a")).expect("linked");
    symlink(room.at("a"), room.at("b")).expect("linked");
    symlink("nothing", room.at("dangling")).expect("linked");
    room.refusal(read_file, json!({"file_path": "a"}), &["symbolic links"]);
    let write = json!({"file_path": "dangling", "content": "x"});
    room.refusal(write_file, write, &["dangling", "symbolic link to nothing"]);
    assert_eq!(room.names(), ["a", "b", "dangling"]);
}

#[test]
fn a_base_directory_beats_what_is_forbidden_only_when_it_is_named() {
    let mut room = Room::new();
    room.put("etc/app/conf", "x");
    room.put("etc/app/keys/key", "x");
    room.put("etc/other", "x");
    room.put("free", "x");
    symlink("etc/other", room.at("link")).expect("linked");
    room.config.files.forbidden = vec![room.at("etc"), room.at("etc/app/keys")];
    for (path, denied) in [
        ("free", false),
        ("etc/other", true),
        ("link", true),
        ("etc/new", true),
    ] {
        assert_eq!(is_denied(&room, path), denied, "{path}");
    }
    let listed = room.output(list_dir, json!({"depth": 3}));
    assert_eq!(
        listed["entries"].as_array().map(Vec::len),
        Some(3),
        "{listed}"
    );
    assert_eq!(listed["unlisted"][0]["path"], "etc", "{listed}");

    room.config
        .files
        .base_dirs
        .push(BaseDir::Named(room.at("etc/app")));
    for (path, denied) in [
        ("etc/app/conf", false),
        ("etc/other", true),
        ("etc/app/keys/key", true),
    ] {
        assert_eq!(is_denied(&room, path), denied, "{path}");
    }
}

#[test]
fn a_home_is_no_directory_that_somebody_named() {
    let mut room = Room::new();
    room.put("file", "x");
    room.config.files.base_dirs = vec![BaseDir::Home(PathBuf::new())];
    assert!(!is_denied(&room, "~/file"));
    let home = room.root.join("base");
    room.config.files.forbidden = vec![home.clone()];
    let refusal = room.refusal(
        read_file,
        json!({"file_path": "~/file"}),
        &["[files] base_dirs"],
    );
    assert!(
        refusal.contains(&format!("name \"{}\"", home.display())),
        "{refusal}"
    );
    room.config.files.base_dirs.push(BaseDir::Named(home));
    assert!(!is_denied(&room, "~/file"));
}

#[test]
fn what_is_below_a_home_is_its_owners_to_link_and_still_held_to_it() {
    let mut room = Room::new();
    symlink(room.root.join("outside"), room.at("work")).expect("linked");
    room.config.files.base_dirs = vec![BaseDir::Home("work".into())];
    room.refusal(
        read_file,
        json!({"file_path": "~/work/secret"}),
        &["base directory", "work"],
    );
}

#[test]
fn forbidden_paths_are_known_by_their_other_names() {
    let mut room = Room::new();
    room.put("run/pid", "x");
    symlink("run", room.at("var")).expect("linked");
    room.config.files.forbidden = vec![room.at("var")];
    assert!(is_denied(&room, "run/pid"));
    assert!(is_denied(&room, "var/pid"));
}

#[test]
fn without_home_and_directory_a_path_must_be_absolute() {
    let room = Room::new();
    room.put("file", "x");
    let access = Access::new(&room.config, &Place::default());
    assert!(access.find("file").is_err());
    assert!(
        access
            .find(room.at("file").to_str().expect("UTF-8"))
            .is_ok()
    );
}

#[test]
fn only_regular_files_are_opened_and_nothing_hangs() {
    let mut room = Room::new();
    mkfifoat(CWD, room.at("fifo"), Mode::from_raw_mode(0o600)).expect("made");
    let _socket = UnixListener::bind(room.at("socket")).expect("bound");
    fs::create_dir(room.at("dir")).expect("made");
    room.config
        .files
        .base_dirs
        .push(BaseDir::Named("/dev".into()));
    let begun = Instant::now();
    for (path, what) in [
        ("fifo", "a FIFO"),
        ("socket", "a socket"),
        ("dir", "a directory"),
        ("/dev/zero", "a device"),
        ("/dev/tty", "a device"),
    ] {
        let parts = [path, what, "not a regular file"];
        room.refusal(read_file, json!({"file_path": path}), &parts);
        room.refusal(
            write_file,
            json!({"file_path": path, "content": "x"}),
            &parts,
        );
        let append = json!({"file_path": path, "content": "x", "mode": "a"});
        room.refusal(write_file, append, &parts);
        let edit = json!({"file_path": path, "search_pattern": "x", "replacement": "y"});
        room.refusal(edit_file, edit, &parts);
    }
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn extensions_are_held_to_where_they_are_configured() {
    let mut room = Room::new();
    room.config.files.allowed_extensions = vec![".md".to_owned(), String::new()];
    room.put("bin.md", b"\x7fELF\0\0");
    for (path, denied) in [
        ("a.md", false),
        ("B.MD", false),
        ("Makefile", false),
        ("a.exe", true),
    ] {
        let done = room.call(write_file, json!({"file_path": path, "content": "x"}));
        assert_eq!(
            matches!(done, Err(FileError::Denied { .. })),
            denied,
            "{path}"
        );
        // It is known beforehand.
        let path = room.at(path);
        assert_eq!(room.access().refuses_file(&path, &path).is_some(), denied);
    }
    room.refusal(
        write_file,
        json!({"file_path": "a.exe", "content": "x"}),
        &[".md", "allowed_extensions"],
    );
    symlink("bin.exe", room.at("link.md")).expect("linked");
    fs::write(room.at("bin.exe"), "x").expect("written");
    assert!(is_denied(&room, "link.md"));
    let overwrite = json!({"file_path": "bin.md", "content": "x"});
    room.refusal(write_file, overwrite, &["binary", "allowed_extensions"]);
    // Whatever it is said to be.
    let read = json!({"file_path": "bin.md", "encoding": "latin1"});
    room.refusal(read_file, read, &["binary", "allowed_extensions"]);
    let edit = json!({
        "file_path": "bin.md", "search_pattern": "ELF", "replacement": "x", "encoding": "latin1",
    });
    room.refusal(edit_file, edit, &["binary", "allowed_extensions"]);
    let add = json!({"file_path": "bin.md", "content": "x", "mode": "a", "encoding": "latin1"});
    room.refusal(write_file, add, &["binary", "allowed_extensions"]);
}

/// A directory and a link to another in its place, exchanged again and again: whatever is read is
/// of the one, and whatever is written is, too.
#[test]
fn a_directory_that_turns_into_a_link_leads_nowhere_else() {
    for link in ["../outside", "absolute"] {
        let room = Room::new();
        room.put("dir/secret", "inside\n");
        let target = match link {
            "absolute" => room.root.join("outside"),
            relative => relative.into(),
        };
        symlink(target, room.at("other")).expect("linked");
        let swap = || {
            renameat_with(
                CWD,
                room.at("dir"),
                CWD,
                room.at("other"),
                RenameFlags::EXCHANGE,
            )
        };
        if swap().is_err() {
            skip(
                "the race with a directory that turns into a link: names cannot be exchanged here",
            );
            return;
        }
        let done = AtomicBool::new(false);
        let (mut read, mut denied) = (0, 0);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    swap().expect("exchanged");
                }
            });
            let _ends = Ends(&done);
            let begun = Instant::now();
            let is_tried = |read, denied| read > 100 && denied > 100;
            for round in 0.. {
                let is_late = begun.elapsed() > Duration::from_secs(60);
                if is_late || round >= 4000 && is_tried(read, denied) {
                    break;
                }
                match room.call(read_file, json!({"file_path": "dir/secret"})) {
                    Ok(answer) => {
                        assert_ne!(answer.content, "secret\n", "{link}, round {round}");
                        read += 1;
                    }
                    Err(_) => denied += 1,
                }
                if round % 8 == 0 {
                    for input in [
                        json!({"file_path": "dir/secret", "content": format!("inside {round}\n")}),
                        json!({"file_path": "dir/secret", "content": "more\n", "mode": "a"}),
                        json!({"file_path": format!("dir/new-{round}"), "content": "x"}),
                        json!({"file_path": "dir/a/b/c", "content": "x", "create_dirs": true}),
                    ] {
                        let _ = room.call(write_file, input);
                    }
                    if let Ok(listed) = room.call(list_dir, json!({"dir_path": "dir"})) {
                        assert!(!listed.content.contains(" outsider"), "{}", listed.content);
                    }
                }
            }
        });
        let outside = room.root.join("outside");
        assert_eq!(
            fs::read_to_string(outside.join("secret")).expect("there"),
            "secret\n"
        );
        assert_eq!(fs::read_dir(outside).expect("there").count(), 1, "{link}");
        assert!(
            read > 100 && denied > 100,
            "{link}: {read} and {denied}: was there a race?"
        );
    }
}

#[test]
fn what_the_daemon_keeps_for_itself_is_refused_whatever_is_named() {
    let mut room = Room::new();
    for file in ["ledger.db", "ledger.db-shm", "spool/one"] {
        room.put(&format!("state/{file}"), "kept\n");
    }
    room.config.state_dir = Some(room.at("state"));
    room.config.ledger = Some(LedgerConfig {
        file: room.at("state/ledger.db"),
        durability: Durability::Process,
    });
    let base_dirs = &mut room.config.files.base_dirs;
    base_dirs.push(BaseDir::Named(room.root.join("base/state/spool")));
    symlink("state/spool", room.at("spool")).expect("linked");
    for (file, link) in [("ledger.db", "one"), ("ledger.db-shm", "two")] {
        let file = room.at("state").join(file);
        fs::hard_link(file, room.at(link)).expect("linked");
    }
    for path in [
        "state/ledger.db",
        "state/new",
        "state/spool/one",
        "spool/one",
        "one",
        "two",
    ] {
        assert!(is_denied(&room, path), "{path}");
    }
    let state = room.at("state").display().to_string();
    let parts = ["at or below", &state, "GET /executions"];
    room.refusal(list_dir, json!({"dir_path": "state"}), &parts);
    room.refusal(read_file, json!({"file_path": "one"}), &["ledger"]);
    let searched = room.output(search_files, json!({"pattern": "kept"}));
    assert_eq!(
        (&searched["lines"], &searched["skipped"]["denied"]),
        (&json!([]), &json!(3))
    );
    let listed = room.output(list_dir, json!({"dir_path": ".", "depth": 3}));
    assert_eq!(listed["unlisted"][0]["path"], "state");
}

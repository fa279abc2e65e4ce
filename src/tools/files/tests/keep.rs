//! What an overwrite and an append must keep, whatever happens to them.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{IFlags, XattrFlags, getxattr, ioctl_getflags, ioctl_setflags, setxattr};
use serde_json::{Value, json};

use super::{Ends, Mounted, Room, skip};
use crate::domain::Digest;
use crate::tools::files::FileError;
use crate::tools::files::access::{New, replace_by_name};
use crate::tools::files::edit::edit_file;
use crate::tools::files::read::read_file;
use crate::tools::files::write::write_file;

const ACL: &str = "system.posix_acl_access";

fn overwrite(content: &str) -> Value {
    json!({"file_path": "f", "content": content})
}

fn append(content: &str) -> Value {
    json!({"file_path": "f", "content": content, "mode": "a"})
}

fn xattr(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut buffer = [0; 1024];
    let length = getxattr(path, name, &mut buffer[..]).ok()?;
    Some(buffer[..length].to_vec())
}

/// An access control list that lets one more user read, as the kernel keeps it.
fn acl() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] = [
        (1, 6, u32::MAX),
        (2, 4, 12345),
        (4, 4, u32::MAX),
        (16, 4, u32::MAX),
        (32, 0, u32::MAX),
    ];
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        acl.extend(tag.to_le_bytes());
        acl.extend(permissions.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    acl
}

#[test]
fn owner_permissions_acl_and_attributes_are_kept() {
    let room = Room::new();
    for by_name in [false, true] {
        let path = room.put("f", "old\n");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("set");
        let owner = match chown(&path, Some(12345), Some(54321)) {
            Ok(()) => (12345, 54321),
            Err(_) => {
                skip("that an overwritten file keeps its owner, which takes root");
                let now = fs::metadata(&path).expect("there");
                (now.uid(), now.gid())
            }
        };
        setxattr(&path, "user.note", b"kept", XattrFlags::empty()).expect("user attributes");
        let has_acl = setxattr(&path, ACL, &acl(), XattrFlags::empty()).is_ok();
        let before = fs::metadata(&path).expect("there");
        match by_name {
            false => drop(room.call(write_file, overwrite("new\n")).expect("written")),
            true => {
                let access = room.access();
                let target = access.target("f").expect("there");
                replace_by_name(&target, b"new\n").expect("written");
            }
        }
        let after = fs::metadata(&path).expect("there");
        assert_ne!(before.ino(), after.ino(), "it is another file");
        assert_eq!((after.uid(), after.gid()), owner);
        assert_eq!(after.mode(), before.mode());
        assert_eq!(xattr(&path, "user.note").as_deref(), Some(&b"kept"[..]));
        match has_acl {
            true => assert_eq!(xattr(&path, ACL), Some(acl())),
            false => skip("that an ACL is kept: there are none on this file system"),
        }
        assert_eq!(
            (room.bytes("f"), room.names()),
            (b"new\n".to_vec(), vec!["f".to_owned()])
        );
    }
}

/// The privileges that a program gave are for what it was.
#[test]
fn what_a_file_lets_its_users_be_is_not_for_what_replaces_it() {
    let room = Room::new();
    let path = room.put("f", "old\n");
    let mode = || fs::metadata(&path).expect("there").mode() & 0o7777;
    let set = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
    set(0o6755);
    let output = room.output(write_file, overwrite("new\n"));
    assert_eq!(output["not_kept"], json!(["set-user-ID, set-group-ID"]));
    assert_eq!(mode(), 0o755);
    // CAP_NET_RAW, effective (`vfs_cap_data` of linux/capability.h, version 2).
    let mut capabilities = [0; 20];
    capabilities[..4].copy_from_slice(&0x0200_0001_u32.to_le_bytes());
    capabilities[4..8].copy_from_slice(&(1_u32 << 13).to_le_bytes());
    let name = "security.capability";
    if setxattr(&path, name, &capabilities, XattrFlags::empty()).is_err() {
        skip("capabilities of files: they cannot be set here");
        return;
    }
    let output = room.output(write_file, overwrite("newer\n"));
    assert_eq!(output["not_kept"], json!([name]));
    assert_eq!(xattr(&path, name), None);
}

#[test]
fn flags_of_chattr_are_kept() {
    let room = Room::new();
    let path = room.put("f", "old\n");
    let flags = || ioctl_getflags(fs::File::open(&path).expect("there"));
    let wanted = IFlags::NODUMP | IFlags::NOATIME;
    let set = |flags| ioctl_setflags(fs::File::open(&path).expect("there"), flags);
    let Ok(before) = flags().and_then(|now| set(now | wanted).and_then(|()| flags())) else {
        skip("flags of chattr: there are none on this file system");
        return;
    };
    let output = room.output(write_file, overwrite("new\n"));
    assert_eq!(output["not_kept"], json!([]));
    assert_eq!(flags(), Ok(before));
    assert!(before.contains(wanted));
    // Where nothing can be removed nothing is left over.
    let dir = room.at("d");
    fs::create_dir(&dir).expect("made");
    room.put("d/g", "old\n");
    let set_dir = |flags| ioctl_setflags(fs::File::open(&dir).expect("there"), flags);
    let of_dir = ioctl_getflags(fs::File::open(&dir).expect("there")).expect("flags");
    if set_dir(of_dir | IFlags::APPEND).is_ok() {
        let input = json!({"file_path": "d/g", "content": "new\n"});
        let refused = room.call(write_file, input);
        set_dir(of_dir).expect("as it was");
        assert!(
            refused
                .expect_err("refused")
                .to_string()
                .contains("chattr +a")
        );
        let left = fs::read_dir(&dir).expect("there").count();
        assert_eq!((room.bytes("d/g"), left), (b"old\n".to_vec(), 1));
    }
    fs::remove_dir_all(&dir).expect("removed");
    // A file that nobody may change stays as it is, for root as well.
    if set(before | IFlags::IMMUTABLE).is_err() {
        skip("a file that nobody may change, which takes root");
        return;
    }
    let refused = room.call(write_file, overwrite("newer\n"));
    set(before).expect("as it was");
    let refused = refused.expect_err("immutable").to_string();
    assert!(refused.contains("not permitted"), "{refused}");
    assert_eq!(room.bytes("f"), b"new\n");
    assert_eq!(room.names(), ["f"]);
}

#[test]
fn what_is_added_to_a_file_that_is_replaced_meanwhile_is_told_to_be_lost() {
    let room = Room::new();
    let path = room.put("f", "old\n");
    let other = room.put("other", "other\n");
    let asked = Cell::new(0);
    let count = || {
        asked.set(asked.get() + 1);
        false
    };
    let done = room.call_until(write_file, append("more\n"), &count);
    done.expect("added");
    let last = asked.replace(0);
    // The last time it asks is when it has found the file to be the same.
    let replace = || {
        if asked.replace(asked.get() + 1) + 1 == last {
            fs::rename(&other, &path).expect("replaced");
        }
        false
    };
    let refused = room.call_until(write_file, append("more\n"), &replace);
    let refused = refused.expect_err("it is in the old file").to_string();
    assert!(refused.contains("append again"), "{refused}");
    assert_eq!(room.bytes("f"), b"other\n");
}

#[test]
fn a_file_without_an_acl_gets_none_from_its_directory() {
    let room = Room::new();
    let path = room.put("f", "old\n");
    if setxattr(
        room.at(""),
        "system.posix_acl_default",
        &acl(),
        XattrFlags::empty(),
    )
    .is_err()
    {
        skip("ACLs of directories: there are none on this file system");
        return;
    }
    room.call(write_file, overwrite("new\n")).expect("written");
    assert_eq!(xattr(&path, ACL), None);
    let mode = fs::metadata(&path).expect("there").mode();
    assert_eq!(mode & 0o7777, 0o644);
}

#[test]
fn an_append_is_made_in_place() {
    let room = Room::new();
    let path = room.put("f", "old\n");
    let before = fs::metadata(&path).expect("there").ino();
    room.call(write_file, append("more\n")).expect("added");
    assert_eq!(fs::metadata(&path).expect("there").ino(), before);
    assert_eq!(room.bytes("f"), b"old\nmore\n");
}

#[test]
fn several_names_and_mount_points_are_refused() {
    let room = Room::new();
    let path = room.put("f", "old\n");
    fs::hard_link(&path, room.at("g")).expect("linked");
    let edit = json!({"file_path": "f", "search_pattern": "old", "replacement": "new"});
    for input in [overwrite("new\n"), append("new\n")] {
        room.refusal(write_file, input, &["`f`", "2 hard links", "bash"]);
    }
    room.refusal(edit_file, edit.clone(), &["2 hard links"]);
    fs::remove_file(room.at("g")).expect("removed");
    let other = room.put("other", "mounted\n");
    let Some(_mounted) = Mounted::bind(&other, &path, "that a mount point is refused") else {
        return;
    };
    for input in [overwrite("new\n"), append("new\n")] {
        room.refusal(write_file, input, &["`f`", "mount point"]);
    }
    room.refusal(edit_file, edit, &["mount point"]);
    assert_eq!(room.bytes("f"), b"mounted\n");
}

/// The tests of a full disk, on one with room for a megabyte.
#[test]
fn a_full_disk_leaves_all_as_it_was() {
    let room = Room::new();
    let dir = room.at("disk");
    fs::create_dir(&dir).expect("made");
    let Some(_mounted) = Mounted::tmpfs(&dir, "a full disk") else {
        return;
    };
    let old = "old\n".repeat(1000);
    room.put("disk/f", &old);
    room.put("disk/ballast", vec![0; 800 * 1024]);
    let much = "x".repeat(600 * 1024);
    for input in [
        json!({"file_path": "disk/f", "content": much}),
        json!({"file_path": "disk/f", "content": much, "mode": "a"}),
        json!({"file_path": "disk/new", "content": much}),
        json!({"file_path": "disk/a/b", "content": much, "create_dirs": true}),
        json!({"file_path": "disk/new", "content": much, "mode": "a"}),
    ] {
        room.refusal(write_file, input, &["disk/", "No space left"]);
        assert_eq!(room.bytes("disk/f"), old.as_bytes());
        let mut names: Vec<_> = fs::read_dir(&dir)
            .expect("listed")
            .flatten()
            .map(|e| e.file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["ballast", "f"]);
    }
    let access = room.access();
    let target = access.target("disk/f").expect("there");
    let named = replace_by_name(&target, much.as_bytes());
    assert!(
        named
            .expect_err("full")
            .to_string()
            .contains("No space left")
    );
    assert_eq!(fs::read_dir(&dir).expect("listed").count(), 2);
    fs::remove_file(room.at("disk/ballast")).expect("removed");
    room.call(write_file, json!({"file_path": "disk/f", "content": much}))
        .expect("there is room");
}

#[test]
fn a_reader_sees_the_old_or_the_new_and_nothing_else() {
    let room = Room::new();
    let [a, b] = ["a", "b"].map(|letter| letter.repeat(300_000));
    room.put("f", &a);
    let done = AtomicBool::new(false);
    let reads = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !done.load(Ordering::Relaxed) {
                let bytes = fs::read(room.at("f")).expect("it is always there");
                assert_eq!(bytes.len(), a.len());
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "half of each");
                reads += 1;
            }
            reads
        });
        let ends = Ends(&done);
        for _ in 0..30 {
            room.call(write_file, overwrite(&b)).expect("written");
            room.call(write_file, overwrite(&a)).expect("written");
        }
        drop(ends);
        reader.join().expect("it saw no half")
    });
    assert!(reads > 10, "only {reads}");
}

/// Steps in at each of the moments at which a call may be stopped.
#[test]
fn a_change_by_somebody_else_is_never_overwritten() {
    let edit = json!({"file_path": "f", "search_pattern": "old", "replacement": "new"});
    for (tool, input) in [("write", overwrite("new\n")), ("edit", edit)] {
        let (mut found, mut moment) = (0, 0);
        loop {
            let room = Room::new();
            let path = room.put("f", "old\n");
            let (asked, stepped) = (Cell::new(0), Cell::new(false));
            let step_in = || {
                if asked.replace(asked.get() + 1) == moment {
                    fs::write(&path, "mine\n").expect("written");
                    stepped.set(true);
                }
                false
            };
            let done = match tool {
                "write" => room.call_until(write_file, input.clone(), &step_in),
                _ => room.call_until(edit_file, input.clone(), &step_in),
            };
            if !stepped.get() {
                break;
            }
            let refusal = done.expect_err(tool).to_string();
            assert_eq!(
                (room.bytes("f"), room.names()),
                (b"mine\n".to_vec(), vec!["f".to_owned()])
            );
            // An edit may also find that what it looks for is gone.
            found += usize::from(refusal.contains("changed by somebody else"));
            moment += 1;
        }
        assert!(found >= 2 && moment >= 3, "{tool}: {found} of {moment}");
    }
}

/// The kernel's clock may stand still between two changes; what the file holds does not lie.
#[test]
fn a_change_that_no_time_tells_of_is_seen() {
    let room = Room::new();
    room.put("f", "mine\n");
    let access = room.access();
    let target = access.target("f").expect("there");
    let new = |old| New {
        bytes: b"new\n",
        permissions: None,
        old: Some(old),
    };
    let refusal = target
        .replace(&new(b"yours"), &|| false)
        .expect_err("it is another");
    assert!(
        refusal.to_string().contains("changed by somebody else"),
        "{refusal}"
    );
    assert_eq!(
        (room.bytes("f"), room.names()),
        (b"mine\n".to_vec(), vec!["f".to_owned()])
    );
    target
        .replace(&new(b"mine\n"), &|| false)
        .expect("it is what was read");
}

#[test]
fn a_file_that_appears_meanwhile_is_not_overwritten() {
    let room = Room::new();
    let step_in = || {
        fs::write(room.at("f"), "mine\n").expect("written");
        false
    };
    let done = room.call_until(write_file, overwrite("new\n"), &step_in);
    let refusal = done.expect_err("it is there").to_string();
    assert!(refusal.contains("changed by somebody else"), "{refusal}");
    assert_eq!(
        (room.bytes("f"), room.names()),
        (b"mine\n".to_vec(), vec!["f".to_owned()])
    );
}

#[test]
fn a_link_that_appears_meanwhile_is_not_followed() {
    let room = Room::new();
    let path = room.put("f", "old\n");
    let secret = room.root.join("outside/secret");
    let step_in = || {
        let _ = fs::remove_file(&path);
        let _ = symlink(&secret, &path);
        false
    };
    for input in [overwrite("new\n"), append("new\n")] {
        let refusal = room
            .call_until(write_file, input, &step_in)
            .expect_err("it changed");
        assert!(!matches!(refusal, FileError::Stopped), "{refusal}");
        assert_eq!(fs::read_to_string(&secret).expect("there"), "secret\n");
        fs::remove_file(&path).expect("removed");
        fs::write(&path, "old\n").expect("written");
    }
}

#[test]
fn the_digest_of_what_was_read_holds_until_it_changes() {
    let room = Room::new();
    room.put("f", "old\n");
    let read = room.output(read_file, json!({"file_path": "f"}));
    let with = |mut input: Value| {
        input["expected_digest"] = read["digest"].clone();
        input
    };
    let edit = json!({"file_path": "f", "search_pattern": "old", "replacement": "old"});
    room.call(edit_file, with(edit.clone()))
        .expect("it is what was read");
    room.call(write_file, with(append("new\n")))
        .expect("it is what was read");
    room.refusal(write_file, with(overwrite("x")), &["`f`", "read it again"]);
    room.refusal(write_file, with(append("x")), &["read it again"]);
    room.refusal(edit_file, with(edit), &["read it again"]);
    let nothing = json!({"file_path": "g", "content": "x", "expected_digest": Digest::ZERO});
    room.refusal(write_file, nothing, &["`g`", "not there"]);
    let bad = json!({"file_path": "f", "content": "x", "expected_digest": "abc"});
    room.refusal(write_file, bad, &["expected_digest", "64"]);
    assert_eq!(room.bytes("f"), b"old\nnew\n");
}

#[test]
fn what_is_stopped_leaves_nothing_behind() {
    for (input, more) in [
        (overwrite("new\n"), 0),
        (append("new\n"), 0),
        (overwrite("new\n"), 2),
    ] {
        let room = Room::new();
        room.put("f", "old\n");
        let asked = Cell::new(0);
        let stop = || asked.replace(asked.get() + 1) >= more;
        let done = room.call_until(write_file, input, &stop);
        assert!(matches!(done, Err(FileError::Stopped)));
        assert_eq!(
            (room.bytes("f"), room.names()),
            (b"old\n".to_vec(), vec!["f".to_owned()])
        );
    }
}

/// Whoever replaces it by rename(2) leaves no moment at which there is none.
#[test]
fn a_file_that_somebody_replaces_again_and_again_is_found() {
    let room = Room::new();
    let (path, next) = (room.put("f", "old\n"), room.at("next"));
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let replacing = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                fs::write(&next, "old\n").expect("written");
                fs::rename(&next, &path).expect("renamed");
            }
        });
        let edit = json!({"file_path": "f", "search_pattern": "old", "replacement": "new", "dry_run": true});
        let failed = (0..2000).find_map(|_| {
            let read = room.call(read_file, json!({"file_path": "f"}));
            read.and_then(|_| room.call(edit_file, edit.clone())).err()
        });
        is_done.store(true, Ordering::Relaxed);
        replacing.join().expect("replaced");
        assert!(failed.is_none(), "{failed:?}");
    });
}

/// Nobody has to read again what only calls beside it have changed.
#[test]
fn calls_at_once_that_change_one_file_take_turns() {
    const CALLS: usize = 30;
    let room = Room::new();
    let line = |number: usize| format!("line {number:02}\n");
    room.put("f", (0..CALLS).map(line).collect::<String>());
    let together = Barrier::new(CALLS);
    thread::scope(|scope| {
        for number in 0..CALLS {
            let (room, together) = (&room, &together);
            scope.spawn(move || {
                let old = format!("line {number:02}");
                let new = format!("LINE {number:02}");
                let edit = json!({"file_path": "f", "search_pattern": old, "replacement": new});
                together.wait();
                room.call(edit_file, edit).expect("its turn");
            });
        }
    });
    let expected: String = (0..CALLS)
        .map(|number| line(number).replace("line", "LINE"))
        .collect();
    assert_eq!(room.bytes("f"), expected.as_bytes());
    // So do those that would make it.
    let together = Barrier::new(CALLS);
    thread::scope(|scope| {
        for _ in 0..CALLS {
            scope.spawn(|| {
                let new = json!({"file_path": "a/b/new", "content": "x", "mode": "a", "create_dirs": true});
                together.wait();
                room.call(write_file, new).expect("its turn");
            });
        }
    });
    assert_eq!(room.bytes("a/b/new"), "x".repeat(CALLS).as_bytes());
}

#[test]
fn appends_do_not_mix() {
    let room = Room::new();
    room.put("f", "");
    thread::scope(|scope| {
        for letter in ["a", "b", "c", "d"] {
            let room = &room;
            scope.spawn(move || {
                for _ in 0..20 {
                    let line = format!("{}\n", letter.repeat(20_000));
                    room.call(write_file, append(&line)).expect("added");
                }
            });
        }
    });
    let text = String::from_utf8(room.bytes("f")).expect("UTF-8");
    assert_eq!(text.lines().count(), 80);
    assert!(text.lines().all(|line| line.len() == 20_000 && line.bytes().all(|byte| byte == line.as_bytes()[0])));
}

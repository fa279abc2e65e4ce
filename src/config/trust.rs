use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::Uid;

/// The bits of a mode by which others than the owner write, that by which everybody does, and that by which they
/// cannot rename or remove what is not theirs.
const BY_OTHERS: u32 = 0o022;
const BY_EVERYBODY: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// As many links as the kernel follows (path_resolution(7)).
const MAX_LINKS: u8 = 40;

/// Makes sure that `dir`, which nobody has named, is not somebody else's. Below a directory that everybody may write
/// to, such as `/tmp`, anybody can be the first to make it, and then reads or changes what is put there: so all below
/// that has to be real directories of ours, or of root, who could do anything in any case, to which nobody else may
/// write. What is not there yet is fine.
///
/// # Errors
/// Which directory is not, whose it is, and that `flag` names another place.
pub(crate) fn refuse_foreign(dir: &Path, flag: &str) -> io::Result<()> {
    look(dir, flag, MAX_LINKS)
}

/// The same, following at most so many links.
fn look(dir: &Path, flag: &str, links: u8) -> io::Result<()> {
    let from_the_root: Vec<&Path> = dir.ancestors().collect();
    let mut is_below_open = false;
    for path in from_the_root.into_iter().rev() {
        // What cannot be looked at cannot be used either, which is told where it is tried.
        let Ok(found) = fs::symlink_metadata(path) else {
            return Ok(());
        };
        // One that only we could make may lead below such a directory all the same.
        if found.is_symlink() && !is_below_open {
            let (Ok(target), Ok(rest)) = (fs::read_link(path), dir.strip_prefix(path)) else {
                return Ok(());
            };
            let beside = path.parent().unwrap_or(path);
            // Without a slash at its end, behind which a link is followed.
            let led: PathBuf = beside.join(target).join(rest).components().collect();
            return match links.checked_sub(1) {
                Some(left) => look(&led, flag, left),
                None => Ok(()),
            };
        }
        // Another one like `/tmp`, on the way.
        let is_passage = found.mode() & STICKY != 0 && path != dir;
        let fault = fault(&found, if is_passage { 0 } else { BY_OTHERS });
        if is_below_open && let Some(fault) = fault {
            let text = format!(
                "`{}` {fault}, which is not safe below a directory that everybody may write to: remove it, or name another place with {flag}",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        is_below_open |= found.mode() & BY_EVERYBODY != 0;
    }
    Ok(())
}

/// That others than root and we decide what is in `path`, a file or a directory that says what the daemon does, in
/// words, if they do. It is used all the same, as systemd uses such units: an operator may mean it.
pub(crate) fn foreign_hand(path: &Path) -> Option<String> {
    // What cannot be looked at is told where it is read.
    let found = fs::metadata(path).ok()?;
    let path = path.display();
    let (owner, mode) = (found.uid(), found.mode() & 0o7777);
    if is_foreign(owner) {
        let own = Uid::effective().as_raw();
        Some(format!(
            "`{path}` belongs to uid {owner}, who so decides what this daemon does: give it to uid {own} or root (chown)"
        ))
    } else if mode & (BY_EVERYBODY | STICKY) == BY_EVERYBODY | STICKY {
        Some(format!(
            "`{path}` can be added to by everybody (mode {mode:04o}), who so decide what this daemon does: choose another place"
        ))
    } else if mode & BY_EVERYBODY != 0 {
        Some(format!(
            "`{path}` can be written to by everybody (mode {mode:04o}), who so decide what this daemon does: take that away (chmod o-w)"
        ))
    } else {
        None
    }
}

/// Whether a user is neither root, who could do anything in any case, nor us.
fn is_foreign(owner: u32) -> bool {
    owner != Uid::effective().as_raw() && owner != 0
}

/// What is wrong with it, the bits `forbidden` of its mode among that. A file in its place is not: nothing can be put
/// into that, which is told elsewhere.
fn fault(found: &Metadata, forbidden: u32) -> Option<String> {
    let owner = found.uid();
    if found.is_symlink() {
        Some(format!("is a symbolic link that uid {owner} has made"))
    } else if is_foreign(owner) {
        let own = Uid::effective().as_raw();
        Some(format!("belongs to uid {owner} and not to uid {own}"))
    } else if found.is_dir() && found.mode() & forbidden != 0 {
        let mode = found.mode() & 0o7777;
        Some(format!(
            "belongs to uid {owner} and can be written to by others (mode {mode:04o})"
        ))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    /// A directory that everybody may write to, in one of ours.
    fn open_dir(name: &str) -> (PathBuf, PathBuf) {
        open_dir_in(&std::env::temp_dir(), name)
    }

    fn open_dir_in(dir: &Path, name: &str) -> (PathBuf, PathBuf) {
        let top = dir.join(format!("trust-{}-{name}", std::process::id()));
        let open = top.join("open");
        make(&top, 0o755);
        make(&open, 0o1777);
        (top, open)
    }

    fn make(dir: &Path, mode: u32) {
        fs::create_dir(dir).expect("made");
        fs::set_permissions(dir, Permissions::from_mode(mode)).expect("ours");
    }

    fn refused(dir: &Path) -> String {
        let refused = refuse_foreign(dir, "--state").expect_err("refused");
        refused.to_string()
    }

    #[test]
    fn what_is_ours_or_not_there_is_fine() {
        let (top, open) = open_dir("fine");
        make(&open.join("ours"), 0o700);
        make(&open.join("ours/readable"), 0o755);
        for dir in ["ours", "ours/readable", "ours/absent/below", "absent"] {
            refuse_foreign(&open.join(dir), "--state").expect(dir);
        }
        fs::remove_dir_all(top).expect("ours");
    }

    #[test]
    fn a_link_of_ours_is_followed_to_where_somebody_else_may_write() {
        if !Uid::effective().is_root() {
            eprintln!(
                "SKIPPED: only root has a place to which nobody else may write on every machine"
            );
            return;
        }
        let (top, open) = open_dir_in(Path::new("/run"), "led");
        make(&open.join("ours"), 0o700);
        symlink("open", top.join("led")).expect("made");
        symlink("loop", top.join("loop")).expect("made");
        for dir in ["led/ours", "led/absent", "loop/below"] {
            refuse_foreign(&top.join(dir), "--state").expect(dir);
        }
        make(&open.join("theirs"), 0o777);
        symlink(open.join("absent"), open.join("dangling")).expect("made");
        symlink("led/theirs", top.join("twice")).expect("made");
        symlink("twice", top.join("thrice")).expect("made");
        for (dir, told) in [
            ("led/theirs/below", "open/theirs`"),
            ("twice", "open/theirs`"),
            ("thrice", "open/theirs`"),
            ("led/dangling", "open/dangling` is a symbolic link"),
        ] {
            let refused = refused(&top.join(dir));
            assert!(refused.contains(told), "{dir}: {refused}");
        }
        fs::remove_dir_all(top).expect("ours");
    }

    #[test]
    fn what_somebody_else_may_have_made_or_can_change_is_refused_by_name() {
        let (top, open) = open_dir("foreign");
        make(&open.join("ours"), 0o700);
        symlink(open.join("ours"), open.join("link")).expect("made");
        let told = refused(&open.join("link/below"));
        assert!(told.contains("open/link` is a symbolic link"), "{told}");
        for (mode, below) in [(0o770, "below"), (0o707, "below"), (0o1777, "")] {
            let dir = open.join(format!("{mode:o}"));
            make(&dir, mode);
            let told = refused(&dir.join(below));
            assert!(told.contains(&format!("(mode {mode:04o})")), "{told}");
        }
        if Uid::effective().is_root() {
            let theirs = open.join("theirs");
            make(&theirs, 0o700);
            chown(&theirs, Some(4242), None).expect("root may");
            for dir in [theirs.clone(), theirs.join("below")] {
                let told = refused(&dir);
                assert!(told.contains("open/theirs` belongs to uid 4242"), "{told}");
                assert!(told.contains("--state"), "{told}");
            }
        }
        fs::remove_dir_all(top).expect("ours");
    }
}

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::domain::ApprovalId;

/// The directory of remembered approvals, in the state directory: one file for each, so that each
/// is revoked by removing one.
pub const REMEMBERED_DIR: &str = "policy.d";

const ENDING: &str = ".toml";

/// Writes the file of one approval, whole or not at all, and answers where it is. It survives a
/// crash that comes after.
///
/// # Errors
/// What the kernel says. A file that was there before is then what it was.
pub fn write_remembered(dir: &Path, approval: ApprovalId, text: &str) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let path = dir.join(format!("{approval}{ENDING}"));
    // A name that is not listed, should it be left behind.
    let new = dir.join(format!(".{approval}.new"));
    let written = write_new(&new, text).and_then(|()| fs::rename(&new, &path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written?;
    File::open(dir)?.sync_all()?;
    Ok(path)
}

/// Removes the file of one approval, if there is one.
///
/// # Errors
/// What the kernel says.
pub fn remove_remembered(dir: &Path, approval: ApprovalId) -> io::Result<()> {
    match fs::remove_file(dir.join(format!("{approval}{ENDING}"))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// The files of remembered approvals, in the order of their names. A directory that is not there
/// holds none.
///
/// # Errors
/// When the directory cannot be read.
pub fn remembered_files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let listed = name.to_str();
        if listed.is_some_and(|name| name.ends_with(ENDING) && !name.starts_with('.')) {
            files.push(dir.join(name));
        }
    }
    files.sort_unstable();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_approval_is_a_file_of_its_own_for_nobody_else() {
        let base = std::env::temp_dir().join(format!("shelly-remembered-{}", std::process::id()));
        let dir = base.join(REMEMBERED_DIR);
        assert_eq!(remembered_files(&dir).expect("none"), Vec::<PathBuf>::new());
        let (first, second) = (ApprovalId::new(), ApprovalId::new());
        let later = write_remembered(&dir, second, "b").expect("written");
        let earlier = write_remembered(&dir, first, "a").expect("written");
        write_remembered(&dir, first, "c").expect("written again");
        for other in ["README", ".x.toml"] {
            fs::write(dir.join(other), "").expect("written");
        }
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&earlier)), (0o700, 0o600));
        assert_eq!(fs::read_to_string(&earlier).expect("there"), "c");
        assert_eq!(remembered_files(&dir).expect("listed"), [earlier, later]);
        assert_eq!(
            fs::read_dir(&dir).expect("there").count(),
            4,
            "nothing is left behind"
        );
        fs::remove_dir_all(base).expect("ours");
    }
}

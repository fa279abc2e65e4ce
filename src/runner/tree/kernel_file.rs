use std::fs::File;
use std::io;
use std::path::Path;

use rustix::buffer::spare_capacity;

/// A file of `/proc` or of a cgroup that stays open and is read anew each time: finding it by its
/// path takes longer than reading it.
#[derive(Debug)]
pub(super) struct KernelFile(File);

impl KernelFile {
    pub(super) fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        File::open(path).map(Self)
    }

    /// What it says now. From the beginning, which has the kernel write it anew.
    pub(super) fn read(&self) -> io::Result<String> {
        /// More than most of them have to say.
        const CHUNK: usize = 512;
        let mut bytes = Vec::with_capacity(CHUNK);
        loop {
            let offset = bytes.len() as u64;
            if rustix::io::pread(&self.0, spare_capacity(&mut bytes), offset)? == 0 {
                return String::from_utf8(bytes).map_err(io::Error::other);
            }
            bytes.reserve(CHUNK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_anew_and_to_its_end() {
        let path = std::env::temp_dir().join(format!("shelly-kernel-file-{}", std::process::id()));
        std::fs::write(&path, "one").expect("writable");
        let file = KernelFile::open(&path).expect("readable");
        assert_eq!(file.read().expect("readable"), "one");
        let long = "two ".repeat(1000);
        std::fs::write(&path, &long).expect("writable");
        assert_eq!(file.read().expect("readable"), long);
        std::fs::remove_file(path).expect("removable");
    }
}

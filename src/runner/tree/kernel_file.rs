use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;

/// A file of `/proc` or of a cgroup that stays open and is read anew each time: finding it by its
/// path takes longer than reading it.
#[derive(Debug)]
pub(super) struct KernelFile(File);

impl KernelFile {
    pub(super) fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        File::open(path).map(Self)
    }

    /// The same for one that is written to as well.
    pub(super) fn open_writable(path: impl AsRef<Path>) -> io::Result<Self> {
        File::options().read(true).write(true).open(path).map(Self)
    }

    /// The same for one that is only written to.
    pub(super) fn open_to_write(path: impl AsRef<Path>) -> io::Result<Self> {
        File::options().write(true).open(path).map(Self)
    }

    /// What it says now. From the beginning, which has the kernel write it anew. What is no UTF-8 is
    /// replaced: processes are called what they like.
    pub(super) fn read(&self) -> io::Result<String> {
        /// As much as the kernel writes at once (`PAGE_SIZE`, fs/seq_file.c).
        const CHUNK: usize = 4096;
        /// It stops before that only for an entry which would not fit any more. None is as long as
        /// this, so what is shorter than the rest was all.
        const LONGEST_ENTRY: usize = 2048;
        // Most say some bytes.
        let mut chunk = [MaybeUninit::uninit(); CHUNK];
        let mut bytes = Vec::new();
        loop {
            let (read, _) = rustix::io::pread(&self.0, &mut chunk[..], bytes.len() as u64)?;
            bytes.extend_from_slice(read);
            if read.len() < CHUNK - LONGEST_ENTRY {
                return Ok(String::from_utf8(bytes).unwrap_or_else(|error| {
                    String::from_utf8_lossy(error.as_bytes()).into_owned()
                }));
            }
        }
    }

    /// What it says, where that is a number.
    pub(super) fn number(&self) -> Option<u64> {
        self.read().ok()?.trim().parse().ok()
    }

    /// A value of a flat keyed file: lines of a key, a space and a number.
    pub(super) fn value(&self, key: &str) -> Option<u64> {
        let text = self.read().ok()?;
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.parse().ok())
    }

    /// Tells the kernel. For one that was opened to be written to.
    pub(super) fn write(&self, text: &str) -> io::Result<()> {
        rustix::io::pwrite(&self.0, text.as_bytes(), 0)?;
        Ok(())
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
        let long = "two ".repeat(3000);
        std::fs::write(&path, b"(\xff) S").expect("writable");
        assert_eq!(file.read().expect("readable"), "(\u{fffd}) S");
        std::fs::write(&path, &long).expect("writable");
        assert_eq!(file.read().expect("readable"), long);
        std::fs::remove_file(path).expect("removable");
    }

    #[test]
    fn a_list_of_more_than_a_page_is_read_to_its_end() {
        let (this, thread) = (nix::unistd::getpid(), nix::unistd::gettid());
        let file = KernelFile::open(super::super::procfs::children_file(this, thread));
        let file = file.expect("a list of children");
        let mut sleepers: Vec<_> = (0..1000)
            .map(|_| {
                let mut sleep = std::process::Command::new("sleep");
                sleep.arg("600").spawn().expect("started")
            })
            .collect();
        let listed = file.read().expect("readable");
        for sleeper in &mut sleepers {
            sleeper.kill().expect("killed");
            sleeper.wait().expect("reaped");
        }
        let expected: Vec<String> = sleepers
            .iter()
            .map(|child| child.id().to_string())
            .collect();
        assert!(listed.len() > 4096, "{} bytes", listed.len());
        assert_eq!(listed.split_whitespace().collect::<Vec<_>>(), expected);
    }
}

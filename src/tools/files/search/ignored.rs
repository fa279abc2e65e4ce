use std::io::Read;
use std::path::Path;

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::OFlags;

use crate::tools::files::Work;
use crate::tools::files::access::Found;

/// The files that name what is not searched; the last decides where they differ.
const NAMES: [&str; 2] = [".gitignore", ".ignore"];

/// The largest such file that is read, in bytes.
const LARGEST: u64 = 1 << 20;

/// What the `.gitignore` and `.ignore` files say, from the top of the repository down to where a
/// search is. They are read as every other file is, by descriptor and only if regular: the `ignore`
/// crate would open a FIFO of that name and wait.
pub(super) struct Ignored<'a> {
    work: &'a Work<'a>,
    respect: bool,
    levels: Vec<Vec<Gitignore>>,
}

impl<'a> Ignored<'a> {
    pub(super) fn new(work: &'a Work<'a>, respect: bool) -> Self {
        Self {
            work,
            respect,
            levels: Vec::new(),
        }
    }

    /// Reads those of the directories above, if they are of the same repository.
    pub(super) fn enter_above(&mut self, root: &Found) {
        if !self.respect {
            return;
        }
        let mut above = Vec::new();
        let mut is_found = is_repository(root);
        for dir in root.real.ancestors().skip(1) {
            if is_found {
                break;
            }
            let found = dir.to_str().map(|dir| self.work.access.find(dir));
            let Some(Ok(dir)) = found else {
                break;
            };
            is_found = is_repository(&dir);
            above.push(self.read(&dir));
        }
        // Without a repository there is no telling how far up they speak of this directory.
        if is_found {
            self.levels.extend(above.into_iter().rev());
        }
    }

    pub(super) fn enter(&mut self, dir: &Found) {
        let level = match self.respect {
            true => self.read(dir),
            false => Vec::new(),
        };
        self.levels.push(level);
    }

    pub(super) fn leave(&mut self) {
        self.levels.pop();
    }

    pub(super) fn is_ignored(&self, path: &Path, is_dir: bool) -> bool {
        let nearest_first = self
            .levels
            .iter()
            .rev()
            .flat_map(|level| level.iter().rev());
        let mut said = nearest_first.map(|ignored| ignored.matched(path, is_dir));
        said.find(|said| !said.is_none())
            .is_some_and(|said| said.is_ignore())
    }

    fn read(&self, dir: &Found) -> Vec<Gitignore> {
        NAMES
            .iter()
            .filter_map(|name| self.text(dir, name))
            .flat_map(|text| compiled(dir, &text))
            .collect()
    }

    /// One that cannot be read, or that the policy keeps to itself, says nothing.
    fn text(&self, dir: &Found, name: &str) -> Option<String> {
        let file = dir.child(Path::new(name)).ok()?;
        let file = file.regular_of_any_name().ok()?;
        self.work.access.hold_found(&file).ok()?;
        if file.size() > LARGEST || !(self.work.permits)(&file.real) {
            return None;
        }
        let mut bytes = Vec::new();
        let opened = file.open(OFlags::RDONLY).ok()?;
        opened.take(LARGEST).read_to_end(&mut bytes).ok()?;
        // A byte order mark is no part of the first line, as for git.
        let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

/// What the lines of such a file in `dir` say, the later before the earlier where they differ: in parts, for of too many
/// together nothing is made.
fn compiled(dir: &Found, text: &str) -> Vec<Gitignore> {
    const PART: usize = 500;
    let lines: Vec<&str> = text.lines().collect();
    let parts = lines.chunks(PART).filter_map(|lines| {
        let mut builder = GitignoreBuilder::new(&dir.real);
        for line in lines {
            // A glob that is none names nothing.
            let _ = builder.add_line(None, line);
        }
        builder.build().ok()
    });
    parts.collect()
}

fn is_repository(dir: &Found) -> bool {
    dir.child(Path::new(".git")).is_ok()
}

use std::sync::Arc;

use super::{Capture, Growing, Head};
use crate::runner::spool::SpoolFile;

impl Capture {
    /// Whether there is something that only memory holds of a stream that is still written, and that is to
    /// outlast this process.
    pub fn wants_draft(&self) -> bool {
        let lasts = self.spool.as_ref().is_some_and(|spool| spool.is_lasting());
        let inner = self.lock();
        match &inner.head {
            Head::Growing(Growing { done, .. }) if lasts && inner.file.is_none() => {
                let draft = inner.draft.as_ref();
                draft.map_or(*done > 0, |draft| draft.is_whole() && *done > draft.saved)
            }
            Head::Growing(_) | Head::Sealed(_) => false,
        }
    }

    /// Puts on disk what has come since the last time, for who asks after the daemon was killed. For one
    /// thread at a time, which may block.
    pub fn save_draft(&self) {
        let Some((draft, news)) = self.begin_draft() else {
            return;
        };
        draft.append(&news);
        // Somebody may have put all of it on disk meanwhile, or somewhere else.
        if self.lock().draft.is_none() {
            draft.evict();
        }
    }

    /// What is to be written to a draft, and that it is there.
    fn begin_draft(&self) -> Option<(Arc<SpoolFile>, Vec<u8>)> {
        if !self.wants_draft() {
            return None;
        }
        let known = self
            .lock()
            .draft
            .as_ref()
            .map(|draft| Arc::clone(&draft.file));
        let is_new = known.is_none();
        let file = match known {
            Some(file) => file,
            None => self.spool.as_ref()?.draft(self.id, self.name)?,
        };
        let mut inner = self.lock();
        let saved = inner.draft.as_ref().map_or(0, |draft| draft.saved);
        let news = match &inner.head {
            Head::Growing(Growing { bytes, done, .. }) if inner.file.is_none() => {
                bytes[saved..*done].to_vec()
            }
            Head::Growing(_) | Head::Sealed(_) => {
                drop(inner);
                if is_new {
                    file.evict();
                }
                return None;
            }
        };
        let begun = || Draft {
            file: Arc::clone(&file),
            saved: 0,
        };
        inner.draft.get_or_insert_with(begun).saved += news.len();
        drop(inner);
        Some((file, news))
    }
}

/// What of a stream in memory is on disk for who comes after a crash.
#[derive(Debug)]
pub(super) struct Draft {
    file: Arc<SpoolFile>,
    /// How much of the head has been given to it, in bytes.
    saved: usize,
}

impl Draft {
    /// Whether the spool took all of it: behind a gap nothing is of use.
    fn is_whole(&self) -> bool {
        self.file.len() == self.saved as u64
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        self.file.evict();
    }
}

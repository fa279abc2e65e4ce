use std::sync::Arc;

use super::{Capture, Growing, Head, Inner};
use crate::runner::spool::SpoolFile;

impl Capture {
    /// Whether there is something that only memory holds of a stream whose record is still to come, and that is to
    /// outlast this process. (Between the end of a process and its record hooks may be asked for a while.)
    pub fn wants_draft(&self) -> bool {
        let lasts = self.spool.as_ref().is_some_and(|spool| spool.is_lasting());
        let inner = self.lock();
        let Some(text) = inner.unfiled().filter(|_| lasts) else {
            return false;
        };
        let draft = inner.draft.as_ref();
        draft.map_or(!text.is_empty(), |draft| {
            draft.is_whole() && text.len() > draft.saved
        })
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

    /// The draft, made if there was none, and the bytes that it lacks, which count as saved from here on.
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
        // It may have been put elsewhere meanwhile, and let go of.
        let news = inner.unfiled().and_then(|text| text.get(saved..));
        let Some(news) = news.filter(|news| !news.is_empty()).map(<[u8]>::to_vec) else {
            drop(inner);
            if is_new {
                file.evict();
            }
            return None;
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

impl Inner {
    /// What only memory holds of a stream whose record is still to come, and nobody holds back any more.
    fn unfiled(&self) -> Option<&[u8]> {
        let text = match &self.head {
            Head::Growing(Growing { bytes, done, .. }) => &bytes[..*done],
            Head::Sealed(bytes) => bytes,
        };
        // It is released once it is on record.
        (self.file.is_none() && self.release.is_none()).then_some(text)
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

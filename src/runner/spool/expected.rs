use std::sync::{Arc, OnceLock};

use super::SpoolFile;

/// The file of a text that is not there yet; there is none where it cannot be made, or is not wanted any more.
#[derive(Debug, Default)]
pub struct Expected(OnceLock<Option<Arc<SpoolFile>>>);

impl Expected {
    /// The file, which `make` makes if nobody has. May wait for whoever does.
    pub(super) fn file(
        &self,
        make: impl FnOnce() -> Option<Arc<SpoolFile>>,
    ) -> Option<Arc<SpoolFile>> {
        self.0.get_or_init(make).clone()
    }

    /// Says that there will be no text. May wait for whoever makes the file.
    pub fn give_up(&self) {
        if let Some(file) = self.file(|| None) {
            file.evict();
        }
    }
}

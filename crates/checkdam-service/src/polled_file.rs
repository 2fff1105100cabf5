//! What a file contains that is read again and again, to notice when it changes.
//!
//! Reading the text itself, and not what the file system says about it, works with atomic
//! renames, swapped links, mounted volumes and coarse clocks.

use std::path::Path;

/// The contents that count, and those that may.
#[derive(Debug)]
pub(crate) struct PolledFile<T> {
    /// What counts, or why there is none.
    pub(crate) accepted: Result<T, String>,
    /// What the last poll read, if it does not count yet: a file may be read half written,
    /// so contents count once two polls agree.
    seen: Option<Result<T, String>>,
}

impl<T: PartialEq> PolledFile<T> {
    pub(crate) const fn new(accepted: T) -> Self {
        Self { accepted: Ok(accepted), seen: None }
    }

    /// Takes what a poll has read. Whether other contents count from now on, which they do
    /// without a second poll if that is `at_once`.
    pub(crate) fn poll(&mut self, now: Result<T, String>, at_once: bool) -> bool {
        if !at_once && now == self.accepted {
            self.seen = None;
            return false;
        }
        if !at_once && self.seen.as_ref() != Some(&now) {
            self.seen = Some(now);
            return false;
        }
        (self.accepted, self.seen) = (now, None);
        true
    }
}

/// Whether reading the path ends: a pipe in a file's place would hold its reader for ever.
pub(crate) fn can_be_polled(path: &Path) -> bool {
    path.is_dir() || path.is_file() || !path.exists()
}

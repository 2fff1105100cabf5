//! Detects that an open SQLite file was deleted or replaced at its path.
//!
//! SQLite goes on reading and writing a deleted file: edits would succeed and be lost
//! at the next restart. So the path is checked before every transaction.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A database file, by its device and inode.
#[derive(Debug)]
pub(in crate::rulebook) struct OpenedFile {
    path: PathBuf,
    /// None if it could not be read: opening it reports why.
    identity: Option<(u64, u64)>,
}

impl OpenedFile {
    /// The file at `path`, as it is now.
    pub(super) fn open(path: &Path) -> Self {
        Self { path: path.to_owned(), identity: identity(path).ok() }
    }

    /// Fails if the file is no longer the one at its path.
    pub(super) fn check(&self) -> io::Result<()> {
        let Some(opened) = self.identity else { return Ok(()) };
        let path = self.path.display();
        match identity(&self.path) {
            Ok(found) if found == opened => Ok(()),
            Ok(_) => Err(io::Error::other(format!(
                "the database file {path} was replaced while it was open: restart the server, which then reads the new one"
            ))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(io::Error::other(format!(
                "the database file {path} was deleted or moved while it was open: put it back, or restart the server, \
                 which then begins with an empty one"
            ))),
            Err(error) => Err(error),
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = std::fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

//! Files of tokens, read again when they change, so that tokens are rotated without a
//! restart.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use checkdam_net::read_text_file;

use super::token::{TokenError, TokenSet};
use crate::polled_file::{PolledFile, can_be_polled};

/// How often the files are read.
const POLL: Duration = Duration::from_millis(500);
/// The longest file: some hundred tokens.
const BYTES_MAX: u64 = 64 << 10;

/// The text of a file, which must contain something.
pub(super) fn read(path: &Path) -> Result<String, TokenError> {
    let shown = || path.display().to_string();
    match read_text_file(path, BYTES_MAX) {
        Ok(text) if text.trim().is_empty() => Err(TokenError::EmptyFile { path: shown() }),
        Ok(text) => Ok(text),
        Err(reason) => Err(TokenError::Unreadable { path: shown(), reason }),
    }
}

/// Follows the files of these tokens until the program ends. A file that cannot be used
/// leaves its tokens as they are.
pub async fn follow_token_files(sets: Vec<Arc<TokenSet>>) {
    let mut followed: Vec<FollowedFile> = sets.into_iter().filter_map(FollowedFile::new).collect();
    while !followed.is_empty() {
        tokio::time::sleep(POLL).await;
        let polled = tokio::task::spawn_blocking(move || {
            followed.iter_mut().for_each(FollowedFile::poll);
            followed
        });
        // It fails only while the program ends.
        let Ok(polled) = polled.await else { return };
        followed = polled;
    }
}

struct FollowedFile {
    tokens: Arc<TokenSet>,
    text: PolledFile<String>,
}

impl FollowedFile {
    fn new(tokens: Arc<TokenSet>) -> Option<Self> {
        tokens.file()?;
        Some(Self { tokens, text: PolledFile::new(String::new()) })
    }

    fn poll(&mut self) {
        let Some(path) = self.tokens.file().filter(|path| can_be_polled(path)) else { return };
        let now = read(path).map_err(|error| error.to_string());
        if !self.text.poll(now, false) {
            return;
        }
        let what = self.tokens.what();
        let replaced = match &self.text.accepted {
            Ok(text) => self.tokens.replace(text).map_err(|error| error.to_string()),
            Err(error) => Err(error.clone()),
        };
        match replaced {
            Ok(Some(count)) => tracing::info!(count, "{what} was read again from its file"),
            Ok(None) => {}
            Err(error) => tracing::warn!(error, "{what} stays as it was: its file cannot be used"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::token::Separators;
    use super::*;

    const FIRST: &str = "0123456789abcdef";
    const SECOND: &str = "fedcba9876543210";

    #[test]
    fn a_file_is_followed_and_an_unusable_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write(FIRST);
        let tokens = Arc::new(TokenSet::from_file("the API token", &path, Separators::CommasAndLines).unwrap());
        let mut file = FollowedFile::new(Arc::clone(&tokens)).unwrap();
        let mut poll_twice = || (file.poll(), file.poll());
        let accepted = || [FIRST, SECOND].map(|token| tokens.contains(token.as_bytes()));
        poll_twice();
        assert_eq!(accepted(), [true, false]);
        write(&format!("{FIRST}\n{SECOND}\n"));
        poll_twice();
        assert_eq!(accepted(), [true, true]);
        for unusable in ["", "short"] {
            write(unusable);
            poll_twice();
            assert_eq!(accepted(), [true, true], "{unusable:?}");
        }
        std::fs::remove_file(&path).unwrap();
        poll_twice();
        assert_eq!(accepted(), [true, true], "removed");
        write(SECOND);
        poll_twice();
        assert_eq!(accepted(), [false, true]);
    }

    #[test]
    fn a_text_counts_once_two_polls_agree() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, FIRST).unwrap();
        let tokens = Arc::new(TokenSet::from_file("the API token", &path, Separators::CommasAndLines).unwrap());
        let mut file = FollowedFile::new(Arc::clone(&tokens)).unwrap();
        std::fs::write(&path, SECOND).unwrap();
        file.poll();
        assert!(tokens.contains(FIRST.as_bytes()));
        file.poll();
        assert!(tokens.contains(SECOND.as_bytes()));
    }

    #[test]
    fn a_file_without_end_or_text_is_rejected() {
        let refused = |path: &str| read(Path::new(path)).unwrap_err().to_string();
        assert!(refused("/dev/zero").contains("longer than 64 KiB"));
        assert!(refused("/dev/null").contains("is empty"));
        assert!(refused("/nowhere/token").contains("cannot read /nowhere/token"));
    }
}

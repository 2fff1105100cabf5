//! Files of tokens, read again when they change, so that tokens are rotated without a
//! restart.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use checkdam_net::{file_text, read_regular_file};

use super::token::{TokenError, TokenSet};
use crate::polled_file::PolledFile;

/// How often the files are read.
const POLL: Duration = Duration::from_millis(500);
/// The longest file: some hundred tokens.
const BYTES_MAX: u64 = 64 << 10;

/// The text of a file, which must contain something.
pub(super) fn read(path: &Path) -> Result<String, TokenError> {
    let shown = || path.display().to_string();
    match read_regular_file(path, BYTES_MAX).and_then(file_text) {
        Ok(text) if text.trim().is_empty() => Err(TokenError::EmptyFile { path: shown() }),
        Ok(text) => Ok(text),
        Err(reason) => Err(TokenError::Unreadable { path: shown(), reason }),
    }
}

/// Follows the files of these tokens until the program ends. A file that cannot be used
/// leaves its tokens as they are.
pub async fn follow_token_files(sets: Vec<Arc<TokenSet>>) {
    let mut followed: Vec<FollowedFile> = sets.iter().filter_map(|tokens| FollowedFile::new(tokens, &sets)).collect();
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
    /// Those of which it may have none.
    others: Vec<Arc<TokenSet>>,
    text: PolledFile<String>,
    /// Whether the accepted text was applied.
    is_applied: bool,
    /// Why the last text was not applied, as it was logged.
    logged: Option<String>,
}

impl FollowedFile {
    fn new(tokens: &Arc<TokenSet>, all: &[Arc<TokenSet>]) -> Option<Self> {
        tokens.file()?;
        let others = all.iter().filter(|other| !Arc::ptr_eq(other, tokens)).cloned().collect();
        let (text, tokens) = (PolledFile::new(String::new()), Arc::clone(tokens));
        Some(Self { tokens, others, text, is_applied: true, logged: None })
    }

    fn poll(&mut self) {
        let Some(path) = self.tokens.file() else { return };
        let now = read(path).map_err(|error| error.to_string());
        if self.text.poll(now, false) {
            self.is_applied = false;
        }
        if !self.is_applied {
            self.apply();
        }
    }

    /// Applies what was read. A token that another set has too may be withdrawn there later,
    /// so this is tried again. Two sets can exchange tokens only through a third one.
    fn apply(&mut self) {
        let what = self.tokens.what();
        let replaced = match &self.text.accepted {
            Ok(text) => self.tokens.replace(text, &self.others),
            Err(_) => Ok(None),
        };
        self.is_applied = !matches!(replaced, Err(TokenError::Shared { .. }));
        if let Ok(Some(count)) = replaced {
            tracing::info!(count, "{what} was read again from its file");
        }
        let error = replaced.err().map(|error| error.to_string()).or_else(|| self.text.accepted.clone().err());
        if let Some(error) = error.as_ref().filter(|error| self.logged.as_ref() != Some(error)) {
            tracing::warn!(error, "{what} stays as it was: its file cannot be used");
        }
        self.logged = error;
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
        let mut file = FollowedFile::new(&tokens, &[]).unwrap();
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
    fn a_token_of_another_set_is_accepted_once_that_has_withdrawn_it() {
        let folder = tempfile::tempdir().unwrap();
        let (api_file, admin_file) = (folder.path().join("api"), folder.path().join("admin"));
        std::fs::write(&api_file, FIRST).unwrap();
        std::fs::write(&admin_file, SECOND).unwrap();
        let set = |what, path| Arc::new(TokenSet::from_file(what, path, Separators::Lines).unwrap());
        let (api, admin) = (set("the API token", &api_file), set("the admin token", &admin_file));
        let all = [Arc::clone(&api), Arc::clone(&admin)];
        assert!(api.require_distinct([&admin].into_iter()).is_ok());
        let (mut of_api, mut of_admin) =
            (FollowedFile::new(&api, &all).unwrap(), FollowedFile::new(&admin, &all).unwrap());
        std::fs::write(&api_file, SECOND).unwrap();
        for _ in 0..3 {
            of_api.poll();
        }
        assert!(api.contains(FIRST.as_bytes()) && !api.contains(SECOND.as_bytes()));
        let logged = of_api.logged.clone().unwrap();
        assert!(logged.starts_with("the API token is the same as the admin token: give api_token,"), "{logged}");
        std::fs::write(&admin_file, FIRST.repeat(2)).unwrap();
        for _ in 0..2 {
            of_admin.poll();
        }
        of_api.poll();
        assert!(api.contains(SECOND.as_bytes()) && !admin.contains(SECOND.as_bytes()) && of_api.logged.is_none());
    }

    #[test]
    fn a_text_counts_once_two_polls_agree() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, FIRST).unwrap();
        let tokens = Arc::new(TokenSet::from_file("the API token", &path, Separators::CommasAndLines).unwrap());
        let mut file = FollowedFile::new(&tokens, &[]).unwrap();
        std::fs::write(&path, SECOND).unwrap();
        file.poll();
        assert!(tokens.contains(FIRST.as_bytes()));
        file.poll();
        assert!(tokens.contains(SECOND.as_bytes()));
    }

    #[test]
    fn a_file_that_is_long_or_empty_or_no_regular_file_is_rejected() {
        let refused = |path: &str| read(Path::new(path)).unwrap_err().to_string();
        let folder = tempfile::tempdir().unwrap();
        let written = |text: &str| {
            let path = folder.path().join("token");
            std::fs::write(&path, text).unwrap();
            refused(path.to_str().unwrap())
        };
        assert!(written(&"x".repeat(BYTES_MAX as usize + 1)).contains("longer than 64 KiB"));
        assert!(written(" \n").contains("is empty"));
        assert!(refused("/dev/zero").contains("not a regular file"));
        assert!(refused("/nowhere/token").contains("cannot read /nowhere/token"));
    }
}

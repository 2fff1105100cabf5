//! Errors of commands, by exit code.

/// Why a rulebook was not read or changed.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct CommandError {
    pub(super) kind: ErrorKind,
    pub(super) reason: String,
}

/// Kinds of failures with different exit codes or reactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorKind {
    NotFound,
    Exists,
    Changed,
    /// The result would be invalid.
    Invalid,
    /// It cannot be done, for another reason.
    Refused,
    /// The server or database cannot be reached.
    Unavailable,
}

impl From<checkdam::SpecError> for CommandError {
    fn from(error: checkdam::SpecError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl CommandError {
    pub(super) fn new(kind: ErrorKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into() }
    }

    pub(super) fn invalid(reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, reason)
    }

    /// The same with advice, if it is of that kind.
    pub(super) fn advise(mut self, kind: ErrorKind, advice: &str) -> Self {
        if self.kind == kind {
            self.reason = format!("{}: {advice}", self.reason);
        }
        self
    }

    /// The exit code: 1 if the request was rejected, 2 if there was no response.
    pub(crate) fn exit_code(&self) -> u8 {
        if self.kind == ErrorKind::Unavailable { 2 } else { 1 }
    }
}

//! Errors of calls to Redis, and how each of them is handled.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::script;
use crate::time::{SECOND_US, rfc3339};

/// Why a call to a server failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// Too many requests are queued, or the breaker is open: nothing was sent.
    #[error("the store is not asked: {reason}")]
    NotSent {
        /// Why.
        reason: &'static str,
    },
    /// No connection could be made: nothing was done.
    #[error("the store cannot be reached: {reason}")]
    Unreachable {
        /// The connection's error.
        reason: String,
    },
    /// No reply in time: whether it was executed is unknown.
    #[error("the store did not answer before the deadline")]
    TimedOut,
    /// It read the request after the deadline, and did nothing.
    #[error("the store read the request after the deadline")]
    Expired,
    /// The connection failed: whether it did anything is unknown.
    #[error("the connection to the store failed: {reason}")]
    Disconnected {
        /// The connection's error.
        reason: String,
    },
    /// It is in no state to decide (BUSY, OOM, LOADING, NOPERM and the like),
    /// and did nothing.
    #[error("the store refused: {reason}")]
    Refused {
        /// The server's error.
        reason: String,
    },
    /// It could not make sense of this request; others may fare better.
    #[error("the store could not decide: {reason}")]
    Failed {
        /// The server's error.
        reason: String,
    },
    /// The keys are elsewhere, or will be; nothing was done.
    #[error("the keys have moved: {reason}")]
    Moved {
        /// The server's error.
        reason: String,
        /// The server to redirect to, if given.
        to: Option<String>,
        /// Whether only this once.
        is_ask: bool,
    },
    /// The keys are on two servers while their slot migrates; nothing was done.
    #[error("the keys are on two servers for the moment: {reason}")]
    TryAgain {
        /// The server's error.
        reason: String,
    },
}

impl CallError {
    /// What an error of the client library means. Only an error that the server
    /// itself sent proves that nothing was done.
    pub(super) fn of(error: &RedisError) -> Self {
        // The server's own text: the client library renames the codes that it knows.
        let reason = match error.code() {
            Some(code) => format!("{code} {}", error.detail().unwrap_or_default()),
            None => error.to_string(),
        };
        let ErrorKind::Server(kind) = error.kind() else {
            return match error.code() {
                // A key that is not ours: of no consequence for any other.
                Some("WRONGTYPE") => Self::Failed { reason },
                Some(_) => Self::Refused { reason },
                None if error.is_timeout() => Self::TimedOut,
                None => Self::Disconnected { reason },
            };
        };
        match kind {
            ServerErrorKind::Moved | ServerErrorKind::Ask => Self::Moved {
                to: error.redirect_node().map(|(address, _)| address.to_owned()),
                is_ask: kind == ServerErrorKind::Ask,
                reason,
            },
            ServerErrorKind::TryAgain => Self::TryAgain { reason },
            ServerErrorKind::ClusterDown => Self::Moved { reason, to: None, is_ask: false },
            ServerErrorKind::ResponseError | ServerErrorKind::CrossSlot | ServerErrorKind::ExecAbort => {
                Self::Failed { reason }
            }
            _ => Self::Refused { reason },
        }
    }

    /// The server's time is in none of the calendar windows around this node's time.
    pub(super) fn clocks_apart(server_us: u64) -> Self {
        let shown = rfc3339(script::unix_us(server_us) / SECOND_US);
        let reason = format!(
            "its clock shows {shown}, which is more than a window of the calendar from this node's time: set both \
             clocks, for example by NTP"
        );
        Self::Failed { reason }
    }

    /// Whether the connection is of no use any more, or leads to a server that
    /// is no longer the master.
    pub(super) fn breaks_connection(&self) -> bool {
        match self {
            Self::Disconnected { .. } => true,
            Self::Refused { reason } => reason.starts_with("READONLY") || reason.starts_with("MASTERDOWN"),
            _ => false,
        }
    }

    /// Whether it counts as a failure of the server: not if only this request was at
    /// fault, or if the server redirected it, which shows that it works.
    pub(super) fn counts_against_server(&self) -> bool {
        match self {
            Self::Failed { .. } | Self::TryAgain { .. } => false,
            Self::Moved { to, .. } => to.is_none(),
            _ => true,
        }
    }
}

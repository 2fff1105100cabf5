//! The result of one request.

use std::io::{self, ErrorKind};

use checkdam::DecidedBy;

/// The response of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestResult {
    pub(crate) verdict: ServerVerdict,
    /// HTTP's, always; gRPC's, if nothing was decided.
    pub(crate) status: Option<u16>,
    pub(crate) decided_by: Option<DecidedBy>,
    /// Whether a limit applied to it, where the response has that.
    pub(crate) has_limit: Option<bool>,
    pub(crate) sent_bytes: usize,
    pub(crate) received_bytes: usize,
}

/// The decision in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerVerdict {
    Allowed,
    Limited,
    /// Neither: the server did not decide.
    Undecided,
}

/// Why there was no response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestFailure {
    /// The connection was refused.
    Refused,
    /// The connection ended before the answer.
    Reset,
    /// The answer did not come in time.
    Timeout,
    /// Anything else, in words.
    Other(String),
}

impl From<io::Error> for RequestFailure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::ConnectionRefused => Self::Refused,
            ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::NotConnected
            | ErrorKind::UnexpectedEof => Self::Reset,
            ErrorKind::TimedOut => Self::Timeout,
            _ => Self::Other(error.to_string()),
        }
    }
}

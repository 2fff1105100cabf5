//! A load-generating client: sends one request after the other.

use std::io::{self, ErrorKind};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use checkdam::DecidedBy;

use super::key_distribution::KeyGenerator;
use super::schedule::Schedule;
use super::tally::LoadTally;

/// The pause of a closed-loop client after a refused connection.
const PAUSE: Duration = Duration::from_millis(10);

/// How requests reach a server. A request that is cancelled while it waits must leave
/// no response that could be taken for a later one's.
pub(super) trait Client: Send {
    /// Connects, if it is not connected. A failure is reported by the next `send`.
    fn connect(&mut self) -> impl Future<Output = ()> + Send;

    /// Sends the request of a key, and waits for its response.
    fn send(&mut self, key: u64) -> impl Future<Output = Result<RequestResult, RequestFailure>> + Send;
}

#[derive(Debug, Clone, Copy)]
pub struct RequestResult {
    pub verdict: ServerVerdict,
    /// HTTP's, always; gRPC's, if nothing was decided.
    pub status: Option<u16>,
    pub decided_by: Option<DecidedBy>,
    /// Whether a limit applied to it, where the response has that.
    pub has_limit: Option<bool>,
    pub sent_bytes: usize,
    pub received_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerVerdict {
    Allowed,
    Limited,
    /// Neither: the server did not decide.
    Undecided,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestFailure {
    Refused,
    /// The connection ended before the answer.
    Reset,
    Timeout,
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

/// Sends requests by the schedule, and tallies the results.
pub(super) async fn run(
    client: &mut impl Client,
    keys: &mut KeyGenerator,
    schedule: &Schedule,
    tally: &Mutex<LoadTally>,
) {
    while let Some(turn) = schedule.next().await {
        let answered = tokio::time::timeout(schedule.timeout(), client.send(keys.next_key())).await;
        let answered = answered.unwrap_or(Err(RequestFailure::Timeout));
        let is_refused = matches!(answered, Err(RequestFailure::Refused | RequestFailure::Other(_)));
        tally.lock().unwrap_or_else(PoisonError::into_inner).count(&turn, answered);
        if is_refused && !schedule.is_open() {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

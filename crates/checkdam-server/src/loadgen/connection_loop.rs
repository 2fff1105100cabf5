//! The loop of one load-generating client: sends one request after the other.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::key_distribution::KeyGenerator;
use super::request_result::{RequestFailure, RequestResult};
use super::schedule::Schedule;
use super::tally::LoadTally;

/// The pause of a closed-loop client after a refused connection.
const PAUSE: Duration = Duration::from_millis(10);

/// How requests reach a server. A request that is cancelled while it waits must leave
/// no response that could be taken for a later one's.
pub(crate) trait Client: Send {
    /// Connects, if it is not connected. A failure is reported by the next `send`.
    fn connect(&mut self) -> impl Future<Output = ()> + Send;

    /// Sends the request of a key, and waits for its response.
    fn send(&mut self, key: u64) -> impl Future<Output = Result<RequestResult, RequestFailure>> + Send;
}

/// Sends requests by the schedule, and tallies the results.
pub(crate) async fn run(
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

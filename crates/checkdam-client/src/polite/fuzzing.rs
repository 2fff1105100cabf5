//! Entry points of the fuzz targets: the rate-limit headers of responses.

use http::{HeaderMap, StatusCode};

use super::backoff::Backoff;
use super::pace::{Pace, Turn};
use super::signal::Signal;

/// The wait that `Retry-After` demands, in microseconds; `None` if the response is no denial or
/// demands none.
pub fn retry_after_us(response: &(StatusCode, HeaderMap)) -> Option<u64> {
    Signal::read(response).retry_after_us
}

/// What remains of the limit that is nearest to exhaustion.
pub fn remaining(response: &(StatusCode, HeaderMap)) -> Option<u64> {
    Signal::read(response).standing.map(|standing| standing.remaining)
}

/// When the next call may be sent after each of these responses, which arrive one second apart
/// from the time 0; `None` if not before another response.
pub fn next_calls_us(responses: &[(StatusCode, HeaderMap)]) -> Vec<Option<u64>> {
    let mut pace = Pace::new(2, 1_000_000, Backoff::seeded(100_000, 10_000_000, 7));
    let times = (0..).step_by(1_000_000);
    let next = |(now_us, response): (u64, &(StatusCode, HeaderMap))| {
        pace.sent(now_us);
        pace.answered(now_us, Signal::read(response));
        match pace.next(now_us) {
            Turn::Now => Some(now_us),
            Turn::At(then_us) => Some(then_us),
            Turn::AfterAnswer => None,
        }
    };
    times.zip(responses).map(next).collect()
}

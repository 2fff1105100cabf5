//! Options of the polite client.

use std::time::Duration;

/// Options of a polite caller.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PoliteOptions {
    /// The maximum number of waiting calls; more fail at once. Default: 1,024.
    pub queue_max: usize,
    /// The maximum number of calls in flight. Default: 64.
    pub in_flight_max: usize,
    /// The longest interval between calls while tokens remain. Default: 10 s.
    pub space_max: Duration,
    /// The maximum number of attempts of one call; then the denial is returned.
    /// Default: 5.
    pub attempts_max: u32,
    /// The longest wait for a limit to reset, or for `Retry-After`; a longer one is an
    /// error. Default: 60 s.
    pub wait_max: Duration,
    /// The longest first delay if a denial has no `Retry-After`; it doubles with every
    /// denial in a row. Default: 200 ms.
    pub backoff: Duration,
    /// The longest of these delays. Default: 30 s.
    pub backoff_max: Duration,
}

impl Default for PoliteOptions {
    fn default() -> Self {
        Self {
            queue_max: 1_024,
            in_flight_max: 64,
            space_max: Duration::from_secs(10),
            attempts_max: 5,
            wait_max: Duration::from_secs(60),
            backoff: Duration::from_millis(200),
            backoff_max: Duration::from_secs(30),
        }
    }
}

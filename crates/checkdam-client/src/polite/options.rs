//! Options of the polite client.

use std::time::Duration;

/// How a polite caller behaves.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PoliteOptions {
    /// The most that wait for their turn; more are turned away at once.
    /// Default: 1,024.
    pub queue_max: usize,
    /// The most calls under way at a time. Default: 64.
    pub in_flight_max: usize,
    /// The longest space between calls while some are left, however long they
    /// have to last. Default: 10 s.
    pub space_max: Duration,
    /// How often one call is made in all, until it is not refused; then the
    /// refusal is handed out. Default: 5.
    pub attempts_max: u32,
    /// The longest wait for what a server has to give again, or asks for in a
    /// refusal; a longer one is an error instead. Default: 60 s.
    pub wait_max: Duration,
    /// The longest first wait where a refusal does not say how long; it doubles
    /// with every refusal in a row. Default: 200 ms.
    pub backoff: Duration,
    /// The longest of these waits. Default: 30 s.
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

//! Waits for a condition, with a deadline.

use std::thread::sleep;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(10);

/// Polls `condition` until it holds. Panics with `what` when it does not hold within `limit`.
pub fn wait_until(what: &str, limit: Duration, condition: impl FnMut() -> bool) {
    assert!(holds_within(limit, condition), "gave up after {limit:?} waiting for: {what}");
}

/// Polls `condition`; false when it did not hold within `limit`.
pub(crate) fn holds_within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        sleep(POLL);
    }
}

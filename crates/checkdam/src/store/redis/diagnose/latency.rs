//! Measures the server's round-trip time and clock offset.

use std::time::Duration;

use redis::RedisError;
use tokio::time::Instant;

use super::Finding;
use super::probe::{Probe, REPLY_TIMEOUT};
use crate::store::redis::{RedisOptions, is_near_enough};
use crate::time::{Clock, EPOCH_UNIX_US, SECOND_US, SystemClock};

/// So many round trips are measured, unless they take longer than our patience.
const SAMPLES: usize = 200;
/// Clocks that differ by more are not in step.
const OFFSET_MAX_US: u64 = SECOND_US;

/// Asks for the time repeatedly: how long that takes, and the server's clock less ours.
pub(super) async fn measure(probe: &mut Probe, options: &RedisOptions) -> (Vec<Finding>, Option<i64>) {
    match sample(probe).await {
        Ok((mut trips, offset_us)) => {
            trips.sort_unstable();
            let deadline = options.deadline_for(trips.first().copied());
            (vec![round_trip(&trips, deadline), clock(offset_us)], Some(offset_us))
        }
        Err(error) => {
            let remedy = "grant +time: decisions need the server's clock";
            (vec![Finding::problem("clock", error.to_string(), remedy)], None)
        }
    }
}

/// The round trips, and the server's clock less ours as the shortest of them
/// shows it: the server read its clock halfway.
async fn sample(probe: &mut Probe) -> Result<(Vec<Duration>, i64), RedisError> {
    let (ours, start) = (SystemClock::new(), Instant::now());
    let (mut trips, mut best) = (Vec::with_capacity(SAMPLES), (Duration::MAX, 0));
    while trips.is_empty() || (trips.len() < SAMPLES && start.elapsed() < REPLY_TIMEOUT) {
        let (asked_us, asked) = (ours.now_us(), Instant::now());
        let (seconds, micros): (i64, i64) = probe.query(&["TIME"]).await?;
        let trip = asked.elapsed();
        let halfway_us = (asked_us + EPOCH_UNIX_US) as i64 + trip.as_micros() as i64 / 2;
        best = best.min((trip, seconds * SECOND_US as i64 + micros - halfway_us));
        trips.push(trip);
    }
    Ok((trips, best.1))
}

fn round_trip(trips: &[Duration], deadline: Duration) -> Finding {
    const LOOK: &str = "round trip";
    let at = |percent: usize| trips[(trips.len() * percent / 100).min(trips.len() - 1)];
    let (middle, high, longest) = (at(50), at(99), at(100));
    let seen = format!(
        "p50 {}, p99 {}, longest {} of {}; the deadline is {}",
        ms(middle),
        ms(high),
        ms(longest),
        trips.len(),
        ms(deadline)
    );
    let remedy = format!(
        "move the server closer or relieve it, or set --store-deadline to {} or more; Envoy's own timeout, 20 ms by \
         default, must then be longer too",
        ms(3 * middle)
    );
    if !is_near_enough(middle, deadline) {
        Finding::problem(LOOK, format!("{seen}: it cannot be met, most decisions would be by failure policy"), remedy)
    } else if high > deadline / 2 {
        Finding::warning(LOOK, seen, remedy)
    } else {
        Finding::ok(LOOK, seen)
    }
}

fn clock(offset_us: i64) -> Finding {
    const LOOK: &str = "clock";
    let seen = format!("{} this machine's; decisions use the server's", difference(offset_us));
    if offset_us.unsigned_abs() <= OFFSET_MAX_US {
        return Finding::ok(LOOK, seen);
    }
    let remedy = "set both clocks by NTP: when the server's is set right, a step forward admits up to a burst more, \
                  and calendar windows begin at its time";
    Finding::warning(LOOK, seen, remedy)
}

/// How far the clocks of several servers are apart.
pub(super) fn clocks(offsets_us: &[i64]) -> Option<Finding> {
    let (least, most) = (offsets_us.iter().min()?, offsets_us.iter().max()?);
    let apart_us = most.abs_diff(*least);
    let seen = format!("the masters' clocks are within {}", ms(Duration::from_micros(apart_us)));
    Some(if apart_us <= OFFSET_MAX_US {
        Finding::ok("clocks", seen)
    } else {
        Finding::warning("clocks", seen, "set them by NTP: a slot that moves takes its buckets to another clock")
    })
}

fn difference(offset_us: i64) -> String {
    let by = ms(Duration::from_micros(offset_us.unsigned_abs()));
    if offset_us < 0 { format!("{by} behind") } else { format!("{by} ahead of") }
}

/// Milliseconds with as many digits as matter.
pub(super) fn ms(time: Duration) -> String {
    let us = time.as_micros();
    match us {
        0..10_000 => format!("{}.{:02} ms", us / 1_000, us % 1_000 / 10),
        10_000..10_000_000 => format!("{} ms", us / 1_000),
        _ => format!("{} s", us / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::diagnose::Level;

    #[test]
    fn round_trips_are_judged_by_the_deadline() {
        let deadline = Duration::from_millis(15);
        for (slow, usual_us, level) in [(0, 300, Level::Ok), (3, 300, Level::Warning), (0, 11_000, Level::Problem)] {
            let mut trips = vec![Duration::from_micros(usual_us); 200 - slow];
            trips.extend(vec![Duration::from_millis(8); slow]);
            assert_eq!(round_trip(&trips, deadline).level, level, "{slow} slow, {usual_us} µs");
        }
        assert_eq!(round_trip(&[deadline * 3 / 5], deadline).level, Level::Warning, "a single sample");
    }

    #[test]
    fn clocks_are_judged_to_the_second() {
        assert_eq!(clock(-900_000).level, Level::Ok);
        assert!(clock(-3_600_000_000).seen.starts_with("3600 s behind"), "{:?}", clock(-3_600_000_000));
        assert_eq!(clock(1_000_001).level, Level::Warning);
        assert_eq!(clocks(&[]), None);
        assert_eq!(clocks(&[-600_000, 600_000]).map(|found| found.level), Some(Level::Warning));
    }
}

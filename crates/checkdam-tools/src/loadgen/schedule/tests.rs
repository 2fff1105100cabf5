//! Tests of closed and open loops.

use std::sync::Mutex;

use super::*;
use crate::loadgen::client::{self, Client, RequestFailure, RequestResult, ServerVerdict};
use crate::loadgen::key_distribution::{KeyDistribution, KeyGenerator};
use crate::loadgen::tally::LoadTally;

const MS: Duration = Duration::from_millis(1);

fn bounds(duration: Duration, rate_per_s: Option<u64>) -> LoadOptions {
    LoadOptions {
        connections: 1,
        rate_per_s,
        duration,
        requests_max: None,
        warmup: Duration::ZERO,
        keys: 1,
        spread: KeyDistribution::One,
        timeout: Duration::from_secs(60),
        threads: None,
        seed: 1,
    }
}

/// A server that takes a millisecond for a response, and starts no request while it
/// stalls.
struct StallingServer {
    stalls_at: Instant,
    stalls_for: Duration,
}

impl Client for StallingServer {
    async fn connect(&mut self) {}

    async fn send(&mut self, _: u64) -> Result<RequestResult, RequestFailure> {
        let recovers_at = self.stalls_at + self.stalls_for;
        if Instant::now() >= self.stalls_at && Instant::now() < recovers_at {
            tokio::time::sleep_until(recovers_at).await;
        }
        tokio::time::sleep(MS).await;
        Ok(RequestResult {
            verdict: ServerVerdict::Allowed,
            status: None,
            decided_by: None,
            has_limit: None,
            sent_bytes: 1,
            received_bytes: 1,
        })
    }
}

/// Loads a server that stalls in the fourth second of ten for so long.
async fn measure(bounds: LoadOptions, clients: u64, stalls_for: Duration) -> LoadTally {
    let stalls_at = Instant::now() + Duration::from_secs(4);
    let schedule = Arc::new(Schedule::new(bounds, Arc::default()));
    let tally = Arc::new(Mutex::new(LoadTally::new().unwrap()));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..clients {
        let (schedule, tally) = (Arc::clone(&schedule), Arc::clone(&tally));
        tasks.spawn(async move {
            let mut client = StallingServer { stalls_at, stalls_for };
            client::run(&mut client, &mut KeyGenerator::new(KeyDistribution::One, 1, 1, number), &schedule, &tally)
                .await;
        });
    }
    let pacer = Arc::clone(&schedule);
    tasks.spawn(async move {
        while let Some(nap) = pacer.release_due() {
            tokio::time::sleep(nap.clamp(MS, NAP_MAX)).await;
        }
    });
    tasks.join_all().await;
    let mut tally = Arc::into_inner(tally).unwrap().into_inner().unwrap();
    schedule.unsent_waits().for_each(|waited| tally.count_unsent(waited));
    tally
}

#[tokio::test(start_paused = true)]
async fn an_open_loop_shows_a_stall_to_all_that_were_due_in_it() {
    let tally = measure(bounds(Duration::from_secs(10), Some(1_000)), 8, Duration::from_secs(2)).await;
    assert_eq!((tally.requests(), tally.unsent), (10_000, 0), "the schedule skips nothing");
    // 2,000 were due in the stall; they waited from 2 s down to nothing, and the queue
    // after them was worked off by 8 clients, that is 7,000 a second net.
    let beyond = |limit: Duration| {
        tally
            .latencies
            .iter_recorded()
            .filter(|value| value.value_iterated_to() >= limit.as_nanos() as u64)
            .map(|value| value.count_since_last_iteration())
            .sum::<u64>()
    };
    let half = beyond(Duration::from_secs(1));
    assert!((1_000..1_300).contains(&half), "{half} waited at least half of the stall");
    let all = beyond(10 * MS);
    assert!((2_000..2_500).contains(&all), "{all} felt the stall");
    assert!(tally.percentile(50.0) < 4 * MS, "{:?}", tally.percentile(50.0));
    assert!(tally.percentile(99.0) > 1_800 * MS, "{:?}", tally.percentile(99.0));
    assert!(tally.queued > 1_900, "{} waited for a client", tally.queued);
    assert!(tally.late < 10, "{} began late, but not by the server", tally.late);
}

#[tokio::test(start_paused = true)]
async fn a_closed_loop_sees_the_same_stall_once_a_client() {
    let tally = measure(bounds(Duration::from_secs(10), None), 8, Duration::from_secs(2)).await;
    let stalled = tally.latencies.iter_recorded().filter(|value| value.value_iterated_to() > 1_000_000_000);
    assert_eq!(stalled.map(|value| value.count_since_last_iteration()).sum::<u64>(), 8);
    assert!(tally.percentile(99.9) < 4 * MS, "as good as unseen: {:?}", tally.percentile(99.9));
}

#[tokio::test(start_paused = true)]
async fn what_a_dead_server_leaves_in_line_counts_with_its_waiting() {
    let bounds = LoadOptions { timeout: Duration::from_secs(1), ..bounds(Duration::from_secs(5), Some(1_000)) };
    let tally = measure(bounds, 8, Duration::from_secs(3_600)).await;
    assert_eq!(tally.requests() + tally.unsent, 5_000, "the schedule skips nothing");
    // From the fourth second on 8 clients wait for a second each: twice, and once more
    // if they are faster than the end at 6 s.
    assert_eq!(tally.allowed, 4_000);
    assert!([16, 24].contains(&tally.timeouts), "{} were waited for in vain", tally.timeouts);
    assert_eq!(tally.latencies.len(), 5_000);
    assert!(tally.percentile(99.0) > 1_900 * MS, "{:?}", tally.percentile(99.0));
}

#[tokio::test(start_paused = true)]
async fn bounds_hold_to_the_request() {
    for rate_per_s in [None, Some(1), Some(999), Some(1_000)] {
        for requests_max in [1, 7, 1_000] {
            let bounds =
                LoadOptions { requests_max: Some(requests_max), ..bounds(Duration::from_secs(2_000), rate_per_s) };
            let tally = measure(bounds, 3, Duration::ZERO).await;
            assert_eq!(tally.requests(), requests_max, "at {rate_per_s:?}");
        }
    }
    for (rate_per_s, sent) in [(1, 3), (3, 9), (999, 2_997)] {
        let bounds = LoadOptions { warmup: 1_001 * MS, ..bounds(Duration::from_secs(3), Some(rate_per_s)) };
        let tally = measure(bounds, 3, Duration::ZERO).await;
        let warmup = (1_001 * rate_per_s).div_ceil(1_000);
        assert_eq!(tally.warmup, warmup, "at {rate_per_s}/s");
        assert!(tally.requests().abs_diff(sent) <= 1, "{} at {rate_per_s}/s", tally.requests());
    }
}

#[tokio::test(start_paused = true)]
async fn what_fell_due_while_the_pacer_was_held_up_is_not_left_out() {
    let bounds = LoadOptions { timeout: Duration::from_secs(1), ..bounds(Duration::from_secs(5), Some(1_000)) };
    let schedule = Schedule::new(bounds, Arc::default());
    schedule.release_due();
    assert!(schedule.next().await.is_some());
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(schedule.release_due(), None);
    assert!(schedule.next().await.is_none());
    assert_eq!(schedule.unsent_waits().count(), 4_999);
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_both_loops_at_once() {
    for rate_per_s in [None, Some(1_000)] {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let schedule = Schedule::new(bounds(Duration::from_secs(3_600), rate_per_s), Arc::clone(&is_stopped));
        schedule.release_due();
        assert!(schedule.next().await.is_some());
        is_stopped.store(true, Ordering::Relaxed);
        assert_eq!(schedule.release_due(), None);
        assert!(schedule.next().await.is_none());
    }
}

#[test]
fn a_long_schedule_stays_exact() {
    let line = OpenLoop::new(999_983, &bounds(Duration::from_secs(3_600), None));
    for index in [0, 1, 999_982, 999_983, 3_000_000_000] {
        let due = line.due_at(index);
        assert!(line.due_by(due) >= index, "{index} is released at {due:?}");
        assert!(line.due_by(due + Duration::from_nanos(1)) > index, "{index} is released just behind {due:?}");
    }
    assert_eq!(line.due_at(999_983), Duration::from_secs(1));
    assert_eq!(line.due_by(Duration::MAX), line.total);
}

//! What nodes admit by themselves while Redis does not answer, and what of it
//! Redis learns.

use std::sync::Arc;
use std::time::Duration;

use checkdam::store::redis::{RedisOptions, RedisStore};
use checkdam::time::{ManualClock, SECOND_US};
use checkdam::{Algorithm, DecidedBy, Limiter, Quota, Request, Rule, RuleSet};

/// A store that never reaches a server, on a clock that the test sets.
fn away(nodes: u64) -> (RedisStore, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(20_000_000 * SECOND_US));
    let url = format!("redis://127.0.0.1:{}", testkit::free_port());
    let options = RedisOptions { nodes, ..RedisOptions::new(url) };
    (RedisStore::with_clock(options, Some(Arc::clone(&clock))).unwrap(), clock)
}

/// A request that would have to wait for too long is denied and charged nothing,
/// so the queue never grows beyond what may be waited for.
#[tokio::test]
async fn a_leaky_bucket_serves_its_rate_for_as_long_as_redis_is_away() {
    let (store, clock) = away(1);
    let quota = Quota::new("10/s burst 150".parse().unwrap(), Algorithm::LeakyBucket).unwrap();
    let rule = Rule::new("queue", "all".parse().unwrap(), vec![quota]);
    let limiter = Limiter::new(RuleSet::new(vec![rule]).unwrap(), store);
    let delay_max = Duration::from_secs(10);
    let mut served = Vec::new();
    for _second in 0..60 {
        let mut passed = 0;
        for _ in 0..50 {
            let outcome = limiter.check_within(&Request::new(), delay_max.as_micros() as u64).await;
            assert_eq!(outcome.decided_by(), DecidedBy::Local);
            assert!(Duration::from_micros(outcome.delay_us()) <= delay_max, "{outcome:?}");
            passed += u64::from(outcome.is_allowed());
            clock.advance(SECOND_US / 50);
        }
        served.push(passed);
    }
    let queued: u64 = served[..3].iter().sum();
    assert_eq!(queued, 101 + 29, "the queue of ten seconds, who is served at once, and the rate: {served:?}");
    assert!(served[3..].iter().all(|passed| *passed == 10), "{served:?}");
}

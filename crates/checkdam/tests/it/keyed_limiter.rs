//! The keyed limiter: one quota for each key.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::IpAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use checkdam::store::{MemoryOptions, MemoryStore};
use checkdam::time::{Clock, ManualClock};
use checkdam::{Algorithm, KeyedLimiter, Quota, QuotaError, Verdict};
use pollster::block_on;

const NOW_US: u64 = 1_000_000_000_000;

type TestLimiter<K> = KeyedLimiter<K, Arc<ManualClock>>;

fn limiter<K: std::hash::Hash + ?Sized>(text: &str, algorithm: Algorithm) -> (TestLimiter<K>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(NOW_US));
    let store = MemoryStore::with_clock(MemoryOptions { max_buckets: 10_000 }, Arc::clone(&clock));
    (KeyedLimiter::with_store(Quota::parse(text, algorithm).unwrap(), store), clock)
}

#[test]
fn each_key_has_a_bucket_of_every_algorithm() {
    for algorithm in Algorithm::ALL {
        let (limiter, _) = limiter::<str>("2/m", algorithm);
        for key in ["alice", "bob", ""] {
            assert!(limiter.peek(key).is_allowed());
            assert!(limiter.check(key).is_allowed(), "{algorithm:?}");
            assert!(limiter.check_n(key, 0).is_allowed());
            assert!(limiter.check(key).is_allowed(), "{algorithm:?}");
            let denied = limiter.check(key);
            assert_eq!(denied.verdict, Verdict::Denied, "{algorithm:?}");
            assert!(denied.retry_after().unwrap() > Duration::ZERO);
            assert_eq!(limiter.peek(key).verdict, Verdict::Denied);
            limiter.refund(key, 1);
            if algorithm != Algorithm::SlidingLog {
                assert!(limiter.check(key).is_allowed(), "{algorithm:?}");
            }
            limiter.reset(key);
            assert!(limiter.check_n(key, 2).is_allowed(), "{algorithm:?}");
            let never = limiter.check_n(key, 3);
            assert_eq!((never.verdict, never.retry_after()), (Verdict::CostExceedsBurst, None));
        }
    }
}

#[test]
fn a_denied_check_passes_at_exactly_retry_after() {
    for algorithm in Algorithm::ALL {
        let (limiter, clock) = limiter::<str>("3/s", algorithm);
        assert!(limiter.check_n("k", 3).is_allowed());
        let wait = limiter.check_n("k", 2).retry_after().unwrap();
        clock.advance(wait.as_micros() as u64 - 1);
        assert!(!limiter.check_n("k", 2).is_allowed(), "{algorithm:?}");
        clock.advance(1);
        assert!(limiter.check_n("k", 2).is_allowed(), "{algorithm:?}");
    }
}

#[test]
fn keys_are_of_any_type_that_can_be_hashed() {
    let by_address = KeyedLimiter::<IpAddr>::new("1/h").unwrap();
    assert!(by_address.check(&"192.0.2.1".parse().unwrap()).is_allowed());
    assert!(!by_address.check(&"192.0.2.1".parse().unwrap()).is_allowed());
    assert!(by_address.check(&"2001:db8::1".parse().unwrap()).is_allowed());
    let by_pair = KeyedLimiter::new("1/h").unwrap();
    assert!(by_pair.check(&("alice", 1_u8)).is_allowed() && by_pair.check(&("alice", 2)).is_allowed());
    let single = KeyedLimiter::<()>::new("1/h").unwrap();
    assert!(single.check(&()).is_allowed() && !single.check(&()).is_allowed());
    let by_name = KeyedLimiter::<str>::new("1/h").unwrap();
    assert!(by_name.check(&String::from("alice")).is_allowed() && !by_name.check("alice").is_allowed());
    // No two of many similar keys share a bucket.
    let by_number = KeyedLimiter::<u64>::new("1/h").unwrap();
    assert!((0..100_000).all(|number| by_number.check(&number).is_allowed()));
    assert!((0..100_000).all(|number| by_number.check(&(number << 40 | 1 << 63)).is_allowed()));
}

#[test]
fn a_quota_that_cannot_be_counted_is_rejected() {
    assert!(matches!(KeyedLimiter::<str>::new("ten/s"), Err(QuotaError::Syntax { .. })));
    assert!(matches!(KeyedLimiter::<str>::new("0/s"), Err(QuotaError::Zero { .. })));
}

#[test]
fn memory_is_bounded_and_windows_that_passed_are_forgotten_without_a_call() {
    for algorithm in Algorithm::ALL {
        let (limiter, clock) = limiter::<u64>("1/s", algorithm);
        for number in 0..50_000 {
            assert!(limiter.check(&number).is_allowed() || algorithm != Algorithm::TokenBucket || number > 1_000);
            clock.advance(1_000);
        }
        // At one key a millisecond about a thousand, or two thousand, count at a time.
        let stats = limiter.stats();
        assert!(stats.buckets <= 4_500, "{algorithm:?} {stats:?}");
        assert_eq!(stats.evicted, 0, "{algorithm:?}");
    }
}

#[test]
fn callers_that_wait_pass_no_faster_than_the_quota() {
    let limiter = KeyedLimiter::<str>::new("1000/s burst 5").unwrap();
    let began_us = limiter.store().clock().now_us();
    let wait_often = || (0..25).for_each(|_| assert!(block_on(limiter.until_ready("k")).is_allowed()));
    thread::scope(|scope| {
        scope.spawn(wait_often);
        scope.spawn(wait_often);
    });
    let passed_us = limiter.store().clock().now_us() - began_us;
    assert!(passed_us >= 45_000, "50 with a burst of 5 need 45 ms, and took {passed_us} µs");
}

#[test]
fn waiting_for_more_than_the_burst_is_an_error_at_once() {
    let limiter = KeyedLimiter::new("1/h burst 5").unwrap();
    let error = block_on(limiter.until_ready_n("k", 6)).unwrap_err();
    assert_eq!((error.cost, error.limit), (6, 5));
    assert!(block_on(limiter.until_ready_n("k", 5)).is_ok());
}

#[test]
fn a_leaky_bucket_is_waited_for() {
    let quota = Quota::parse("1000/s burst 10", Algorithm::LeakyBucket).unwrap();
    let limiter = KeyedLimiter::with_store(quota, MemoryStore::default());
    let began_us = limiter.store().clock().now_us();
    for _ in 0..4 {
        assert!(block_on(limiter.until_ready("k")).is_allowed());
    }
    assert!(limiter.store().clock().now_us() - began_us >= 2_000);
}

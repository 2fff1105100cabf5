//! A distant Redis, over a link with real delay, decides as many requests as a nearby
//! one.

use std::env;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use checkdam::DecidedBy;
use checkdam::store::redis::RedisOptions;
use testkit::FarRedis;

use crate::setup::{Taken, buckets, count_by, percentile, quota, store, take, wait_for_redis};

const ROUND_TRIPS_MS: [u64; 4] = [1, 2, 5, 10];
const PER_SECOND: u32 = 3_000;
const LASTS: Duration = Duration::from_secs(2);
const URL: &str = "CHECKDAM_TEST_FAR_URL";
const ROUND_TRIP: &str = "CHECKDAM_TEST_ROUND_TRIP_MS";

#[test]
#[ignore = "needs root, /dev/net/tun and a machine that does nothing else: ./test --far"]
fn a_far_redis_decides_as_much_as_a_near_one() {
    for round_trip_ms in ROUND_TRIPS_MS {
        let far = FarRedis::start(Duration::from_millis(round_trip_ms));
        let mut command: Command = far.command(&env::current_exe().unwrap());
        let test = ["--exact", "distance::checks_over_a_long_way", "--ignored", "--nocapture"];
        let run = command.args(test).env(URL, far.url()).env(ROUND_TRIP, round_trip_ms.to_string()).output().unwrap();
        let text = String::from_utf8_lossy(&run.stdout);
        println!("{text}");
        assert!(run.status.success() && text.contains("1 passed"), "{}", String::from_utf8_lossy(&run.stderr));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs at one end of the link"]
async fn checks_over_a_long_way() {
    let (Ok(url), Ok(round_trip_ms)) = (env::var(URL), env::var(ROUND_TRIP)) else {
        panic!("{URL} and {ROUND_TRIP} are not set: a_far_redis_decides_as_much_as_a_near_one runs this");
    };
    let round_trip = Duration::from_millis(round_trip_ms.parse().unwrap());
    let (quota, buckets) = (quota("1000000/s burst 1000000"), Arc::new(buckets("far", 100)));
    let store = store(RedisOptions::new(url));
    wait_for_redis(&store, buckets[0][0].tier(&quota, 1)).await;
    let began = Instant::now();
    let mut asking = Vec::new();
    // An open loop: requests are sent on schedule, whether or not earlier ones are
    // answered. A closed loop would send fewer to a slow server.
    for number in 0..(PER_SECOND * LASTS.as_secs() as u32) {
        tokio::time::sleep_until((began + number * Duration::from_secs(1) / PER_SECOND).into()).await;
        let (store, buckets, bucket) = (Arc::clone(&store), Arc::clone(&buckets), number as usize % buckets.len());
        asking.push(tokio::spawn(async move {
            let began = Instant::now();
            let (decision, by) = take(&store, buckets[bucket][0].tier(&quota, 1)).await;
            Taken { bucket, at_us: 0, is_allowed: decision.is_allowed(), by, began, took: began.elapsed() }
        }));
    }
    let mut taken = Vec::new();
    for one in asking {
        taken.push(one.await.unwrap());
    }
    let (by_redis, p50, p99) = (count_by(&taken, DecidedBy::Redis), percentile(&taken, 0.5), percentile(&taken, 0.99));
    println!(
        "{round_trip:?}: {by_redis} of {} by Redis, p50 {p50:?}, p99 {p99:?}, slowest {:?}, measured {:?}, {:?}",
        taken.len(),
        percentile(&taken, 1.0),
        store.round_trip(),
        store.stats()
    );
    assert!(by_redis * 1_000 >= taken.len() * 999, "{by_redis} of {} were decided by Redis", taken.len());
    assert!(p99 < 3 * round_trip, "p99 is {p99:?} over {round_trip:?}");
}

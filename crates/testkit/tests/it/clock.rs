//! The server's wall clock moves on request, for TIME, for scripts and for expiry.

use std::time::{SystemTime, UNIX_EPOCH};

use testkit::{Engine, Redis, Reply};

const HOUR_US: i64 = 3_600_000_000;
/// How far apart two readings of one clock may be on a busy machine.
const SLACK_US: i64 = 2_000_000;

fn machine_us() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

fn assert_offset(server: &Redis, offset_us: i64) {
    let found_us = server.time_us() - machine_us();
    assert!((found_us - offset_us).abs() < SLACK_US, "the clock is off by {found_us} us, not {offset_us}");
}

#[test]
fn the_clock_steps_forwards_and_back_on_each_engine() {
    for engine in [Engine::Redis, Engine::Valkey] {
        let server = Redis::builder().engine(engine).with_clock_shim().start();
        assert_offset(&server, 0);
        server.step_clock(HOUR_US);
        assert_offset(&server, HOUR_US);
        server.step_clock(-3 * HOUR_US - 999_999);
        assert_offset(&server, -2 * HOUR_US - 999_999);
        server.restart();
        assert_offset(&server, -2 * HOUR_US - 999_999);
    }
}

#[test]
fn a_step_reaches_scripts_and_expires_keys() {
    let server = Redis::builder().with_clock_shim().start();
    server.command(&["SET", "key", "value", "EX", "600"]).expect_ok();
    server.step_clock(HOUR_US);
    let in_script = server.command(&["EVAL", "return redis.call('TIME')[1]", "0"]).int();
    assert!((in_script - (machine_us() + HOUR_US) / 1_000_000).abs() <= SLACK_US / 1_000_000);
    assert_eq!(server.command(&["GET", "key"]), Reply::Nil);
}

#[test]
#[should_panic(expected = "with_clock_shim")]
fn a_clock_that_is_not_ours_cannot_be_stepped() {
    Redis::start().step_clock(1);
}

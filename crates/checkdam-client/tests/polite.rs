//! The polite client in virtual time: order, timeouts, and what it does not retry.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail loudly")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use checkdam_client::{Polite, PoliteError, PoliteOptions};
use http::{Response, StatusCode};
use tokio::time::{Instant, sleep, timeout};

type Answer = Result<Response<()>, &'static str>;

fn answer(status: u16, headers: &[(&str, &str)]) -> Answer {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    Ok(response.body(()).unwrap())
}

/// A server whose answers are written down beforehand; then it answers 200.
#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    calls: Arc<Mutex<Vec<(usize, Instant)>>>,
}

impl Script {
    fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self { answers: Arc::new(Mutex::new(answers.into_iter().collect())), ..Self::default() }
    }

    async fn call(&self, caller: usize) -> Answer {
        self.calls.lock().unwrap().push((caller, Instant::now()));
        sleep(Duration::from_millis(10)).await;
        self.answers.lock().unwrap().pop_front().unwrap_or_else(|| answer(200, &[]))
    }

    fn calls(&self) -> Vec<(usize, Instant)> {
        self.calls.lock().unwrap().clone()
    }
}

fn options() -> PoliteOptions {
    PoliteOptions::default()
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_is_repeated_when_the_server_said() {
    let script = Script::new([answer(429, &[("retry-after", "7")]), answer(503, &[("retry-after", "2")])]);
    let response = Polite::new(options()).call(|| script.call(0)).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let calls = script.calls();
    let waits: Vec<_> = calls.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
    assert!(waits[0] >= Duration::from_secs(7) && waits[0] < Duration::from_millis(7_100), "{waits:?}");
    // The second in a row adds a little that is random.
    assert!(waits[1] >= Duration::from_secs(2) && waits[1] < Duration::from_millis(2_500), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn the_last_refusal_is_handed_out() {
    let script = Script::new((0..10).map(|_| answer(429, &[])));
    let mut options = options();
    options.attempts_max = 3;
    let response = Polite::new(options).call(|| script.call(0)).await.unwrap();
    assert_eq!((response.status(), script.calls().len()), (StatusCode::TOO_MANY_REQUESTS, 3));
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_is_not_repeated_and_does_not_block_the_others() {
    let script = Script::new([Err("broken pipe")]);
    let mut options = options();
    options.in_flight_max = 1;
    let polite = Polite::new(options);
    assert_eq!(polite.call(|| script.call(0)).await.unwrap_err(), PoliteError::Call("broken pipe"));
    // One that is dropped midway leaves no trace either.
    assert!(timeout(Duration::from_millis(1), polite.call(|| script.call(1))).await.is_err());
    assert!(polite.call(|| script.call(2)).await.is_ok());
    assert_eq!(script.calls().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_wait_beyond_the_maximum_is_an_error_at_once() {
    let script = Script::new([answer(429, &[("retry-after", "3600")])]);
    let polite = Polite::new(options());
    let refused = polite.call(|| script.call(0)).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS, "the response of the server is returned");
    let error = polite.call(|| script.call(1)).await.unwrap_err();
    let PoliteError::MustWait { wait } = error else { panic!("{error:?}") };
    assert!(wait > Duration::from_secs(3_599), "{wait:?}");
    assert_eq!(script.calls().len(), 1, "the others do not even ask");
    sleep(Duration::from_secs(3_600)).await;
    assert!(polite.call(|| script.call(2)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn callers_get_their_turn_in_their_order_and_a_full_queue_turns_away() {
    // Four a window of four seconds: each waits for the one before.
    let left = |remaining: u64| {
        let standing = format!("\"api\";r={remaining};t=4");
        answer(200, &[("ratelimit", &standing), ("ratelimit-policy", "\"api\";q=4;w=4")])
    };
    let refused = answer(429, &[("retry-after", "1"), ("ratelimit", "\"api\";r=0;t=1")]);
    let script = Script::new([left(3), refused, left(2), left(1), left(0), left(3)]);
    let mut options = options();
    options.queue_max = 5;
    let polite = Polite::new(options);
    polite.call(|| script.call(0)).await.unwrap();
    let mut callers = Vec::new();
    for caller in 1..=5 {
        let (polite, script) = (polite.clone(), script.clone());
        callers.push(tokio::spawn(async move { polite.call(|| script.call(caller)).await }));
        tokio::task::yield_now().await;
    }
    assert_eq!(polite.waiting(), 5);
    let turned_away = polite.call(|| script.call(6)).await.unwrap_err();
    assert_eq!(turned_away, PoliteError::QueueFull { queue_max: 5 });
    for caller in callers {
        assert_eq!(caller.await.unwrap().unwrap().status(), StatusCode::OK);
    }
    let order: Vec<_> = script.calls().iter().map(|(caller, _)| *caller).collect();
    assert!(order == [0, 1, 1, 2, 3, 4, 5] || order == [0, 1, 2, 1, 3, 4, 5], "who was refused comes next: {order:?}");
    assert_eq!(polite.waiting(), 0);
}

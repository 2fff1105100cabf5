//! A polite client beside a naive one, each with its own limit, for half a minute.
//! The limited API is /v1/check itself: its statuses and headers are those of any
//! rate-limited API.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use checkdam_client::{Polite, PoliteOptions};
use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::Instant;

use crate::server_process::Server;

const RATE: f64 = 20.0;
const BURST: f64 = 40.0;
const RULES: &str = "rules: [{name: api, key: \"user:{user}\", limits: [\"20/s burst 40\"]}]";
const SPAN: Duration = Duration::from_secs(30);
const CALLERS: usize = 8;

/// One user of the API, and what became of his calls.
#[derive(Clone)]
struct User {
    name: &'static str,
    url: String,
    http: Client<HttpConnector, Full<Bytes>>,
    passed: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
}

impl User {
    fn new(name: &'static str, server: &Server) -> Self {
        let http = Client::builder(TokioExecutor::new()).build_http();
        let url = format!("{}/v1/check", server.url());
        Self { name, url, http, passed: Arc::default(), refused: Arc::default() }
    }

    async fn call(&self) -> Result<hyper::Response<Bytes>, hyper_util::client::legacy::Error> {
        let body = format!("{{\"attributes\": {{\"user\": \"{}\"}}}}", self.name);
        let request = Request::post(&self.url).body(Full::from(body)).unwrap();
        let (parts, body) = self.http.request(request).await?.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let counter = match parts.status {
            StatusCode::OK => &self.passed,
            StatusCode::TOO_MANY_REQUESTS => &self.refused,
            status => panic!("{status}: {body:?}"),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(hyper::Response::from_parts(parts, body))
    }

    /// Which share of the allowed passed, and which share of the calls was refused.
    fn tell(&self, seconds: f64) -> (f64, f64) {
        let (passed, refused) = (self.passed.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed));
        let allowed = BURST + RATE * seconds;
        let (used, lost) = (passed as f64 / allowed, refused as f64 / (passed + refused) as f64);
        println!(
            "{}: {passed} passed of {allowed:.0} allowed in {seconds:.1} s ({:.1} %), {refused} refused ({:.1} %)",
            self.name,
            used * 100.0,
            lost * 100.0
        );
        (used, lost)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_polite_caller_gets_97_percent_of_the_rate_and_is_refused_less_than_once_in_a_hundred() {
    let server = Server::with_rules(RULES);
    let (polite_user, naive_user) = (User::new("polite", &server), User::new("naive", &server));
    let polite = Polite::new(PoliteOptions::default());
    let began = Instant::now();
    let mut callers = Vec::new();
    for _ in 0..CALLERS {
        let (user, polite) = (polite_user.clone(), polite.clone());
        callers.push(tokio::spawn(async move {
            while began.elapsed() < SPAN {
                polite.call(|| user.call()).await.unwrap();
            }
        }));
        // It does what programs do that know no better: it tries again soon.
        let user = naive_user.clone();
        callers.push(tokio::spawn(async move {
            while began.elapsed() < SPAN {
                let status = user.call().await.unwrap().status();
                if status == StatusCode::TOO_MANY_REQUESTS {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }));
    }
    for caller in callers {
        caller.await.unwrap();
    }
    let seconds = began.elapsed().as_secs_f64();
    let (used, refused) = polite_user.tell(seconds);
    let (_, naively_refused) = naive_user.tell(seconds);
    assert!(used >= 0.97, "only {:.1} % of the allowed rate", used * 100.0);
    assert!(refused < 0.01, "{:.1} % were refused", refused * 100.0);
    assert!(naively_refused > 0.1, "the naive caller must have met the limit");
}

//! What the dashboard costs: twenty thousand checks a second, and as many as the
//! machine can do, with and without it open in five browsers. The browsers run
//! on the same machine as server and load.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use testkit::Browser;

use crate::client::{Client, request};
use crate::contest::Contest;
use crate::server::Server;
use crate::session::Session;

const RATE: u64 = 20_000;
const CLIENTS: u64 = 8;
/// Requests that one client sends at a time.
const TOGETHER: u64 = 10;
const BROWSERS: usize = 5;
const METRICS: &[&str] = &["checks/s of 20,000", "checks/s at most"];
const RULES: &str = r#"{"rules": [
    {"name": "user", "key": "user:{user}", "limits": ["10/s burst 50"]},
    {"name": "address", "key": "ip:{ip}", "limits": ["1000/s burst 2000"], "mode": "shadow"},
    {"name": "all", "key": "global", "limits": ["1000000/s burst 1000000"]}]}"#;

fn requests(client: u64) -> String {
    let one = |user: u64| {
        let body =
            format!(r#"{{"attributes": {{"user": "{user}", "ip": "203.0.113.{client}", "endpoint": "/search"}}}}"#);
        request("POST", "/v1/check", &body)
    };
    (0..TOGETHER).map(|place| one(client * TOGETHER + place)).collect()
}

/// Checks at a steady rate, or as many as can be: how many were answered a second.
fn load(address: SocketAddr, rate: Option<u64>, length: Duration) -> f64 {
    let start = Instant::now();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (mut stream, requests) = (Client::connect(address), requests(client));
            let pause = rate.map(|rate| Duration::from_secs(CLIENTS * TOGETHER) / rate as u32);
            std::thread::spawn(move || {
                let (mut due, mut answered) = (start, 0);
                while start.elapsed() < length {
                    if let Some(pause) = pause {
                        std::thread::sleep(due.saturating_duration_since(Instant::now()));
                        due += pause;
                    }
                    stream.send(requests.as_bytes());
                    for _ in 0..TOGETHER {
                        stream.receive();
                    }
                    answered += TOGETHER;
                }
                answered
            })
        })
        .collect();
    let answered: u64 = clients.into_iter().map(|client| client.join().unwrap_or(0)).sum();
    answered as f64 / start.elapsed().as_secs_f64()
}

pub(super) fn run(session: &mut Session) {
    let server = Server::checkdam(RULES, &[]);
    session.say("five browsers are started");
    let browsers: Vec<Browser> = (0..BROWSERS).map(|_| Browser::start()).collect();
    let dashboard = format!("http://{}/", server.admin());
    let mut contest = Contest::new("checks with the dashboard in five browsers", METRICS);
    for (name, page) in [("closed", "about:blank"), ("open", dashboard.as_str())] {
        let (server, browsers) = (&server, &browsers);
        contest.add(name, move |length| {
            for browser in browsers {
                browser.goto(page);
            }
            vec![load(server.address(), Some(RATE), length), load(server.address(), None, length)]
        });
    }
    contest.note("server on one core; load and browsers wherever there is room");
    let length = session.pace().long;
    let figures = contest.run(session, length);
    session.keep(figures);
}

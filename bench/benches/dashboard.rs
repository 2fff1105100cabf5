//! What the dashboard costs: twenty thousand checks a second, and as many as
//! the machine can do, with and without it open in five browsers, by turns.
//!
//! The browsers run on the same machine as server and load. Compare within one
//! run only: `cargo bench -p bench --bench dashboard`.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bench::server::{Server, ask, connect};
use testkit::Browser;

const RATE: u64 = 20_000;
const CLIENTS: u64 = 8;
/// Requests that one client sends at a time.
const TOGETHER: u64 = 10;
const ROUND: Duration = Duration::from_secs(5);
const ROUNDS: usize = 4;
const BROWSERS: usize = 5;
const RULES: &str = r#"{"rules": [
    {"name": "user", "key": "user:{user}", "limits": ["10/s burst 50"]},
    {"name": "address", "key": "ip:{ip}", "limits": ["1000/s burst 2000"], "mode": "shadow"},
    {"name": "all", "key": "global", "limits": ["1000000/s burst 1000000"]}]}"#;

/// Reads so many answers.
fn read(stream: &mut BufReader<TcpStream>, answers: u64) {
    for _ in 0..answers {
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert!(stream.read_line(&mut line).unwrap() > 0, "the server is gone");
            if let Some(rest) = line.strip_prefix("content-length: ") {
                length = rest.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        stream.read_exact(&mut vec![0; length]).unwrap();
    }
}

fn requests(client: u64) -> String {
    let one = |user: u64| {
        let body =
            format!(r#"{{"attributes": {{"user": "{user}", "ip": "203.0.113.{client}", "endpoint": "/search"}}}}"#);
        format!("POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    };
    (0..TOGETHER).map(|place| one(client * TOGETHER + place)).collect()
}

/// Checks at a steady rate, or as many as can be: how many were answered a second.
fn load(address: &str, rate: Option<u64>) -> f64 {
    let (start, answered) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (mut stream, answered) = (connect(address), Arc::clone(&answered));
            let (requests, pause) =
                (requests(client), rate.map(|rate| Duration::from_secs(CLIENTS * TOGETHER) / rate as u32));
            std::thread::spawn(move || {
                let mut due = start;
                while start.elapsed() < ROUND {
                    if let Some(pause) = pause {
                        std::thread::sleep(due.saturating_duration_since(Instant::now()));
                        due += pause;
                    }
                    stream.get_mut().write_all(requests.as_bytes()).unwrap();
                    read(&mut stream, TOGETHER);
                    answered.fetch_add(TOGETHER, Ordering::Relaxed);
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    answered.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64()
}

fn main() {
    bench::server::build();
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let (status, answer) = ask(&mut connect(&server.admin), "POST", "/admin/v1/rules/import?replace=true", RULES);
    assert_eq!(status, 200, "{answer}");
    let browsers: Vec<Browser> = (0..BROWSERS).map(|_| Browser::start()).collect();
    let dashboard = format!("http://{}/", server.admin);
    let mut figures = [const { Vec::new() }; 4];
    for round in 1..=ROUNDS {
        for (place, is_open) in [false, true].into_iter().enumerate() {
            for browser in &browsers {
                browser.goto(if is_open { &dashboard } else { "about:blank" });
            }
            let (steady, most) = (load(&server.http, Some(RATE)), load(&server.http, None));
            figures[place].push(steady);
            figures[2 + place].push(most);
            println!(
                "round {round}, dashboard in {} browsers: {steady:.0} checks/s of {RATE}, {most:.0} at most",
                if is_open { BROWSERS } else { 0 }
            );
        }
        let text = browsers[0].page_text();
        assert!(text.contains("Requests a second"), "the dashboard does not show traffic: {text}");
    }
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        f64::midpoint(values[ROUNDS / 2 - 1], values[ROUNDS / 2])
    };
    let [steady_without, steady_with, most_without, most_with] = figures.map(median);
    println!("\nmedians of {ROUNDS} rounds of {} s, with over without:", ROUND.as_secs());
    println!(
        "{RATE} checks/s asked for: {:.3} ({steady_with:.0} and {steady_without:.0})",
        steady_with / steady_without
    );
    println!("as many as can be:        {:.3} ({most_with:.0} and {most_without:.0})", most_with / most_without);
}

//! Traffic over time and live.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::server_process::{PATIENCE, Server};

const RULES: &str = r#"{"rules": [
    {"name": "free", "key": "user:{user}", "limits": ["1/h burst 3"]},
    {"name": "tried", "key": "user:{user}", "limits": ["1/h"], "mode": "shadow"}]}"#;

fn sum(series: &Value) -> u64 {
    series.as_array().unwrap().iter().map(|point| point.as_u64().unwrap()).sum()
}

fn ask(server: &Server, user: &str, times: usize) {
    let mut client = server.client();
    for _ in 0..times {
        client.post("/v1/check", &json!({"attributes": {"user": user}}).to_string());
    }
}

#[test]
fn history_tells_every_request_once_and_by_rule() {
    let server = Server::with_rules(RULES);
    ask(&server, "42", 10);
    let start = Instant::now();
    let traffic = |query: &str| server.admin().get(&format!("/admin/v1/traffic{query}")).json();
    while sum(&traffic("")["total"]["allowed"]) < 3 || sum(&traffic("")["total"]["limited"]) < 7 {
        assert!(start.elapsed() < PATIENCE, "{}", traffic(""));
        std::thread::sleep(Duration::from_millis(50));
    }
    for (window, step_s, points) in [("minute", 1, 60), ("quarter", 10, 90), ("day", 300, 288)] {
        let answer = traffic(&format!("?window={window}"));
        assert_eq!(json!([answer["window"], answer["step_s"]]), json!([window, step_s]));
        assert_eq!(answer["end"].as_u64().unwrap() % step_s, 0, "{answer}");
        for part in [&answer["total"], &answer["rules"][0], &answer["rules"][1]] {
            for name in ["allowed", "limited", "shadow"] {
                assert_eq!(part[name].as_array().unwrap().len(), points, "{window} {name}");
            }
        }
        assert_eq!(json!([answer["rules"][0]["rule"], answer["rules"][1]["rule"]]), json!(["free", "tried"]));
        let sums = |part: &Value| ["allowed", "limited", "shadow"].map(|name| sum(&part[name]));
        assert_eq!(sums(&answer["total"])[..2], [3, 7], "{window}");
        assert_eq!(sums(&answer["rules"][0]), [3, 7, 0], "{window}");
        assert_eq!(sums(&answer["rules"][1])[2], sums(&answer["total"])[2], "{window}: one rule is in shadow");
    }
    let one = traffic("?rule=tried");
    assert_eq!(one["rules"].as_array().unwrap().len(), 1);
    assert!(sum(&one["rules"][0]["shadow"]) >= 2, "{one}");
}

/// Somebody who listens.
struct EventReader(BufReader<TcpStream>);

impl EventReader {
    /// Subscribes; returns the reader, and the head of the response.
    fn ask(server: &Server) -> (Self, String) {
        let mut stream = TcpStream::connect(server.admin_address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET /admin/v1/live HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut listener = Self(BufReader::new(stream));
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(listener.0.read_line(&mut head).unwrap(), 0, "{head}");
        }
        (listener, head)
    }

    /// The next second.
    fn tick(&mut self) -> Value {
        let mut line = String::new();
        while !line.starts_with("data: ") {
            line.clear();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "the stream has ended");
        }
        serde_json::from_str(&line[6..]).unwrap()
    }
}

#[test]
fn every_second_is_told_live_until_the_server_leaves() {
    let mut server = Server::with_rules(RULES);
    let (mut listener, head) = EventReader::ask(&server);
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
    let first = listener.tick();
    assert_eq!(json!([first["status"]["ready"], first["status"]["store"]["kind"]]), json!([true, "memory"]), "{first}");
    let mut last = first["at"].as_u64().unwrap();
    // A machine that stalls misses seconds: then others ask.
    let is_told = (0..5).any(|user| {
        ask(&server, &user.to_string(), 10);
        let (start, mut seen) = (Instant::now(), [0; 2]);
        while seen != [3, 7] && start.elapsed() < Duration::from_secs(4) {
            let tick = listener.tick();
            let at = tick["at"].as_u64().unwrap();
            assert!(at > last, "no second comes twice: {tick}");
            last = at;
            let count = |name: &str| tick["total"][name].as_u64().unwrap();
            seen = [seen[0] + count("allowed"), seen[1] + count("limited")];
            assert!(seen[0] <= 3 && seen[1] <= 7, "{tick}");
            let is_empty = tick["rules"].as_array().unwrap().is_empty();
            assert_eq!(is_empty, count("allowed") + count("limited") == 0, "{tick}");
        }
        seen == [3, 7]
    });
    assert!(is_told, "what passes is not told whole");
    let start = Instant::now();
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(2), "who listens holds nothing up: {:?}", start.elapsed());
    let mut rest = String::new();
    listener.0.read_to_string(&mut rest).expect("the stream ends in good order");
    assert!(rest.ends_with("0\r\n\r\n"), "{rest}");
    assert!(!server.log().contains("closing the remaining connections"), "{}", server.log());
}

#[test]
fn the_sixty_fifth_listener_is_refused_until_another_leaves() {
    let server = Server::with_rules(RULES);
    let mut listeners: Vec<_> = (0..64).map(|_| EventReader::ask(&server)).collect();
    assert!(listeners.iter().all(|(_, head)| head.starts_with("HTTP/1.1 200")));
    let refused = server.admin().get("/admin/v1/live");
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.json()["detail"].as_str().unwrap().contains("64 listen already"), "{refused:?}");
    listeners.pop();
    let start = Instant::now();
    while !EventReader::ask(&server).1.starts_with("HTTP/1.1 200") {
        assert!(start.elapsed() < PATIENCE, "nobody new is let in");
        std::thread::sleep(Duration::from_millis(50));
    }
}

//! What the record of violations costs: ten thousand denials a second, with
//! and without it, by turns; and how long a start with a hundred thousand rules
//! and overrides takes.
//!
//! Compare within one run only: `cargo bench -p bench --bench audit`.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)]

use std::time::{Duration, Instant};

use bench::server::{Server, ask, connect};

const RATE: u64 = 10_000;
const CLIENTS: u64 = 16;
const ROUND: Duration = Duration::from_secs(5);
const ROUNDS: usize = 4;
const CHECK: &str = r#"{"attributes": {"user": "42", "ip": "203.0.113.9", "endpoint": "/search"}}"#;
const DENYING: &str = r#"{"rules": [{"name": "one", "key": "user:{user}", "limits": ["1/d burst 1"]}]}"#;

/// Denials at a steady rate; each time counts from when the request was due.
fn load(address: &str) -> Vec<Duration> {
    let start = Instant::now() + Duration::from_millis(50);
    let pause = Duration::from_nanos(1_000_000_000 * CLIENTS / RATE);
    let clients = (0..CLIENTS).map(|client| {
        let mut stream = connect(address);
        std::thread::spawn(move || {
            let mut times = Vec::new();
            let mut due = start + pause * client as u32 / CLIENTS as u32;
            while due < start + ROUND {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                ask(&mut stream, "POST", "/v1/check", CHECK);
                times.push(due.elapsed());
                due += pause;
            }
            times
        })
    });
    let clients: Vec<_> = clients.collect();
    clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
}

fn percentile(times: &mut [Duration], share: f64) -> Duration {
    times.sort_unstable();
    times[((times.len() - 1) as f64 * share) as usize]
}

/// The number behind a name in JSON.
fn number(text: &str, name: &str) -> u64 {
    let rest = text.split_once(&format!("\"{name}\":")).unwrap().1;
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

fn import(server: &Server, document: &str) {
    let (status, answer) = ask(&mut connect(&server.admin), "POST", "/admin/v1/rules/import?replace=true", document);
    assert_eq!(status, 200, "{answer}");
}

fn denials() {
    let folders: [_; 3] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let servers = [
        Server::start(folders[0].path(), &["--audit-rate", "0"]),
        Server::start(folders[1].path(), &[]),
        Server::start(folders[2].path(), &["--audit-rate", "1000000", "--audit-queue", "100000"]),
    ];
    for server in &servers {
        import(server, DENYING);
    }
    let mut times = [const { Vec::new() }; 3];
    for round in 0..ROUNDS {
        for (server, times) in servers.iter().zip(&mut times) {
            let mut measured = load(&server.http);
            println!("round {round}: p99 {:?}", percentile(&mut measured, 0.99));
            times.extend(measured);
        }
    }
    println!("\n{RATE} denials/s for {} s each", ROUND.as_secs() * ROUNDS as u64);
    let counts: Vec<u64> = times.iter().map(|times| times.len() as u64).collect();
    let figures = times.each_mut().map(|times| [0.5, 0.99, 0.999].map(|share| percentile(times, share)));
    for (name, figures) in
        ["not recorded", "100 a second and rule recorded (default)", "all recorded"].iter().zip(figures)
    {
        println!("{name:<42} p50, p99, p99.9: {figures:?}");
    }
    for (name, place) in [("default", 1), ("all", 2)] {
        let ratio = figures[place][1].as_secs_f64() / figures[0][1].as_secs_f64();
        println!("p99, {name} over not recorded: {ratio:.2}");
    }
    std::thread::sleep(Duration::from_secs(2));
    for (server, count) in servers.iter().zip(counts).skip(1) {
        let (_, status) = ask(&mut connect(&server.admin), "GET", "/admin/v1/status", "");
        let [denied, written, sampled, dropped] =
            ["denied", "written", "sampled_out", "dropped"].map(|name| number(&status, name));
        println!("denied {denied} = written {written} + sampled out {sampled} + dropped {dropped}");
        assert_eq!(denied, written + sampled + dropped);
        assert_eq!(denied, count - 1, "the first request passed");
    }
}

fn start_with_many() {
    let folder = tempfile::tempdir().unwrap();
    let rules = (0..50_000).map(|n| {
        format!("{{\"name\":\"tenant-{n}\",\"key\":\"user:{{user}}\",\"when\":{{\"tenant\":\"t{n}\"}},\"limits\":[\"10/s burst 50\"]}}")
    });
    let overrides = (0..50_000)
        .map(|n| format!("{{\"rule\":\"tenant-0\",\"subject\":\"user:{n}\",\"limits\":[\"100/s burst 500\"]}}"));
    let document = format!(
        "{{\"rules\":[{}],\"overrides\":[{}]}}",
        rules.collect::<Vec<_>>().join(","),
        overrides.collect::<Vec<_>>().join(",")
    );
    let server = Server::start(folder.path(), &[]);
    let start = Instant::now();
    import(&server, &document);
    println!("\n50,000 rules and 50,000 overrides: imported in {:?}", start.elapsed());
    drop(server);
    let start = Instant::now();
    let server = Server::start(folder.path(), &[]);
    println!("started with them in {:?}", start.elapsed());
    drop(server);
}

fn main() {
    bench::server::build();
    start_with_many();
    denials();
}

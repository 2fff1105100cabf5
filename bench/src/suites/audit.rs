//! What the record of violations costs: ten thousand denials a second, with and
//! without it; and how long a start with a hundred thousand rules and overrides takes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::client::{Client, import};
use crate::contest::Contest;
use crate::server::Server;
use crate::session::Session;

const RATE: u64 = 10_000;
const CLIENTS: u64 = 16;
const METRICS: &[&str] = &["µs p50", "µs p99", "µs p99.9"];
const CHECK: &str = r#"{"attributes": {"user": "42", "ip": "203.0.113.9", "endpoint": "/search"}}"#;
const DENYING: &str = r#"{"rules": [{"name": "one", "key": "user:{user}", "limits": ["1/d burst 1"]}]}"#;

/// A folder for a server's database, gone with this.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("checkdam-bench-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Denials at a steady rate; each time counts from when the request was due.
fn load(address: SocketAddr, length: Duration) -> (Vec<f64>, u64) {
    let start = Instant::now() + Duration::from_millis(50);
    let pause = Duration::from_nanos(1_000_000_000 * CLIENTS / RATE);
    let clients = (0..CLIENTS).map(|client| {
        let mut stream = Client::connect(address);
        std::thread::spawn(move || {
            let mut times = Vec::new();
            let mut due = start + pause * client as u32 / CLIENTS as u32;
            while due < start + length {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                stream.ask("POST", "/v1/check", CHECK);
                times.push(due.elapsed());
                due += pause;
            }
            times
        })
    });
    let clients: Vec<_> = clients.collect();
    let mut times: Vec<Duration> = clients.into_iter().flat_map(|client| client.join().unwrap_or_default()).collect();
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    ([0.5, 0.99, 0.999].map(at).to_vec(), times.len() as u64)
}

/// The number behind a name in JSON.
fn number(text: &str, name: &str) -> u64 {
    let rest = text.split_once(&format!("\"{name}\":")).map_or("", |(_, rest)| rest);
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(u64::MAX)
}

fn denials(session: &mut Session) {
    let ways: [(&str, &[&str]); 3] = [
        ("not recorded", &["--audit-rate", "0"]),
        ("100 a second and rule recorded (default)", &[]),
        ("all recorded", &["--audit-rate", "1000000", "--audit-queue", "100000"]),
    ];
    let folders: [Folder; 3] = std::array::from_fn(|place| Folder::new(&place.to_string()));
    let servers: Vec<Server> = ways
        .iter()
        .zip(&folders)
        .map(|((_, flags), folder)| Server::checkdam_with_database(&folder.0, flags))
        .collect();
    let mut asked = vec![0; servers.len()];
    let mut contest = Contest::new("10,000 denials a second", METRICS);
    for ((server, (name, _)), asked) in servers.iter().zip(ways).zip(&mut asked) {
        import(server.admin(), DENYING);
        contest.add(name, move |length| {
            let (times, count) = load(server.address(), length);
            *asked += count;
            times
        });
    }
    let length = session.pace().long;
    let figures = contest.run(session, length);
    session.keep(figures);
    for (server, asked) in servers.iter().zip(asked).skip(1) {
        let counts = || {
            let (_, status) = Client::connect(server.admin()).ask("GET", "/admin/v1/status", "");
            ["denied", "written", "sampled_out", "dropped"].map(|name| number(&status, name))
        };
        testkit::wait_until("the record to be written", Duration::from_secs(30), || {
            let [denied, written, sampled_out, dropped] = counts();
            denied == written + sampled_out + dropped
        });
        assert_eq!(counts()[0], asked - 1, "only the first request passed");
    }
}

fn start_with_many(session: &mut Session) {
    let folder = Folder::new("many");
    let rules = (0..50_000).map(|number| {
        format!("{{\"name\":\"tenant-{number}\",\"key\":\"user:{{user}}\",\"when\":{{\"tenant\":\"t{number}\"}},\"limits\":[\"10/s burst 50\"]}}")
    });
    let overrides = (0..50_000).map(|number| {
        format!("{{\"rule\":\"tenant-0\",\"subject\":\"user:{number}\",\"limits\":[\"100/s burst 500\"]}}")
    });
    let (rules, overrides): (Vec<_>, Vec<_>) = (rules.collect(), overrides.collect());
    let document = format!("{{\"rules\":[{}],\"overrides\":[{}]}}", rules.join(","), overrides.join(","));
    let server = Server::checkdam_with_database(&folder.0, &[]);
    let start = Instant::now();
    import(server.admin(), &document);
    let imported = start.elapsed().as_secs_f64();
    drop(server);
    let start = Instant::now();
    drop(Server::checkdam_with_database(&folder.0, &[]));
    let started = start.elapsed().as_secs_f64();
    let mut contest = Contest::new("50,000 rules and 50,000 overrides in SQLite, once", &["seconds"]);
    contest.add("import", |_| vec![imported]);
    contest.add("start", |_| vec![started]);
    let length = session.pace().short;
    let figures = contest.run(session, length);
    session.keep(figures);
}

pub(super) fn run(session: &mut Session) {
    session.say("50,000 rules and 50,000 overrides are imported");
    start_with_many(session);
    denials(session);
}

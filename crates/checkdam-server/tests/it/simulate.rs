//! Logs replayed through rule files: every format, and exactly as the library
//! decides.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use checkdam::store::{MemoryOptions, MemoryStore};
use checkdam::time::{EPOCH_UNIX_US, ManualClock};
use checkdam::{Limiter, Request, RuleSet, rule_file};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::server_process::{checkdam, folder, run, text};

const RULES: &str = r#"rules:
  - { name: per-ip, key: "ip:{ip}", limits: ["2/s burst 5"] }
  - { name: search, key: "search:{ip}", when: { endpoint: /search, method: GET }, limits: ["1/m burst 2"] }
  - { name: watch, key: "user:{user}", limits: ["3/m"], algorithm: sliding_window, mode: shadow }
"#;
const STRICTER: &str = r#"rules:
  - { name: per-ip, key: "ip:{ip}", limits: ["1/s burst 3"] }
  - { name: everybody, key: global, limits: ["600/m"], algorithm: fixed_window }
"#;
/// 2026-11-01T00:00:00Z.
const START_S: u64 = 1_793_491_200;

/// One request of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LogRequest {
    at_s: u64,
    ip: String,
    user: Option<String>,
    endpoint: &'static str,
}

impl LogRequest {
    fn time(&self) -> String {
        let (day, second) = ((self.at_s - START_S) / 86_400 + 1, self.at_s % 86_400);
        format!("{day:02}/Nov/2026:{:02}:{:02}:{:02} +0000", second / 3_600, second / 60 % 60, second % 60)
    }

    fn combined(&self) -> String {
        let Self { ip, user, endpoint, .. } = self;
        let user = user.as_deref().unwrap_or("-");
        format!("{ip} - {user} [{}] \"GET {endpoint}?q=1 HTTP/1.1\" 200 512 \"-\" \"test/1.0\"\n", self.time())
    }

    fn json(&self) -> String {
        let Self { at_s, ip, user, endpoint } = self;
        json!({"ts": at_s * 1_000, "client": {"address": ip}, "user": user, "path": endpoint, "method": "GET"})
            .to_string()
            + "\n"
    }

    fn csv(&self) -> String {
        let Self { ip, user, endpoint, .. } = self;
        let time = checkdam::time::rfc3339(self.at_s);
        format!("{time},{ip},\"{}\",GET,\"{endpoint}\"\n", user.as_deref().unwrap_or_default())
    }

    fn request(&self) -> Request<'_> {
        let request = Request::new().with("ip", &self.ip).unwrap().with("method", "GET").unwrap();
        let request = request.with("endpoint", self.endpoint).unwrap();
        match &self.user {
            Some(user) => request.with("user", user).unwrap(),
            None => request,
        }
    }
}

/// Numbers that are the same in every run.
struct SeededRandom(u64);

impl SeededRandom {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Requests in the order in which a server would have written them: by up to
/// eight seconds out of order.
fn requests(count: u64, per_second: u64) -> impl Iterator<Item = LogRequest> {
    let mut numbers = SeededRandom(count);
    (0..count).map(move |number| {
        let at_s = START_S + 8 + number / per_second - numbers.below(9);
        // Few ask for much.
        let bound = 1 + numbers.below(2_000);
        let client = numbers.below(bound);
        LogRequest {
            at_s,
            ip: format!("203.0.{}.{}", client / 256, client % 256),
            user: client.is_multiple_of(3).then(|| format!("user{client}")),
            endpoint: if numbers.below(4) == 0 { "/search" } else { "/items" },
        }
    })
}

/// What the library decides by itself: by rule how many it concerned and limited,
/// by rule and subject how many it limited, and how many passed and did not.
#[derive(Debug, Default, PartialEq, Eq)]
struct ExpectedCounts {
    rules: BTreeMap<String, (u64, u64)>,
    subjects: BTreeMap<(String, String), u64>,
    allowed: u64,
    limited: u64,
}

/// A limiter with a manual clock.
struct DirectLimiter {
    limiter: Limiter<MemoryStore<ManualClock>>,
    decided: ExpectedCounts,
}

impl DirectLimiter {
    fn new(rules: &str) -> Self {
        let rules = RuleSet::new(rule_file::parse(rules).unwrap()).unwrap();
        let store = MemoryStore::with_clock(MemoryOptions { max_buckets: 1_000_000 }, ManualClock::at(0));
        let limiter = Limiter::new(rules, store);
        let rules = limiter.rules().rules().map(|rule| (rule.name.clone(), (0, 0))).collect();
        Self { limiter, decided: ExpectedCounts { rules, ..ExpectedCounts::default() } }
    }

    fn decide(&mut self, runtime: &Runtime, asked: &LogRequest) -> bool {
        let Self { limiter, decided } = self;
        limiter.store().clock().set(asked.at_s * 1_000_000 - EPOCH_UNIX_US);
        let request = asked.request();
        let outcome = runtime.block_on(limiter.check(&request));
        for tier in outcome.tiers() {
            let counts = decided.rules.get_mut(&tier.rule.name).unwrap();
            counts.0 += 1;
            if !tier.decision.is_allowed() {
                counts.1 += 1;
                *decided.subjects.entry((tier.rule.name.clone(), tier.rule.key.render(&request))).or_default() += 1;
            }
        }
        *if outcome.is_allowed() { &mut decided.allowed } else { &mut decided.limited } += 1;
        outcome.is_allowed()
    }
}

/// What both rule files decide, and how many only the second limits and lets pass.
/// Requests are put in order as they come: none is behind by more than eight seconds.
fn direct(asked: impl Iterator<Item = LogRequest>) -> ([ExpectedCounts; 2], [u64; 2]) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (mut one, mut other) = (DirectLimiter::new(RULES), DirectLimiter::new(STRICTER));
    let (mut newly_limited, mut newly_allowed) = (0, 0);
    let mut decide = |asked: &LogRequest| {
        let (was, is) = (one.decide(&runtime, asked), other.decide(&runtime, asked));
        newly_limited += u64::from(was && !is);
        newly_allowed += u64::from(!was && is);
    };
    let mut waiting: BTreeMap<u64, Vec<LogRequest>> = BTreeMap::new();
    for asked in asked {
        let certain = asked.at_s.saturating_sub(8);
        waiting.entry(asked.at_s).or_default().push(asked);
        while let Some(second) = waiting.first_entry().filter(|second| *second.key() < certain) {
            second.remove().iter().for_each(&mut decide);
        }
    }
    waiting.into_values().flatten().for_each(|asked| decide(&asked));
    ([one.decided, other.decided], [newly_limited, newly_allowed])
}

/// The same from what the command says.
fn simulated(result: &Value) -> ExpectedCounts {
    let list = |name: &str| result[name].as_array().unwrap().clone();
    let number = |row: &Value, name: &str| row[name].as_u64().unwrap();
    let word = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
    let rule = |row: &Value| (word(row, "rule"), (number(row, "concerned"), number(row, "limited")));
    let subject = |row: &Value| ((word(row, "rule"), word(row, "subject")), number(row, "limited"));
    ExpectedCounts {
        rules: list("rules").iter().map(rule).collect(),
        subjects: list("subjects").iter().map(subject).collect(),
        allowed: number(result, "allowed"),
        limited: number(result, "limited"),
    }
}

/// A folder with both rule files.
fn place() -> PathBuf {
    let folder = folder();
    std::fs::write(folder.join("rules.yaml"), RULES).unwrap();
    std::fs::write(folder.join("stricter.yaml"), STRICTER).unwrap();
    folder
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = checkdam();
    command.arg("simulate").args(arguments).current_dir(folder);
    command
}

fn simulate(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().expect("the binary runs")
}

/// Simulates and reads what is printed as JSON.
fn json_of(folder: &Path, arguments: &[&str]) -> Value {
    let output = simulate(folder, &[arguments, &["--json", "--top", "1000000"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn write_log(path: &Path, lines: impl Iterator<Item = String>) {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    lines.for_each(|line| file.write_all(line.as_bytes()).unwrap());
    file.flush().unwrap();
}

/// Compares two rule files' results with what the library decides by itself.
fn assert_exact(both: &Value, asked: impl Iterator<Item = LogRequest>) {
    let (decided, [newly_limited, newly_allowed]) = direct(asked);
    let results = both["results"].as_array().unwrap();
    assert_eq!(results.len(), 2);
    for (decided, result) in decided.iter().zip(results) {
        assert_eq!(&simulated(result), decided, "{}", result["rules_file"]);
    }
    assert!(newly_limited > 0 && newly_allowed > 0, "the rule files differ both ways");
    let comparison = &both["comparison"];
    assert_eq!(
        (&comparison["newly_limited"], &comparison["newly_allowed"]),
        (&json!(newly_limited), &json!(newly_allowed))
    );
}

#[test]
fn a_log_is_decided_exactly_as_the_library_does_and_two_rule_files_are_compared() {
    let folder = place();
    write_log(&folder.join("access.log"), requests(40_000, 20).map(|asked| asked.combined()));
    let both = json_of(&folder, &["access.log", "--rules", "rules.yaml", "--against", "stricter.yaml"]);
    assert_eq!((&both["requests"], &both["unreadable"], &both["late"]), (&json!(40_000), &json!(0), &json!(0)));

    assert_exact(&both, requests(40_000, 20));
    for result in both["results"].as_array().unwrap() {
        let sum =
            |name: &str| result["timeline"][name].as_array().unwrap().iter().filter_map(Value::as_u64).sum::<u64>();
        assert_eq!(sum("limited"), result["limited"], "the chart has all of them");
    }
    let alone = json_of(&folder, &["access.log", "--rules", "stricter.yaml"]);
    assert_eq!(alone["results"][0], both["results"][1], "one by itself says the same");
}

#[test]
fn every_format_says_the_same_packed_split_or_from_standard_input() {
    let folder = place();
    let asked: Vec<LogRequest> = requests(2_000, 5).collect();
    let header = "time,ip,user,method,endpoint\n".to_owned();
    write_log(&folder.join("access.log"), asked.iter().map(LogRequest::combined));
    write_log(&folder.join("events.jsonl"), asked.iter().map(LogRequest::json));
    write_log(&folder.join("events.csv"), std::iter::once(header).chain(asked.iter().map(LogRequest::csv)));
    // Rotated logs, named in the wrong order.
    write_log(&folder.join("access.log.1"), asked[..900].iter().map(LogRequest::combined));
    write_log(&folder.join("access.log.0"), asked[900..].iter().map(LogRequest::combined));
    let packed = std::fs::File::create(folder.join("access.gz")).unwrap();
    let packing = Command::new("gzip").arg("-c").arg(folder.join("access.log")).stdout(packed).status();
    assert!(packing.expect("gzip runs").success());

    let results =
        |arguments: &[&str]| json_of(&folder, &[arguments, &["--rules", "rules.yaml"]].concat())["results"].clone();
    let plain = results(&["access.log"]);
    assert!(plain[0]["limited"].as_u64().unwrap() > 0);
    let table: [&[&str]; 5] = [
        &["access.gz"],
        &["access.log.0", "access.log.1"],
        &["events.jsonl", "--map", "ip=client.address"],
        &["events.csv"],
        &["events.csv", "--format", "csv", "--time-field", "time", "--map", "user=user"],
    ];
    for arguments in table {
        assert_eq!(results(arguments), plain, "{arguments:?}");
    }
    let mut piped = command(&folder, &["-", "--rules", "rules.yaml", "--json", "--top", "1000000"]);
    let log = std::fs::File::open(folder.join("access.log")).unwrap();
    let output = piped.stdin(Stdio::from(log)).output().unwrap();
    let piped: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&piped["results"], &piped["logs"]), (&plain, &json!(["standard input"])));
}

#[test]
fn people_read_a_table_and_a_page() {
    let folder = place();
    let at = |second: u64, ip: &str| LogRequest {
        at_s: START_S + second,
        ip: ip.to_owned(),
        user: Some("<b>ann</b>".to_owned()),
        endpoint: "/search",
    };
    let asked: Vec<LogRequest> =
        (0..12).flat_map(|second| [at(second, "203.0.113.9"), at(second, "203.0.113.8")]).collect();
    write_log(&folder.join("access.log"), asked.iter().map(LogRequest::combined));
    let arguments = ["access.log", "--rules", "rules.yaml", "--report", "out.html", "--svg", "out.svg"];
    let output = simulate(&folder, &arguments);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    insta::assert_snapshot!(text(&output.stdout), @r"
    24 requests of 24 lines, from 2026-11-01T00:00:00Z to 2026-11-01T00:00:11Z (11.0s)
    busiest minute: 2026-11-01T00:00:00Z (24 requests)

    rules.yaml: 20 of 24 requests denied (83.3%)
    worst minute: 2026-11-01T00:00:00Z (20 denied)

    RULE    MODE     MATCHED  DENIED  SHARE  FIRST                 WORST MINUTE
    watch   shadow        24      21  87.5%  2026-11-01T00:00:01Z  2026-11-01T00:00:00Z (21 denied)
    search  enforce       24      20  83.3%  2026-11-01T00:00:02Z  2026-11-01T00:00:00Z (20 denied)
    per-ip  enforce       24       0  0.0%   -                     -

    MOST DENIED         RULE            DENIED  FIRST                 LAST
    user:<b>ann</b>     watch (shadow)      21  2026-11-01T00:00:01Z  2026-11-01T00:00:11Z
    search:203.0.113.8  search              10  2026-11-01T00:00:02Z  2026-11-01T00:00:11Z
    search:203.0.113.9  search              10  2026-11-01T00:00:02Z  2026-11-01T00:00:11Z
    ");
    let compared =
        simulate(&folder, &["access.log", "--rules", "rules.yaml", "--against", "stricter.yaml", "--top", "1"]);
    insta::assert_snapshot!(text(&compared.stdout).split("\nrules.yaml: ").next().unwrap(), @r"
    24 requests of 24 lines, from 2026-11-01T00:00:00Z to 2026-11-01T00:00:11Z (11.0s)
    busiest minute: 2026-11-01T00:00:00Z (24 requests)

    RULES          ALLOWED  DENIED  SHARE
    rules.yaml           4      20  83.3%
    stricter.yaml       24       0  0.0%

    the second denies 0 requests that the first allows, and allows 20 that the first denies

    CHANGED SUBJECT     NEWLY DENIED  NEWLY ALLOWED
    search:203.0.113.8             0             10
    ");
    let few = simulate(&folder, &["access.log", "--suggest", "ip:{ip}"]);
    assert_eq!(few.status.code(), Some(1), "{few:?}");
    assert!(text(&few.stderr).contains("2 subjects of \"ip:{ip}\": at least 20"), "{few:?}");
    // 23 who ask once, and an attacker, whose peak is nobody's limit.
    let others = (0..23).map(|number| at(number % 12, &format!("203.0.113.{number}")));
    let many: Vec<LogRequest> = others.chain((0..200).map(|_| at(11, "198.51.100.1"))).collect();
    write_log(&folder.join("many.log"), many.iter().map(LogRequest::combined));
    let suggested = simulate(&folder, &["many.log", "--suggest", "ip:{ip}"]);
    insta::assert_snapshot!(text(&suggested.stdout), @r#"
    # 223 requests of 223 lines, from 2026-11-01T00:00:00Z to 2026-11-01T00:00:11Z (11.0s)
    # busiest minute: 2026-11-01T00:00:00Z (223 requests)

    # peaks of 24 subjects of ip:{ip}, in clock-aligned windows

    # PER  P50  P90  P99  P99.9  MAX
    # s      1    1  200    200  200

    # 25 % above the 99.9th percentile; in shadow mode until you have verified them.
    rules:
      # 1 of 24 subjects exceed it; outliers ignored: 1
      - name: suggested-ip
        key: "ip:{ip}"
        limits: ["2/s"]
        mode: shadow
    "#);
    let file = folder.join("suggested.yaml");
    std::fs::write(&file, &suggested.stdout).unwrap();
    let checked = run(&["rules", "check", file.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(0), "what is suggested is a rule file: {checked:?}");

    let (page, picture) = (std::fs::read_to_string(folder.join("out.html")).unwrap(), folder.join("out.svg"));
    assert!(page.contains("&lt;b&gt;ann") && !page.contains("<b>ann") && !page.contains("<script"), "{page}");
    assert_eq!(page.matches("<svg ").count(), 3, "over time, and for each rule that limits");
    assert!(std::fs::read_to_string(picture).unwrap().starts_with("<svg xmlns="));
}

#[test]
fn what_cannot_be_read_or_ordered_is_told() {
    let folder = place();
    let lines: Vec<String> = requests(100, 5).map(|asked| asked.combined()).collect();
    let late = LogRequest { at_s: START_S, ip: "203.0.113.9".to_owned(), user: None, endpoint: "/items" };
    let log = [&lines[..50], &["broken\n".to_owned(), "\n".to_owned()], &lines[50..], &[late.combined()]].concat();
    write_log(&folder.join("access.log"), log.into_iter());
    let output = simulate(&folder, &["access.log", "--rules", "rules.yaml", "--json"]);
    let (said, told) = (serde_json::from_slice::<Value>(&output.stdout).unwrap(), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert_eq!((&said["lines"], &said["requests"], &said["unreadable"]), (&json!(103), &json!(101), &json!(1)));
    assert!(told.contains("access.log:51: skipped: there is no [time]"), "{told}");
    let strict = simulate(&folder, &["access.log", "--rules", "rules.yaml", "--strict"]);
    assert_eq!((strict.status.code(), strict.stdout.len()), (Some(1), 0));
    assert!(text(&strict.stderr).contains("access.log:51: there is no [time]"), "{}", text(&strict.stderr));
}

#[test]
fn a_line_of_another_time_spoils_nothing_else() {
    let folder = place();
    let asked: Vec<LogRequest> = requests(2_000, 5).collect();
    let lines: Vec<String> = asked.iter().map(LogRequest::json).collect();
    let run = |before: &[&str], between: &[&str]| {
        let owned = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<Vec<_>>();
        let log = [&owned(before), &lines[..200], &owned(between), &lines[200..]].concat();
        write_log(&folder.join("events.jsonl"), log.into_iter());
        json_of(&folder, &["events.jsonl", "--rules", "rules.yaml", "--map", "ip=client.address"])
    };
    let plain = run(&[], &[]);
    assert!(plain["results"][0]["limited"].as_u64().unwrap() > 0);
    let expected = simulated(&plain["results"][0]);
    // Never set, or beyond what our time can say: not read.
    let far = [r#"{"ts": 0, "user": "x"}"#, r#"{"ts": "9999-12-31T23:59:59Z"}"#, r#"{"ts": 99999999999999999}"#];
    for odd in far {
        let said = run(&[odd], &[odd]);
        assert_eq!(
            (&said["requests"], &said["unreadable"], &said["late"]),
            (&json!(2_000), &json!(2), &json!(0)),
            "{odd}"
        );
        assert_eq!(simulated(&said["results"][0]), expected, "{odd}");
    }
    // Merely wrong: read, and nothing else is moved or out of order.
    let (early, ahead) = (r#"{"ts": "2000-01-01T00:00:00Z"}"#, r#"{"ts": "2040-01-01T00:00:00Z"}"#);
    for said in [run(&[early], &[]), run(&[], &[ahead])] {
        assert_eq!((&said["requests"], &said["unreadable"], &said["late"]), (&json!(2_001), &json!(0), &json!(0)));
        let decided = simulated(&said["results"][0]);
        assert_eq!(ExpectedCounts { allowed: decided.allowed - 1, ..decided }, expected);
    }
}

#[test]
fn wrong_usage_says_what_to_do() {
    let folder = place();
    std::fs::write(folder.join("access.log"), requests(1, 1).next().unwrap().combined()).unwrap();
    std::fs::write(folder.join("odd.log"), "what is this\n").unwrap();
    std::fs::write(
        folder.join("edge.yaml"),
        "domain: edge\ndescriptors:\n  - key: remote_address\n    rate_limit: { unit: minute, requests_per_unit: 1 }\n",
    )
    .unwrap();
    std::fs::write(folder.join("bad.yaml"), "rules:\n  - { name: x, key: k, limits: [\"1/parsec\"] }\n").unwrap();
    let table: [(&[&str], i32, &str); 8] = [
        (&["access.log"], 2, "--rules"),
        (&["nothing.log", "--rules", "rules.yaml"], 1, "nothing.log: it cannot be read"),
        (&["odd.log", "--rules", "rules.yaml"], 1, "odd.log: its format is not known"),
        (&["odd.log", "--rules", "rules.yaml", "--format", "json"], 1, "none of 1 lines"),
        (&["access.log", "--rules", "bad.yaml"], 2, "bad.yaml:2"),
        (&["access.log", "--rules", "edge.yaml"], 2, "--descriptor"),
        (&["access.log", "--rules", "edge.yaml", "--descriptor", "remote_address={ip}"], 2, "--domain"),
        (&["access.log", "--rules", "rules.yaml", "--reorder", "soon"], 2, "soon"),
    ];
    for (arguments, code, word) in table {
        let output = simulate(&folder, arguments);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
        assert!(told.contains(word), "{arguments:?}: {told}");
    }
    let absent = simulate(&folder, &["access.log", "--rules", "rules.yaml"]);
    assert_eq!(absent.status.code(), Some(0));

    let asked: Vec<LogRequest> = requests(600, 10).collect();
    write_log(&folder.join("access.log"), asked.iter().map(LogRequest::combined));
    let edge = ["--rules", "edge.yaml", "--domain", "edge", "--descriptor", "remote_address={ip}"];
    let said = json_of(&folder, &[&["access.log"], &edge[..]].concat());
    let mut minutes: Vec<(u64, &str)> = asked.iter().map(|asked| (asked.at_s / 60, asked.ip.as_str())).collect();
    minutes.sort_unstable();
    minutes.dedup();
    assert_eq!(said["results"][0]["allowed"], minutes.len(), "one a minute and address: {}", said["results"]);
}

/// What a run took.
struct RunCost {
    said: Value,
    time: Duration,
    peak_mib: u64,
}

/// Simulates, and looks at its memory until it ends.
fn measured(folder: &Path, arguments: &[&str]) -> RunCost {
    let out = folder.join("out.json");
    let start = tokio::time::Instant::now();
    let mut child = command(folder, &[arguments, &["--json", "--top", "1000000"]].concat())
        .stdout(std::fs::File::create(&out).unwrap())
        .spawn()
        .expect("the binary runs");
    let status = format!("/proc/{}/status", child.id());
    let mut peak_kib = 0;
    let code = loop {
        // The peak until now: it never falls, and is gone once the process is.
        let told = std::fs::read_to_string(&status).unwrap_or_default();
        let peak = told.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
        peak_kib = peak_kib.max(peak.unwrap_or(0));
        if let Some(code) = child.try_wait().unwrap() {
            break code;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let time = start.elapsed();
    assert!(code.success(), "{arguments:?}: {code}");
    assert!(peak_kib > 0, "its memory was never seen");
    RunCost {
        said: serde_json::from_slice(&std::fs::read(out).unwrap()).expect("JSON"),
        time,
        peak_mib: peak_kib / 1_024,
    }
}

/// Ten million lines, or as many as `CHECKDAM_SIMULATE_LINES` says: by one rule
/// file, and by two. Only a build that is named (`CHECKDAM_BIN`) is held to the minute.
#[test]
#[ignore = "takes minutes: run it with ./test --simulate"]
fn ten_million_lines_are_decided_exactly_within_a_minute_and_a_gibibyte() {
    let folder = place();
    let count = std::env::var("CHECKDAM_SIMULATE_LINES").map_or(10_000_000, |count| count.parse().expect("a number"));
    write_log(&folder.join("access.log"), requests(count, 3_000).map(|asked| asked.combined()));
    let alone = measured(&folder, &["access.log", "--rules", "rules.yaml"]);
    let both = measured(&folder, &["access.log", "--rules", "rules.yaml", "--against", "stricter.yaml"]);
    for (name, took) in [("one rule file", &alone), ("two rule files compared", &both)] {
        println!("{count} lines, {name}: {:.1} s, peak {} MiB", took.time.as_secs_f64(), took.peak_mib);
        assert_eq!((&took.said["requests"], &took.said["late"]), (&json!(count), &json!(0)));
        assert!(took.peak_mib < 1_024, "{name}: {} MiB", took.peak_mib);
        assert!(std::env::var_os("CHECKDAM_BIN").is_none() || took.time.as_secs() < 60, "{name}: {:?}", took.time);
    }
    std::fs::remove_file(folder.join("access.log")).unwrap();
    assert_eq!(alone.said["results"][0], both.said["results"][0]);
    assert_exact(&both.said, requests(count, 3_000));
}

#[test]
fn what_makes_no_sense_is_refused_and_spares_what_is_read() {
    let folder = folder();
    std::fs::write(folder.join("rules.yaml"), "rules: [{name: ip, key: 'ip:{ip}', limits: [1/s]}]").unwrap();
    std::fs::write(folder.join("one.jsonl"), r#"{"time": "2026-11-01T00:00:00Z", "ip": "203.0.113.9"}"#).unwrap();
    std::fs::write(folder.join("empty.log"), "").unwrap();
    let before = std::fs::read(folder.join("rules.yaml")).unwrap();
    for (arguments, told) in [
        (&["one.jsonl", "--rules", "rules.yaml", "--report", "rules.yaml"][..], "rules.yaml is read"),
        (&["one.jsonl", "--rules", "rules.yaml", "--svg", "./one.jsonl"], "one.jsonl is read"),
        (&["one.jsonl", "--rules", "rules.yaml", "--svg", "a", "--report", "a"], "the same file"),
        (&["one.jsonl", "--suggest", "ip"], "'ip:{ip}'"),
        (&["empty.log", "--rules", "rules.yaml"], "the logs contain no requests"),
    ] {
        let output = simulate(&folder, arguments);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(told) && output.stdout.is_empty(), "{arguments:?}: {said}");
    }
    assert_eq!(std::fs::read(folder.join("rules.yaml")).unwrap(), before);
}

//! The findings of `checkdam doctor` on real servers, and its exit codes.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use testkit::{Cluster, Engine, FaultProxy, Mode, Redis, RedisBuilder, Sentinel, free_port};
use tokio::time::Instant;

use crate::server_process::{checkdam, folder, run, text};

/// What doctor printed, and how it exited.
struct DoctorOutput {
    code: Option<i32>,
    json: Value,
}

impl DoctorOutput {
    fn of(url: &str) -> Self {
        Self::with(url, &[])
    }

    fn with(url: &str, arguments: &[&str]) -> Self {
        let output = run(&[&["doctor", "--json", "--store", url], arguments].concat());
        let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        Self { code: output.status.code(), json }
    }

    fn servers(&self) -> &[Value] {
        self.json["servers"].as_array().unwrap()
    }

    /// All findings of that look, wherever they stand.
    fn findings(&self, look: &str) -> Vec<&Value> {
        let own = self.json["findings"].as_array().unwrap().iter();
        let all = own.chain(self.servers().iter().flat_map(|server| server["findings"].as_array().unwrap()));
        all.filter(|finding| finding["look"] == look).collect()
    }

    /// Checks that there is a finding of that look and level whose text holds
    /// the words.
    fn assert(&self, look: &str, level: &str, words: &[&str]) {
        let found = self.findings(look);
        let fits = |finding: &&Value| {
            let text = format!("{} {}", finding["seen"], finding["remedy"]);
            finding["level"] == level && words.iter().all(|word| text.contains(word))
        };
        assert!(found.iter().any(fits), "no {level} of {look} with {words:?}: {:#}", self.json);
    }

    fn assert_no_problem(&self) {
        let text = self.json.to_string();
        assert!(!text.contains("\"level\":\"problem\""), "{:#}", self.json);
        assert_eq!(self.code, Some(0), "{:#}", self.json);
    }
}

/// The users of `deploy/redis/users.acl`, with the password given there.
fn users() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/redis/users.acl");
    std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

fn guarded(users: Vec<String>, engine: Engine) -> Redis {
    RedisBuilder::default().engine(engine).acl(users).start()
}

fn as_checkdam(server: &Redis) -> String {
    server.url_for("checkdam", "change-me")
}

#[test]
fn a_plain_server_passes_and_nothing_is_left_behind() {
    for (engine, name) in [(Engine::Redis, "Redis "), (Engine::Valkey, "Valkey ")] {
        let server = Redis::builder().engine(engine).start();
        let report = DoctorOutput::of(&server.url());
        report.assert_no_problem();
        assert_eq!(server.command(&["DBSIZE"]).int(), 0, "{engine:?}");
        report.assert("connection", "ok", &["default", "without TLS"]);
        report.assert("version", "ok", &[name]);
        report.assert("eviction", "ok", &["noeviction"]);
        report.assert("memory", "advice", &["without a bound", "maxmemory"]);
        report.assert("persistence", "advice", &["none", "appendonly"]);
        report.assert("replicas", "advice", &["without a replica"]);
        report.assert("permissions", "ok", &[]);
        report.assert("login", "warning", &["no password", "FLUSHALL", "users.acl"]);
        report.assert("script", "ok", &["loaded"]);
        report.assert("decisions", "ok", &["every algorithm"]);
        report.assert("clock", "ok", &["decisions use the server's"]);
        assert_eq!(report.findings("round trip").len(), 1);
        assert_eq!(DoctorOutput::with(&server.url(), &["--strict"]).code, Some(1), "warnings count when asked");
        DoctorOutput::of(&server.unix_url()).assert_no_problem();
    }
}

#[test]
fn the_text_says_it_in_words() {
    let server = Redis::start();
    let output = run(&["doctor", "--store", &server.url_for("default", "hunter2")]);
    let said = text(&output.stdout);
    assert!(!said.contains("hunter2") && !said.contains('\x1b'), "{said}");
    let output = run(&["doctor", "--store", &server.url()]);
    let said = text(&output.stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], server.url());
    assert_eq!(lines[2], format!("server {}", server.addr()));
    assert!(lines.contains(&"  advice   replicas     a master without a replica"), "{said}");
    assert!(said.contains("\n                        -> for a limit that outlives the server"), "{said}");
    assert!(lines[lines.len() - 1].starts_with("0 problems, "), "{said}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn old_releases_are_named_with_their_weaknesses() {
    let report = DoctorOutput::of(&Redis::start().url());
    let seen = report.findings("version")[0]["seen"].as_str().unwrap();
    if seen.starts_with("Redis 7.0.") {
        report.assert("security", "warning", &["CVE-2025-49844", "CVE-2024-46981", "7.2.14", "distribution"]);
    }
    assert_eq!(report.findings("security").len(), 1);
}

#[test]
fn the_documented_login_suffices_and_is_told_what_it_cannot_see() {
    for engine in [Engine::Redis, Engine::Valkey] {
        let server = guarded(users(), engine);
        let report = DoctorOutput::of(&as_checkdam(&server));
        report.assert_no_problem();
        report.assert("connection", "ok", &["checkdam"]);
        report.assert("version", "ok", &[]);
        report.assert("permissions", "ok", &[]);
        report.assert("login", "ok", &["checkdam"]);
        report.assert("memory", "advice", &["not visible to this login", "+info", "maxmemory-policy"]);
        report.assert("persistence", "advice", &["not visible to this login", "+config|get"]);
        report.assert("replicas", "advice", &["without a replica"]);
        report.assert("decisions", "ok", &[]);
        assert_eq!(server.command(&["DBSIZE"]).int(), 0);
    }
}

#[test]
fn what_a_login_lacks_is_named() {
    for engine in [Engine::Redis, Engine::Valkey] {
        let without = |words: &[&str]| {
            let cut = |line: String| {
                let kept = line.split(' ').filter(|word| !words.contains(word));
                kept.collect::<Vec<_>>().join(" ")
            };
            guarded(users().into_iter().map(cut).collect(), engine)
        };
        let server = without(&["+pexpire", "+lrem"]);
        let report = DoctorOutput::of(&as_checkdam(&server));
        assert_eq!(report.code, Some(1), "{:#}", report.json);
        report.assert("permissions", "problem", &["may not run PEXPIRE, LREM", "+pexpire +lrem", "users.acl"]);
        assert_eq!(server.command(&["DBSIZE"]).int(), 0);

        let report = DoctorOutput::of(&as_checkdam(&without(&["+eval", "+evalsha"])));
        report.assert("permissions", "problem", &["may not run EVALSHA, EVAL"]);
        report.assert("script", "problem", &["permissions"]);
        assert_eq!(report.code, Some(1));

        let server = without(&["+del", "+set", "+pexpire", "~cd:*"]);
        let report = DoctorOutput::of(&as_checkdam(&server));
        report.assert("permissions", "problem", &["DEL, PEXPIRE, SET", "keys that begin with cd:", "~cd:*"]);
        assert_eq!(server.command(&["DBSIZE"]).int(), 0);
    }
}

#[test]
fn who_may_not_log_in_is_told_why() {
    let server = guarded(users(), Engine::Redis);
    let report = DoctorOutput::of(&server.url_for("checkdam", "wrong"));
    report.assert("connection", "problem", &["login was refused", "checkdam"]);
    assert_eq!((report.code, &report.json["servers"][0]["reached"]), (Some(2), &Value::from(false)));
    let report = DoctorOutput::of(&server.url());
    report.assert("connection", "problem", &["asks for a login", "user:password@"]);
    assert_eq!(report.code, Some(2));
}

#[test]
fn what_cannot_be_reached_is_exit_2_with_the_reason() {
    let report = DoctorOutput::of(&format!("redis://127.0.0.1:{}", free_port()));
    report.assert("connection", "problem", &["nothing listens there", "correct the address"]);
    assert_eq!(report.code, Some(2));
    let report = DoctorOutput::of("redis://checkdam-doctor.invalid:6379");
    report.assert("connection", "problem", &["host name is not known"]);
    assert_eq!(report.code, Some(2));
    let server = Redis::start();
    let report = DoctorOutput::of(&format!("{}/99", server.url()));
    report.assert("connection", "problem", &["no database of that number", "`databases`"]);
    assert_eq!(report.code, Some(2));
    for url in ["localhost", "http://127.0.0.1:6379", "redis-sentinel://127.0.0.1:26379"] {
        let output = run(&["doctor", "--store", url]);
        assert_eq!(output.status.code(), Some(2), "{url}");
        assert!(output.stdout.is_empty() && text(&output.stderr).contains("is not understood"), "{output:?}");
    }
}

#[test]
fn a_server_that_hangs_is_not_waited_for() {
    let server = Redis::start();
    server.pause();
    let start = Instant::now();
    let report = DoctorOutput::of(&server.url());
    report.assert("connection", "problem", &["no answer"]);
    assert_eq!(report.code, Some(2));
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
}

#[test]
fn certificates_are_explained() {
    let server = Redis::builder().tls(true).start();
    let ca = server.tls().ca_path();
    let report = DoctorOutput::with(&server.url(), &["--store-ca", ca.to_str().unwrap()]);
    report.assert_no_problem();
    report.assert("connection", "ok", &["over TLS"]);
    let report = DoctorOutput::of(&server.url());
    report.assert("connection", "problem", &["not trusted", "--store-ca"]);
    assert_eq!(report.code, Some(2));
    let report = DoctorOutput::of(&server.url().replace("rediss", "redis"));
    report.assert("connection", "problem", &["rediss://"]);
    assert_eq!(report.code, Some(2));
    let elsewhere = Redis::builder().tls_wrong_host().start();
    let report = DoctorOutput::with(&elsewhere.url(), &["--store-ca", elsewhere.tls().ca_path().to_str().unwrap()]);
    report.assert("connection", "problem", &["another host name"]);
    assert_eq!(report.code, Some(2));
    let plain = Redis::start();
    let report = DoctorOutput::of(&plain.url().replace("redis", "rediss"));
    report.assert("connection", "problem", &["redis:// instead of rediss://"]);
    assert_eq!(report.code, Some(2));
}

#[test]
fn memory_is_judged() {
    let server = Redis::builder().args(["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]).start();
    let report = DoctorOutput::of(&server.url());
    report.assert_no_problem();
    report.assert("eviction", "warning", &["allkeys-lru", "volatile-ttl"]);
    report.assert("memory", "ok", &["of 100 MiB"]);
    let server = Redis::builder().args(["--maxmemory", "1"]).start();
    let report = DoctorOutput::of(&server.url());
    report.assert("memory", "problem", &["refuses to write", "raise maxmemory"]);
    report.assert("permissions", "ok", &[]);
    report.assert("decisions", "problem", &["see memory"]);
    assert_eq!(report.code, Some(1));
}

#[test]
fn persistence_and_replicas_are_judged() {
    let master = Redis::builder().args(["--appendonly", "yes", "--appendfsync", "always"]).start();
    let port = master.addr().port().to_string();
    let replica = Redis::builder().args(["--replicaof", "127.0.0.1", &port]).start();
    testkit::wait_until("the replica to be in sync", Duration::from_secs(20), || {
        master.info("replication").contains("state=online")
    });
    let report = DoctorOutput::of(&master.url());
    report.assert_no_problem();
    report.assert("persistence", "advice", &["waits for the disk", "everysec"]);
    report.assert("replicas", "advice", &["a master with 1 replica", "min-replicas-to-write"]);
    let report = DoctorOutput::of(&replica.url());
    report.assert("replicas", "problem", &["is a replica", "name the master"]);
    report.assert("decisions", "problem", &["READONLY", "name the master"]);
    assert_eq!(report.code, Some(1));
}

#[test]
fn a_clock_out_of_step_is_seen() {
    for (step_us, word) in [(3_605_500_000, "ahead of"), (-7_211_000_000, "behind")] {
        let server = Redis::builder().with_clock_shim().start();
        server.step_clock(step_us);
        let report = DoctorOutput::of(&server.url());
        report.assert_no_problem();
        report.assert("clock", "warning", &[word, "NTP", "decisions use the server's"]);
    }
}

#[test]
fn a_server_too_far_away_is_a_problem() {
    let server = Redis::start();
    let proxy = FaultProxy::start(server.addr());
    proxy.set_replies(Mode::Delay(Duration::from_millis(30)));
    let url = format!("redis://{}", proxy.addr());
    let report = DoctorOutput::of(&url);
    report.assert("round trip", "problem", &["the deadline is 18 ms", "cannot be met", "--store-deadline"]);
    assert_eq!(report.code, Some(1));
    let report = DoctorOutput::with(&url, &["--store-deadline", "10s"]);
    report.assert("round trip", "ok", &[]);
    report.assert_no_problem();
}

#[test]
fn every_master_of_a_cluster_is_examined() {
    let cluster = Cluster::builder().masters(3).replicas_per_master(0).start();
    let report = DoctorOutput::of(&cluster.url());
    report.assert_no_problem();
    assert_eq!(report.servers().len(), 3, "{:#}", report.json);
    report.assert("slots", "ok", &["all 16384", "3 masters"]);
    report.assert("cluster", "ok", &[]);
    report.assert("failover", "advice", &["without a replica", &cluster.nodes()[1].addr().to_string()]);
    report.assert("clocks", "ok", &[]);
    assert_eq!(report.findings("decisions").len(), 3);
    for node in cluster.nodes() {
        assert_eq!(node.command(&["DBSIZE"]).int(), 0);
    }
    let report = DoctorOutput::of(&cluster.nodes()[0].url());
    report.assert("kind", "problem", &["redis-cluster://"]);
    assert_eq!(report.code, Some(1));
    let report = DoctorOutput::of(&Redis::start().url().replace("redis", "redis-cluster"));
    report.assert("slots", "problem", &["it is no cluster"]);
    assert_eq!(report.code, Some(2));

    let killed = cluster.kill_master(0);
    let report = DoctorOutput::of(&cluster.url());
    assert_eq!(report.code, Some(1), "{:#}", report.json);
    report.assert("connection", "problem", &["nothing listens there"]);
    let address = cluster.nodes()[killed].addr().to_string();
    let lost = report.servers().iter().filter(|server| server["address"] == address.as_str());
    assert_eq!(lost.map(|server| &server["reached"]).collect::<Vec<_>>(), [&Value::from(false)]);
}

#[test]
fn sentinels_and_their_master_are_examined() {
    let sentinel = Sentinel::start();
    let report = DoctorOutput::of(&sentinel.url());
    report.assert_no_problem();
    assert_eq!(report.servers().len(), 4, "one master and three Sentinels: {:#}", report.json);
    let master = sentinel.servers()[sentinel.current_master()].addr().to_string();
    assert_eq!(report.servers()[0]["address"], master.as_str());
    report.assert("master", "ok", &[&master]);
    report.assert("quorum", "ok", &[]);
    report.assert("sentinels", "ok", &["3 of 3"]);
    report.assert("replicas", "advice", &["2 replicas"]);
    let report = DoctorOutput::of(&sentinel.url().replace("mymaster", "other"));
    report.assert("master", "problem", &["no master named", "other"]);
    assert_eq!(report.code, Some(2));
    let report = DoctorOutput::of(&sentinel.sentinels()[0].url());
    report.assert("kind", "problem", &["a Sentinel", "redis-sentinel://"]);
    assert_eq!(report.code, Some(1));
    sentinel.sentinels()[2].kill();
    let report = DoctorOutput::of(&sentinel.url());
    report.assert_no_problem();
    report.assert("sentinels", "warning", &["2 of 3"]);
    report.assert("connection", "warning", &["nothing listens there"]);
}

#[test]
fn the_store_is_named_as_for_serve() {
    let output = run(&["doctor"]);
    assert_eq!(output.status.code(), Some(0));
    insta::assert_snapshot!(text(&output.stdout), @r"
    The buckets live in memory: there is no server to examine.
    Name one with --store redis://host:port, CHECKDAM_STORE, or store in checkdam.toml.
    ");
    let output = run(&["doctor", "--store", "memory", "--json"]);
    assert_eq!(text(&output.stdout), "{\"findings\":[],\"servers\":[],\"store\":\"memory\"}\n");
    let server = Redis::start();
    let by_variable = checkdam().args(["doctor", "--json"]).env("CHECKDAM_STORE", server.url()).output().unwrap();
    assert_eq!(by_variable.status.code(), Some(0), "{by_variable:?}");
    let file = folder().join("checkdam.toml");
    std::fs::write(&file, format!("store = \"{}\"\nstore_deadline = \"250ms\"\n", server.url())).unwrap();
    let output = run(&["doctor", "--config", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).contains("the deadline is 250 ms"), "{output:?}");
}

//! A server configured by the variables of envoyproxy/ratelimit.

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::Redis;

use crate::server_process::{Server, checkdam, folder, text};

const BODY: &str = r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "k"}]}]}"#;

/// A runtime root with one file.
fn root() -> PathBuf {
    let root = folder();
    let config = root.join("ratelimit/config");
    std::fs::create_dir_all(&config).unwrap();
    let rules = "domain: edge\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 3}}]";
    std::fs::write(config.join("edge.yaml"), rules).unwrap();
    root
}

fn serve(root: &Path, variables: &[(&str, &str)]) -> Command {
    let mut command = checkdam();
    command.arg("serve").env_remove("CHECKDAM_GRPC_LISTEN").envs([
        ("RUNTIME_ROOT", root.to_str().unwrap()),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("PORT", "0"),
        ("GRPC_PORT", "0"),
        // Longer than a busy machine takes.
        ("CHECKDAM_STORE_DEADLINE", "2s"),
    ]);
    command.envs(variables.iter().copied());
    command
}

fn statuses(server: &Server) -> Vec<u16> {
    (0..4).map(|_| server.client().post("/json", BODY).status).collect()
}

#[test]
fn its_variables_and_its_folder_are_enough() {
    let (redis, root) = (Redis::start(), root());
    let address = redis.addr().to_string();
    let variables = [
        ("BACKEND_TYPE", "redis"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", address.as_str()),
        ("LOG_LEVEL", "WARN"),
        ("USE_STATSD", "false"),
        ("NEAR_LIMIT_RATIO", "0.9"),
        ("CACHE_KEY_PREFIX", "prod:"),
    ];
    let mut server = Server::of(serve(&root, &variables));
    server.wait_for_log("NEAR_LIMIT_RATIO");
    assert!(server.log().contains(&format!("redis://{}", redis.addr())), "{}", server.log());
    assert!(server.address().starts_with("127.0.0.1:") && server.grpc_address().starts_with("127.0.0.1:"));
    assert_eq!(statuses(&server), [200, 200, 200, 429]);
    let keys = format!("{:?}", redis.command(&["KEYS", "*"]));
    assert!(keys.contains("cd:prod:{"), "{keys}");
    // Another environment in the same Redis counts apart; what became of each variable is logged.
    let mut variables = variables;
    variables[3] = ("LOG_LEVEL", "INFO");
    variables[6] = ("CACHE_KEY_PREFIX", "stage:");
    let server = Server::of(serve(&root, &variables));
    assert_eq!(statuses(&server), [200, 200, 200, 429]);
    let log = server.log();
    for (name, part) in [
        ("CACHE_KEY_PREFIX", "read as key_prefix"),
        ("RUNTIME_ROOT", "read as rules"),
        ("PORT", "read as http_listen"),
        ("USE_STATSD", "as it is here"),
        ("NEAR_LIMIT_RATIO", "no metric counts"),
    ] {
        let line = log.lines().find(|line| line.contains(&format!("\"{name}\"")));
        assert!(line.is_some_and(|line| line.contains(part)), "{name} {part}: {log}");
    }
}

#[test]
fn a_login_and_tls_beside_a_url_are_not_dropped() {
    let redis = Redis::start();
    redis.command(&["CONFIG", "SET", "requirepass", "sesame"]);
    let url = format!("redis://{}", redis.addr());
    // With and without the other variables.
    let root = root();
    let server = Server::of(serve(&root, &[("REDIS_URL", &url), ("REDIS_AUTH", "sesame")]));
    assert_eq!(statuses(&server), [200, 200, 200, 429]);
    let metrics = server.client().get("/metrics").body;
    let parts = ["rate_limiter_requests_total", "decision=\"allowed\"", "store=\"redis\""];
    let counted = metrics.lines().filter(|line| parts.iter().all(|part| line.contains(part)));
    assert!(counted.clone().any(|line| line.ends_with(" 3")), "{:?}", counted.collect::<Vec<_>>());
    for variables in [&[("RUNTIME_ROOT", root.to_str().unwrap()), ("RUNTIME_SUBDIRECTORY", "ratelimit")][..], &[]] {
        let mut command = checkdam();
        command.args(["config", "check", "--json"]).envs(variables.iter().copied());
        let checked = command.env("REDIS_URL", &url).env("REDIS_TLS", "true").output().unwrap();
        let said = text(&checked.stdout);
        assert!(said.contains(&format!("rediss://{}", redis.addr())), "{said} {}", text(&checked.stderr));
    }
}

#[test]
fn what_cannot_be_done_is_said_and_nothing_starts() {
    for (variables, part) in [
        (&[("RUNTIME_ROOT", "/data"), ("BACKEND_TYPE", "memcache")][..], "BACKEND_TYPE is \"memcache\""),
        (&[("RUNTIME_ROOT", "/data"), ("GRPC_UDS", "/run/ratelimit.sock")], "GRPC_PORT"),
        (&[("RUNTIME_ROOT", "/data"), ("CACHE_KEY_PREFIX", "{a}"), ("REDIS_URL", "h:1")], "key_prefix is \"{a}\""),
        (&[("USE_STATSD", "false"), ("PORT", "8080")], "USE_STATSD: these are variables of envoyproxy/ratelimit"),
        (&[("RUNTIME_SUBDIRECTORY", "x")], "/srv/runtime_data/current/x/config"),
    ] {
        let output = checkdam().arg("serve").envs(variables.iter().copied()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(part), "{output:?}");
    }
}

/// What the image sets opens its listeners, and leaves their ports to others.
#[test]
fn in_the_image_its_ports_count() {
    let dockerfile = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Dockerfile")).unwrap();
    let set = dockerfile.split_whitespace().filter_map(|word| word.split_once('='));
    let image: Vec<_> = set.filter(|(name, _)| name.starts_with("CHECKDAM_")).collect();
    assert!(image.len() > 2, "{image:?}");
    let root = root();
    let listen = |variables: &[(&str, &str)]| {
        let mut command = checkdam();
        command.args(["config", "check", "--json"]).env_remove("CHECKDAM_GRPC_LISTEN").envs(image.iter().copied());
        let checked = command.env("CHECKDAM_DATA_DIR", folder()).envs(variables.iter().copied()).output().unwrap();
        let said: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap_or_else(|_| panic!("{checked:?}"));
        let value = |name: &str| {
            let setting = said["settings"].as_array().unwrap().iter().find(|setting| setting["name"] == name).unwrap();
            setting["value"].as_str().unwrap().to_owned()
        };
        [value("http_listen"), value("grpc_listen")]
    };
    let set_up = [("RUNTIME_ROOT", root.to_str().unwrap()), ("RUNTIME_SUBDIRECTORY", "ratelimit")];
    assert_eq!(listen(&[]), ["0.0.0.0:8080", "0.0.0.0:8081"]);
    assert_eq!(listen(&[&set_up[..], &[("PORT", "9080")]].concat()), ["0.0.0.0:9080", "0.0.0.0:8081"]);
    let hosts = [("HOST", "10.0.0.1"), ("GRPC_HOST", "10.0.0.2"), ("GRPC_PORT", "9081")];
    assert_eq!(listen(&[&set_up[..], &hosts].concat()), ["10.0.0.1:8080", "10.0.0.2:9081"]);
}

#[test]
fn redis_url_by_itself_names_the_store() {
    let redis = Redis::start();
    let mut command = checkdam();
    command.args(["serve", "--http-listen", "127.0.0.1:0"]).env("REDIS_URL", redis.url());
    let server = Server::of(command);
    let answer = server.client().ok("/v1/check", r#"{"attributes": {"user": "42", "plan": "free"}}"#);
    assert_eq!(answer["decided_by"], "redis");
    // It is a hint: what is no URL of Redis is somebody else's.
    let mut command = checkdam();
    command.args(["serve", "--http-listen", "127.0.0.1:0"]).env("REDIS_URL", "tcp://10.0.0.1:6379");
    assert!(Server::of(command).log().contains("store      memory"));
}

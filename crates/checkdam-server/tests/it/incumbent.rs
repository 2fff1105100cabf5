//! A server that is set up by the variables of envoyproxy/ratelimit.

use testkit::Redis;

use crate::process::{Server, checkdam, folder, text};

#[test]
fn its_variables_and_its_folder_are_enough() {
    let redis = Redis::start();
    let root = folder();
    let config = root.join("ratelimit/config");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(
        config.join("edge.yaml"),
        "domain: edge\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 3}}]",
    )
    .unwrap();
    let mut command = checkdam();
    command.arg("serve").env_remove("CHECKDAM_GRPC_LISTEN").envs([
        ("RUNTIME_ROOT", root.to_str().unwrap()),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("BACKEND_TYPE", "redis"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", &redis.addr().to_string()),
        ("PORT", "0"),
        ("GRPC_PORT", "0"),
        ("LOG_LEVEL", "WARN"),
        ("USE_STATSD", "false"),
        ("NEAR_LIMIT_RATIO", "0.9"),
    ]);
    let mut server = Server::of(command);
    server.wait_for_log("NEAR_LIMIT_RATIO");
    assert!(server.log().contains(&format!("redis://{}", redis.addr())), "{}", server.log());
    assert!(server.address().starts_with("127.0.0.1:") && server.grpc_address().starts_with("127.0.0.1:"));
    let body = r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "k"}]}]}"#;
    let statuses: Vec<_> = (0..4).map(|_| server.client().post("/json", body).status).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
}

#[test]
fn what_cannot_be_done_is_said_and_nothing_starts() {
    let output =
        checkdam().arg("serve").envs([("RUNTIME_ROOT", "/data"), ("BACKEND_TYPE", "memcache")]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("BACKEND_TYPE is \"memcache\""), "{output:?}");
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

//! The layer with tonic: denied calls get a gRPC status.

use checkdam::layer::RateLimitLayer;
use checkdam::store::{MemoryOptions, MemoryStore};
use tonic::Code;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::setup::limiter;

const RULES: &str = r#"
rules:
  - { name: per-user, key: "user:{user}", when: { method: "/grpc.health.v1.Health/*" }, limits: ["1/h burst 2"] }
bans:
  - { subject: "user:mallory", reason: "100 % böse" }
"#;

#[tokio::test]
async fn a_grpc_call_that_does_not_pass_fails_with_a_status_and_its_reason() {
    let limiter = limiter(RULES, MemoryStore::new(MemoryOptions::default()));
    let layer = RateLimitLayer::builder(limiter).header("user", "x-user").path("method").build().unwrap();
    let (_reporter, health) = tonic_health::server::health_reporter();
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", incoming.local_addr().unwrap());
    tokio::spawn(Server::builder().layer(layer).add_service(health).serve_with_incoming(incoming));

    let mut client = HealthClient::new(Endpoint::from_shared(url).unwrap().connect().await.unwrap());
    let asked = |user: &'static str| {
        let mut request = tonic::Request::new(HealthCheckRequest::default());
        request.metadata_mut().insert("x-user", user.parse().unwrap());
        request
    };
    for remaining in ["1", "0"] {
        let answer = client.check(asked("42")).await.unwrap();
        assert_eq!(answer.metadata().get("x-ratelimit-remaining").unwrap(), remaining);
    }
    let denied = client.check(asked("42")).await.unwrap_err();
    assert_eq!(denied.code(), Code::ResourceExhausted);
    assert!(denied.message().starts_with("rule \"per-user\" (1/h burst 2) is exceeded"), "{denied:?}");
    let wait_ms: u64 = denied.metadata().get("grpc-retry-pushback-ms").unwrap().to_str().unwrap().parse().unwrap();
    assert!((3_500_000..=3_600_000).contains(&wait_ms), "{denied:?}");
    assert!(denied.metadata().contains_key("retry-after"), "{denied:?}");

    let banned = client.check(asked("mallory")).await.unwrap_err();
    assert_eq!((banned.code(), banned.message()), (Code::PermissionDenied, "the request is banned"));
    assert!(client.check(asked("43")).await.is_ok(), "the connection lives on");
}

//! A rate-limited gRPC service: denied calls get RESOURCE_EXHAUSTED. Run it with
//! `cargo run -p checkdam --features tower --example tonic`; it calls itself until it
//! is denied.
#![allow(clippy::print_stdout)]

use std::sync::Arc;

use checkdam::layer::{Address, RateLimitLayer};
use checkdam::store::{MemoryOptions, MemoryStore};
use checkdam::{Limiter, rule_file};
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::transport::{Endpoint, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

const RULES: &str = r#"
rules:
  - { name: per-caller, key: "ip:{ip}", when: { method: "/grpc.health.v1.Health/*" }, limits: ["1/s burst 3"] }
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::new(rule_file::compile(RULES)?, MemoryStore::new(MemoryOptions::default()));
    let peer = |parts: &http::request::Parts| Some(parts.extensions.get::<TcpConnectInfo>()?.remote_addr()?.ip());
    let limits = RateLimitLayer::builder(Arc::new(limiter)).address("ip", Address::of(peer)).path("method").build()?;

    let (_, health) = tonic_health::server::health_reporter();
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse()?)?;
    let url = format!("http://{}", incoming.local_addr()?);
    tokio::spawn(Server::builder().layer(limits).add_service(health).serve_with_incoming(incoming));

    let mut client = HealthClient::new(Endpoint::from_shared(url)?.connect().await?);
    for call in 1..=5 {
        match client.check(HealthCheckRequest::default()).await {
            Ok(_) => println!("call {call}: answered"),
            Err(status) => println!("call {call}: {:?}: {}", status.code(), status.message()),
        }
    }
    Ok(())
}

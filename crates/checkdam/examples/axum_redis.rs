//! An axum service whose limits are shared through Redis by all its processes. Run it
//! twice, on two ports, with `cargo run -p checkdam --features redis,tower --example
//! axum_redis -- redis://127.0.0.1:6379 127.0.0.1:3000`.
#![allow(clippy::print_stdout)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use checkdam::layer::{Address, RateLimitLayer};
use checkdam::store::redis::{RedisOptions, RedisStore};
use checkdam::{Limiter, rule_file};

/// Jobs are spaced out instead of refused: three wait at most, half a second apart.
const RULES: &str = r#"
rules:
  - { name: per-address, key: "ip:{ip}", limits: ["10/s burst 20"], on_store_failure: open }
  - { name: jobs, key: "ip:{ip}", when: { endpoint: /jobs }, limits: ["2/s burst 3"], algorithm: leaky_bucket }
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let limiter = Limiter::new(rule_file::compile(RULES)?, RedisStore::new(RedisOptions::new(url))?);
    let limits = RateLimitLayer::builder(Arc::new(limiter))
        .address("ip", Address::of(|parts| Some(parts.extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip())))
        .path("endpoint")
        .delay_max(Duration::from_secs(2))
        .on_outcome(|request, outcome| println!("{:?} {:?}", request.get("endpoint"), outcome.verdict()))
        .build()?;
    let service = Router::new().route("/", get(|| async { "hello\n" })).route("/jobs", get(|| async { "done\n" }));
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, service.layer(limits).into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

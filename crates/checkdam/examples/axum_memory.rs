//! An axum service that limits by address and by API key, with buckets in
//! this process. Run it with
//! `cargo run -p checkdam --features tower --example axum_memory`, then
//! `curl -i -H 'x-api-key: me' http://127.0.0.1:3000/` a few times.
#![allow(clippy::print_stdout)]

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use checkdam::layer::{Address, RateLimitLayer};
use checkdam::store::{MemoryOptions, MemoryStore};
use checkdam::{Limiter, rule_file};

const RULES: &str = r#"
rules:
  - { name: per-address, key: "ip:{ip}", limits: ["10/s burst 20"] }
  - { name: per-key, key: "api_key:{api_key}", limits: ["1/s burst 5"] }
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::new(rule_file::compile(RULES)?, MemoryStore::new(MemoryOptions::default()));
    let limits = RateLimitLayer::builder(Arc::new(limiter))
        .address("ip", Address::of(|parts| Some(parts.extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip())))
        .header("api_key", "x-api-key")
        .path("endpoint")
        .build()?;
    let service = Router::new().route("/", get(|| async { "hello\n" })).layer(limits);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, service.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

//! What is measured, each suite by itself.

mod audit;
mod bytes;
mod dashboard;
mod growth;
mod lease;
mod limiter;
mod memory;
mod proxy;
mod redis;
mod rules;
mod servers;
mod shared;
mod tls;

pub use bytes::print_bytes;

use crate::session::Session;

/// One suite.
pub struct Suite {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it measures.
    pub about: &'static str,
    /// How long it takes with `--quick`, in seconds, for the estimate of the time left.
    pub share: f64,
    /// Measures it.
    pub run: fn(&mut Session),
}

const fn suite(name: &'static str, about: &'static str, share: f64, run: fn(&mut Session)) -> Suite {
    Suite { name, about, share, run }
}

/// All suites, in the order they run.
pub const ALL: &[Suite] = &[
    suite("memory", "a take in memory beside governor and others, and a bare compare-and-swap", 10.0, memory::run),
    suite("bytes", "memory a bucket, beside governor", 3.0, bytes::run),
    suite("limiter", "a whole check in memory beside limitador's", 2.0, limiter::run),
    suite("rules", "a check with 10 rules and with 100,000", 5.0, rules::run),
    suite("redis", "takes in Redis beside the classic script, by Redis' CPU time and memory", 15.0, redis::run),
    suite("lease", "a leased hot key beside a call of Redis for every check", 6.0, lease::run),
    suite("servers", "HTTP and gRPC checks in memory beside bare axum, bare tonic and nginx", 11.0, servers::run),
    suite("shared", "HTTP and gRPC checks on Redis beside limitador's library", 9.0, shared::run),
    suite("proxy", "the proxy beside nginx with limit_req", 5.0, proxy::run),
    suite("tls", "TLS handshakes beside nginx, by the server's CPU time", 5.0, tls::run),
    suite("growth", "buckets, rules, tiers, connections and shards: what more of them cost", 25.0, growth::run),
    suite("audit", "denials with and without their record; a start with 100,000 rules", 14.0, audit::run),
    suite("dashboard", "checks with and without the dashboard open in five browsers", 14.0, dashboard::run),
];

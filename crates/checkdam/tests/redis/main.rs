//! The Redis store on real servers: Redis and Valkey, one server, a cluster,
//! behind Sentinels, with TLS and with the smallest of permissions.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "tests against real servers measure real time"
)]

mod bounded;
mod cancellation;
mod contention;
mod contract;
mod distance;
mod failover;
mod fallback;
mod faults_clock;
mod faults_network;
mod faults_server;
mod kinds;
mod lease_nodes;
mod leases;
mod lifetimes;
mod setup;

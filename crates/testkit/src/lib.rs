//! Starts real servers for the tests and breaks them on request.
//!
//! Every guard here owns its processes and its files: dropping it, a panicking test, or the death of the test
//! process itself all clean up completely. A test is never skipped: a program that cannot be found, installed or
//! started is a panic with instructions. The kit runs on Unix only and must never be a dependency of anything published.
//!
//! | Type | What it starts |
//! |---|---|
//! | [`Redis`] | one Redis or Valkey server, optionally with TLS, ACL users or a clock under the test's control |
//! | [`Cluster`] | a cluster whose masters can be killed and whose slots can be moved step by step |
//! | [`Sentinel`] | a master, two replicas and three sentinels |
//! | [`Postgres`] | one PostgreSQL server that can be stopped, killed and started again |
//! | [`Daemon`] | any program with a configuration file: nginx, Caddy, Traefik, HAProxy |
//! | [`Envoy`] | one Envoy with a configuration of the test's |
//! | [`Prometheus`] | one Prometheus that scrapes the test's targets |
//! | [`Browser`] | a Chromium that opens pages, clicks, types and takes pictures |
//! | [`Upstream`] | an HTTP server that records the requests it received |
//! | [`FarRedis`] | a Redis behind a link with real delay |
//! | [`FaultProxy`] | a TCP proxy that delays, drops, cuts, throttles and refuses |
//!
//! ```no_run
//! use testkit::{FaultProxy, Mode, Redis};
//!
//! let redis = Redis::start();
//! let proxy = FaultProxy::start(redis.addr());
//! proxy.set_replies(Mode::CutAfter(0)); // the server executes, the reply is lost
//! redis.pause(); // SIGSTOP
//! ```

#![allow(clippy::disallowed_methods, reason = "real servers need real deadlines")]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "test machinery must fail loudly, where it fails"
)]

mod browser;
mod clock;
mod cluster;
mod connect_from;
mod connection;
mod daemon;
mod engine;
mod envoy;
mod far_redis;
mod install;
mod port;
mod postgres;
mod process;
mod prometheus;
mod proxy;
mod redis;
mod sentinel;
mod tls;
mod upstream;
mod wait;

pub use browser::{Browser, Element};
pub use cluster::{Cluster, ClusterBuilder, Migration};
pub use connect_from::connect_from;
pub use connection::{Connection, Reply};
pub use daemon::Daemon;
pub use engine::Engine;
pub use envoy::{Envoy, EnvoyPorts};
pub use far_redis::FarRedis;
pub use install::{
    caddy, curl, hadolint, haproxy, helm, nginx, openssl, redis_cli, redis_server, systemd_analyze, traefik,
    valkey_server,
};
pub use port::free_port;
pub use postgres::{Postgres, PostgresBuilder};
pub use prometheus::{Prometheus, run_promtool};
pub use proxy::{FaultProxy, Mode};
pub use redis::{Redis, RedisBuilder};
pub use sentinel::Sentinel;
pub use tls::{Authority, IssuedCertificate, Tls};
pub use upstream::Upstream;
pub use wait::wait_until;

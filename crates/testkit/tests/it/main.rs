//! Tests that the kit's servers start, fail and end as documented.

#![allow(clippy::disallowed_methods, reason = "these tests measure real time")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails where it fails")]

mod clock;
mod cluster;
mod module_cycles;
mod process;
mod proxy;
mod proxy_counters;
mod sentinel;
mod server;
mod tls;

//! The tower layer, in front of real services.
//!
//! - `sockets`: many concurrent clients through hyper, on memory and on Redis
//! - `service`: one request: attributes, cost, headers, delay, hooks
//! - `grpc`: through tonic
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests fail loudly")]

mod grpc;
mod service;
mod setup;
mod sockets;

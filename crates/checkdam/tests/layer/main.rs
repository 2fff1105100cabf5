//! The tower layer, before real services.
//!
//! - `sockets`: many clients at once through hyper, on memory and on Redis
//! - `service`: what one request meets: attributes, cost, headers, delay, hooks
//! - `grpc`: through tonic
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests fail loudly")]

mod grpc;
mod service;
mod setup;
mod sockets;

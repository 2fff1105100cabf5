//! Offline tools, which no request path uses: the load generator of `checkdam bench`, and
//! the simulation of rules over access logs.

#![allow(
    missing_docs,
    clippy::missing_errors_doc,
    clippy::must_use_candidate,
    reason = "a part of the checkdam program, no public interface"
)]

pub mod loadgen;
pub mod simulate;

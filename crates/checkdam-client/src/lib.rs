//! Clients for both sides of a rate limit.
//!
//! [`Client`] is for services that limit others: it asks a checkdam server whether a
//! request may pass. [`Polite`] is for programs that are limited, by checkdam or by
//! any server that sends rate-limit headers: it calls as fast as the limit permits,
//! and is hardly ever denied.
#![forbid(unsafe_code)]

mod answer;
mod client;
mod polite;
mod request;

pub use answer::{Answer, Ban, Tier};
pub use client::{CallError, Client, OnFailure, UrlError};
pub use polite::{Polite, PoliteError, PoliteOptions, Told};
pub use request::Request;

//! Two sides of a limit.
//!
//! [`Client`] is for services that limit others: it asks a checkdam server
//! whether a request may pass. [`Polite`] is for programs that are limited, by
//! checkdam or by anything that tells so in headers: it calls as fast as it
//! may, and is hardly ever refused.
#![forbid(unsafe_code)]

mod answer;
mod client;
mod polite;
mod request;

pub use answer::{Answer, Ban, Tier};
pub use client::{CallError, Client, OnFailure, UrlError};
pub use polite::{Polite, PoliteError, PoliteOptions, Told};
pub use request::Request;

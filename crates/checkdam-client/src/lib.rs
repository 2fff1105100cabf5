#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod answer;
mod client;
mod polite;
mod request;
#[cfg(feature = "tls")]
mod tls;

pub use answer::{Answer, Ban, Tier};
pub use client::{CallError, Client, OnFailure, TokenError, UrlError};
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use polite::fuzzing;
pub use polite::{Polite, PoliteError, PoliteOptions, RateLimitedResponse};
pub use request::Request;
#[cfg(feature = "tls")]
pub use tls::{ClientTls, ClientTlsError};

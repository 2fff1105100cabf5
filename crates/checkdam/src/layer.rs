//! A [tower](https://docs.rs/tower) layer for axum, tonic and hyper: limits
//! before the service is called.
//!
//! A request's attributes are read from its head by extractors; the rules say
//! which limits concern it. One that passes goes to the service, and its
//! response tells in headers where the caller stands. One that does not is
//! answered here, and the service is never called: 429 and a problem document,
//! or `RESOURCE_EXHAUSTED` where gRPC is spoken. One that a leaky bucket wants
//! held back waits here.
//!
//! An attribute that an extractor does not find is absent, and **rules that
//! need it do not concern the request**: beside a rule for users, have one for
//! addresses or for everybody. A header limits only those who cannot choose it,
//! so take users from what a proxy or your own authentication has vouched for.
//!
//! ```
//! use std::sync::Arc;
//! use checkdam::layer::{Address, RateLimitLayer};
//! use checkdam::store::{MemoryOptions, MemoryStore};
//! use checkdam::{Limiter, Rule, RuleSet};
//!
//! let rule = Rule::new("per-address", "ip:{ip}".parse()?, vec!["10/s burst 50".parse()?]);
//! let limiter = Limiter::new(RuleSet::new(vec![rule])?, MemoryStore::new(MemoryOptions::default()));
//! let layer = RateLimitLayer::builder(Arc::new(limiter))
//!     .address("ip", Address::peer().behind(["10.0.0.0/8".parse()?]))
//!     .path("endpoint")
//!     .method("method")
//!     .build()?;
//! # drop(layer);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Whoever holds the limiter shares its limits: several layers on one
//! `Arc<Limiter>` count together, and with
//! [`RedisStore`](crate::store) as the store so do all processes that name the
//! same Redis.

mod address;
mod builder;
mod denial;
mod problem;
mod service;
mod settings;

pub use address::Address;
pub use builder::{LayerError, RateLimitLayerBuilder};
pub use denial::Denial;
pub use service::{LimitedBody, RateLimit, ResponseFuture};

use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

use crate::limiter::Limiter;
use crate::store::Store;
use settings::Settings;

/// Puts limits before a service: see the [module](self).
pub struct RateLimitLayer<S> {
    settings: Arc<Settings<S>>,
}

impl<S: Store + 'static> RateLimitLayer<S> {
    /// A layer to be told what it reads from requests. As it is, it reads
    /// nothing, and only rules without attributes concern its requests.
    #[must_use]
    pub fn builder(limiter: Arc<Limiter<S>>) -> RateLimitLayerBuilder<S> {
        RateLimitLayerBuilder::new(limiter)
    }
}

impl<S> Clone for RateLimitLayer<S> {
    fn clone(&self) -> Self {
        Self { settings: Arc::clone(&self.settings) }
    }
}

impl<S> fmt::Debug for RateLimitLayer<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RateLimitLayer").field("settings", &self.settings).finish()
    }
}

impl<S, T> Layer<T> for RateLimitLayer<S> {
    type Service = RateLimit<T, S>;

    fn layer(&self, inner: T) -> RateLimit<T, S> {
        RateLimit::new(inner, Arc::clone(&self.settings))
    }
}

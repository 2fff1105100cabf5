//! A [tower](https://docs.rs/tower) layer for axum, tonic and hyper that limits
//! requests before the service is called.
//!
//! Extractors read a request's attributes from its head; the rules that apply to
//! them decide. An allowed request is passed to the service, and rate-limit headers
//! are added to its response. A denied request never reaches the service: the
//! response is 429 with problem details, or `RESOURCE_EXHAUSTED` for gRPC. A
//! request that a leaky bucket delays waits here.
//!
//! An attribute that an extractor does not find is absent, and **rules that
//! need it do not apply to the request**: beside a rule for users, have one for
//! addresses or for all requests. A client can choose its own headers, so take
//! users only from what a proxy or your own authentication has verified.
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
//! Layers with the same `Arc<Limiter>` share its limits; with
//! [`RedisStore`](crate::store) all processes on the same Redis do.

mod address;
mod builder;
mod denial;
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
    /// A builder of a layer. Without extractors it reads nothing, and only rules without
    /// attributes apply to its requests.
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

//! Envoy's rate limit service (`ShouldRateLimit`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use checkdam::Outcome;
use tonic::{Response, Status};

use super::request::{self, DecisionError, DescriptorRequests};
use super::{dynamic_metadata, privileged, response};
use crate::app::App;
use crate::config::RateLimitOptions;
use checkdam_envoy_proto::{Code, RateLimitRequest, RateLimitResponse, RateLimitService};

/// The rate limit service, for gRPC and JSON.
#[derive(Debug)]
pub struct EnvoyRateLimits {
    app: Arc<App>,
    options: RateLimitOptions,
    /// Whether refunds and limits of requests over gRPC are ignored.
    ignores_privileged: bool,
    /// How many requests were answered with an error.
    refused: AtomicU64,
    /// How many requests had something that was ignored.
    restricted: AtomicU64,
}

impl EnvoyRateLimits {
    pub const fn new(app: Arc<App>, options: RateLimitOptions) -> Self {
        Self { app, options, ignores_privileged: false, refused: AtomicU64::new(0), restricted: AtomicU64::new(0) }
    }

    /// The same for a gRPC listener that accepts privileged requests, or ignores what makes
    /// a request privileged.
    pub fn accepting_privileged(self, is_accepting: bool) -> Self {
        Self { ignores_privileged: !is_accepting, ..self }
    }

    /// Charges all descriptors, or none.
    pub async fn decide(&self, message: &RateLimitRequest) -> Result<RateLimitResponse, DecisionError> {
        let DescriptorRequests { checks, refunds } = request::read(message, self.options.is_quota)?;
        if self.app.limiter().rules().is_empty() {
            return Err(DecisionError::NoRules);
        }
        let together = self.app.check_together(&checks).await;
        let mut outcomes: Vec<&Outcome> = together.outcomes().iter().collect();
        // Refunds pass whatever the others do.
        let mut refunded = Vec::with_capacity(refunds.len());
        for (index, request) in &refunds {
            refunded.push((*index, self.app.refund(request).await));
        }
        for (index, outcome) in &refunded {
            // In the order of the descriptors, so that all before it are there.
            outcomes.insert((*index).min(outcomes.len()), outcome);
        }
        Ok(self.response(message, &outcomes, together.is_allowed()))
    }

    /// The same as gRPC: what cannot be decided is an error.
    pub(super) async fn respond(&self, message: &RateLimitRequest) -> Result<RateLimitResponse, Status> {
        let restricted = if self.ignores_privileged { privileged::without(message) } else { None };
        if restricted.is_some() {
            self.warn_of_privileged();
        }
        self.decide(restricted.as_ref().unwrap_or(message)).await.map_err(|refusal| {
            let refused = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
            // Envoy lets such requests pass, so this is logged, but not a thousand times a
            // second.
            if refused.is_power_of_two() {
                tracing::warn!(%refusal, refused, "a rate limit request could not be decided");
            }
            refusal.into()
        })
    }

    /// Logged, and shown to operators: Envoy's configuration has no effect.
    fn warn_of_privileged(&self) {
        let ignored = self.restricted.fetch_add(1, Ordering::Relaxed) + 1;
        if ignored.is_power_of_two() {
            tracing::warn!(ignored, "{}", privileged::IGNORED);
            self.app.warnings().set("privileged_requests", Some(privileged::IGNORED.to_owned()));
        }
    }

    fn response(&self, message: &RateLimitRequest, outcomes: &[&Outcome], is_allowed: bool) -> RateLimitResponse {
        let statuses: Vec<_> = outcomes.iter().map(|outcome| response::status(outcome)).collect();
        let is_quota = |outcome: &&Outcome| {
            self.options.is_quota || outcome.descriptor().is_some_and(|descriptor| descriptor.is_quota_mode)
        };
        let headers = self
            .options
            .headers
            .as_ref()
            .map(|names| response::headers(names, &statuses, &outcomes.iter().map(is_quota).collect::<Vec<_>>()));
        let is_allowed = is_allowed || self.options.is_shadow;
        RateLimitResponse {
            overall_code: if is_allowed { Code::Ok } else { Code::OverLimit }.into(),
            statuses,
            response_headers_to_add: headers.unwrap_or_default(),
            dynamic_metadata: self.options.has_metadata.then(|| dynamic_metadata::build(message, outcomes)),
            ..RateLimitResponse::default()
        }
    }
}

#[tonic::async_trait]
impl RateLimitService for EnvoyRateLimits {
    async fn should_rate_limit(
        &self,
        request: tonic::Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        self.respond(request.get_ref()).await.map(Response::new)
    }
}

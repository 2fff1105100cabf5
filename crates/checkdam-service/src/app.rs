//! The application: rules, store, telemetry and readiness. Every listener decides
//! through it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use checkdam::headers::Dialect;
use checkdam::{Batch, Limiter, Outcome, Request, RuleSet};
use checkdam_net::{LoadShedding, ServerState};

use crate::audit::{Audit, ShadowEffects};
use crate::operator_warnings::Warnings;
use crate::readiness::{Readiness, all_rules_need_store};
use crate::rulebook::{ReloadStatus, Snapshot};
use crate::store::ConfiguredStore;
use crate::telemetry::{Observation, Telemetry};
use crate::trace::Tracer;

/// State that all listeners share.
#[derive(Debug)]
pub struct App {
    limiter: Limiter<ConfiguredStore>,
    /// What the active rules were compiled from.
    rule_snapshot: ArcSwap<Snapshot>,
    loading: ReloadStatus,
    warnings: Warnings,
    /// The audit log; none if nothing is recorded.
    audit: Option<Arc<Audit>>,
    effects: ShadowEffects,
    telemetry: Telemetry,
    server: Arc<ServerState>,
    tracer: Arc<Tracer>,
    /// Only for how long decisions take.
    stopwatch: quanta::Clock,
    dialect: Dialect,
    /// Whether the active rules can decide nothing without their store.
    needs_store: AtomicBool,
}

impl App {
    pub fn new(
        (rules, rule_snapshot): (RuleSet, Snapshot),
        store: ConfiguredStore,
        dialect: Dialect,
        audit: Option<Arc<Audit>>,
        (telemetry, tracer, server): (Telemetry, Tracer, ServerState),
    ) -> Self {
        let effects = ShadowEffects::default();
        effects.set_rules(&rules);
        let needs_store = all_rules_need_store(&rules);
        let limiter = Limiter::new(rules, store);
        telemetry.set_rules(&limiter.rules(), &rule_snapshot);
        Self {
            limiter,
            rule_snapshot: ArcSwap::from_pointee(rule_snapshot),
            loading: ReloadStatus::new(),
            warnings: Warnings::default(),
            audit,
            effects,
            telemetry,
            server: Arc::new(server),
            tracer: Arc::new(tracer),
            stopwatch: quanta::Clock::new(),
            dialect,
            needs_store: AtomicBool::new(needs_store),
        }
    }

    /// Replaces the active rules atomically.
    pub fn activate(&self, rules: RuleSet, rule_snapshot: Snapshot) {
        self.effects.set_rules(&rules);
        self.needs_store.store(all_rules_need_store(&rules), Ordering::Relaxed);
        self.limiter.set_rules(rules);
        self.telemetry.set_rules(&self.limiter.rules(), &rule_snapshot);
        self.rule_snapshot.store(Arc::new(rule_snapshot));
        self.loading.set_loaded();
    }

    /// Charges every tier that applies to the request, or none.
    pub async fn check(&self, request: &Request<'_>) -> Outcome {
        let _deciding = self.server.overload().begin_decision();
        let start = self.stopwatch.raw();
        let outcome = self.limiter.check(request).await;
        self.observe(request, &outcome, start);
        outcome
    }

    /// The same for a listener that delays requests as a leaky bucket demands, by this
    /// time at most.
    pub async fn check_with_delay(&self, request: &Request<'_>, delay_max: Duration) -> Outcome {
        let delay_max_us = u64::try_from(delay_max.as_micros()).unwrap_or(u64::MAX);
        let _deciding = self.server.overload().begin_decision();
        let start = self.stopwatch.raw();
        let outcome = self.limiter.check_within(request, delay_max_us).await;
        self.observe(request, &outcome, start);
        outcome
    }

    /// Charges every tier that applies to any of the requests, or none; metered costs also
    /// if the requests are denied.
    pub async fn check_together(&self, requests: &[Request<'_>]) -> Batch {
        let _deciding = self.server.overload().begin_decision();
        let start = self.stopwatch.raw();
        let together = self.limiter.check_batch(requests).await;
        self.observe_batch(requests, together.outcomes(), together.is_allowed(), start);
        for (request, outcome) in requests.iter().zip(together.outcomes()).filter(|(request, _)| request.is_metered()) {
            self.telemetry.record_usage(request, outcome);
        }
        self.telemetry.add_cut_off(together.cut_off());
        together
    }

    fn observe(&self, request: &Request<'_>, outcome: &Outcome, start: u64) {
        let (requests, outcomes) = (std::slice::from_ref(request), std::slice::from_ref(outcome));
        self.observe_batch(requests, outcomes, outcome.is_allowed(), start);
    }

    /// Everything that is seen of a decision is seen here.
    fn observe_batch(&self, requests: &[Request<'_>], outcomes: &[Outcome], is_allowed: bool, start: u64) {
        let latency = self.stopwatch.delta(start, self.stopwatch.raw());
        let seen = Observation::new(requests, outcomes, is_allowed, latency);
        for (request, outcome) in seen.iter() {
            // A request that passes with the others was not denied, whatever one limit decided.
            if let Some(audit) = self.audit.as_ref().filter(|_| !is_allowed) {
                audit.record(request, outcome);
            }
            log_decision("check", request, outcome);
            self.effects.record(request, outcome);
        }
        self.telemetry.record(seen);
        if let Some(trace) = self.tracer.record(&seen) {
            self.telemetry.set_trace(&seen, trace);
        }
    }

    /// Answers as a check would, charging nothing.
    pub async fn peek(&self, request: &Request<'_>) -> Outcome {
        let _deciding = self.server.overload().begin_decision();
        let outcome = self.limiter.peek(request).await;
        log_decision("peek", request, &outcome);
        outcome
    }

    /// Charges every tier that applies to the request with what was used already, whatever
    /// is left. That is no decision: it is neither counted nor recorded as one.
    pub async fn record(&self, request: &Request<'_>) -> Outcome {
        let _deciding = self.server.overload().begin_decision();
        let outcome = self.limiter.record(request).await;
        self.telemetry.record_usage(request, &outcome);
        self.telemetry.add_cut_off(outcome.cut_off());
        log_decision("record", request, &outcome);
        outcome
    }

    pub async fn refund(&self, request: &Request<'_>) -> Outcome {
        let _deciding = self.server.overload().begin_decision();
        let outcome = self.limiter.refund(request).await;
        log_decision("refund", request, &outcome);
        outcome
    }

    pub async fn reset(&self, request: &Request<'_>) -> Outcome {
        let _deciding = self.server.overload().begin_decision();
        let outcome = self.limiter.reset(request).await;
        log_decision("reset", request, &outcome);
        outcome
    }

    pub const fn limiter(&self) -> &Limiter<ConfiguredStore> {
        &self.limiter
    }

    /// What the active rules were compiled from.
    pub fn rule_snapshot(&self) -> Arc<Snapshot> {
        self.rule_snapshot.load_full()
    }

    /// Whether these are the newest.
    pub const fn reload_status(&self) -> &ReloadStatus {
        &self.loading
    }

    pub const fn warnings(&self) -> &Warnings {
        &self.warnings
    }

    /// The audit log; none if nothing is recorded.
    pub fn audit(&self) -> Option<&Audit> {
        self.audit.as_deref()
    }

    pub const fn shadow_effects(&self) -> &ShadowEffects {
        &self.effects
    }

    pub const fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    pub fn overload(&self) -> &LoadShedding {
        self.server.overload()
    }

    pub const fn server(&self) -> &Arc<ServerState> {
        &self.server
    }

    pub const fn tracer(&self) -> &Arc<Tracer> {
        &self.tracer
    }

    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Whether the active rules can decide nothing without their store.
    pub fn needs_store(&self) -> bool {
        self.needs_store.load(Ordering::Relaxed)
    }

    /// Whether the node should get requests.
    pub fn readiness(&self) -> Readiness {
        if self.server.is_shutting_down() {
            Readiness::Draining
        } else if self.needs_store() && self.limiter.store().is_unreachable() {
            Readiness::StoreAway
        } else {
            Readiness::Ready
        }
    }
}

/// One event a decision; it names the rule, never the client's key.
fn log_decision(operation: &'static str, request: &Request<'_>, outcome: &Outcome) {
    tracing::debug!(
        operation,
        allowed = outcome.is_allowed(),
        cost = request.cost(),
        violated = outcome.violated().map(|tier| tier.rule.name.as_str()),
        retry_after_us = outcome.retry_after().map(|wait| wait.as_micros() as u64),
        tiers = outcome.tiers().len(),
        decided_by = outcome.decided_by().name(),
        "decided"
    );
}

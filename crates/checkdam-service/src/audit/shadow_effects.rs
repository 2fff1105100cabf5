//! Effects of rules in shadow mode: what they would have denied.
//!
//! Counts are exact. The subjects that would have been denied most are kept in a
//! [sketch](crate::heavy_hitters), each with the error bound of its count.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use checkdam::{Outcome, Request, Rule, RuleSet};

use super::unix_us;
use crate::heavy_hitters::{HeavyHitters, Ranking};
use crate::lock;

/// The subjects kept of each rule.
const SUBJECTS_MAX: usize = 100;
/// The subjects shown of each rule.
const SUBJECTS_SHOWN: usize = 20;

/// What the rules in shadow would have done, since they are as they are.
#[derive(Debug, Default)]
pub struct ShadowEffects {
    rules: ArcSwap<HashMap<String, Arc<ShadowRule>>>,
}

/// One rule in shadow.
#[derive(Debug)]
struct ShadowRule {
    rule: Rule,
    since_us: u64,
    seen: AtomicU64,
    denied: AtomicU64,
    subjects: Mutex<HeavyHitters>,
    hashing: checkdam::hash::RandomState,
}

/// What one rule would have done.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
pub struct Effect {
    /// The rule.
    rule: String,
    /// Since when it is tried as it is, in Unix seconds, on this node.
    since: u64,
    /// Requests that it concerned.
    seen: u64,
    /// Requests that it would have let pass.
    would_allow: u64,
    /// Requests that it would have denied.
    would_deny: u64,
    /// Whom it would have denied most often.
    top_subjects: Vec<TopSubject>,
}

/// A subject that would have been denied often.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
struct TopSubject {
    /// Whose bucket it is.
    subject: String,
    /// How often it would have been denied.
    would_deny: u64,
    /// By how much that may be too high.
    too_high_by: u64,
}

impl ShadowEffects {
    /// Follows the rules in shadow of a new rule set: those that are as they
    /// were keep their counts.
    pub fn set_rules(&self, rules: &RuleSet) {
        let known = self.rules.load();
        let mut next = HashMap::new();
        for rule in rules.rules().filter(|rule| rule.mode == checkdam::Mode::Shadow) {
            let tried = match known.get(&rule.name).filter(|tried| tried.rule == *rule) {
                Some(tried) => Arc::clone(tried),
                None => Arc::new(ShadowRule::new(rule)),
            };
            next.insert(rule.name.clone(), tried);
        }
        self.rules.store(Arc::new(next));
    }

    /// Notes what the rules in shadow say of a request.
    pub fn record(&self, request: &Request<'_>, outcome: &Outcome) {
        for mut tiers in outcome.by_rule() {
            let denies = tiers.clone().any(|tier| !tier.decision.is_allowed());
            let Some(tier) = tiers.next().filter(|tier| !tier.is_enforced()) else { continue };
            if let Some(tried) = self.rules.load().get(&tier.rule.name) {
                tried.record(denies.then(|| tier.rule.key.render(request)));
            }
        }
    }

    /// What the rule would have done; none if it is not in shadow.
    pub fn effect_of(&self, rule: &str) -> Option<Effect> {
        self.rules.load().get(rule).map(|tried| tried.effect())
    }
}

impl ShadowRule {
    fn new(rule: &Rule) -> Self {
        Self {
            rule: rule.clone(),
            since_us: unix_us(),
            seen: AtomicU64::new(0),
            denied: AtomicU64::new(0),
            subjects: Mutex::new(HeavyHitters::new(SUBJECTS_MAX)),
            hashing: checkdam::hash::RandomState::default(),
        }
    }

    fn record(&self, denied: Option<String>) {
        self.seen.fetch_add(1, Ordering::Relaxed);
        let Some(subject) = denied else { return };
        self.denied.fetch_add(1, Ordering::Relaxed);
        let hash = self.hashing.hash_one(&subject);
        // The rule is the same for all: naming it would only take space.
        lock(&self.subjects).record(hash, "", &subject);
    }

    fn effect(&self) -> Effect {
        let mut ranking = Ranking::default();
        ranking.add(&lock(&self.subjects));
        let top = ranking.ranked().names.into_iter().take(SUBJECTS_SHOWN);
        let denied = self.denied.load(Ordering::Relaxed);
        let seen = self.seen.load(Ordering::Relaxed).max(denied);
        Effect {
            rule: self.rule.name.clone(),
            since: self.since_us / 1_000_000,
            seen,
            would_allow: seen - denied,
            would_deny: denied,
            top_subjects: top
                .map(|(name, count)| TopSubject {
                    subject: name.subject,
                    would_deny: count.count,
                    too_high_by: count.too_high_by,
                })
                .collect(),
        }
    }
}

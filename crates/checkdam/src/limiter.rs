//! The limiter: a rule set and a store, which together decide requests.

mod batch;
mod batch_plan;

pub use batch::Batch;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use arc_swap::{ArcSwap, Guard};
use smallvec::SmallVec;

use crate::outcome::Outcome;
use crate::quota::{Algorithm, Quota};
use crate::request::Request;
use crate::rule::Mode;
use crate::ruleset::{CompiledQuota, RuleSet, Values};
use crate::small_buffer::SmallBuffer;
use crate::store::{MemoryStore, Operation, Store, TIERS_INLINE, TIERS_MAX, Tier, TierDecisions};
use crate::time::Clock;

/// Decides whether requests may pass.
///
/// ```
/// use checkdam::{Limiter, Request, Rule, RuleSet};
/// use checkdam::store::{MemoryOptions, MemoryStore};
/// # pollster::block_on(async {
/// let rule = Rule::new("per-user", "user:{user}".parse()?, vec!["2/m".parse()?]);
/// let limiter = Limiter::new(RuleSet::new(vec![rule])?, MemoryStore::new(MemoryOptions::default()));
/// let request = Request::new().with("user", "42")?;
/// assert!(limiter.check(&request).await.is_allowed());
/// assert!(limiter.check(&request).await.is_allowed());
/// assert!(!limiter.check(&request).await.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct Limiter<S> {
    rules: ArcSwap<RuleSet>,
    store: S,
}

/// The tiers of a request, and the rules and subjects that they belong to.
#[derive(Default)]
struct RequestPlan {
    rules: SmallVec<[MatchedRule; 8]>,
    /// The subjects' bytes, one after another.
    subjects: SmallBuffer,
    /// The longest delay that the caller accepts.
    delay_max_us: u64,
}

type Tiers<'a> = SmallVec<[Tier<'a>; TIERS_INLINE]>;

/// A rule that applies to a request.
#[derive(Clone, Copy)]
struct MatchedRule {
    rule: u32,
    key: u32,
    /// Which of its quotas count, from the first to before the last.
    quotas: (u32, u32),
    /// The range of its subject in the buffer.
    subject: (u32, u32),
}

impl<S: Store> Limiter<S> {
    /// A limiter with these rules.
    pub fn new(rules: RuleSet, store: S) -> Self {
        Self { rules: ArcSwap::from_pointee(rules), store }
    }

    /// The active rules.
    pub fn rules(&self) -> Guard<Arc<RuleSet>> {
        self.rules.load()
    }

    /// Replaces the active rules atomically. Checks in flight finish with the rules they
    /// began with.
    pub fn set_rules(&self, rules: RuleSet) {
        self.rules.store(Arc::new(rules));
    }

    /// The store.
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// Charges every tier that applies to the request, or none.
    pub fn check(&self, request: &Request<'_>) -> impl Future<Output = Outcome> {
        self.apply(Operation::Take, request)
    }

    /// As [`check`](Self::check), for callers that delay requests as a leaky bucket
    /// demands, by `delay_max_us` at most: a request with a longer delay is denied, and
    /// charged nothing.
    pub fn check_within(&self, request: &Request<'_>, delay_max_us: u64) -> impl Future<Output = Outcome> {
        self.apply_within(Operation::Take, request, delay_max_us)
    }

    /// Answers as [`check`](Self::check) would, charging nothing.
    pub fn peek(&self, request: &Request<'_>) -> impl Future<Output = Outcome> {
        self.apply(Operation::Peek, request)
    }

    /// Charges the request's cost to every tier, whatever is left, for what was used already:
    /// the tokens of a response, rows, bytes. Never denied; beyond a limit the bucket is in
    /// debt, and nothing passes until that is paid back. The decisions of the outcome say
    /// whether a request would pass now.
    ///
    /// ```
    /// use checkdam::{Limiter, Request, Rule, RuleSet, store::MemoryStore};
    ///
    /// let rule = Rule::new("tokens", "user:{user}".parse()?, vec!["1000/m".parse()?]);
    /// let limiter = Limiter::new(RuleSet::new(vec![rule])?, MemoryStore::default());
    /// let user = Request::new().with("user", "42")?;
    /// # pollster::block_on(async {
    /// let _ = limiter.record(&user.clone().costing(1_500)).await;
    /// assert!(!limiter.check(&user.costing(0)).await.is_allowed());
    /// # });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn record(&self, request: &Request<'_>) -> impl Future<Output = Outcome> {
        self.apply(Operation::Record, request)
    }

    /// Refunds the request's cost to every tier, at most what is owed. The rules are
    /// looked up again: if the outcome is available, use
    /// [`refund_outcome`](Self::refund_outcome).
    pub fn refund(&self, request: &Request<'_>) -> impl Future<Output = Outcome> {
        self.apply(Operation::Refund, request)
    }

    /// Resets the buckets of the request.
    pub fn reset(&self, request: &Request<'_>) -> impl Future<Output = Outcome> {
        self.apply(Operation::Reset, request)
    }

    fn apply(&self, operation: Operation, request: &Request<'_>) -> impl Future<Output = Outcome> {
        self.apply_within(operation, request, u64::MAX)
    }

    async fn apply_within(&self, operation: Operation, request: &Request<'_>, delay_max_us: u64) -> Outcome {
        let rules = self.rules.load();
        if request.is_metered() || rules.trees().get(request.domain()).is_some() {
            // Paths and metered costs take more work and are decided there. Boxed, so that this
            // future does not grow by it.
            let requests = std::slice::from_ref(request);
            return Box::pin(self.apply_batch(operation, requests, delay_max_us)).await.into_only();
        }
        let mut plan = RequestPlan { delay_max_us, ..RequestPlan::default() };
        if let Some(ban) = plan.fill(&rules, request) {
            // A banned subject may still be refunded what was charged before.
            if matches!(operation, Operation::Take | Operation::Peek) {
                // Without tiers the store only returns its time.
                let at_us = self.store.apply(Operation::Peek, &[]).await.at_us;
                let until_us = rules.bans()[ban as usize].until_us();
                if at_us < until_us {
                    return Outcome::banned(rules, ban, until_us, at_us);
                }
            }
        }
        let rules = {
            // Gone before anything is waited for: an outcome is large, and is
            // moved once less if it is no part of the future.
            let mut outcome = Outcome::pending(rules);
            if self.try_apply_now(operation, &plan, request.cost(), &mut outcome) {
                outcome.combine();
                if operation == Operation::Take {
                    outcome.note_take();
                }
                return outcome;
            }
            outcome.into_rules()
        };
        let mut queues = Vec::new();
        let (mut tiers, mut places) = (Tiers::new(), SmallVec::new());
        plan.write_tiers(&rules, request.cost(), &mut tiers, &mut places);
        bound_delays(&mut tiers, &mut queues, delay_max_us);
        let answer = self.store.apply(operation, &tiers).await;
        drop(tiers);
        let mut outcome = Outcome::with_decisions(rules, places, answer, (None, None));
        if operation == Operation::Take {
            outcome.note_take();
        }
        outcome
    }

    /// Decides where nothing is to be waited for; whether it did.
    #[inline]
    fn try_apply_now(&self, operation: Operation, plan: &RequestPlan, cost: u64, outcome: &mut Outcome) -> bool {
        let (rules, places, answer) = outcome.parts_mut();
        let mut queues = Vec::new();
        let mut tiers = Tiers::new();
        plan.write_tiers(rules, cost, &mut tiers, places);
        bound_delays(&mut tiers, &mut queues, plan.delay_max_us);
        if tiers.len() > TIERS_MAX {
            *answer = TierDecisions::unavailable(&tiers);
            return true;
        }
        self.store.try_apply_now(operation, &tiers, answer)
    }
}

/// A limiter whose store never waits decides without a future.
impl<C: Clock> Limiter<MemoryStore<C>> {
    /// As [`check`](Self::check), synchronously.
    ///
    /// ```
    /// use checkdam::{Limiter, Request, Rule, RuleSet, store::MemoryStore};
    ///
    /// let rule = Rule::new("per-user", "user:{user}".parse()?, vec!["2/m".parse()?]);
    /// let limiter = Limiter::new(RuleSet::new(vec![rule])?, MemoryStore::default());
    /// assert!(limiter.check_now(&Request::new().with("user", "42")?).is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn check_now(&self, request: &Request<'_>) -> Outcome {
        complete(self.check(request))
    }

    /// As [`peek`](Self::peek), synchronously.
    pub fn peek_now(&self, request: &Request<'_>) -> Outcome {
        complete(self.peek(request))
    }

    /// As [`check_batch`](Self::check_batch), synchronously.
    pub fn check_batch_now(&self, requests: &[Request<'_>]) -> Batch {
        complete(self.check_batch(requests))
    }
}

/// The result of a future that waits for nothing.
#[inline]
fn complete<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return result;
        }
        std::thread::yield_now();
    }
}

/// Lets leaky buckets deny what they would hold back for longer than
/// `delay_max_us`; `queues` holds their quotas then.
#[inline]
fn bound_delays<'a>(tiers: &mut Tiers<'a>, queues: &'a mut Vec<Quota>, delay_max_us: u64) {
    if delay_max_us < u64::MAX && tiers.iter().any(|tier| tier.quota.algorithm == Algorithm::LeakyBucket) {
        queues.extend(tiers.iter().map(|tier| tier.quota.with_delay_max(delay_max_us)));
        tiers.iter_mut().zip(&*queues).for_each(|(tier, quota)| tier.quota = quota);
    }
}

impl RequestPlan {
    /// Finds the rules that apply to a request; returns the number of the ban on it,
    /// expired or not.
    fn fill(&mut self, rules: &RuleSet, request: &Request<'_>) -> Option<u32> {
        let mut values = Values::new();
        rules.fill_values(request, &mut values);
        let values = values.as_slice();
        for &rule in &rules.matching(request.domain(), values) {
            let quotas = rules.quotas(rule, values);
            if quotas.0 == quotas.1 {
                continue;
            }
            let key = rules.rule(rule).key as u32;
            let same = self.rules.iter().find(|other| other.key == key);
            let subject = match same {
                Some(other) => other.subject,
                None => {
                    let start = self.subjects.len();
                    rules.write_subject(key as usize, values, &mut self.subjects);
                    (start as u32, self.subjects.len() as u32)
                }
            };
            self.rules.push(MatchedRule { rule, key, quotas, subject });
        }
        rules.find_ban(values)
    }

    /// Writes the tiers, and which rule and which of its quotas each is. Rules in
    /// shadow are charged each by itself: every one is a group.
    #[inline]
    fn write_tiers<'a>(
        &'a self,
        rules: &'a RuleSet,
        cost: u64,
        tiers: &mut Tiers<'a>,
        places: &mut SmallVec<[(u32, u32); TIERS_INLINE]>,
    ) {
        let mut shadows = 0_u8;
        for MatchedRule { rule, quotas: (first, last), subject: (start, end), .. } in &self.rules {
            let compiled = rules.rule(*rule);
            let group = if compiled.rule.mode == Mode::Shadow {
                shadows = shadows.saturating_add(1);
                shadows
            } else {
                0
            };
            let subject = &self.subjects[*start as usize..*end as usize];
            let quotas = &compiled.quotas[*first as usize..*last as usize];
            for (CompiledQuota { quota, bucket, lease, .. }, number) in quotas.iter().zip(*first..) {
                let on_failure = compiled.rule.on_store_failure;
                tiers.push(Tier { quota, bucket, subject, cost, group, on_failure, lease: *lease });
                places.push((*rule, number));
            }
        }
    }
}

//! Rules and a store: the whole of a decision.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use smallvec::SmallVec;

use crate::outcome::Outcome;
use crate::request::Request;
use crate::rule::Mode;
use crate::ruleset::{Matched, RuleSet};
use crate::store::{Answer, Operation, Store, TIERS_INLINE, Tier};

/// The most tiers that a request may have: one that more limits concern is
/// denied as undecided, since no store could charge them all at once.
pub const TIERS_MAX: usize = 256;

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

/// Which tiers a request must pass, and whose they are.
struct Ask {
    matched: Matched,
    /// The subjects' bytes, one after another.
    subjects: SmallVec<[u8; 256]>,
    /// For each matched rule, where its subject stands.
    ranges: SmallVec<[(usize, usize); 8]>,
}

impl<S: Store> Limiter<S> {
    /// A limiter with these rules.
    pub fn new(rules: RuleSet, store: S) -> Self {
        Self { rules: ArcSwap::from_pointee(rules), store }
    }

    /// The rules in force.
    pub fn rules(&self) -> Guard<Arc<RuleSet>> {
        self.rules.load()
    }

    /// Puts other rules in force, at once and whole. Checks under way finish
    /// with the rules they began with.
    pub fn set_rules(&self, rules: RuleSet) {
        self.rules.store(Arc::new(rules));
    }

    /// The store.
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// Charges every tier that concerns the request, or none.
    pub async fn check(&self, request: &Request<'_>) -> Outcome {
        self.apply(Operation::Take, request).await
    }

    /// Answers as [`check`](Self::check) would, charging nothing.
    pub async fn peek(&self, request: &Request<'_>) -> Outcome {
        self.apply(Operation::Peek, request).await
    }

    /// Gives back the request's cost to every tier, at most what is owed.
    pub async fn refund(&self, request: &Request<'_>) -> Outcome {
        self.apply(Operation::Refund, request).await
    }

    /// Forgets the buckets that concern the request.
    pub async fn reset(&self, request: &Request<'_>) -> Outcome {
        self.apply(Operation::Reset, request).await
    }

    async fn apply(&self, operation: Operation, request: &Request<'_>) -> Outcome {
        let rules = self.rules.load();
        let ask = Ask::new(&rules, request);
        let answer = {
            let tiers = ask.tiers(&rules, request.cost());
            match tiers.get(TIERS_MAX..) {
                None | Some([]) => self.store.apply(operation, &tiers).await,
                Some(_) => Answer::refusing(&tiers[..TIERS_MAX]),
            }
        };
        let tiers = ask.matched.iter().flat_map(|rule| {
            let quotas = rules.rule(*rule).quotas.len() as u32;
            (0..quotas).map(|quota| (*rule, quota))
        });
        let tiers: SmallVec<[(u32, u32); TIERS_INLINE]> = tiers.collect();
        Outcome::new(rules, tiers.into_iter(), answer)
    }
}

impl Ask {
    fn new(rules: &RuleSet, request: &Request<'_>) -> Self {
        let values = rules.values(request);
        let matched = rules.matching(request, &values);
        let mut subjects = SmallVec::new();
        let mut ranges: SmallVec<[(usize, usize); 8]> = SmallVec::new();
        for (number, rule) in matched.iter().enumerate() {
            let key = rules.rule(*rule).key;
            let same = matched[..number].iter().position(|other| rules.rule(*other).key == key);
            ranges.push(match same {
                Some(other) => ranges[other],
                None => {
                    let start = subjects.len();
                    rules.write_subject(key, &values, &mut subjects);
                    (start, subjects.len())
                }
            });
        }
        Self { matched, subjects, ranges }
    }

    /// Rules in shadow are charged each by itself: every one is a group.
    fn tiers<'a>(&'a self, rules: &'a RuleSet, cost: u64) -> SmallVec<[Tier<'a>; TIERS_INLINE]> {
        let mut tiers = SmallVec::new();
        let mut shadows = 0_u8;
        for (rule, (start, end)) in self.matched.iter().zip(&self.ranges) {
            let compiled = rules.rule(*rule);
            let group = if compiled.rule.mode == Mode::Shadow {
                shadows = shadows.saturating_add(1);
                shadows
            } else {
                0
            };
            let subject = &self.subjects[*start..*end];
            tiers.extend(compiled.quotas.iter().map(|quota| Tier {
                quota: &quota.quota,
                bucket: &quota.bucket,
                subject,
                cost,
                group,
                on_failure: compiled.rule.on_store_failure,
            }));
        }
        tiers
    }
}

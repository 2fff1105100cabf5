//! Counters of decisions by rule: exact, and bounded by the number of rules that are
//! counted separately.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use arc_swap::ArcSwap;
use checkdam::{DecidedBy, Outcome, RuleSet, TierView, Verdict};

use super::traffic_history::Counts;
use super::{Observation, Representative};

/// Under this name the rules are counted for which there is no room.
const OTHER: &str = "other";

/// What metrics call the decisions, in the order of [`decision_place`].
pub(crate) const DECISIONS: [&str; 5] = ["allowed", "denied", "cost_exceeds_burst", "unavailable", "banned"];
const UNAVAILABLE: usize = decision_index(Verdict::Unavailable);
const BANNED: usize = decision_index(Verdict::Banned);
/// The metric labels of [`DecidedBy`], in the order of [`DecidedBy::number`].
pub(crate) const STORES: [&str; DecidedBy::ALL.len()] = {
    let mut names = [""; DecidedBy::ALL.len()];
    let mut place = 0;
    while place < names.len() {
        names[DecidedBy::ALL[place].number()] = DecidedBy::ALL[place].name();
        place += 1;
    }
    names
};

/// How many requests were decided how, by rule.
#[derive(Debug)]
pub struct DecisionCounters {
    rules_max: usize,
    /// Every rule that is counted separately, and the values of detailed metrics.
    known: RwLock<HashMap<String, Arc<RuleCounts>>>,
    /// The same by their number in the active rules.
    numbered: ArcSwap<CountsByRuleNumber>,
    /// Requests that no rule governs.
    none: Arc<RuleCounts>,
    other: Arc<RuleCounts>,
    /// Requests that passed, and those that did not: the counts of rules do not
    /// add up to them once rules are gone.
    passed: AtomicU64,
    refused: AtomicU64,
    /// Requests that any rule in shadow would have denied.
    shadowed: AtomicU64,
    /// Of the denied: banned, and denied because the store did not reply.
    banned: AtomicU64,
    unavailable: AtomicU64,
    /// Recorded cost that was not charged because of `max_debt`.
    cut_off: AtomicU64,
}

#[derive(Debug, Default)]
struct CountsByRuleNumber {
    rules: Option<Arc<RuleSet>>,
    counts: Vec<Arc<RuleCounts>>,
}

/// The counts of one rule.
#[derive(Debug, Default)]
pub struct RuleCounts {
    name: String,
    /// Requests that it governed, once each, by decision and by where they were decided.
    spoken: [[AtomicU64; STORES.len()]; DECISIONS.len()],
    /// Requests that it concerned and that passed.
    allowed: AtomicU64,
    /// Requests that it denied.
    denied: AtomicU64,
    /// Requests that it would have denied were it not in shadow.
    shadow: AtomicU64,
    /// Requests that it denied because its store did not reply.
    unavailable: AtomicU64,
    /// Cost that was recorded after it was used.
    recorded: AtomicU64,
}

impl RuleCounts {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// The rule; empty for requests that none governs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Requests that it spoke for: the one that denied them, or else the one
    /// with the fewest remaining. Places are those of [`DECISIONS`] and [`STORES`].
    pub fn represented(&self, decision: usize, store: usize) -> u64 {
        self.spoken[decision][store].load(Ordering::Relaxed)
    }

    /// Cost that was recorded after it was used.
    pub fn recorded(&self) -> u64 {
        self.recorded.load(Ordering::Relaxed)
    }

    pub fn allowed(&self) -> u64 {
        self.allowed.load(Ordering::Relaxed)
    }

    pub fn denied(&self) -> u64 {
        self.denied.load(Ordering::Relaxed)
    }

    pub fn shadow(&self) -> u64 {
        self.shadow.load(Ordering::Relaxed)
    }

    /// Requests that it denied because its store did not reply; they count as denied too.
    pub fn unavailable(&self) -> u64 {
        self.unavailable.load(Ordering::Relaxed)
    }
}

impl DecisionCounters {
    /// Counts this many rules separately, and the others together.
    pub fn new(rules_max: usize) -> Self {
        Self {
            rules_max,
            known: RwLock::default(),
            numbered: ArcSwap::default(),
            none: Arc::default(),
            other: Arc::new(RuleCounts::new(OTHER)),
            passed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            shadowed: AtomicU64::new(0),
            banned: AtomicU64::new(0),
            unavailable: AtomicU64::new(0),
            cut_off: AtomicU64::new(0),
        }
    }

    /// Other rules are active. Those that were removed are still shown while there is
    /// room.
    pub(super) fn set_rules(&self, rules: &Arc<RuleSet>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let added = rules.numbered().filter(|rule| !known.contains_key(&rule.name)).count();
        if known.len() + added > self.rules_max {
            let names: std::collections::HashSet<&str> = rules.numbered().map(|rule| rule.name.as_str()).collect();
            known.retain(|name, _| names.contains(name.as_str()));
        }
        let counts = rules.numbered().map(|rule| {
            let counts = get_or_insert(&mut known, &rule.name, self.rules_max);
            counts.unwrap_or_else(|| Arc::clone(&self.other))
        });
        let counts = counts.collect();
        self.numbered.store(Arc::new(CountsByRuleNumber { rules: Some(Arc::clone(rules)), counts }));
    }

    /// Counts requests that were decided.
    pub(super) fn record(&self, seen: &Observation<'_, '_>) {
        let Some(Representative { outcome: representative, decision, store }) = seen.representative else { return };
        add_one(if seen.is_allowed { &self.passed } else { &self.refused });
        match decision {
            BANNED => add_one(&self.banned),
            UNAVAILABLE => add_one(&self.unavailable),
            _ => {}
        }
        let numbered = self.numbered.load();
        match representative.governing() {
            Some(_) if representative.has_detailed_metric() => {
                add_one(&self.value_counts(seen, representative).spoken[decision][store]);
            }
            Some(tier) => self.count(&numbered, representative, &tier, |counts| &counts.spoken[decision][store]),
            None => add_one(&self.none.spoken[decision][store]),
        }
        let mut is_shadowed = false;
        for outcome in seen.outcomes {
            is_shadowed |= self.record_rules(&numbered, outcome, seen.is_allowed);
        }
        if is_shadowed {
            add_one(&self.shadowed);
        }
    }

    /// Counts cost that was used, once for each rule that applied.
    pub(super) fn record_usage(&self, cost: u64, outcome: &Outcome) {
        let numbered = self.numbered.load();
        for tier in outcome.by_rule().filter_map(|mut tiers| tiers.next()) {
            self.add(&numbered, outcome, &tier, cost, |counts| &counts.recorded);
        }
    }

    pub(super) fn add_cut_off(&self, cost: u64) {
        self.cut_off.fetch_add(cost, Ordering::Relaxed);
    }

    /// Recorded cost that was not charged because of `max_debt`, summed over tiers.
    pub fn cut_off(&self) -> u64 {
        self.cut_off.load(Ordering::Relaxed)
    }

    /// The counts of a request with detailed metrics, by its values.
    #[cold]
    fn value_counts(&self, seen: &Observation<'_, '_>, representative: &Outcome) -> Arc<RuleCounts> {
        let asked = seen.iter().find(|(_, outcome)| std::ptr::eq(*outcome, representative));
        let name = asked.and_then(|(request, outcome)| outcome.metric_name(request)).unwrap_or_default();
        let name = checkdam::shortened(&name);
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let (counts, is_full) = (known.get(&*name).cloned(), known.len() >= self.rules_max);
        drop(known);
        if let Some(counts) = counts {
            return counts;
        }
        if is_full {
            return Arc::clone(&self.other);
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let counts = get_or_insert(&mut known, &name, self.rules_max);
        counts.unwrap_or_else(|| Arc::clone(&self.other))
    }

    /// Whether any rule in shadow would have denied it.
    fn record_rules(&self, numbered: &CountsByRuleNumber, outcome: &Outcome, is_allowed: bool) -> bool {
        let mut is_shadowed = false;
        for mut tiers in outcome.by_rule() {
            let is_denied = tiers.clone().any(|tier| !tier.decision.is_allowed());
            let Some(tier) = tiers.next() else { continue };
            is_shadowed |= is_denied && !tier.is_enforced();
            if is_denied || is_allowed {
                self.count(numbered, outcome, &tier, |counts| match (is_denied, tier.is_enforced()) {
                    (true, true) => &counts.denied,
                    (true, false) => &counts.shadow,
                    (false, _) => &counts.allowed,
                });
                let is_unavailable = |tier: TierView<'_>| tier.decision.verdict == Verdict::Unavailable;
                if is_denied && tier.is_enforced() && [tier].into_iter().chain(tiers).any(is_unavailable) {
                    self.count(numbered, outcome, &tier, |counts| &counts.unavailable);
                }
            }
        }
        is_shadowed
    }

    fn count(
        &self,
        numbered: &CountsByRuleNumber,
        outcome: &Outcome,
        tier: &TierView<'_>,
        counter: impl Fn(&RuleCounts) -> &AtomicU64,
    ) {
        self.add(numbered, outcome, tier, 1, counter);
    }

    fn add(
        &self,
        numbered: &CountsByRuleNumber,
        outcome: &Outcome,
        tier: &TierView<'_>,
        amount: u64,
        counter: impl Fn(&RuleCounts) -> &AtomicU64,
    ) {
        let is_in_force =
            numbered.rules.as_ref().is_some_and(|rules| std::ptr::eq(Arc::as_ptr(rules), outcome.rules()));
        if is_in_force && let Some(counts) = numbered.counts.get(tier.number) {
            counter(counts).fetch_add(amount, Ordering::Relaxed);
            return;
        }
        // Decided by rules that have just been replaced, or are just being activated.
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        counter(known.get(&tier.rule.name).unwrap_or(&self.other)).fetch_add(amount, Ordering::Relaxed);
    }

    /// Every request once, and never less than before.
    pub(super) fn totals(&self) -> Counts {
        [&self.passed, &self.refused, &self.shadowed, &self.banned, &self.unavailable]
            .map(|counter| counter.load(Ordering::Relaxed))
    }

    /// Every rule that is counted separately, by name, and the values of detailed metrics
    /// (of these only what they governed); before them requests that no rule governs, and
    /// last all others together.
    pub fn all(&self) -> Vec<Arc<RuleCounts>> {
        let mut rules = self.unsorted();
        rules.sort_by(|one, other| one.name.cmp(&other.name));
        rules.insert(0, Arc::clone(&self.none));
        rules.push(Arc::clone(&self.other));
        rules
    }

    /// Those that can be charted, in no order.
    pub(super) fn charted(&self) -> Vec<Arc<RuleCounts>> {
        let mut rules = self.unsorted();
        rules.push(Arc::clone(&self.other));
        rules
    }

    fn unsorted(&self) -> Vec<Arc<RuleCounts>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.values().cloned().collect()
    }
}

/// The counts under this name, if there are any or there is room for them.
fn get_or_insert(
    known: &mut HashMap<String, Arc<RuleCounts>>,
    name: &str,
    rules_max: usize,
) -> Option<Arc<RuleCounts>> {
    if let Some(counts) = known.get(name) {
        return Some(Arc::clone(counts));
    }
    // A rule of that name is counted with the others: no name is reported twice.
    if known.len() >= rules_max || name == OTHER {
        return None;
    }
    let counts = Arc::new(RuleCounts::new(name));
    known.insert(name.to_owned(), Arc::clone(&counts));
    Some(counts)
}

fn add_one(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The index of a verdict in [`DECISIONS`].
pub(super) const fn decision_index(verdict: Verdict) -> usize {
    match verdict {
        Verdict::Allowed => 0,
        Verdict::Denied => 1,
        Verdict::CostExceedsBurst => 2,
        Verdict::Unavailable => 3,
        Verdict::Banned => 4,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use checkdam::store::{MemoryOptions, MemoryStore};
    use checkdam::{Limiter, Mode, Request, Rule};

    use super::*;

    fn rule(name: &str, limit: &str) -> Rule {
        Rule::new(name, "user:{user}".parse().unwrap(), vec![limit.parse().unwrap()])
    }

    fn limiter(rules: Vec<Rule>) -> Limiter<MemoryStore> {
        Limiter::new(RuleSet::new(rules).unwrap(), MemoryStore::new(MemoryOptions::default()))
    }

    async fn ask(limiter: &Limiter<MemoryStore>, counters: &DecisionCounters, times: usize) {
        let requests = [Request::new().with("user", "42").unwrap()];
        for _ in 0..times {
            let outcomes = [limiter.check(&requests[0]).await];
            let is_allowed = outcomes[0].is_allowed();
            counters.record(&Observation::new(&requests, &outcomes, is_allowed, Duration::ZERO));
        }
    }

    fn figures_by_rule(counters: &DecisionCounters) -> Vec<(String, [u64; 5])> {
        let spoken =
            |counts: &RuleCounts, decision| (0..STORES.len()).map(|store| counts.represented(decision, store)).sum();
        let figures_by_rule = |counts: Arc<RuleCounts>| {
            let figures = [spoken(&counts, 0), spoken(&counts, 1), counts.allowed(), counts.denied(), counts.shadow()];
            (counts.name().to_owned(), figures)
        };
        counters
            .all()
            .into_iter()
            .map(figures_by_rule)
            .filter(|(_, figures)| figures.iter().any(|figure| *figure > 0))
            .collect()
    }

    #[tokio::test]
    async fn every_request_is_spoken_for_once_and_every_rule_says_its_own() {
        let mut shadow = rule("shadow", "1/h");
        shadow.mode = Mode::Shadow;
        let limiter = limiter(vec![rule("narrow", "2/h"), rule("wide", "5/h"), shadow]);
        let counters = DecisionCounters::new(10);
        counters.set_rules(&limiter.rules());
        ask(&limiter, &counters, 4).await;
        let expected = [("narrow", [2, 2, 2, 2, 0]), ("shadow", [0, 0, 1, 0, 3]), ("wide", [0, 0, 2, 0, 0])];
        assert_eq!(figures_by_rule(&counters), expected.map(|(name, figures)| (name.to_owned(), figures)));
    }

    #[tokio::test]
    async fn what_no_rule_concerns_is_counted_too() {
        let limiter = limiter(vec![]);
        let counters = DecisionCounters::new(10);
        counters.set_rules(&limiter.rules());
        ask(&limiter, &counters, 3).await;
        assert_eq!(figures_by_rule(&counters), [(String::new(), [3, 0, 0, 0, 0])]);
    }

    #[tokio::test]
    async fn rules_beyond_the_bound_are_counted_together() {
        let limiter = limiter(vec![rule("first", "9/h"), rule("second", "8/h"), rule("third", "7/h")]);
        let counters = DecisionCounters::new(1);
        counters.set_rules(&limiter.rules());
        ask(&limiter, &counters, 1).await;
        let expected = [("first", [0, 0, 1, 0, 0]), ("other", [1, 0, 2, 0, 0])];
        assert_eq!(figures_by_rule(&counters), expected.map(|(name, figures)| (name.to_owned(), figures)));
    }

    #[tokio::test]
    async fn counts_outlive_a_change_of_rules_and_late_outcomes_find_their_rule() {
        let limiter = limiter(vec![rule("kept", "9/h"), rule("gone", "8/h")]);
        let counters = DecisionCounters::new(10);
        counters.set_rules(&limiter.rules());
        ask(&limiter, &counters, 1).await;
        limiter.set_rules(RuleSet::new(vec![rule("new", "1/h"), rule("kept", "9/h")]).unwrap());
        // Decided by rules that are not followed yet: "new" has no place of its own so far.
        ask(&limiter, &counters, 1).await;
        counters.set_rules(&limiter.rules());
        ask(&limiter, &counters, 1).await;
        let expected = [
            ("gone", [1, 0, 1, 0, 0]),
            ("kept", [0, 0, 2, 0, 0]),
            ("new", [0, 1, 0, 1, 0]),
            ("other", [1, 0, 1, 0, 0]),
        ];
        assert_eq!(figures_by_rule(&counters), expected.map(|(name, figures)| (name.to_owned(), figures)));
    }
}

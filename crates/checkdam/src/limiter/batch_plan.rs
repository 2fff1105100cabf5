//! Plans a batch: finds the rules and descriptor limits that apply to its requests,
//! and merges limits that share a bucket.

use std::collections::HashSet;
use std::sync::Arc;

use arc_swap::Guard;
use smallvec::SmallVec;

use crate::decision::{Decision, Verdict};
use crate::descriptor::DescriptorAllowance;
use crate::outcome::{FROM_REQUEST, Outcome};
use crate::quota::{Algorithm, Quota, QuotaSpec};
use crate::request::{Request, RequestLimit};
use crate::rule::Mode;
use crate::ruleset::{CompiledQuota, CompiledTree, Leaf, RuleSet, write_path_subject};
use crate::small_buffer::SmallBuffer;
use crate::store::{Decisions, Operation, TIERS_INLINE, TakeTerms, Tier, TierDecisions};
use crate::time::EPOCH_UNIX_US;

/// All that several requests must pass.
#[derive(Default)]
pub(super) struct BatchPlan {
    pub(super) requests: Vec<PlannedRequest>,
    entries: Vec<PlannedQuotas>,
    /// The subjects' bytes, one after another.
    subjects: SmallBuffer,
    /// How many tiers the entries have.
    length: usize,
    /// Which of the entries are charged whether that fits or not, and how much of their cost.
    metered: Vec<(usize, u64)>,
}

/// What one of the requests must pass.
#[derive(Default)]
pub(super) struct PlannedRequest {
    cost: u64,
    /// Whether its cost is charged even if it does not fit.
    is_metered: bool,
    pub(super) ban: Option<u32>,
    leaf: Option<u32>,
    given: Option<Arc<CompiledQuota>>,
    /// A rule that lets nothing pass.
    blocked: Option<Blocked>,
    /// Which of the entries are its own.
    entries: SmallVec<[usize; 4]>,
    /// Whether it denies only together with others of its kind.
    is_quota_mode: bool,
}

#[derive(Clone, Copy)]
struct Blocked {
    rule: u32,
    quota: u32,
    period_us: u64,
}

/// Quotas that apply to one of the requests, or several.
struct PlannedQuotas {
    rule: u32,
    /// Of the rule, from the first to before the last; else what was given.
    quotas: Result<(u32, u32), Arc<CompiledQuota>>,
    subject: (usize, usize),
    cost: u64,
    /// Whether it never denies by itself.
    is_separate: bool,
    /// Whether it is the limit of a tree, and no rule.
    is_of_tree: bool,
    /// Where its tiers begin.
    first: usize,
}

/// What limits a subject.
struct QuotaSource {
    rule: u32,
    quotas: Result<(u32, u32), Arc<CompiledQuota>>,
    is_of_tree: bool,
}

impl BatchPlan {
    pub(super) fn new(rules: &RuleSet, requests: &[Request<'_>]) -> Self {
        let mut plan = Self::default();
        for request in requests {
            plan.add(rules, request);
        }
        plan.replace(rules);
        for (place, request) in requests.iter().enumerate() {
            if let Some(tree) = rules.trees().get(request.domain()) {
                plan.add_path(rules, tree, place, request);
            }
        }
        plan
    }

    fn add(&mut self, rules: &RuleSet, request: &Request<'_>) {
        let place = self.requests.len();
        let values = rules.values(request);
        let leaf = rules.trees().get(request.domain()).and_then(|tree| tree.find(request));
        // A request limit replaces the limit of the tree.
        let leaf = leaf.filter(|_| request.request_limit().is_none());
        let is_unlimited = || leaf.is_some_and(|leaf| rules.trees().leaf(leaf).rule.is_none());
        let is_quota_mode = request.is_quota_mode() && !is_unlimited();
        self.requests.push(PlannedRequest {
            cost: request.cost(),
            is_metered: request.is_metered(),
            ban: rules.find_ban(&values),
            leaf,
            is_quota_mode,
            ..PlannedRequest::default()
        });
        for &rule in &rules.matching(request.domain(), &values) {
            let quotas = rules.quotas(rule, &values);
            if quotas.0 < quotas.1 {
                let start = self.subjects.len();
                rules.write_subject(rules.rule(rule).key, &values, &mut self.subjects);
                self.add_quotas(rules, place, QuotaSource { rule, quotas: Ok(quotas), is_of_tree: false }, start);
            }
        }
    }

    /// Forgets limits that another one replaces.
    fn replace(&mut self, rules: &RuleSet) {
        let limit = |planned: &PlannedRequest| rules.trees().leaf(planned.leaf?).descriptor.limit.as_ref();
        let replaces = self.requests.iter().filter_map(limit).flat_map(|limit| &limit.replaces);
        let replaced: HashSet<&str> = replaces.map(String::as_str).collect();
        for planned in &mut self.requests {
            if limit(planned).is_some_and(|limit| replaced.contains(limit.name.as_str())) {
                planned.leaf = None;
            }
        }
    }

    fn add_path(&mut self, rules: &RuleSet, tree: &CompiledTree, place: usize, request: &Request<'_>) {
        let leaf = self.requests[place].leaf.map(|leaf| rules.trees().leaf(leaf));
        let (leaf, rule, quotas) = match (request.request_limit(), leaf.and_then(|leaf| Some((leaf, leaf.rule?)))) {
            (Some(limit), _) => {
                let leaf = tree.find(request).map(|leaf| rules.trees().leaf(leaf));
                let name = &rules.rule(tree.given).rule.name;
                let algorithm = leaf.map_or(tree.algorithm, |leaf| leaf.algorithm(tree));
                // It counts the request's own values, of which there may be any number.
                let Some(given) = request_quota(limit, name, algorithm, leaf.is_some_and(Leaf::is_exact)) else {
                    return;
                };
                self.requests[place].given = Some(Arc::clone(&given));
                if limit.amount == 0 {
                    let period_us = limit.unit.period_us();
                    self.requests[place].blocked = Some(Blocked { rule: tree.given, quota: FROM_REQUEST, period_us });
                    return;
                }
                // It counts the request's own values, also where the tree's shares them.
                (None, tree.given, Err(given))
            }
            (None, Some((leaf, rule))) => {
                self.requests[place].is_quota_mode |= leaf.descriptor.is_quota_mode;
                if let Some(DescriptorAllowance::Nothing { period_us }) = leaf.descriptor.allowance() {
                    self.requests[place].blocked = Some(Blocked { rule, quota: 0, period_us });
                    return;
                }
                (Some(leaf), rule, Ok((0, 1)))
            }
            (None, None) => return,
        };
        let start = self.subjects.len();
        write_path_subject(leaf, request, &mut self.subjects);
        self.add_quotas(rules, place, QuotaSource { rule, quotas, is_of_tree: true }, start);
    }

    /// Adds quotas of the subject that begins at `start`, or charges them more.
    fn add_quotas(
        &mut self,
        rules: &RuleSet,
        place: usize,
        QuotaSource { rule, quotas, is_of_tree }: QuotaSource,
        start: usize,
    ) {
        let is_quota_mode = is_of_tree && self.requests[place].is_quota_mode;
        let is_separate = is_quota_mode || rules.rule(rule).rule.mode == Mode::Shadow;
        let subject = (start, self.subjects.len());
        let entry = PlannedQuotas { rule, quotas, subject, cost: 0, is_separate, is_of_tree, first: self.length };
        let text = |subject: (usize, usize)| &self.subjects[subject.0..subject.1];
        let same = self
            .entries
            .iter()
            .position(|other| other.shares_bucket_with(&entry, rules) && text(other.subject) == text(subject));
        let number = match same {
            Some(number) => {
                self.entries[number].join(entry, rules);
                number
            }
            None => {
                self.length += entry.quotas(rules).len();
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        let cost = &mut self.entries[number].cost;
        *cost = cost.saturating_add(self.requests[place].cost);
        self.requests[place].entries.push(number);
        if self.requests[place].is_metered {
            self.add_metered(number, self.requests[place].cost);
        }
    }

    /// A limit that never denies by itself is charged by itself: each is its own group.
    pub(super) fn tiers<'a>(&'a self, rules: &'a RuleSet) -> SmallVec<[Tier<'a>; TIERS_INLINE]> {
        let mut tiers = SmallVec::new();
        for (entry, group) in self.entries.iter().zip(self.groups()) {
            tiers.extend(entry.quotas(rules).iter().map(|quota| Tier {
                quota: &quota.quota,
                bucket: &quota.bucket,
                subject: &self.subjects[entry.subject.0..entry.subject.1],
                cost: entry.cost,
                group,
                on_failure: rules.rule(entry.rule).rule.on_store_failure,
                lease: quota.lease,
            }));
        }
        tiers
    }

    /// The group of each concern.
    fn groups(&self) -> impl Iterator<Item = u8> {
        let mut aside = 0_u8;
        self.entries.iter().map(move |entry| {
            if !entry.is_separate {
                return 0;
            }
            aside = aside.saturating_add(1);
            aside
        })
    }

    #[cold]
    fn add_metered(&mut self, number: usize, cost: u64) {
        match self.metered.iter_mut().find(|(known, _)| *known == number) {
            Some((_, metered)) => *metered = metered.saturating_add(cost),
            None => self.metered.push((number, cost)),
        }
    }

    /// The follow-up steps of a take, if there are any: if all quota-mode limits deny, the
    /// other limits are refunded; metered costs that were not charged are recorded.
    pub(super) fn terms(&self, rules: &RuleSet, is_refused: bool) -> Option<TakeTerms> {
        let alternatives = if is_refused { None } else { self.alternatives(rules) };
        let metered = self.metered.iter().filter(|(_, cost)| *cost > 0).flat_map(|(number, cost)| {
            let entry = &self.entries[*number];
            (entry.first..entry.first + entry.quotas(rules).len()).map(|tier| (tier, *cost))
        });
        let terms =
            TakeTerms { alternatives: alternatives.unwrap_or_default(), metered: metered.collect(), is_refused };
        (!terms.alternatives.is_empty() || !terms.metered.is_empty()).then_some(terms)
    }

    /// The groups that deny the requests only if all of them deny; none if there are no
    /// such groups, or one of them never denies.
    fn alternatives(&self, rules: &RuleSet) -> Option<Vec<u8>> {
        let groups: SmallVec<[u8; TIERS_INLINE]> = self.groups().collect();
        let mut alternatives = Vec::new();
        for planned in self.requests.iter().filter(|planned| planned.is_quota_mode && !planned.is_blocked(rules)) {
            let mut own = planned.entries.iter().filter(|entry| self.entries[**entry].is_of_tree);
            let enforced = own.find(|entry| rules.rule(self.entries[**entry].rule).rule.mode == Mode::Enforce)?;
            alternatives.push(groups[*enforced]);
        }
        (!alternatives.is_empty()).then_some(alternatives)
    }

    pub(super) fn forget_bans(&mut self) {
        for planned in &mut self.requests {
            planned.ban = None;
        }
    }

    /// Whether one of the requests can never pass, whatever the store decides; for those
    /// that deny only together, whether none can.
    pub(super) fn is_blocked(&self, rules: &RuleSet) -> bool {
        let mut quotas = self.requests.iter().filter(|planned| planned.is_quota_mode).peekable();
        let has_quotas = quotas.peek().is_some();
        self.requests.iter().any(|planned| planned.is_blocked(rules) && !planned.is_quota_mode)
            || has_quotas && quotas.all(|planned| planned.is_blocked(rules))
    }

    /// Whether all pass together. Bans and rules deny individually; so do limits of
    /// trees, except those that deny only if all of their kind do.
    pub(super) fn is_allowed(&self, rules: &RuleSet, answer: &TierDecisions) -> bool {
        !self.is_denied_by_one(rules, answer) && !self.is_denied_by_all(rules, answer)
    }

    /// Whether something denies that does so by itself.
    fn is_denied_by_one(&self, rules: &RuleSet, answer: &TierDecisions) -> bool {
        self.requests.iter().any(|planned| planned.ban.is_some() || self.denies(planned, false, rules, answer))
    }

    /// Whether there are limits that deny only together, and all of them do.
    fn is_denied_by_all(&self, rules: &RuleSet, answer: &TierDecisions) -> bool {
        let mut quotas = self.requests.iter().filter(|planned| planned.is_quota_mode).peekable();
        quotas.peek().is_some() && quotas.all(|planned| self.denies(planned, true, rules, answer))
    }

    /// Whether one of the requests is denied by its limits that deny only together,
    /// or by all others.
    fn denies(&self, planned: &PlannedRequest, of_quota: bool, rules: &RuleSet, answer: &TierDecisions) -> bool {
        let own = planned.entries.iter().map(|entry| &self.entries[*entry]);
        let is_path = |entry: &PlannedQuotas| planned.is_quota_mode && entry.is_of_tree;
        let mut own = own.filter(|entry| is_path(entry) == of_quota);
        planned.is_blocked(rules) && planned.is_quota_mode == of_quota || own.any(|entry| entry.denies(rules, answer))
    }

    /// One outcome per request. If the limits that deny only together all deny, what a
    /// take charged to other limits was refunded, and is reported as remaining.
    pub(super) fn outcomes(self, rules: &Arc<RuleSet>, mut answer: TierDecisions, done: Operation) -> Vec<Outcome> {
        let is_taken = done == Operation::Take && answer.by.is_refundable();
        if is_taken && !self.is_denied_by_one(rules, &answer) && self.is_denied_by_all(rules, &answer) {
            for (number, entry) in self.entries.iter().enumerate() {
                let metered = self.metered.iter().find(|(metered, _)| *metered == number).map_or(0, |(_, cost)| *cost);
                entry.show_refunded(rules, &mut answer, entry.cost.saturating_sub(metered));
            }
        }
        let Self { requests, entries, .. } = self;
        requests.into_iter().map(|planned| planned.outcome(rules, &entries, &answer)).collect()
    }
}

impl PlannedQuotas {
    fn quotas<'a>(&'a self, rules: &'a RuleSet) -> &'a [CompiledQuota] {
        match &self.quotas {
            Ok((first, last)) => &rules.rule(self.rule).quotas[*first as usize..*last as usize],
            Err(given) => std::slice::from_ref(given),
        }
    }

    /// Takes in another of the same bucket: the one that denies counts before the
    /// one that does not, then the one that allows less.
    fn join(&mut self, other: Self, rules: &RuleSet) {
        let limit = |entry: &Self| entry.quotas(rules).first().map_or(u64::MAX, |quota| quota.quota.limit());
        if (other.is_separate, limit(&other)) < (self.is_separate, limit(self)) {
            *self = Self { cost: self.cost, first: self.first, ..other };
        }
    }

    /// Whether both count in the same buckets of one subject; comparing the first
    /// suffices.
    fn shares_bucket_with(&self, other: &Self, rules: &RuleSet) -> bool {
        match (self.quotas(rules).first(), other.quotas(rules).first()) {
            (Some(one), Some(other)) => one.bucket == other.bucket && one.quota.shares_bucket_with(&other.quota),
            _ => false,
        }
    }

    fn decisions<'a>(&self, rules: &RuleSet, answer: &'a TierDecisions) -> &'a [Decision] {
        &answer.decisions[self.first..self.first + self.quotas(rules).len()]
    }

    /// Makes its decisions those of buckets to which this cost was refunded; nothing was
    /// charged if one of them denied.
    fn show_refunded(&self, rules: &RuleSet, answer: &mut TierDecisions, cost: u64) {
        let quotas = self.quotas(rules);
        let decisions = &mut answer.decisions[self.first..self.first + quotas.len()];
        if decisions.iter().any(|decision| !decision.is_allowed()) {
            return;
        }
        for (quota, decision) in quotas.iter().map(|quota| &quota.quota).zip(decisions) {
            decision.remaining = decision.remaining.saturating_add(cost).min(decision.limit);
            if quota.algorithm().is_bucket() {
                let cost_us = u128::from(cost) * u128::from(quota.period_us()) / u128::from(quota.spec().amount);
                let cost_us = u64::try_from(cost_us).unwrap_or(u64::MAX);
                decision.reset_after_us = decision.reset_after_us.saturating_sub(cost_us);
            }
        }
    }

    fn denies(&self, rules: &RuleSet, answer: &TierDecisions) -> bool {
        rules.rule(self.rule).rule.mode == Mode::Enforce
            && self.decisions(rules, answer).iter().any(|decision| !decision.is_allowed())
    }
}

impl PlannedRequest {
    fn is_blocked(&self, rules: &RuleSet) -> bool {
        self.cost > 0 && self.blocked.is_some_and(|blocked| rules.rule(blocked.rule).rule.mode == Mode::Enforce)
    }

    fn outcome(self, rules: &Arc<RuleSet>, entries: &[PlannedQuotas], answer: &TierDecisions) -> Outcome {
        let guard = Guard::from_inner(Arc::clone(rules));
        let at_us = answer.at_us;
        if let Some(ban) = self.ban {
            return Outcome::banned(guard, ban, rules.bans()[ban as usize].until_us(), at_us);
        }
        let mut given = self.given;
        let (mut places, mut decisions) = (SmallVec::new(), Decisions::new());
        for entry in self.entries.iter().map(|number| &entries[*number]) {
            decisions.extend(entry.decisions(rules, answer).iter().copied());
            match &entry.quotas {
                Ok((first, last)) => places.extend((*first..*last).map(|quota| (entry.rule, quota))),
                Err(quota) => {
                    given = Some(Arc::clone(quota));
                    places.push((entry.rule, FROM_REQUEST));
                }
            }
        }
        if let Some(blocked) = self.blocked {
            places.push((blocked.rule, blocked.quota));
            decisions.push(blocked.decision(self.cost, at_us));
        }
        Outcome::with_decisions(
            guard,
            places,
            TierDecisions { decisions, at_us, by: answer.by, cut_off: answer.cut_off },
            (self.leaf, given),
        )
    }
}

impl Blocked {
    /// Nothing passes, in this window or the next.
    const fn decision(self, cost: u64, at_us: u64) -> Decision {
        let verdict = if cost == 0 { Verdict::Allowed } else { Verdict::Denied };
        let left_us = self.period_us - (at_us + EPOCH_UNIX_US) % self.period_us;
        Decision {
            verdict,
            limit: 0,
            remaining: 0,
            debt: 0,
            retry_after_us: left_us,
            reset_after_us: left_us,
            delay_us: 0,
        }
    }
}

impl Leaf {
    /// How it counts; as the tree does, if it counts nothing itself.
    fn algorithm(&self, tree: &CompiledTree) -> Algorithm {
        match self.descriptor.allowance() {
            Some(DescriptorAllowance::Quota(quota)) => quota.algorithm(),
            _ => tree.algorithm,
        }
    }
}

/// The quota of a request limit: in windows if the algorithm cannot count so many.
fn request_quota(
    limit: RequestLimit,
    rule: &str,
    algorithm: Algorithm,
    is_constant: bool,
) -> Option<Arc<CompiledQuota>> {
    let (amount, period_us) = (u64::from(limit.amount.max(1)), limit.unit.period_us());
    let spec = QuotaSpec::new(amount, period_us);
    let quota = Quota::new(spec, algorithm).or_else(|_| Quota::new(spec, Algorithm::FixedWindow)).ok()?;
    Some(Arc::new(CompiledQuota::of_descriptor(rule, quota, is_constant)))
}

//! Previews a change of the rules on the requests of the last minutes.
//!
//! If one client in n was sampled, its requests have a weight of about n; requests of the
//! busiest clients, which are all kept, have weight 1. A bucket that several clients share
//! is charged cost × weight, a bucket of one client the cost.

use std::cmp::Reverse;
use std::collections::HashMap;

use checkdam::{Definitions, Mode, Outcome, Request, Rule, RuleSet, TierView};
use serde::Serialize;
use utoipa::ToSchema;

use super::Replay;
use crate::telemetry::{DecidedTotals, IDENTITIES, RequestSample, SampledRequest};

/// The maximum number of subjects reported.
const SUBJECTS_MAX: usize = 20;
/// Room for this many buckets per request, within the bounds beside it: mostly each
/// client has some.
const BUCKETS_EACH: usize = 8;
const BUCKETS: (usize, usize) = (10_000, 4_000_000);

/// The suffix of the domain of rules whose limits clients share.
const SHARED: &str = "~shared";
/// Up to this many requests that were denied live and not in the replay, or the other
/// way round, are attributed to chance.
const CHANCE: u64 = 20;

/// What a change would have done.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Preview {
    pub requests: u64,
    pub before: DecidedTotals,
    pub after: DecidedTotals,
    pub newly_limited: u64,
    pub newly_allowed: u64,
    pub rule_before: PreviewCounts,
    pub rule_after: PreviewCounts,
    /// Those with most changes first.
    pub subjects: Vec<SubjectChange>,
    /// Whether some of the counts are estimates.
    pub is_estimate: bool,
    /// What was decided in that time.
    pub live: DecidedTotals,
}

impl Preview {
    /// Whether the rules that were active deny another number of requests in the
    /// replay than they did: by more than a tenth, and not by chance.
    pub fn disagrees(&self) -> bool {
        let (replayed, live) = (self.before.limited, self.live.limited);
        let apart = replayed.abs_diff(live);
        apart > CHANCE && apart * 10 > replayed.max(live)
    }
}

/// How many requests a rule concerned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = CountsAnswer)]
pub struct PreviewCounts {
    /// Those that it concerned.
    pub concerned: u64,
    /// Those of them that it would not let pass.
    pub limited: u64,
}

/// What changes for one subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = SubjectAnswer)]
pub struct SubjectChange {
    /// Whose bucket it is.
    pub subject: String,
    /// Its requests.
    pub concerned: u64,
    /// Those that the rule as it is does not let pass.
    pub limited_before: u64,
    /// Those that the edited rule would not let pass.
    pub limited_after: u64,
}

/// Rules, and the name of the one that is previewed.
pub struct PreviewRules {
    definitions: Definitions,
    rule: Option<String>,
}

impl PreviewRules {
    pub const fn new(definitions: Definitions, rule: Option<String>) -> Self {
        Self { definitions, rule }
    }
}

/// Replays the sample through the rules before and after a change. Takes up to
/// seconds: not for a thread that serves requests.
///
/// # Errors
/// Has the reason why the changed rules cannot be compiled; the active ones can.
pub fn preview(
    sample: &RequestSample,
    before: PreviewRules,
    after: PreviewRules,
) -> Result<Preview, checkdam::RuleSetError> {
    let entries = sample.entries();
    let is_estimate = sample.sampling_ratio() > 1;
    let clients = is_estimate.then(|| ClientAttributes::from_sample(&entries));
    let is_own = |rule: &Rule| clients.as_ref().is_none_or(|clients| clients.is_per_client(rule));
    let buckets = (entries.len() * BUCKETS_EACH).clamp(BUCKETS.0, BUCKETS.1);
    let (mut before, mut after) =
        (ReplayedRules::new(before, buckets, is_own)?, ReplayedRules::new(after, buckets, is_own)?);
    let busy = entries.iter().filter(|one| one.is_busy_client).count();
    let others = sample_weight(sample, busy as u64, (entries.len() - busy) as u64);
    let is_own = before.is_own && after.is_own;
    let (mut sums, mut subjects) = (Sums::default(), HashMap::new());
    for one in entries {
        let Some(requests) = one.entry.requests() else { continue };
        let weight = if one.is_busy_client { 1.0 } else { others };
        let at_us = one.entry.at_us();
        let (was, is) = (before.decide(at_us, &requests, weight), after.decide(at_us, &requests, weight));
        sums.count(&was, &is, weight);
        note_subjects(&mut subjects, was.subject, is.subject, if is_own { 1.0 } else { weight });
    }
    let mut subjects: Vec<_> = subjects.into_iter().map(|(subject, sums)| sums.to_change(subject)).collect();
    let order = |change: &SubjectChange| {
        let changed = change.limited_before.abs_diff(change.limited_after);
        (Reverse(changed), Reverse(change.limited_after), Reverse(change.concerned), change.subject.clone())
    };
    subjects.sort_by_cached_key(order);
    subjects.truncate(SUBJECTS_MAX);
    Ok(Preview { subjects, is_estimate, live: sample.live, ..sums.to_preview() })
}

/// The weight of a request of a client that is not busy: so that all together are as
/// many as there were. That is about the inverse of the share of clients that were
/// sampled, and differs by chance.
fn sample_weight(sample: &RequestSample, busy: u64, others: u64) -> f64 {
    let one_in = sample.sampling_ratio() as f64;
    if sample.sampling_ratio() == 1 || others == 0 {
        return 1.0;
    }
    let rest = sample.live.sum().saturating_sub(busy);
    // Where hardly any was kept, chance is all there is.
    (rest as f64 / others as f64).clamp(1.0, one_in * 4.0)
}

/// One of the two rule sets, with its replay.
struct ReplayedRules {
    replay: Replay,
    /// The number of the rule that is previewed.
    rule: Option<usize>,
    is_own: bool,
    /// The smallest limit that clients share: a request with a larger weight could never
    /// pass. None if there is none, or all clients were sampled.
    shared_limit: Option<u64>,
}

/// What one rule set says.
struct ReplayResult {
    is_allowed: bool,
    /// Whether the rule applies to the request, and whether it would deny it.
    rule: Option<bool>,
    subject: Option<(String, bool)>,
}

impl ReplayedRules {
    fn new(side: PreviewRules, buckets: usize, is_own: impl Fn(&Rule) -> bool) -> Result<Self, checkdam::RuleSetError> {
        let PreviewRules { mut definitions, rule } = side;
        let shared_limit = separate_shared_rules(&mut definitions, &is_own);
        let rules = RuleSet::compile(definitions)?;
        let found = rule.and_then(|name| rules.numbered().enumerate().find(|(_, known)| known.name == name));
        let is_own = found.is_none_or(|(_, rule)| is_own(rule));
        let rule = found.map(|(number, _)| number);
        Ok(Self { replay: Replay::new(rules, buckets), rule, is_own, shared_limit })
    }

    /// Decides requests with this weight each.
    fn decide(&mut self, at_us: u64, requests: &[Request<'_>], weight: f64) -> ReplayResult {
        if let Some(limit) = self.shared_limit {
            let shared = requests.iter().map(|request| {
                let cost = (request.cost() as f64 * weight).round() as u64;
                request.clone().in_domain(format!("{}{SHARED}", request.domain())).costing(cost.min(limit))
            });
            let all: Vec<Request<'_>> = requests.iter().cloned().chain(shared).collect();
            return self.decide_together(at_us, &all);
        }
        if let [request] = requests {
            let outcome = self.replay.check(at_us, request);
            let subject = self.rule_subject(request, &outcome);
            return ReplayResult::new(outcome.is_allowed(), subject);
        }
        self.decide_together(at_us, requests)
    }

    fn decide_together(&mut self, at_us: u64, requests: &[Request<'_>]) -> ReplayResult {
        let together = self.replay.check_together(at_us, requests);
        let said = requests
            .iter()
            .zip(together.outcomes())
            .filter_map(|(request, outcome)| self.rule_subject(request, outcome));
        ReplayResult::new(together.is_allowed(), said.reduce(|one, other| if other.1 { other } else { one }))
    }

    /// The rule's subject of the request, and whether the rule would deny it.
    fn rule_subject(&self, request: &Request<'_>, outcome: &Outcome) -> Option<(String, bool)> {
        let rule = self.rule?;
        let own = || outcome.tiers().filter(|tier| tier.number == rule);
        let tier: TierView<'_> = own().next()?;
        Some((tier.rule.key.render(request), own().any(|tier| !tier.decision.is_allowed())))
    }
}

impl ReplayResult {
    fn new(is_allowed: bool, subject: Option<(String, bool)>) -> Self {
        Self { is_allowed, rule: subject.as_ref().map(|(_, is_limited)| *is_limited), subject }
    }
}

/// How many entries there are by the attribute that identifies their client, and by which of
/// [`IDENTITIES`] they have: tells limits of one client from shared limits.
#[derive(Debug)]
struct ClientAttributes(HashMap<(&'static str, u32), u64>);

impl ClientAttributes {
    fn from_sample(entries: &[SampledRequest<'_>]) -> Self {
        let mut counts = HashMap::new();
        for entry in entries.iter().map(|one| one.entry) {
            let Some(requests) = entry.requests() else { continue };
            let has = identity_bits(|name| requests.iter().any(|request: &Request<'_>| request.get(name).is_some()));
            *counts.entry((entry.identity().unwrap_or_default(), has)).or_default() += 1;
        }
        Self(counts)
    }

    /// Whether a rule counts per client, so that all of a client's requests are in the
    /// sample. It does if its key names the attribute that identifies clients; if that
    /// differs between the requests that it can apply to, by majority.
    fn is_per_client(&self, rule: &Rule) -> bool {
        let key = identity_bits(|name| rule.key.attributes().any(|known| known == name));
        let (mut own, mut shared) = (0, 0);
        for ((identity, has), count) in &self.0 {
            if has & key == key {
                let is_named = rule.key.attributes().any(|name| name == *identity);
                *if is_named { &mut own } else { &mut shared } += count;
            }
        }
        own > shared
    }
}

/// Those of [`IDENTITIES`] for which it is so, one bit each.
fn identity_bits(is_so: impl Fn(&str) -> bool) -> u32 {
    IDENTITIES.iter().zip(0..).filter(|(name, _)| is_so(name)).map(|(_, place)| 1 << place).sum()
}

/// The sums, while weights are fractions.
#[derive(Debug, Default)]
struct Sums {
    requests: f64,
    limited: [f64; 2],
    newly_limited: f64,
    newly_allowed: f64,
    rule_concerned: [f64; 2],
    rule_limited: [f64; 2],
}

impl Sums {
    fn count(&mut self, was: &ReplayResult, is: &ReplayResult, weight: f64) {
        let if_so = |is_so: bool| if is_so { weight } else { 0.0 };
        self.requests += weight;
        self.newly_limited += if_so(was.is_allowed && !is.is_allowed);
        self.newly_allowed += if_so(!was.is_allowed && is.is_allowed);
        for (place, said) in [was, is].into_iter().enumerate() {
            self.limited[place] += if_so(!said.is_allowed);
            self.rule_concerned[place] += if_so(said.rule.is_some());
            self.rule_limited[place] += if_so(said.rule == Some(true));
        }
    }

    fn to_preview(&self) -> Preview {
        let requests = round_to_u64(self.requests);
        let passed = |place: usize| {
            let limited = round_to_u64(self.limited[place]).min(requests);
            DecidedTotals { allowed: requests - limited, limited }
        };
        let counts = |place: usize| PreviewCounts {
            concerned: round_to_u64(self.rule_concerned[place]),
            limited: round_to_u64(self.rule_limited[place]),
        };
        Preview {
            requests,
            before: passed(0),
            after: passed(1),
            newly_limited: round_to_u64(self.newly_limited),
            newly_allowed: round_to_u64(self.newly_allowed),
            rule_before: counts(0),
            rule_after: counts(1),
            ..Preview::default()
        }
    }
}

/// The same for one subject.
#[derive(Debug, Default)]
struct SubjectSums {
    concerned: f64,
    limited_before: f64,
    limited_after: f64,
}

impl SubjectSums {
    fn to_change(&self, subject: String) -> SubjectChange {
        SubjectChange {
            subject,
            concerned: round_to_u64(self.concerned),
            limited_before: round_to_u64(self.limited_before),
            limited_after: round_to_u64(self.limited_after),
        }
    }
}

/// Counts of whole requests stay exact: they are far below 2^53.
fn round_to_u64(sum: f64) -> u64 {
    sum.round() as u64
}

/// A change of the key makes other subjects: each is reported by itself.
fn note_subjects(
    subjects: &mut HashMap<String, SubjectSums>,
    was: Option<(String, bool)>,
    is: Option<(String, bool)>,
    weight: f64,
) {
    let if_so = |is_so: bool| if is_so { weight } else { 0.0 };
    let is_same = was.as_ref().zip(is.as_ref()).is_some_and(|((was, _), (is, _))| was == is);
    if let Some((subject, is_limited)) = is {
        let change = subjects.entry(subject).or_default();
        change.concerned += weight;
        change.limited_after += if_so(is_limited);
    }
    if let Some((subject, is_limited)) = was {
        let change = subjects.entry(subject).or_default();
        change.concerned += if_so(!is_same);
        change.limited_before += if_so(is_limited);
    }
}

/// Moves rules whose limits clients share into separate domains, so that they can be
/// charged differently. Returns the smallest of these limits; none if there are none.
fn separate_shared_rules(definitions: &mut Definitions, is_own: impl Fn(&Rule) -> bool) -> Option<u64> {
    let shared = |rule: &&mut Rule| rule.mode != Mode::Off && !is_own(rule);
    let mut limits = Vec::new();
    for rule in definitions.rules.iter_mut().filter(shared) {
        rule.domain.push_str(SHARED);
        limits.extend(rule.quotas.iter().map(checkdam::Quota::limit));
    }
    limits.into_iter().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_share_is_set_apart_and_their_own_is_not() {
        let text = "rules:\n  - { name: own, key: \"user:{user}\", limits: [\"10/s burst 40\"] }\n  \
                    - { name: all, key: global, domain: edge, limits: [\"10/s burst 30\", \"1000/h\"] }\n";
        let mut definitions = checkdam::rule_file::parse_definitions(text).unwrap();
        let is_own = |rule: &Rule| rule.key.attributes().any(|name| name == "user");
        assert_eq!(separate_shared_rules(&mut definitions, is_own), Some(30));
        let domains: Vec<&str> = definitions.rules.iter().map(|rule| rule.domain.as_str()).collect();
        assert_eq!(domains, ["", "edge~shared"]);
        assert_eq!(separate_shared_rules(&mut definitions, |_| true), None);
    }

    #[test]
    fn a_replay_disagrees_with_what_was_decided_beyond_chance() {
        let disagrees = |replayed: u64, live: u64| {
            let before = DecidedTotals { allowed: 1_000, limited: replayed };
            let live = DecidedTotals { allowed: 1_000, limited: live };
            Preview { before, live, ..Preview::default() }.disagrees()
        };
        assert_eq!(
            [disagrees(0, 20), disagrees(0, 21), disagrees(1_000, 1_100), disagrees(1_000, 1_112)],
            [false, true, false, true]
        );
    }
}

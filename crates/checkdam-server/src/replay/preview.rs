//! What a change of the rules would have done to the last minutes' requests.

use std::cmp::Reverse;
use std::collections::HashMap;

use checkdam::{Allowance, Definitions, Mode, Outcome, Request, Rule, RuleSet, TierView};

use super::Replay;
use super::clients::Clients;
use crate::watch::Sample;

/// The most subjects that are told.
const SUBJECTS_MAX: usize = 20;
/// Room for so many buckets a request, within the bounds beside it: mostly each
/// client has some.
const BUCKETS_EACH: usize = 8;
const BUCKETS: (usize, usize) = (10_000, 4_000_000);

/// What a change would have done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Preview {
    pub(crate) requests: u64,
    pub(crate) before: Passed,
    pub(crate) after: Passed,
    pub(crate) newly_limited: u64,
    pub(crate) newly_allowed: u64,
    pub(crate) rule_before: Counts,
    pub(crate) rule_after: Counts,
    /// Those for whom most changes first.
    pub(crate) subjects: Vec<(String, SubjectChange)>,
    /// Whether some of the counts are estimates.
    pub(crate) is_estimate: bool,
}

/// How many requests passed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) allowed: u64,
    pub(crate) limited: u64,
}

/// How many requests a rule concerned, and how many of them it would not let pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) concerned: u64,
    pub(crate) limited: u64,
}

/// What changes for one subject of the rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SubjectChange {
    pub(crate) concerned: u64,
    pub(crate) limited_before: u64,
    pub(crate) limited_after: u64,
}

/// Rules, and the name of the one that is looked at.
pub(crate) struct Side {
    definitions: Definitions,
    rule: Option<String>,
}

impl Side {
    pub(crate) const fn new(definitions: Definitions, rule: Option<String>) -> Self {
        Self { definitions, rule }
    }
}

/// Sends what was kept through the rules before and after a change. Takes up to
/// seconds: not for a thread that answers requests.
///
/// # Errors
/// Says why the rules cannot be compiled, which those in force can.
pub(crate) fn preview(sample: &Sample, before: Side, after: Side) -> Result<Preview, checkdam::RuleSetError> {
    let entries = sample.entries();
    let one_in = sample.one_in();
    let clients = (one_in > 1).then(|| Clients::of(sample));
    let is_own = |rule: &Rule| clients.as_ref().is_none_or(|clients| clients.own(rule));
    let buckets = (entries.len() * BUCKETS_EACH).clamp(BUCKETS.0, BUCKETS.1);
    let (mut before, mut after) =
        (Half::new(before, one_in, buckets, is_own)?, Half::new(after, one_in, buckets, is_own)?);
    let weight = if before.is_own && after.is_own { 1 } else { one_in };
    let mut done = Preview { is_estimate: one_in > 1, ..Preview::default() };
    let mut subjects: HashMap<String, SubjectChange> = HashMap::new();
    for entry in entries {
        let Some(requests) = entry.requests() else { continue };
        let (was, is) = (before.decide(entry.at_us(), &requests), after.decide(entry.at_us(), &requests));
        done.requests += one_in;
        done.before.count(was.is_allowed, one_in);
        done.after.count(is.is_allowed, one_in);
        done.newly_limited += u64::from(was.is_allowed && !is.is_allowed) * one_in;
        done.newly_allowed += u64::from(!was.is_allowed && is.is_allowed) * one_in;
        done.rule_before.count(&was, one_in);
        done.rule_after.count(&is, one_in);
        note_subjects(&mut subjects, was.subject, is.subject, weight);
    }
    let mut subjects: Vec<_> = subjects.into_iter().collect();
    let order = |(name, change): &(String, SubjectChange)| {
        let changed = change.limited_before.abs_diff(change.limited_after);
        (Reverse(changed), Reverse(change.limited_after), Reverse(change.concerned), name.clone())
    };
    subjects.sort_by_cached_key(order);
    subjects.truncate(SUBJECTS_MAX);
    Ok(Preview { subjects, ..done })
}

/// One of the two rule sets, and what it is asked about.
struct Half {
    replay: Replay,
    /// The number of the rule that is looked at.
    rule: Option<usize>,
    is_own: bool,
}

/// What one rule set says.
struct Said {
    is_allowed: bool,
    /// Whether the rule concerns the request, and whether it would not let it pass.
    rule: Option<bool>,
    subject: Option<(String, bool)>,
}

impl Half {
    fn new(
        side: Side,
        one_in: u64,
        buckets: usize,
        is_own: impl Fn(&Rule) -> bool,
    ) -> Result<Self, checkdam::RuleSetError> {
        let Side { mut definitions, rule } = side;
        if one_in > 1 {
            thin(&mut definitions, one_in, &is_own);
        }
        let rules = RuleSet::compile(definitions)?;
        let found = rule.and_then(|name| rules.numbered().enumerate().find(|(_, known)| known.name == name));
        let is_own = found.is_none_or(|(_, rule)| is_own(rule));
        let rule = found.map(|(number, _)| number);
        Ok(Self { replay: Replay::new(rules, buckets), rule, is_own })
    }

    fn decide(&mut self, at_us: u64, requests: &[Request<'_>]) -> Said {
        if let [request] = requests {
            let outcome = self.replay.check(at_us, request);
            let subject = self.said(request, &outcome);
            return Said::new(outcome.is_allowed(), subject);
        }
        let together = self.replay.check_together(at_us, requests);
        let said =
            requests.iter().zip(together.outcomes()).filter_map(|(request, outcome)| self.said(request, outcome));
        Said::new(together.is_allowed(), said.reduce(|one, other| if other.1 { other } else { one }))
    }

    /// Whose request it is to the rule, and whether the rule would not let it pass.
    fn said(&self, request: &Request<'_>, outcome: &Outcome) -> Option<(String, bool)> {
        let rule = self.rule?;
        let own = || outcome.tiers().filter(|tier| tier.number == rule);
        let tier: TierView<'_> = own().next()?;
        Some((tier.rule.key.render(request), own().any(|tier| !tier.decision.is_allowed())))
    }
}

impl Said {
    fn new(is_allowed: bool, subject: Option<(String, bool)>) -> Self {
        Self { is_allowed, rule: subject.as_ref().map(|(_, is_limited)| *is_limited), subject }
    }
}

impl Passed {
    const fn count(&mut self, is_allowed: bool, weight: u64) {
        *if is_allowed { &mut self.allowed } else { &mut self.limited } += weight;
    }
}

impl Counts {
    fn count(&mut self, said: &Said, weight: u64) {
        if let Some(is_limited) = said.rule {
            self.concerned += weight;
            self.limited += u64::from(is_limited) * weight;
        }
    }
}

/// A change of the key makes other subjects: each is told by itself.
fn note_subjects(
    subjects: &mut HashMap<String, SubjectChange>,
    was: Option<(String, bool)>,
    is: Option<(String, bool)>,
    weight: u64,
) {
    let is_same = was.as_ref().zip(is.as_ref()).is_some_and(|((was, _), (is, _))| was == is);
    if let Some((subject, is_limited)) = is {
        let change = subjects.entry(subject).or_default();
        change.concerned += weight;
        change.limited_after += u64::from(is_limited) * weight;
    }
    if let Some((subject, is_limited)) = was {
        let change = subjects.entry(subject).or_default();
        change.concerned += u64::from(!is_same) * weight;
        change.limited_before += u64::from(is_limited) * weight;
    }
}

/// What all clients share is reached by one in so many of them at that part of
/// the limit.
fn thin(definitions: &mut Definitions, one_in: u64, is_own: impl Fn(&Rule) -> bool) {
    let shared = |rule: &&mut Rule| rule.mode != Mode::Off && !is_own(rule);
    let mut names = HashMap::new();
    for rule in definitions.rules.iter_mut().filter(shared) {
        for quota in &mut rule.quotas {
            *quota = quota.shared_among(one_in);
        }
        names.insert(rule.name.clone(), rule.quotas.first().map(checkdam::Quota::algorithm).unwrap_or_default());
    }
    for exception in &mut definitions.overrides {
        let (Some(algorithm), Allowance::Limits(limits)) = (names.get(&exception.rule), &mut exception.allowance)
        else {
            continue;
        };
        for spec in limits {
            if let Ok(quota) = checkdam::Quota::new(*spec, *algorithm) {
                *spec = quota.shared_among(one_in).spec();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_share_is_thinned_and_their_own_is_not() {
        let text = "rules:\n  - { name: own, key: \"user:{user}\", limits: [\"10/s burst 40\"] }\n  \
                    - { name: all, key: global, limits: [\"10/s burst 40\", \"1000/h\"], algorithm: token_bucket }\n\
                    overrides:\n  - { rule: all, subject: global, limits: [\"80/s\"] }\n";
        let mut definitions = checkdam::rule_file::parse_definitions(text).unwrap();
        thin(&mut definitions, 4, |rule| rule.key.attributes().any(|name| name == "user"));
        let limits = |rule: usize| definitions.rules[rule].quotas.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(limits(0), ["10/s burst 40"]);
        assert_eq!(limits(1), ["10/4s burst 10", "1000/4h burst 250"]);
        let Allowance::Limits(limits) = &definitions.overrides[0].allowance else { panic!("limits") };
        assert_eq!((limits[0].amount, limits[0].period_us, limits[0].burst), (80, 4_000_000, Some(20)));
    }
}

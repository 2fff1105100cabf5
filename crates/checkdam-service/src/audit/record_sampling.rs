//! Sampling of violations: at most `audit_rate` per rule per second are written. Counts
//! stay exact.

use crate::lock;
use std::collections::HashMap;
use std::sync::Mutex;

/// What each rule has denied.
#[derive(Debug)]
pub(super) struct RecordSampling {
    per_second: u32,
    /// As many as there are rules; renamed and removed ones stay until the end.
    rules: Mutex<HashMap<Box<str>, RuleDenialCount>>,
}

#[derive(Debug, Default)]
struct RuleDenialCount {
    total: u64,
    second: u64,
    in_second: u32,
}

impl RecordSampling {
    pub(super) fn new(per_second: u32) -> Self {
        Self { per_second, rules: Mutex::default() }
    }

    /// Counts a denial of the rule; whether it is to be written.
    pub(super) fn count_and_sample(&self, rule: &str, second: u64) -> bool {
        let mut rules = lock(&self.rules);
        let denials = match rules.get_mut(rule) {
            Some(denials) => denials,
            None => rules.entry(rule.into()).or_default(),
        };
        denials.total += 1;
        if denials.second != second {
            (denials.second, denials.in_second) = (second, 0);
        }
        let is_due = denials.in_second < self.per_second;
        denials.in_second += u32::from(is_due);
        is_due
    }

    /// How often each rule denied, most often first.
    pub(super) fn denials_by_rule(&self) -> Vec<(String, u64)> {
        let rules = lock(&self.rules);
        let mut denials: Vec<_> = rules.iter().map(|(rule, denials)| (rule.to_string(), denials.total)).collect();
        drop(rules);
        denials.sort_by(|(name, count), (other, more)| more.cmp(count).then_with(|| name.cmp(other)));
        denials
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_writes_so_much_a_second_and_counts_all() {
        let sample = RecordSampling::new(2);
        let due: Vec<bool> = [1, 1, 1, 2, 2, 2, 1].map(|second| sample.count_and_sample("a", second)).into();
        assert_eq!(due, [true, true, false, true, true, false, true]);
        assert!(sample.count_and_sample("b", 1), "each rule by itself");
        assert_eq!(sample.denials_by_rule(), [("a".to_owned(), 7), ("b".to_owned(), 1)]);
        assert!(!RecordSampling::new(0).count_and_sample("a", 1), "none at all");
    }
}

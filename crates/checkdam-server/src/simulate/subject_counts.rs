//! Counts by subject: exact up to a maximum of subjects, then heavy hitters only.

use std::cmp::Reverse;
use std::collections::HashMap;

/// The most that are counted: some hundred bytes each.
const SUBJECTS_MAX: usize = 400_000;

/// Counts by name.
#[derive(Debug)]
pub(super) struct SubjectCounts<T> {
    counts: HashMap<(u32, Box<str>), T, foldhash::fast::RandomState>,
    /// The maximum count of a subject that is not listed.
    missing_at_most: u64,
}

/// What is counted.
pub(super) trait CountValue: Default + Copy {
    /// By what those are chosen that stay.
    fn weight(&self) -> u64;
}

impl<T> Default for SubjectCounts<T> {
    fn default() -> Self {
        Self { counts: HashMap::default(), missing_at_most: 0 }
    }
}

impl<T: CountValue> SubjectCounts<T> {
    /// The count of a subject of the rule of that number.
    pub(super) fn entry(&mut self, rule: u32, subject: String) -> &mut T {
        if self.counts.len() >= SUBJECTS_MAX {
            self.drop_lower_half();
        }
        self.counts.entry((rule, subject.into_boxed_str())).or_default()
    }

    /// Forgets the lesser half.
    fn drop_lower_half(&mut self) {
        let mut weights: Vec<u64> = self.counts.values().map(CountValue::weight).collect();
        let (_, middle, _) = weights.select_nth_unstable(SUBJECTS_MAX / 2);
        let middle = *middle;
        self.counts.retain(|_, count| count.weight() > middle);
        self.missing_at_most += middle;
    }

    /// The maximum count of a subject that is not listed, and the maximum error of those
    /// that are.
    pub(super) const fn missing_at_most(&self) -> u64 {
        self.missing_at_most
    }

    /// Those with most, most first.
    pub(super) fn top(&self, count: usize) -> Vec<(u32, &str, T)> {
        let mut all: Vec<_> = self.counts.iter().map(|((rule, name), count)| (*rule, &**name, *count)).collect();
        all.sort_unstable_by(|one, other| {
            (Reverse(one.2.weight()), one.0, one.1).cmp(&(Reverse(other.2.weight()), other.0, other.1))
        });
        all.truncate(count);
        all
    }
}

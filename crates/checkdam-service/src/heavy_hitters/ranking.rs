//! Merges several lists of heavy hitters into one ranking.

use std::collections::HashMap;

use super::{HeavyHitters, HitterCount, RuleSubject};

/// The sum of lists of different times, or of different nodes: a name that is missing
/// from a list counts with that list's bound for missing names.
#[derive(Debug, Default)]
pub struct Ranking {
    sums: HashMap<RuleSubject, RankingSum>,
    floor: u64,
    total: u64,
}

/// What is known of a name beyond what is said of the missing.
#[derive(Debug, Clone, Copy, Default)]
struct RankingSum {
    count: u64,
    too_high_by: u64,
    /// What is said of the missing by the lists that have it.
    floor: u64,
}

/// Names with their counts, most frequent first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RankedSubjects {
    pub names: Vec<(RuleSubject, HitterCount)>,
    /// The maximum count of a name that is not listed.
    pub missing_at_most: u64,
    /// How much was seen in all.
    pub total: u64,
}

impl Ranking {
    pub fn add(&mut self, hitters: &HeavyHitters) {
        let listed = hitters.iter().map(|(name, count)| (name.clone(), count));
        self.add_list(listed, hitters.missing_at_most(), hitters.total());
    }

    /// Adds a list without duplicate names.
    pub fn add_list(&mut self, listed: impl IntoIterator<Item = (RuleSubject, HitterCount)>, floor: u64, total: u64) {
        for (name, HitterCount { count, too_high_by }) in listed {
            let sum = self.sums.entry(name).or_default();
            sum.count = sum.count.saturating_add(count);
            sum.too_high_by = sum.too_high_by.saturating_add(too_high_by);
            sum.floor = sum.floor.saturating_add(floor);
        }
        self.floor = self.floor.saturating_add(floor);
        self.total = self.total.saturating_add(total);
    }

    pub fn ranked(self) -> RankedSubjects {
        RankedSubjects::concat([self])
    }

    fn unsorted(self) -> RankedSubjects {
        let Self { sums, floor, total } = self;
        let names = sums
            .into_iter()
            .map(|(name, sum)| {
                let missing = floor.saturating_sub(sum.floor);
                let count = sum.count.saturating_add(missing);
                (name, HitterCount { count, too_high_by: sum.too_high_by.saturating_add(missing) })
            })
            .collect();
        RankedSubjects { names, missing_at_most: floor, total }
    }
}

impl RankedSubjects {
    /// Concatenates rankings without common names.
    pub fn concat(rankings: impl IntoIterator<Item = Ranking>) -> Self {
        let mut all = Self::default();
        for ranked in rankings.into_iter().map(Ranking::unsorted) {
            all.names.extend(ranked.names);
            all.missing_at_most = all.missing_at_most.max(ranked.missing_at_most);
            all.total = all.total.saturating_add(ranked.total);
        }
        sort(&mut all.names);
        all
    }

    /// Keeps the first; the others are missing then.
    pub fn truncate(&mut self, max: usize) {
        if let Some((_, first)) = self.names.get(max) {
            self.missing_at_most = self.missing_at_most.max(first.count);
        }
        self.names.truncate(max);
    }
}

fn sort(names: &mut [(RuleSubject, HitterCount)]) {
    names.sort_by(|(name, one), (other, two)| {
        let counts = two.count.cmp(&one.count).then(one.too_high_by.cmp(&two.too_high_by));
        counts.then_with(|| (&name.rule, &name.subject).cmp(&(&other.rule, &other.subject)))
    });
}

//! Heavy hitters in fixed space: the SpaceSaving sketch.
//!
//! A sketch has `max` entries and has counted `total` in all. Counts are never too
//! low: each is too high by at most its `too_high_by`, and a name that is not listed
//! was counted at most [`missing_at_most`](HeavyHitters::missing_at_most) times. Both
//! are at most `total / max`, also after a [merge](HeavyHitters::merge), so every
//! name that was counted more often is listed. With at most `max` names all counts
//! are exact.
//!
//! The algorithm is SpaceSaving (Metwally, Agrawal, El Abbadi: "Efficient Computation
//! of Frequent and Top-k Elements in Data Streams", 2005), merged like Misra-Gries
//! summaries (Agarwal et al.: "Mergeable Summaries", 2012). The frequent items sketch
//! of Apache's `datasketches` (0.6) needs 3.5 times the entries for the same bound,
//! has one bound for all names instead of one for each, and hashes names without a
//! secret: clients, which choose subjects, could make all of them collide.

mod ranking;

pub(crate) use self::ranking::{RankedSubjects, Ranking};

/// Counts of the most frequent names.
#[derive(Debug, Clone)]
pub struct HeavyHitters {
    max: usize,
    /// A part of each name's hash: names are compared only where it is equal.
    tags: Vec<u32>,
    counts: Vec<HitterCount>,
    names: Vec<RuleSubject>,
    /// The maximum count of a name that is not listed.
    floor: u64,
    total: u64,
    /// Where the search for the next name to replace begins.
    next: usize,
}

/// The count of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HitterCount {
    /// At most so often.
    pub count: u64,
    /// How much too high that may be.
    pub too_high_by: u64,
}

/// A counted name: the subject of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct RuleSubject {
    pub rule: String,
    pub subject: String,
}

impl HeavyHitters {
    /// An empty sketch with room for `max` names, at least one.
    pub(crate) const fn new(max: usize) -> Self {
        let max = if max == 0 { 1 } else { max };
        Self { max, tags: Vec::new(), counts: Vec::new(), names: Vec::new(), floor: 0, total: 0, next: 0 }
    }

    /// Counts a name. The hash is the caller's, the same for the same name in every
    /// sketch that is merged with this one. A name that is listed costs no allocation,
    /// and one that replaces another mostly neither.
    pub(crate) fn record(&mut self, hash: u64, rule: &str, subject: &str) {
        self.total += 1;
        let tag = tag(hash);
        if let Some(place) = self.position(tag, rule, subject) {
            self.counts[place].count += 1;
            return;
        }
        if self.names.len() < self.max {
            let count = HitterCount { count: self.floor + 1, too_high_by: self.floor };
            self.push(tag, RuleSubject { rule: rule.to_owned(), subject: subject.to_owned() }, count);
            return;
        }
        let Some(place) = self.minimum() else { return };
        let count = self.counts[place].count;
        self.floor = count;
        self.tags[place] = tag;
        self.counts[place] = HitterCount { count: count + 1, too_high_by: count };
        let name = &mut self.names[place];
        name.rule.clear();
        name.rule.push_str(rule);
        name.subject.clear();
        name.subject.push_str(subject);
    }

    /// Adds what another has seen. Bounds add up and stay below `total / max`:
    /// what falls out is the least, and raises what is said of the missing.
    pub(crate) fn merge(&mut self, other: &Self) {
        let (own_floor, floor) = (self.floor, self.floor + other.floor);
        let mut is_met = vec![false; self.names.len()];
        for ((tag, name), theirs) in other.tags.iter().zip(&other.names).zip(&other.counts) {
            match self.position(*tag, &name.rule, &name.subject) {
                Some(place) => {
                    is_met[place] = true;
                    let own = &mut self.counts[place];
                    own.count += theirs.count;
                    own.too_high_by += theirs.too_high_by;
                }
                None => {
                    is_met.push(true);
                    let count = theirs.count + own_floor;
                    self.push(*tag, name.clone(), HitterCount { count, too_high_by: theirs.too_high_by + own_floor });
                }
            }
        }
        for (own, _) in self.counts.iter_mut().zip(is_met).filter(|(_, is_met)| !is_met) {
            own.count += other.floor;
            own.too_high_by += other.floor;
        }
        self.floor = floor;
        self.total += other.total;
        self.evict_minimum();
    }

    /// All listed names, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&RuleSubject, HitterCount)> {
        self.names.iter().zip(self.counts.iter().copied())
    }

    /// The maximum count of a name that is not listed.
    pub(crate) const fn missing_at_most(&self) -> u64 {
        self.floor
    }

    /// How much was seen in all.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    fn push(&mut self, tag: u32, name: RuleSubject, count: HitterCount) {
        self.tags.push(tag);
        self.names.push(name);
        self.counts.push(count);
    }

    #[inline]
    fn position(&self, tag: u32, rule: &str, subject: &str) -> Option<usize> {
        // Compared in groups of eight without early exit, which compiles to a few
        // instructions.
        for (number, tags) in self.tags.chunks(8).enumerate() {
            if !tags.iter().fold(false, |is_there, other| is_there | (*other == tag)) {
                continue;
            }
            let is_it = |place: &usize| {
                let name = &self.names[*place];
                self.tags[*place] == tag && name.subject == subject && name.rule == rule
            };
            if let Some(place) = (number * 8..number * 8 + tags.len()).find(is_it) {
                return Some(place);
            }
        }
        None
    }

    /// The index of a name with the minimum count. None is below the floor, so any name
    /// at the floor will do: the search continues where the last one ended, and in a
    /// flood of new names finds the next at once.
    fn minimum(&mut self) -> Option<usize> {
        let is_least = |place: &usize| self.counts[*place].count <= self.floor;
        let next = self.next.min(self.counts.len());
        let found = (next..self.counts.len()).chain(0..next).find(is_least);
        let place = found.or_else(|| (0..self.counts.len()).min_by_key(|place| self.counts[*place].count))?;
        self.next = place + 1;
        Some(place)
    }

    fn evict_minimum(&mut self) {
        if self.names.len() <= self.max {
            return;
        }
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        order.sort_by_key(|place| std::cmp::Reverse(self.counts[*place].count));
        self.floor = self.floor.max(self.counts[order[self.max]].count);
        order.truncate(self.max);
        self.tags = order.iter().map(|place| self.tags[*place]).collect();
        self.counts = order.iter().map(|place| self.counts[*place]).collect();
        self.names = order.iter().map(|place| std::mem::take(&mut self.names[*place])).collect();
    }
}

/// The lower half: shards are chosen by the upper one.
const fn tag(hash: u64) -> u32 {
    hash as u32
}

#[cfg(test)]
mod tests;

//! Allowed and denied requests over time, in a bounded number of points.

use std::collections::BTreeMap;

/// The most points; beyond, two become one.
const POINTS_MAX: usize = 2_048;
/// The maximum number of rules with a timeline: the first that deny.
const RULES_MAX: usize = 64;

/// Counts over time.
#[derive(Debug, Clone)]
pub(super) struct Timeline {
    /// Unix seconds of the first point.
    start_s: u64,
    step_s: u64,
    allowed: Vec<u64>,
    limited: Vec<u64>,
    rules: BTreeMap<u32, Vec<u64>>,
}

impl Timeline {
    pub(super) const fn new() -> Self {
        Self { start_s: 0, step_s: 1, allowed: Vec::new(), limited: Vec::new(), rules: BTreeMap::new() }
    }

    /// A request at that time, which is never before the last one.
    pub(super) fn note(&mut self, unix_s: u64, is_allowed: bool) {
        if self.allowed.is_empty() {
            self.start_s = unix_s;
        }
        while ((unix_s - self.start_s) / self.step_s) as usize >= POINTS_MAX {
            self.step_s *= 2;
            for points in [&mut self.allowed, &mut self.limited].into_iter().chain(self.rules.values_mut()) {
                *points = points.chunks(2).map(|pair| pair.iter().sum()).collect();
            }
        }
        let place = self.place(unix_s);
        let length = self.allowed.len().max(place + 1);
        self.allowed.resize(length, 0);
        self.limited.resize(length, 0);
        if is_allowed {
            self.allowed[place] += 1;
        } else {
            self.limited[place] += 1;
        }
    }

    /// A rule limited the request that was just noted.
    pub(super) fn note_rule(&mut self, unix_s: u64, rule: u32) {
        let place = self.place(unix_s);
        if self.rules.len() >= RULES_MAX && !self.rules.contains_key(&rule) {
            return;
        }
        let points = self.rules.entry(rule).or_default();
        if points.len() <= place {
            points.resize(place + 1, 0);
        }
        points[place] += 1;
    }

    fn place(&self, unix_s: u64) -> usize {
        (unix_s.saturating_sub(self.start_s) / self.step_s) as usize
    }

    /// The unix second of the first point, and the seconds between two.
    pub(super) const fn scale(&self) -> (u64, u64) {
        (self.start_s, self.step_s)
    }

    /// How many passed, and how many did not.
    pub(super) fn points(&self) -> (&[u64], &[u64]) {
        (&self.allowed, &self.limited)
    }

    /// How often the rule of that number limited.
    pub(super) fn of_rule(&self, rule: u32) -> Vec<u64> {
        let mut points = self.rules.get(&rule).cloned().unwrap_or_default();
        points.resize(self.allowed.len(), 0);
        points
    }
}

/// The busiest minute, updated as time advances.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Busiest {
    now: (u64, u64),
    most: (u64, u64),
}

impl Busiest {
    pub(super) fn note(&mut self, unix_s: u64) {
        let minute = unix_s / 60;
        if self.now.0 != minute {
            self.now = (minute, 0);
        }
        self.now.1 += 1;
        if self.now.1 > self.most.1 {
            self.most = self.now;
        }
    }

    /// The unix second at which it begins, and how many; none if there was nothing.
    pub(super) fn minute(&self) -> Option<(u64, u64)> {
        (self.most.1 > 0).then_some((self.most.0 * 60, self.most.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_join_and_nothing_is_lost() {
        let mut timeline = Timeline::new();
        for second in 0..10_000 {
            timeline.note(1_000 + second, second % 10 != 0);
            if second % 10 == 0 {
                timeline.note_rule(1_000 + second, 3);
            }
        }
        let (allowed, limited) = timeline.points();
        assert_eq!((timeline.scale(), allowed.len()), ((1_000, 8), 1_250));
        assert_eq!((allowed.iter().sum::<u64>(), limited.iter().sum::<u64>()), (9_000, 1_000));
        assert_eq!(timeline.of_rule(3), limited);
    }
}

//! Top subjects: those with most requests and with most denials, over the last minute
//! and the last hour.
//!
//! Requests count, not their cost. An allowed request counts for each rule that
//! applies to it; a denied one for each rule that denies it, or as `ban`. Not counted:
//! rules in shadow mode, denials by failure policy, and rules whose key has no
//! attribute, such as `global`, which traffic by rule shows.
//!
//! The space is fixed: eight shards of 128 names per slice and kind. Slices are ten
//! seconds long for the minute and ten minutes for the hour. Each window is the current
//! slice and the five before it: 50 to 60 s, and 50 to 60 min. Within a shard a count is
//! too high by at most one 128th of what that shard counted, over all slices
//! together: see [`HeavyHitters`].

mod time_slices;

use std::cell::RefCell;
use std::hash::BuildHasher;
use std::sync::Mutex;

use checkdam::{Outcome, Request, Verdict};

use self::time_slices::TimeSlices;
use super::Observation;
use crate::audit::BAN;
use crate::heavy_hitters::{RankedSubjects, Ranking};
use crate::lock;

/// More shards, less waiting for each other.
const SHARDS: usize = 8;

thread_local! {
    /// Buffer in which subjects are rendered for lookup.
    static SUBJECT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The top subjects by requests and by denials.
#[derive(Debug)]
pub struct TopSubjects {
    hashing: checkdam::hash::RandomState,
    allowed: [Mutex<TimeSlices>; SHARDS],
    limited: [Mutex<TimeSlices>; SHARDS],
}

/// Which list of subjects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopOf {
    Allowed,
    Limited,
}

/// How far a list reaches back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopWindow {
    Minute,
    Hour,
}

impl TopSubjects {
    pub fn new() -> Self {
        let now_s = now_s();
        let shards = || std::array::from_fn(|_| Mutex::new(TimeSlices::new(now_s)));
        Self { hashing: checkdam::hash::RandomState::default(), allowed: shards(), limited: shards() }
    }

    pub(super) fn record(&self, seen: &Observation<'_, '_>) {
        for (request, outcome) in seen.iter() {
            if seen.is_allowed {
                self.record_tiers(TopOf::Allowed, request, outcome, |verdict| verdict == Verdict::Allowed);
            } else if let Some(ban) = outcome.ban() {
                self.add(TopOf::Limited, BAN, &ban.subject());
            } else {
                let is_limit = |verdict| matches!(verdict, Verdict::Denied | Verdict::CostExceedsBurst);
                self.record_tiers(TopOf::Limited, request, outcome, is_limit);
            }
        }
    }

    /// Counts the request for each rule that acts and has such a tier.
    fn record_tiers(&self, kind: TopOf, request: &Request<'_>, outcome: &Outcome, is_such: impl Fn(Verdict) -> bool) {
        for mut tiers in outcome.by_rule() {
            let Some(tier) = tiers.find(|tier| tier.is_enforced() && is_such(tier.decision.verdict)) else { continue };
            // It has no subjects, and every core would wait for the same shard.
            if tier.rule.key.attributes().next().is_none() {
                continue;
            }
            SUBJECT.with_borrow_mut(|subject| {
                subject.clear();
                tier.rule.key.render_into(request, subject);
                self.add(kind, &tier.rule.name, &checkdam::shortened(subject));
            });
        }
    }

    fn add(&self, kind: TopOf, rule: &str, subject: &str) {
        let hash = self.hashing.hash_one((rule, subject));
        let shard = &self.shards(kind)[(hash >> 32) as usize % SHARDS];
        lock(shard).record(hash, rule, subject);
    }

    /// To be called once a second.
    pub(super) fn tick(&self) {
        self.tick_at(now_s());
    }

    fn tick_at(&self, now_s: u64) {
        for shard in self.allowed.iter().chain(&self.limited) {
            lock(shard).advance(now_s);
        }
    }

    /// The top subjects, most frequent first.
    pub fn ranked(&self, kind: TopOf, span: TopWindow) -> RankedSubjects {
        RankedSubjects::concat(self.shards(kind).iter().map(|shard| {
            let slices = lock(shard).slices(span);
            let mut ranking = Ranking::default();
            slices.iter().for_each(|slice| ranking.add(slice));
            ranking
        }))
    }

    const fn shards(&self, kind: TopOf) -> &[Mutex<TimeSlices>; SHARDS] {
        match kind {
            TopOf::Allowed => &self.allowed,
            TopOf::Limited => &self.limited,
        }
    }
}

/// Only for how old slices are.
fn now_s() -> u64 {
    checkdam::time::unix_us() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a list says, as text.
    fn listed(top: &TopSubjects, kind: TopOf, span: TopWindow) -> String {
        let ranked = top.ranked(kind, span);
        let names = ranked.names.iter().map(|(name, count)| format!("{}/{} {}", name.rule, name.subject, count.count));
        names.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn the_minute_forgets_what_the_hour_keeps() {
        let top = TopSubjects::new();
        let start_s = now_s() / 600 * 600;
        top.tick_at(start_s);
        for _ in 0..3 {
            top.add(TopOf::Limited, "free", "user:1");
        }
        top.add(TopOf::Limited, "free", "user:2");
        assert_eq!(listed(&top, TopOf::Limited, TopWindow::Minute), "free/user:1 3, free/user:2 1");
        assert_eq!(listed(&top, TopOf::Limited, TopWindow::Hour), "free/user:1 3, free/user:2 1", "also what runs");
        assert_eq!(listed(&top, TopOf::Allowed, TopWindow::Hour), "");
        for now_s in start_s..start_s + 60 {
            top.tick_at(now_s);
        }
        assert_eq!(listed(&top, TopOf::Limited, TopWindow::Minute), "free/user:1 3, free/user:2 1");
        top.add(TopOf::Limited, "free", "user:2");
        top.tick_at(start_s + 60);
        assert_eq!(listed(&top, TopOf::Limited, TopWindow::Minute), "free/user:2 1");
        assert_eq!(listed(&top, TopOf::Limited, TopWindow::Hour), "free/user:1 3, free/user:2 2");
        top.tick_at(start_s + 3_599);
        assert_eq!(listed(&top, TopOf::Limited, TopWindow::Hour), "free/user:1 3, free/user:2 2");
        top.tick_at(start_s + 3_600);
        assert_eq!(listed(&top, TopOf::Limited, TopWindow::Hour), "");
    }

    #[test]
    fn a_clock_that_jumps_forgets_and_goes_on() {
        let top = TopSubjects::new();
        for (now_s, count) in [(10_000_000, 1), (20_000_000, 1), (105, 1), (106, 2), (0, 1)] {
            top.tick_at(now_s);
            top.add(TopOf::Allowed, "free", "user:1");
            assert_eq!(listed(&top, TopOf::Allowed, TopWindow::Minute), format!("free/user:1 {count}"), "{now_s}");
        }
    }

    #[test]
    fn a_flood_of_names_hides_nobody_who_comes_often_and_takes_no_space() {
        let top = TopSubjects::new();
        for number in 0..40_000_u32 {
            top.add(TopOf::Allowed, "free", &format!("user:{number}"));
            if number % 20 == 0 {
                top.add(TopOf::Allowed, "free", "busy");
            }
        }
        let ranked = top.ranked(TopOf::Allowed, TopWindow::Minute);
        assert_eq!(ranked.total, 42_000);
        assert!(ranked.names.len() <= SHARDS * 128 && ranked.missing_at_most <= 42_000 / 128, "{ranked:?}");
        let (name, count) = &ranked.names[0];
        assert_eq!(name.subject, "busy");
        assert!(count.count >= 2_000 && count.count - count.too_high_by <= 2_000, "{count:?}");
    }
}

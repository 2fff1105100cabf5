//! One shard of the names: a ring of sketches, one per slice of time.

use std::collections::VecDeque;
use std::sync::Arc;

use super::TopWindow;
use crate::heavy_hitters::HeavyHitters;

/// The names that a slice holds.
const NAMES_MAX: usize = 128;
/// A short slice; sixty of them are a long one.
const SHORT_S: u64 = 10;
const SHORTS_IN_LONG: u64 = 60;
/// The slices of a span, the one that runs among them.
const SLICES: u64 = 6;

/// Sketches of the last slices.
#[derive(Debug)]
pub(super) struct TimeSlices {
    /// The number of the slice that runs, counted from 1970.
    number: u64,
    running: HeavyHitters,
    /// Those before it, oldest first.
    short: VecDeque<(u64, Arc<HeavyHitters>)>,
    /// Long ones; what runs is in none of them yet.
    long: VecDeque<(u64, Arc<HeavyHitters>)>,
}

impl TimeSlices {
    pub(super) const fn new(now_s: u64) -> Self {
        let number = now_s / SHORT_S;
        Self { number, running: HeavyHitters::new(NAMES_MAX), short: VecDeque::new(), long: VecDeque::new() }
    }

    pub(super) fn record(&mut self, hash: u64, rule: &str, subject: &str) {
        self.running.record(hash, rule, subject);
    }

    /// Begins another slice when it is time, and forgets what is too old.
    pub(super) fn advance(&mut self, now_s: u64) {
        let number = now_s / SHORT_S;
        if number == self.number {
            return;
        }
        let done = std::mem::replace(&mut self.running, HeavyHitters::new(NAMES_MAX));
        let (done_number, long) = (self.number, self.number / SHORTS_IN_LONG);
        self.number = number;
        if done.total() > 0 {
            let done = Arc::new(done);
            match self.long.back_mut() {
                Some((last, sketch)) if *last == long => Arc::make_mut(sketch).merge(&done),
                _ => self.long.push_back((long, Arc::clone(&done))),
            }
            self.short.push_back((done_number, done));
        }
        // After a clock was set back, slices of the future are dropped too.
        let is_kept = |kept: u64, now: u64| kept <= now && now - kept < SLICES;
        self.short.retain(|(kept, _)| is_kept(*kept, number));
        self.long.retain(|(kept, _)| is_kept(*kept, number / SHORTS_IN_LONG));
    }

    /// The sketches of a span. They are merged elsewhere, so that counting does not wait
    /// for that.
    pub(super) fn slices(&self, span: TopWindow) -> Vec<Arc<HeavyHitters>> {
        let done = match span {
            TopWindow::Minute => &self.short,
            TopWindow::Hour => &self.long,
        };
        let done = done.iter().map(|(_, sketch)| Arc::clone(sketch));
        done.chain([Arc::new(self.running.clone())]).collect()
    }
}

//! The history of one rule: a ring of points for each window.

/// The window of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrafficWindow {
    /// A minute by seconds.
    Minute,
    /// A quarter of an hour by ten seconds.
    Quarter,
    /// A day by five minutes.
    Day,
}

impl TrafficWindow {
    const ALL: [Self; 3] = [Self::Minute, Self::Quarter, Self::Day];

    /// How long a point lasts.
    pub const fn step_s(self) -> u64 {
        match self {
            Self::Minute => 1,
            Self::Quarter => 10,
            Self::Day => 300,
        }
    }

    const fn points(self) -> usize {
        match self {
            Self::Minute => 60,
            Self::Quarter => 90,
            Self::Day => 288,
        }
    }

    /// The number of the point that the second belongs to that ends at `end_s`.
    const fn number(self, end_s: u64) -> u64 {
        end_s.saturating_sub(1) / self.step_s()
    }

    /// When the point ends that this second belongs to.
    pub(super) const fn end_s(self, end_s: u64) -> u64 {
        (self.number(end_s) + 1) * self.step_s()
    }
}

/// Requests that were allowed, denied, and that rules in shadow mode would have
/// denied; of the denied, the banned, and those that a rule denied because its store
/// did not reply.
pub(in crate::telemetry) type Counts = [u64; 5];

/// What passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, utoipa::ToSchema)]
#[schema(as = Counts)]
pub struct TrafficPoint {
    /// Requests that passed.
    pub allowed: u32,
    /// Requests that did not.
    pub limited: u32,
    /// Requests that a rule in shadow would have denied.
    pub shadow: u32,
    /// Of those that did not pass: the banned. Bans are of no rule.
    pub banned: u32,
    /// Of those that did not pass: a rule refused them because its store did not answer.
    pub unavailable: u32,
}

/// Counts, point by point.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, utoipa::ToSchema)]
#[schema(as = SeriesAnswer)]
pub struct TrafficSeries {
    /// Requests that passed.
    pub allowed: Vec<u32>,
    /// Requests that did not.
    pub limited: Vec<u32>,
    /// Requests that a rule in shadow would have denied.
    pub shadow: Vec<u32>,
    /// Of those that did not pass: the banned. Bans are of no rule.
    pub banned: Vec<u32>,
    /// Of those that did not pass: a rule refused them because its store did not answer.
    pub unavailable: Vec<u32>,
}

impl TrafficPoint {
    fn add(&mut self, new: Counts) {
        let Self { allowed, limited, shadow, banned, unavailable } = self;
        for (sum, new) in [allowed, limited, shadow, banned, unavailable].into_iter().zip(new) {
            *sum = sum.saturating_add(u32::try_from(new).unwrap_or(u32::MAX));
        }
    }

    /// How much happened in it.
    pub(super) fn sum(self) -> u64 {
        u64::from(self.allowed) + u64::from(self.limited) + u64::from(self.shadow)
    }
}

/// The history of one rule. Numbers of points are the same for all lines, so
/// that none is kept here.
#[derive(Debug)]
pub(super) struct RuleHistory {
    /// What the counters said last.
    counted: Counts,
    rings: [Box<[TrafficPoint]>; 3],
}

impl Default for RuleHistory {
    fn default() -> Self {
        let ring = |window: TrafficWindow| vec![TrafficPoint::default(); window.points()].into_boxed_slice();
        Self { counted: Counts::default(), rings: TrafficWindow::ALL.map(ring) }
    }
}

impl RuleHistory {
    /// Empties the places of points that begin after the second that ended at
    /// `last_s`, up to that which ends at `now_s`.
    pub(super) fn clear(&mut self, last_s: u64, now_s: u64) {
        for (window, ring) in TrafficWindow::ALL.into_iter().zip(&mut self.rings) {
            let (last, now) = (window.number(last_s), window.number(now_s));
            let first = (last + 1).max(now.saturating_sub(ring.len() as u64 - 1));
            for number in first..=now {
                ring[number as usize % window.points()] = TrafficPoint::default();
            }
        }
    }

    /// Adds what the counters say beyond the last time.
    pub(super) fn record(&mut self, end_s: u64, counts: Counts) {
        // A counter that is lower is another's: its rule was gone meanwhile.
        let new = |(now, last): (u64, u64)| now.checked_sub(last).unwrap_or(now);
        let new = std::array::from_fn(|place| new((counts[place], self.counted[place])));
        self.counted = counts;
        if new == Counts::default() {
            return;
        }
        for (window, ring) in TrafficWindow::ALL.into_iter().zip(&mut self.rings) {
            ring[window.number(end_s) as usize % window.points()].add(new);
        }
    }

    /// Forgets everything but what the counters said.
    pub(super) fn forget(&mut self) {
        self.rings.iter_mut().for_each(|ring| ring.fill(TrafficPoint::default()));
    }

    pub(super) fn series(&self, window: TrafficWindow, end_s: u64) -> TrafficSeries {
        let (ring, newest) = (self.ring(window), window.number(end_s) as usize);
        let mut series = TrafficSeries::default();
        for point in (1..=ring.len()).map(|after| ring[(newest + after) % ring.len()]) {
            series.allowed.push(point.allowed);
            series.limited.push(point.limited);
            series.shadow.push(point.shadow);
            series.banned.push(point.banned);
            series.unavailable.push(point.unavailable);
        }
        series
    }

    /// The second that ended at `end_s`, at most a minute ago.
    pub(super) fn last(&self, end_s: u64) -> TrafficPoint {
        let ring = self.ring(TrafficWindow::Minute);
        ring[TrafficWindow::Minute.number(end_s) as usize % ring.len()]
    }

    pub(super) fn sum(&self, window: TrafficWindow) -> u64 {
        self.ring(window).iter().map(|point| point.sum()).sum()
    }

    const fn ring(&self, window: TrafficWindow) -> &[TrafficPoint] {
        match window {
            TrafficWindow::Minute => &self.rings[0],
            TrafficWindow::Quarter => &self.rings[1],
            TrafficWindow::Day => &self.rings[2],
        }
    }
}

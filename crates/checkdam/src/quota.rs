//! Quotas: N requests per period with a burst, in whole numbers.
//!
//! A [`Quota`] is made from a [`QuotaSpec`] (plain data, or text such as
//! `"10/s burst 50"`); values that cannot be counted exactly are rejected. It must
//! never hold a value for which a decision could overflow 2^53: the same
//! arithmetic runs in Lua, whose numbers are doubles.
//!
//! ```
//! use checkdam::Quota;
//! let quota: Quota = "10/s burst 50".parse()?;
//! assert_eq!((quota.limit(), quota.period_us()), (50, 1_000_000));
//! # Ok::<(), checkdam::QuotaError>(())
//! ```

mod calendar;
mod error;
mod parse;
mod ticks;

pub(crate) use calendar::Calendar;
pub use calendar::{CalendarOptions, Weekday};
pub use error::QuotaError;
#[cfg(feature = "yaml")]
pub(crate) use parse::parse_period;
pub(crate) use parse::period_text;
use ticks::Ticks;

use crate::hash::TagBits;
use crate::time::{HORIZON_US, SECOND_US, STEP_BACK_HELD_US};

/// One day in microseconds.
pub(crate) const DAY_US: u64 = 86_400 * SECOND_US;

/// The largest limit or burst: beyond it a weighted window would lose its grain.
pub const LIMIT_MAX: u64 = 1_000_000_000_000;

/// A sliding log remembers every request, so it holds no more than this, and as much debt.
pub const LOG_LIMIT_MAX: u64 = 10_000;

/// Without `max_debt`, recorded usage may exceed the limit by this many times the limit.
pub(crate) const DEBT_MAX_LIMITS: u64 = 100;

/// Into how many parts `sliding_window` with `strict` cuts its period.
pub const STRICT_PARTS: u64 = 10;

const PERIOD_MAX_US: u64 = 10 * 366 * DAY_US;
const EXACT_MAX: u64 = 1 << 53;
const TICKS_MAX: u64 = 16;
/// A rate may lose at most one part in this many to rounding.
const LOSS_SHARE: u128 = 1_000;

/// How a bucket decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Algorithm {
    /// Tokens return at a steady rate up to the burst.
    #[default]
    TokenBucket,
    /// Leaky bucket as a queue: requests are delayed to a steady rate.
    LeakyBucket,
    /// A counter that starts anew in every window.
    FixedWindow,
    /// Two counters, the older one weighted by what is left of it.
    SlidingWindow {
        /// Never over in any window of the period, at the price of ten parts.
        strict: bool,
    },
    /// Every request of the last period, remembered.
    SlidingLog,
}

impl Algorithm {
    /// Every algorithm, for tables and tests.
    pub const ALL: [Self; 6] = [
        Self::TokenBucket,
        Self::LeakyBucket,
        Self::FixedWindow,
        Self::SlidingWindow { strict: false },
        Self::SlidingWindow { strict: true },
        Self::SlidingLog,
    ];

    /// The name used in rule files; `strict` is written beside it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TokenBucket => "token_bucket",
            Self::LeakyBucket => "leaky_bucket",
            Self::FixedWindow => "fixed_window",
            Self::SlidingWindow { .. } => "sliding_window",
            Self::SlidingLog => "sliding_log",
        }
    }

    /// The algorithm of that name, without `strict`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Whether its state is one time, as of a token or leaky bucket, and not counts.
    #[must_use]
    pub const fn is_bucket(self) -> bool {
        match self {
            Self::TokenBucket | Self::LeakyBucket => true,
            Self::FixedWindow | Self::SlidingWindow { .. } | Self::SlidingLog => false,
        }
    }
}

/// Where fixed windows begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Align {
    /// At multiples of the period since 1970-01-01T00:00Z.
    #[default]
    Epoch,
    /// At the beginning of a day, in the zone of [`CalendarOptions`].
    Day,
    /// On Monday, or on the day of [`CalendarOptions`].
    Week,
    /// On the first of the month, or on the day of [`CalendarOptions`].
    Month,
    /// On the first of January.
    Year,
}

impl Align {
    const fn is_calendar(self) -> bool {
        !matches!(self, Self::Epoch)
    }

    /// The name of a calendar period.
    pub(crate) const fn calendar_name(self) -> Option<&'static str> {
        match self.calendar_period() {
            Some((name, _)) => Some(name),
            None => None,
        }
    }

    /// The calendar period of that name and its length as [`QuotaSpec`] has it.
    pub(crate) fn by_calendar_name(name: &str) -> Option<(Self, u64)> {
        let known = [Self::Day, Self::Week, Self::Month, Self::Year];
        let of = |align: Self| align.calendar_period().filter(|(known, _)| *known == name).map(|(_, us)| (align, us));
        known.into_iter().find_map(of)
    }

    /// The name and the period in microseconds of calendar windows, as they are
    /// written; a month counts as 30 days and a year as 365.
    const fn calendar_period(self) -> Option<(&'static str, u64)> {
        match self {
            Self::Epoch => None,
            Self::Day => Some(("day", DAY_US)),
            Self::Week => Some(("week", 7 * DAY_US)),
            Self::Month => Some(("month", 30 * DAY_US)),
            Self::Year => Some(("year", 365 * DAY_US)),
        }
    }
}

/// A quota as people write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QuotaSpec {
    /// How many per period.
    pub amount: u64,
    /// The period in microseconds.
    pub period_us: u64,
    /// How many at once (buckets only); the amount if absent.
    pub burst: Option<u64>,
    /// How many a new bucket holds (buckets only); the burst if absent.
    pub initial: Option<u64>,
    /// By how much recorded usage may exceed the limit; if absent, by
    /// 100 times the limit, or by what can be counted if that is less.
    pub max_debt: Option<u64>,
    /// Where windows begin (fixed windows only); one that follows the calendar
    /// has its period: 1, 7, 30 or 365 days.
    pub align: Align,
    /// The algorithm, if it is written with the limit.
    pub algorithm: Option<Algorithm>,
    /// Where calendar windows begin, as far as it is written with the limit.
    pub calendar: CalendarOptions,
}

impl QuotaSpec {
    /// So many per period of microseconds, and nothing else.
    #[must_use]
    pub const fn new(amount: u64, period_us: u64) -> Self {
        Self {
            amount,
            period_us,
            burst: None,
            initial: None,
            max_debt: None,
            align: Align::Epoch,
            algorithm: None,
            calendar: CalendarOptions { zone: None, anchor: None, week_starts: None },
        }
    }

    /// The algorithm that counts it: the one that is written with it, a fixed window where
    /// it follows the calendar, and otherwise `usual`, the rule's.
    #[must_use]
    pub const fn algorithm_or(&self, usual: Algorithm) -> Algorithm {
        match (self.algorithm, self.align) {
            (Some(named), _) => named,
            (None, Align::Epoch) => usual,
            (None, Align::Day | Align::Week | Align::Month | Align::Year) => Algorithm::FixedWindow,
        }
    }
}

/// A quota that can be counted exactly, ready for one algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    pub(crate) spec: QuotaSpec,
    pub(crate) algorithm: Algorithm,
    /// The calendar that its windows follow, if they follow one.
    pub(crate) calendar: Calendar,
    pub(crate) limit: u64,
    /// Bucket: ticks per microsecond. 1 for windows.
    pub(crate) ticks_per_us: u64,
    /// Bucket: ticks per token. Sliding window: microseconds per grain.
    /// Strict: microseconds per part. Otherwise 0.
    pub(crate) interval: u64,
    /// Bucket: ticks of a whole burst. Sliding window: grains per period.
    pub(crate) capacity: u64,
    /// Bucket: ticks that a new bucket owes.
    pub(crate) owed_initially: u64,
    /// Bucket: ticks for which a full bucket is remembered: 0 where a full
    /// bucket equals a new one.
    pub(crate) remembered: u64,
    /// Bucket: more ticks than this are owed only after the clock has stepped
    /// back by more than is waited out.
    pub(crate) owed_max: u64,
    /// A hash of what [`shares_bucket_with`](Self::shares_bucket_with) compares.
    pub(crate) arithmetic: u64,
    /// Leaky bucket: the longest queue, in ticks, that a request may join: the capacity,
    /// or less if the caller cannot delay it for so long.
    pub(crate) queue_max: u64,
    /// By how much recorded usage may exceed the limit.
    pub(crate) debt_max: u64,
}

impl Quota {
    /// Makes `spec` ready for its own algorithm, or for `algorithm` where it has none:
    /// see [`QuotaSpec::algorithm_or`].
    ///
    /// # Errors
    /// Says which value does not fit, and what would.
    pub fn new(spec: QuotaSpec, algorithm: Algorithm) -> Result<Self, QuotaError> {
        Self::with_calendar(spec, algorithm, CalendarOptions::default())
    }

    /// As [`new`](Self::new), with `usual` for what a calendar limit does not say itself.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_calendar(spec: QuotaSpec, algorithm: Algorithm, usual: CalendarOptions) -> Result<Self, QuotaError> {
        let QuotaSpec { amount, period_us, .. } = spec;
        let algorithm = spec.algorithm_or(algorithm);
        for (field, value) in [("limit", Some(amount)), ("burst", spec.burst)] {
            match value {
                Some(0) => return Err(QuotaError::Zero { field }),
                Some(value) if value > LIMIT_MAX => {
                    return Err(QuotaError::TooLarge { field, value, max: LIMIT_MAX });
                }
                _ => {}
            }
        }
        if period_us == 0 {
            return Err(QuotaError::Zero { field: "period" });
        }
        if period_us > PERIOD_MAX_US {
            return Err(QuotaError::PeriodTooLong { period: period_text(period_us) });
        }
        let calendar = spec.calendar.resolve(spec.align, usual, amount)?;
        if algorithm.is_bucket() { Self::bucket(spec, algorithm) } else { Self::window(spec, algorithm, calendar) }
    }

    fn bucket(spec: QuotaSpec, algorithm: Algorithm) -> Result<Self, QuotaError> {
        if spec.align != Align::Epoch {
            return Err(QuotaError::NotForAlgorithm { field: "a calendar period", algorithm: algorithm.name() });
        }
        let limit = spec.burst.unwrap_or(spec.amount);
        let initial = spec.initial.unwrap_or(limit);
        if initial > limit {
            return Err(QuotaError::InitialExceedsBurst { initial, burst: limit });
        }
        let Ticks { per_us, interval } = Ticks::choose(spec.amount, spec.period_us, limit)?;
        let capacity = limit * interval;
        let owed_initially = (limit - initial) * interval;
        // What is owed stays below 2^53, also after a step back of the clock.
        let owed_max = capacity + STEP_BACK_HELD_US * per_us;
        let countable = (EXACT_MAX - 1).saturating_sub(per_us * HORIZON_US + owed_max) / interval;
        let debt_max = debt_max(&spec, limit, countable)?;
        Ok(Self {
            spec,
            algorithm,
            calendar: Calendar::default(),
            limit,
            debt_max,
            ticks_per_us: per_us,
            interval,
            capacity,
            owed_initially,
            // At least a microsecond, the resolution of the clock: a client that retries after
            // exactly `retry_after` must not find the bucket forgotten.
            remembered: if initial == limit { 0 } else { capacity.max(per_us) },
            owed_max,
            arithmetic: arithmetic(
                algorithm,
                // A bucket in debt is read by how much it may owe.
                [per_us, interval, capacity, owed_initially, spec.max_debt.map_or(0, |max_debt| max_debt + 1)],
                TagBits::new(capacity.div_ceil(per_us), initial < limit),
            ),
            queue_max: capacity,
        })
    }

    fn window(spec: QuotaSpec, algorithm: Algorithm, calendar: Calendar) -> Result<Self, QuotaError> {
        for (field, given) in [("burst", spec.burst), ("initial", spec.initial)] {
            if given.is_some() {
                return Err(QuotaError::NotForAlgorithm { field, algorithm: algorithm.name() });
            }
        }
        if spec.align != Align::Epoch && algorithm != Algorithm::FixedWindow {
            return Err(QuotaError::NotForAlgorithm { field: "a calendar period", algorithm: algorithm.name() });
        }
        if let Some((name, wanted_us)) = spec.align.calendar_period().filter(|(_, us)| *us != spec.period_us) {
            let (period, wanted) = (period_text(spec.period_us), period_text(wanted_us));
            return Err(QuotaError::NotOfTheCalendar { name, period, wanted });
        }
        if algorithm == Algorithm::SlidingLog && spec.amount > LOG_LIMIT_MAX {
            return Err(QuotaError::LogTooLong { value: spec.amount });
        }
        let (interval, capacity) = match algorithm {
            Algorithm::SlidingWindow { strict: true } => (spec.period_us.div_ceil(STRICT_PARTS), 0),
            Algorithm::SlidingWindow { strict: false } => {
                // Three times the limit's weight must stay below 2^53.
                let parts_max = (EXACT_MAX - 1) / (3 * spec.amount);
                let grain = spec.period_us.div_ceil(parts_max);
                (grain, spec.period_us.div_ceil(grain))
            }
            Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::TokenBucket | Algorithm::LeakyBucket => (0, 0),
        };
        let countable = if algorithm == Algorithm::SlidingLog { LOG_LIMIT_MAX } else { DEBT_MAX_LIMITS * LIMIT_MAX };
        let [zone, days] = calendar.numbers();
        Ok(Self {
            spec,
            algorithm,
            calendar,
            limit: spec.amount,
            debt_max: debt_max(&spec, spec.amount, countable)?,
            ticks_per_us: 1,
            interval,
            capacity,
            owed_initially: 0,
            remembered: 0,
            owed_max: 0,
            arithmetic: arithmetic(
                algorithm,
                [spec.period_us, spec.align as u64, zone, days, 0],
                TagBits::new(spec.period_us, false),
            ),
            queue_max: 0,
        })
    }

    /// By how much recorded usage may exceed [`limit`](Self::limit).
    #[must_use]
    pub const fn debt_max(&self) -> u64 {
        self.debt_max
    }

    /// Bucket: the most ticks that may be owed, with recorded debt.
    #[inline]
    pub(crate) const fn owed_recorded_max(&self) -> u64 {
        self.capacity + self.debt_max * self.interval
    }

    /// Window: the most that may be counted, with recorded debt.
    pub(crate) const fn recorded_max(&self) -> u64 {
        self.limit + self.debt_max
    }

    /// Whether a bucket of one quota can be read by the other. A token or leaky
    /// bucket holds a time that follows from its interval, its burst and its `max_debt`:
    /// other numbers need another bucket. A window holds counts, which are valid for
    /// any limit of the same period.
    #[must_use]
    pub const fn shares_bucket_with(&self, other: &Self) -> bool {
        self.arithmetic == other.arithmetic
    }

    /// What [`shares_bucket_with`](Self::shares_bucket_with) compares, as text
    /// for names of buckets: without a slash.
    #[must_use]
    pub fn arithmetic(&self) -> String {
        let (name, QuotaSpec { period_us, align, .. }) = (self.algorithm.name(), self.spec);
        match self.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                let (interval, ticks, owed) = (self.interval, self.ticks_per_us, self.owed_initially);
                let debt = self.spec.max_debt.map_or_else(String::new, |max_debt| format!(":debt{max_debt}"));
                format!("{name}:{}x{interval}:{ticks}:{owed}{debt}", self.limit)
            }
            Algorithm::SlidingWindow { strict: true } => format!("{name}_strict:{period_us}"),
            Algorithm::FixedWindow if align.is_calendar() && self.calendar == Calendar::default() => {
                format!("{name}:{align:?}")
            }
            Algorithm::FixedWindow if align.is_calendar() => {
                let Calendar { zone, anchor, week_starts } = self.calendar;
                format!("{name}:{align:?}:{}:{anchor}:{}", zone.name().replace('/', "."), week_starts.name())
            }
            Algorithm::FixedWindow | Algorithm::SlidingWindow { strict: false } | Algorithm::SlidingLog => {
                format!("{name}:{period_us}")
            }
        }
    }

    /// The same quota for a caller that can delay a request by `delay_max_us` at most: a
    /// leaky bucket then denies requests with a longer delay. The bucket and what it owes
    /// stay the same.
    #[must_use]
    pub(crate) fn with_delay_max(&self, delay_max_us: u64) -> Self {
        let queue_max = delay_max_us.saturating_mul(self.ticks_per_us).min(self.queue_max);
        Self { queue_max, ..*self }
    }

    /// The most ticks that a leaky bucket may owe after a request of that cost
    /// has joined its queue.
    #[inline]
    pub(crate) fn ceiling(&self, cost: u64) -> u64 {
        // Never so much for a bucket; windows have another interval, and no queue.
        let charge = cost.min(self.limit).saturating_mul(self.interval);
        self.capacity.min(self.queue_max.saturating_add(charge))
    }

    /// One `nodes`-th of the quota: what one of so many nodes may allow by itself. At
    /// least one can pass at once. A bucket is divided by making each token take `nodes`
    /// times as long to return: what is owed in time means the same to both.
    #[must_use]
    pub fn shared_among(&self, nodes: u64) -> Self {
        let nodes = nodes.max(1);
        let part = |amount: u64| (amount / nodes).max(1);
        let limit = part(self.limit);
        if !self.algorithm.is_bucket() {
            let debt_max = self.debt_max / nodes;
            return Self { limit, debt_max, spec: QuotaSpec { amount: limit, ..self.spec }, ..*self };
        }
        // As it would be written: exact where the period can be so long.
        let (amount, period_us) = match self.spec.period_us.saturating_mul(nodes) {
            longer_us if longer_us <= PERIOD_MAX_US => (self.spec.amount, longer_us),
            _ => (part(self.spec.amount), self.spec.period_us),
        };
        let spec = QuotaSpec {
            amount,
            period_us,
            burst: Some(limit),
            initial: self.spec.initial.map(|initial| (initial / nodes).min(limit)),
            ..self.spec
        };
        // Longer than the capacity was only if no more than one fits.
        let interval = self.interval.saturating_mul(nodes).min(EXACT_MAX / 2);
        let capacity = limit * interval;
        let initial = spec.initial.unwrap_or(limit);
        Self {
            spec,
            limit,
            interval,
            capacity,
            debt_max: self.debt_max / nodes,
            owed_initially: (limit - initial) * interval,
            remembered: if initial == limit { 0 } else { capacity.max(self.ticks_per_us) },
            owed_max: self.owed_max.max(capacity + STEP_BACK_HELD_US * self.ticks_per_us),
            queue_max: if self.queue_max < self.capacity { self.queue_max.min(capacity) } else { capacity },
            ..*self
        }
    }

    /// The algorithm of the first quota that neither names one nor follows the calendar, if
    /// there is any.
    #[must_use]
    pub(crate) fn usual_algorithm(quotas: &[Self]) -> Algorithm {
        let unnamed = || quotas.iter().filter(|quota| quota.spec.algorithm.is_none());
        let usual = unnamed().find(|quota| quota.spec.align == Align::Epoch).or_else(|| unnamed().next());
        usual.map(Self::algorithm).unwrap_or_default()
    }

    /// As it is written in a rule of that algorithm and with those calendar options.
    #[cfg(feature = "yaml")]
    pub(crate) fn text_in(&self, usual: Algorithm, usual_calendar: CalendarOptions) -> String {
        let is_implied = self.spec.algorithm_or(usual) == self.algorithm;
        let algorithm = if is_implied { self.spec.algorithm } else { Some(self.algorithm) };
        QuotaSpec { algorithm, ..self.spec_in(usual_calendar) }.to_string()
    }

    /// As it is written in a rule with those calendar options.
    fn spec_in(&self, usual: CalendarOptions) -> QuotaSpec {
        let QuotaSpec { amount, align, calendar: own, .. } = self.spec;
        let implied = own.resolve(align, usual, amount).unwrap_or_default();
        let Calendar { zone, anchor, week_starts } = self.calendar;
        let calendar = CalendarOptions {
            zone: if implied.zone == zone { own.zone } else { Some(zone) },
            anchor: if implied.anchor == anchor { own.anchor } else { Some(anchor) },
            week_starts: if implied.week_starts == week_starts { own.week_starts } else { Some(week_starts) },
        };
        QuotaSpec { calendar, ..self.spec }
    }

    /// As it was written.
    #[must_use]
    pub const fn spec(&self) -> QuotaSpec {
        self.spec
    }

    /// Whether its windows follow the calendar.
    #[inline]
    pub(crate) const fn follows_calendar(&self) -> bool {
        self.spec.align.is_calendar()
    }

    /// Its calendar options, also those of its rule.
    #[must_use]
    pub fn calendar(&self) -> CalendarOptions {
        self.spec_in(CalendarOptions::default()).calendar
    }

    /// The algorithm this quota is made for.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The most that can pass at once: the burst of a bucket, a window's limit.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The period in microseconds.
    #[must_use]
    pub const fn period_us(&self) -> u64 {
        self.spec.period_us
    }

    /// The time over which [`limit`](Self::limit) is granted: for a bucket the
    /// time to fill it, for a window its period.
    #[must_use]
    pub const fn window_us(&self) -> u64 {
        if self.algorithm.is_bucket() { self.capacity.div_ceil(self.ticks_per_us) } else { self.spec.period_us }
    }

    /// Ticks per microsecond: the unit in which a bucket counts time.
    #[must_use]
    pub const fn ticks_per_us(&self) -> u64 {
        self.ticks_per_us
    }
}

/// By how much recorded usage may exceed `limit`: what the quota says, if it is countable,
/// or the default.
fn debt_max(spec: &QuotaSpec, limit: u64, countable: u64) -> Result<u64, QuotaError> {
    match spec.max_debt {
        Some(value) if value > countable => Err(QuotaError::TooLarge { field: "max_debt", value, max: countable }),
        Some(value) => Ok(value),
        None => Ok(DEBT_MAX_LIMITS.saturating_mul(limit).min(countable)),
    }
}

/// A hash of an algorithm and the numbers of its arithmetic, above the bits that
/// stores read.
fn arithmetic(algorithm: Algorithm, numbers: [u64; 5], traits: TagBits) -> u64 {
    let kind = Algorithm::ALL.iter().position(|other| *other == algorithm).unwrap_or(0) as u64;
    let [a, b, c, d, e] = numbers;
    let words = [kind, a, b, c, d, e].map(u64::to_le_bytes);
    crate::hash::stable_hash(words.as_flattened()) & !TagBits::MASK | traits.bits()
}

//! A request limit: a limit sent in the request itself, like Envoy's limit override.

use crate::quota::DAY_US;
use crate::time::SECOND_US;

/// A limit sent in the request itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestLimit {
    /// How many a unit; 0: none.
    pub amount: u32,
    /// The unit of time.
    pub unit: Unit,
}

/// A unit of time, as descriptors name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A second.
    Second,
    /// A minute.
    Minute,
    /// An hour.
    Hour,
    /// A day.
    Day,
    /// Seven days.
    Week,
    /// Thirty days.
    Month,
    /// 365 days.
    Year,
}

impl Unit {
    /// Every unit, the shortest first.
    pub const ALL: [Self; 7] = [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// The name used in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// The unit of that name, in capitals or not.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name().eq_ignore_ascii_case(name))
    }

    /// Its length in microseconds.
    #[must_use]
    pub const fn period_us(self) -> u64 {
        match self {
            Self::Second => SECOND_US,
            Self::Minute => 60 * SECOND_US,
            Self::Hour => 3_600 * SECOND_US,
            Self::Day => DAY_US,
            Self::Week => 7 * DAY_US,
            Self::Month => 30 * DAY_US,
            Self::Year => 365 * DAY_US,
        }
    }

    /// The unit of that length.
    #[must_use]
    pub fn of_period(period_us: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.period_us() == period_us)
    }
}

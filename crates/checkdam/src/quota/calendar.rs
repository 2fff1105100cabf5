//! Options of calendar limits: time zone, first day of a billing month, first day of a week.

use std::fmt;

use super::{Align, QuotaError};
use crate::time::Zone;

/// The last day on which a billing month can begin.
const ANCHOR_MAX: u8 = 31;

/// A day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Weekday {
    /// The first day of a week by ISO 8601.
    #[default]
    Monday,
    /// Tuesday.
    Tuesday,
    /// Wednesday.
    Wednesday,
    /// Thursday.
    Thursday,
    /// Friday.
    Friday,
    /// Saturday.
    Saturday,
    /// Sunday.
    Sunday,
}

impl Weekday {
    /// Every day, Monday first.
    pub const ALL: [Self; 7] =
        [Self::Monday, Self::Tuesday, Self::Wednesday, Self::Thursday, Self::Friday, Self::Saturday, Self::Sunday];

    /// The name used in rule files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Monday => "monday",
            Self::Tuesday => "tuesday",
            Self::Wednesday => "wednesday",
            Self::Thursday => "thursday",
            Self::Friday => "friday",
            Self::Saturday => "saturday",
            Self::Sunday => "sunday",
        }
    }

    /// The day of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|day| day.name() == name)
    }
}

/// Where calendar windows begin, as far as it is written. A rule's options are the defaults of
/// its limits and of its overrides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CalendarOptions {
    /// The zone in which days begin; UTC if absent.
    pub zone: Option<Zone>,
    /// For months, the day on which they begin, from 1 to 31: the last day of months that are
    /// shorter. The first if absent.
    pub anchor: Option<u8>,
    /// For weeks, the day on which they begin; Monday if absent.
    pub week_starts: Option<Weekday>,
}

impl CalendarOptions {
    /// The options that are written so.
    #[cfg(any(feature = "yaml", feature = "conformance"))]
    pub(crate) fn parse(
        zone: Option<&str>,
        anchor: Option<u64>,
        week_starts: Option<&str>,
    ) -> Result<Self, (&'static str, QuotaError)> {
        let of = |field| move |error| (field, error);
        Ok(Self {
            zone: zone.map(parse_zone).transpose().map_err(of("zone"))?,
            anchor: anchor.map(parse_anchor).transpose().map_err(of("anchor"))?,
            week_starts: week_starts.map(parse_weekday).transpose().map_err(of("week_starts"))?,
        })
    }

    /// These, and those of `usual` where there are none.
    #[must_use]
    pub(crate) fn or(self, usual: Self) -> Self {
        Self {
            zone: self.zone.or(usual.zone),
            anchor: self.anchor.or(usual.anchor),
            week_starts: self.week_starts.or(usual.week_starts),
        }
    }

    /// Each option as it is written, with the only calendar period that it applies to; any if
    /// none is given.
    pub(crate) fn written(self) -> impl Iterator<Item = (&'static str, String, Option<Align>)> {
        let zone = self.zone.map(|zone| ("zone", zone.to_string(), None));
        let anchor = self.anchor.map(|day| ("anchor", day.to_string(), Some(Align::Month)));
        let week = self.week_starts.map(|day| ("week_starts", day.name().to_owned(), Some(Align::Week)));
        [zone, anchor, week].into_iter().flatten()
    }

    /// The calendar of a limit with these options in a rule with `usual`.
    pub(super) fn resolve(self, align: Align, usual: Self, amount: u64) -> Result<Calendar, QuotaError> {
        let all = self.or(usual);
        if let Some(anchor) = all.anchor {
            parse_anchor(anchor.into())?;
        }
        for (field, value, only) in self.written() {
            if !align.is_calendar() || only.is_some_and(|only| only != align) {
                let wanted = only.and_then(Align::calendar_name).unwrap_or("month");
                let period = align.calendar_name().map(|name| format!("a calendar {name}"));
                return Err(QuotaError::NotForPeriod { field, value, period, amount, wanted });
            }
        }
        Ok(Calendar {
            zone: all.zone.filter(|_| align.is_calendar()).unwrap_or_default(),
            anchor: all.anchor.filter(|_| align == Align::Month).unwrap_or(1),
            week_starts: all.week_starts.filter(|_| align == Align::Week).unwrap_or_default(),
        })
    }
}

/// As it is written after a limit, each option with a space before it.
impl fmt::Display for CalendarOptions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.written().try_for_each(|(field, value, _)| write!(out, " {field} {value}"))
    }
}

/// The calendar of one limit. Options that do not apply to its period have their defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Calendar {
    pub(crate) zone: Zone,
    pub(crate) anchor: u8,
    pub(crate) week_starts: Weekday,
}

impl Default for Calendar {
    fn default() -> Self {
        Self { zone: Zone::UTC, anchor: 1, week_starts: Weekday::Monday }
    }
}

impl Calendar {
    /// What makes it another calendar than the default one, as two numbers that are the same in
    /// every version: zones are numbered differently when the database changes.
    pub(super) fn numbers(self) -> [u64; 2] {
        let zone = if self.zone.is_utc() { 0 } else { crate::hash::stable_hash(self.zone.name().as_bytes()) };
        [zone, (u64::from(self.anchor) - 1) * 8 + self.week_starts as u64]
    }
}

/// The zone of that name.
pub(super) fn parse_zone(name: &str) -> Result<Zone, QuotaError> {
    Zone::by_name(name).ok_or_else(|| QuotaError::UnknownZone {
        name: name.chars().take(80).collect(),
        similar: Zone::similar_name(name),
    })
}

/// A day on which months can begin.
pub(super) fn parse_anchor(day: u64) -> Result<u8, QuotaError> {
    let anchor = u8::try_from(day).ok().filter(|anchor| (1..=ANCHOR_MAX).contains(anchor));
    anchor.ok_or(QuotaError::NotADayOfTheMonth { value: day })
}

/// The day of the week of that name.
pub(super) fn parse_weekday(name: &str) -> Result<Weekday, QuotaError> {
    let unknown = || QuotaError::NotADayOfTheWeek { name: name.chars().take(80).collect() };
    Weekday::by_name(name).ok_or_else(unknown)
}

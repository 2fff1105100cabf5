//! Errors of invalid quotas, with the nearest valid value.

/// Why a quota is invalid. Every message has the value and the nearest valid one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuotaError {
    /// The text is not a quota.
    #[error(
        "quota {text:?} is not understood: {reason}; write for example \"10/s burst 50\", \"100/m\" or \"5 per 30s\""
    )]
    Syntax {
        /// The text as given.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Nothing could ever pass.
    #[error("{field} is 0, so nothing could ever pass: use 1 or more")]
    Zero {
        /// The field that is 0.
        field: &'static str,
    },
    /// A number is beyond what can be counted.
    #[error("{field} {value} is too large: at most {max} fits")]
    TooLarge {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The largest that fits.
        max: u64,
    },
    /// The period is beyond ten years.
    #[error("the period {period} is too long: at most 10 years fit")]
    PeriodTooLong {
        /// The period as text.
        period: String,
    },
    /// More tokens at first than the bucket holds.
    #[error("initial {initial} exceeds the burst {burst}: use at most {burst}")]
    InitialExceedsBurst {
        /// Initial tokens.
        initial: u64,
        /// What the bucket holds.
        burst: u64,
    },
    /// The rate is too high to be counted within 0.1 %.
    #[error(
        "{amount}/{period} cannot be counted within 0.1 % (a token must return in a whole number of 1/16 µs or coarser){}",
        nearest(*below, *above, period)
    )]
    TooFine {
        /// The amount.
        amount: u64,
        /// The period as text.
        period: String,
        /// The next lower amount that can be counted.
        below: Option<u64>,
        /// The next higher amount that can be counted.
        above: Option<u64>,
    },
    /// Filling the bucket would take longer than can be counted.
    #[error("a burst of {burst} at {amount}/{period} takes too long to fill: a burst of {fits} would fit")]
    SpanTooLong {
        /// The burst.
        burst: u64,
        /// The amount.
        amount: u64,
        /// The period as text.
        period: String,
        /// The longest burst that fits.
        fits: u64,
    },
    /// The field means nothing to this algorithm.
    #[error("{field} does not apply to {algorithm}: {}", remedy(field))]
    NotForAlgorithm {
        /// The field.
        field: &'static str,
        /// The algorithm.
        algorithm: &'static str,
    },
    /// Windows of the calendar with a period of another length.
    #[error(
        "windows of a calendar {name} have a period of {wanted}, not {period}: write \"10 per calendar {name}\", or leave the calendar out"
    )]
    NotOfTheCalendar {
        /// What the windows follow.
        name: &'static str,
        /// The period that was given, as text.
        period: String,
        /// The period that they have, as text.
        wanted: String,
    },
    /// No zone of that name.
    #[error("zone {name:?} is not a name of the IANA time zone database: write {}", zone_remedy(*similar))]
    UnknownZone {
        /// The name as given.
        name: String,
        /// The name that was probably meant.
        similar: Option<&'static str>,
    },
    /// No day on which a month can begin.
    #[error("anchor {value} is not a day of a month: use 1 to 31 (in a shorter month, the last day)")]
    NotADayOfTheMonth {
        /// The value.
        value: u64,
    },
    /// No day of the week.
    #[error(
        "week_starts {name:?} is not a day of the week: write monday, tuesday, wednesday, thursday, friday, saturday or sunday"
    )]
    NotADayOfTheWeek {
        /// The name as given.
        name: String,
    },
    /// A calendar option that means nothing to this period.
    #[error(
        "{field} {value} does not apply to {}: write \"{amount} per calendar {wanted} {field} {value}\", or leave {field} out",
        period.as_deref().unwrap_or("a limit without a calendar period")
    )]
    NotForPeriod {
        /// The option.
        field: &'static str,
        /// Its value.
        value: String,
        /// The calendar period, if it is one.
        period: Option<String>,
        /// The amount of the limit.
        amount: u64,
        /// A calendar period that it applies to.
        wanted: &'static str,
    },
    /// A log would hold too many entries.
    #[error(
        "limit {value} is too large for sliding_log, which remembers every request: at most 10000 fits; use sliding_window for more"
    )]
    LogTooLong {
        /// The limit.
        value: u64,
    },
}

fn nearest(below: Option<u64>, above: Option<u64>, period: &str) -> String {
    match (below, above) {
        (Some(below), Some(above)) => format!(": {below}/{period} or {above}/{period} would fit"),
        (Some(one), None) | (None, Some(one)) => format!(": {one}/{period} would fit"),
        (None, None) => ": use a lower rate".to_owned(),
    }
}

fn zone_remedy(similar: Option<&str>) -> String {
    similar.map_or_else(|| "for example Europe/Berlin, America/New_York or UTC".to_owned(), str::to_owned)
}

fn remedy(field: &str) -> &'static str {
    if field == "a calendar period" {
        "name fixed_window, or no algorithm"
    } else {
        "leave it out, or use token_bucket or leaky_bucket"
    }
}

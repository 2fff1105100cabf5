//! Calendar-aligned windows (day, week, month, year) in UTC.
//!
//! Computed by hand because every decision on such a window needs it: `jiff`, which
//! does all other calendar arithmetic, finds the start of a month in 21 ns where this
//! takes 9 (2 million calls, 93 to 189 instructions against 90), and can fail where
//! this cannot. The tests compare the results with `jiff`'s.

use crate::quota::{Align, DAY_US};

/// The first microsecond (since 1970) of the calendar window that contains
/// `unix_us`; `None` for windows that follow no calendar.
pub(super) fn start(align: Align, unix_us: u64) -> Option<u64> {
    let day = unix_us / DAY_US;
    let start_day = match align {
        Align::Epoch => return None,
        Align::Day => day,
        // 1970-01-01 was a Thursday, three days after a Monday.
        Align::Week => day - (day + 3) % 7,
        Align::Month => {
            let (year, month) = year_and_month(day);
            first_day(year, month)
        }
        Align::Year => first_day(year_and_month(day).0, 1),
    };
    Some(start_day * DAY_US)
}

/// The first microsecond after the calendar window that starts at `start_us`.
pub(super) fn end(align: Align, start_us: u64, period_us: u64) -> u64 {
    let day = start_us / DAY_US;
    match align {
        Align::Epoch | Align::Day | Align::Week => start_us + period_us,
        Align::Month => {
            let (year, month) = year_and_month(day);
            let (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
            first_day(year, month) * DAY_US
        }
        Align::Year => first_day(year_and_month(day).0 + 1, 1) * DAY_US,
    }
}

/// The civil year and month of a day since 1970. Counting years from March puts
/// the leap day last, so that month lengths follow one line (153 days in 5 months).
fn year_and_month(day: u64) -> (u64, u64) {
    // 719,468 days lie between 0000-03-01 and 1970-01-01; an era is 400 years.
    let day = day + 719_468;
    let era = day / 146_097;
    let day_of_era = day % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month)
}

/// The day since 1970 on which the month begins.
fn first_day(year: u64, month: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let march_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * march_month + 2) / 5;
    365 * year + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;

    use super::*;

    #[test]
    fn months_are_those_of_the_civil_calendar() {
        let epoch = jiff::civil::date(1970, 1, 1);
        for (day, date) in (0..36_525).zip(epoch.series(1.day())) {
            let (year, month) = (date.year() as u64, date.month() as u64);
            assert_eq!(year_and_month(day), (year, month), "{date}");
            assert_eq!(first_day(year, month), day + 1 - date.day() as u64, "{date}");
        }
    }
}

//! The windows of the calendar, in UTC.

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
    use super::*;

    #[test]
    fn every_day_of_a_century_lies_in_the_month_that_counting_finds() {
        let (mut year, mut month, mut day_of_month, mut month_start) = (1970_u64, 1_u64, 1_u64, 0_u64);
        for day in 0..36_525 {
            assert_eq!(year_and_month(day), (year, month), "day {day}");
            assert_eq!(first_day(year, month), month_start);
            let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
            let length = match month {
                2 => 28 + u64::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day_of_month += 1;
            if day_of_month > length {
                (day_of_month, month_start) = (1, day + 1);
                (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
            }
        }
    }
}

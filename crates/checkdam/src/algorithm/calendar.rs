//! Windows that follow the calendar: days, weeks, months and years of a time zone.
//!
//! Dates are numbers of days since 1970-01-01, and computed by hand because every decision on
//! such a window needs it: `jiff` finds the start of a month in 21 ns where this takes 9
//! (2 million calls, 93 to 189 instructions against 90), and can fail where this cannot. The
//! tests compare the results with `jiff`'s. In UTC this is all. In other zones `jiff` says when
//! a date begins, once a window: the windows in use are remembered.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{LazyLock, OnceLock};

use crate::quota::{Align, Calendar, DAY_US, Quota};
use crate::time::{SECOND_US, Zone};

/// The start of the calendar window of a quota that contains `unix_us`, in microseconds since
/// 1970.
#[inline]
pub(super) fn start(quota: &Quota, unix_us: u64) -> u64 {
    let Quota { spec, calendar, .. } = quota;
    if calendar.zone.is_utc() {
        first_date(spec.align, *calendar, unix_us / DAY_US) * DAY_US
    } else {
        Window::at(spec.align, *calendar, unix_us).start_us()
    }
}

/// The first microsecond after the calendar window of a quota that starts at `start_us`.
#[inline]
pub(super) fn end(quota: &Quota, start_us: u64) -> u64 {
    let Quota { spec, calendar, .. } = quota;
    if calendar.zone.is_utc() {
        next_date(spec.align, *calendar, start_us / DAY_US) * DAY_US
    } else {
        Window::at(spec.align, *calendar, start_us).end_us()
    }
}

/// The starts of the calendar windows before, at and after `unix_us`, and of the one after
/// these.
#[cfg(any(feature = "redis", test))]
pub(crate) fn starts_around(quota: &Quota, unix_us: u64) -> [u64; 4] {
    let start_us = start(quota, unix_us);
    let end_us = end(quota, start_us);
    [start(quota, start_us.saturating_sub(1)), start_us, end_us, end(quota, end_us)]
}

/// The first date of the window that contains a date.
fn first_date(align: Align, calendar: Calendar, date: u64) -> u64 {
    match align {
        Align::Epoch | Align::Day => date,
        // 1970-01-01 was a Thursday, three days after a Monday.
        Align::Week => date - (date + 10 - calendar.week_starts as u64) % 7,
        Align::Month => {
            let (year, month) = year_and_month(date);
            match billing_date(year, month, calendar.anchor) {
                first if first <= date => first,
                _ if month == 1 => billing_date(year - 1, 12, calendar.anchor),
                _ => billing_date(year, month - 1, calendar.anchor),
            }
        }
        Align::Year => first_day(year_and_month(date).0, 1),
    }
}

/// The first date of the window after the one that begins with `first`.
fn next_date(align: Align, calendar: Calendar, first: u64) -> u64 {
    match align {
        Align::Epoch | Align::Day => first + 1,
        Align::Week => first + 7,
        Align::Month => {
            let (year, month) = month_after(year_and_month(first));
            billing_date(year, month, calendar.anchor)
        }
        Align::Year => first_day(year_and_month(first).0 + 1, 1),
    }
}

/// The date of that day in a month, or of the month's last day if that is earlier.
fn billing_date(year: u64, month: u64, anchor: u8) -> u64 {
    let first = first_day(year, month);
    if anchor == 1 {
        return first;
    }
    let (next_year, next_month) = month_after((year, month));
    (first + u64::from(anchor) - 1).min(first_day(next_year, next_month) - 1)
}

const fn month_after((year, month): (u64, u64)) -> (u64, u64) {
    if month == 12 { (year + 1, 1) } else { (year, month + 1) }
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

/// A window of a zone, in seconds since 1970: offsets of zones are whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    start_s: u64,
    end_s: u64,
}

impl Window {
    /// The window that contains `unix_us`.
    fn at(align: Align, calendar: Calendar, unix_us: u64) -> Self {
        let unix_s = unix_us / SECOND_US;
        let windows = RecentWindows::of(align, calendar);
        if let Some(known) = windows.and_then(|windows| windows.find(unix_s)) {
            return known;
        }
        match Self::compute(align, calendar, unix_s) {
            Some(window) => {
                if let Some(windows) = windows {
                    windows.insert(window);
                }
                window
            }
            // Only for times beyond the year 9999.
            None => {
                let first = first_date(align, calendar, unix_us / DAY_US);
                let second = |date: u64| date * (DAY_US / SECOND_US);
                Self { start_s: second(first), end_s: second(next_date(align, calendar, first)) }
            }
        }
    }

    fn compute(align: Align, calendar: Calendar, unix_s: u64) -> Option<Self> {
        let zone = calendar.zone;
        let start_s = |date: u64| zone.day_start_s(i64::try_from(date).ok()?).and_then(|s| u64::try_from(s).ok());
        let date = u64::try_from(zone.day_at(i64::try_from(unix_s).ok()?)?).ok()?;
        let mut first = first_date(align, calendar, date);
        let mut window_s = start_s(first)?;
        loop {
            let next = next_date(align, calendar, first);
            let next_s = start_s(next)?;
            // Clocks that are set back over midnight show the old date again: the window of the
            // new one has begun all the same.
            if unix_s < next_s {
                return Some(Self { start_s: window_s, end_s: next_s });
            }
            (first, window_s) = (next, next_s);
        }
    }

    const fn start_us(self) -> u64 {
        self.start_s * SECOND_US
    }

    const fn end_us(self) -> u64 {
        self.end_s * SECOND_US
    }
}

/// Calendars that differ in a zone: days, years, weeks by their first day, months by theirs.
const CALENDARS_PER_ZONE: usize = 2 + 7 + 31;

/// The windows of one calendar that were used lately. There is one for each zone, period and
/// first day: however often rules change, there are never more.
#[derive(Debug, Default)]
struct RecentWindows {
    /// Start and length in one word each, so that they are read together; 0: none.
    windows: [AtomicU64; Self::COUNT],
    next: AtomicUsize,
}

impl RecentWindows {
    /// A decision uses one window, and a call of Redis the one before and after it too.
    const COUNT: usize = 4;
    /// Lengths below 68 years, starts before the year 2242.
    const LENGTH_BITS: u32 = 31;

    fn of(align: Align, calendar: Calendar) -> Option<&'static Self> {
        type OfZone = OnceLock<Box<[RecentWindows; CALENDARS_PER_ZONE]>>;
        static ZONES: LazyLock<Box<[OfZone]>> = LazyLock::new(|| (0..Zone::count()).map(|_| OnceLock::new()).collect());
        let place = match align {
            Align::Epoch | Align::Day => 0,
            Align::Year => 1,
            Align::Week => 2 + calendar.week_starts as usize,
            Align::Month => 8 + usize::from(calendar.anchor),
        };
        let zone = ZONES.get(calendar.zone.number())?;
        zone.get_or_init(|| Box::new(std::array::from_fn(|_| RecentWindows::default()))).get(place)
    }

    fn find(&self, unix_s: u64) -> Option<Window> {
        self.windows.iter().find_map(|word| {
            let word = word.load(Ordering::Relaxed);
            let (start_s, length_s) = (word >> Self::LENGTH_BITS, word & ((1 << Self::LENGTH_BITS) - 1));
            let is_inside = unix_s.wrapping_sub(start_s) < length_s;
            is_inside.then_some(Window { start_s, end_s: start_s + length_s })
        })
    }

    fn insert(&self, window: Window) {
        let Window { start_s, end_s } = window;
        let length_s = end_s - start_s;
        if start_s >> (u64::BITS - Self::LENGTH_BITS) == 0 && length_s >> Self::LENGTH_BITS == 0 {
            let place = self.next.fetch_add(1, Ordering::Relaxed) % Self::COUNT;
            self.windows[place].store(start_s << Self::LENGTH_BITS | length_s, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;

    use super::*;
    use crate::quota::Algorithm;

    const MINUTE_US: u64 = 60 * SECOND_US;

    #[test]
    fn months_are_those_of_the_civil_calendar() {
        let epoch = jiff::civil::date(1970, 1, 1);
        for (day, date) in (0..36_525).zip(epoch.series(1.day())) {
            let (year, month) = (date.year() as u64, date.month() as u64);
            assert_eq!(year_and_month(day), (year, month), "{date}");
            assert_eq!(first_day(year, month), day + 1 - date.day() as u64, "{date}");
        }
    }

    fn quota(text: &str) -> Quota {
        Quota::parse(text, Algorithm::FixedWindow).unwrap()
    }

    fn unix_us(time: &str) -> u64 {
        time.parse::<jiff::Timestamp>().unwrap().as_microsecond() as u64
    }

    /// Every boundary that `vectors/calendar.json` lists, from Python's `zoneinfo`.
    #[test]
    fn boundaries_are_those_of_an_independent_implementation() {
        let file: serde_json::Value = serde_json::from_str(include_str!("../../vectors/calendar.json")).unwrap();
        let number = |value: &serde_json::Value| value.as_u64().unwrap();
        let (mut zones, mut boundaries) = (std::collections::HashSet::new(), 0);
        for calendar in file["calendars"].as_array().unwrap() {
            let limit = calendar["limit"].as_str().unwrap();
            let quota = quota(limit);
            zones.insert(quota.calendar.zone);
            let mut start_us = number(&calendar["start_s"]) * SECOND_US;
            for run in calendar["lengths_min"].as_array().unwrap() {
                let (count, length_us) = match run.as_array() {
                    Some(run) => (number(&run[0]), number(&run[1]) * MINUTE_US),
                    None => (1, number(run) * MINUTE_US),
                };
                for _ in 0..count {
                    let end_us = start_us + length_us;
                    for inside_us in [start_us, start_us + length_us / 2, end_us - 1] {
                        assert_eq!(start(&quota, inside_us), start_us, "{limit} at {inside_us}");
                    }
                    assert_eq!(end(&quota, start_us), end_us, "{limit} from {start_us}");
                    start_us = end_us;
                    boundaries += 1;
                }
            }
            assert_eq!(start(&quota, start_us), start_us, "{limit}: the last");
        }
        assert!(zones.len() > 10 && boundaries > 200_000, "{} zones, {boundaries} boundaries", zones.len());
    }

    #[test]
    fn stores_are_told_the_windows_around_a_time() {
        for (limit, starts) in [
            (
                "10 per calendar day zone Europe/Berlin",
                ["2026-03-27T23:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", "2026-03-30T22:00:00Z"],
            ),
            (
                "10 per calendar month anchor 31",
                ["2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z", "2026-04-30T00:00:00Z"],
            ),
            (
                "10 per calendar week week_starts sunday",
                ["2026-03-22T00:00:00Z", "2026-03-29T00:00:00Z", "2026-04-05T00:00:00Z", "2026-04-12T00:00:00Z"],
            ),
        ] {
            let at_us = unix_us("2026-03-29T12:00:00Z");
            assert_eq!(starts_around(&quota(limit), at_us), starts.map(unix_us), "{limit}");
        }
    }

    #[test]
    fn a_window_that_is_remembered_is_the_one_that_was_computed() {
        let quota = quota("10 per calendar month zone America/Sao_Paulo anchor 30");
        let Quota { spec, calendar, .. } = quota;
        let recent = RecentWindows::of(spec.align, calendar).unwrap();
        for day in 0..200 * 30 {
            // Back and forth, so that windows are replaced.
            let unix_s = 1_767_225_600 + 86_400 * (day * 7 % 6_000);
            let window = Window::at(spec.align, calendar, unix_s * SECOND_US);
            assert_eq!(Some(window), Window::compute(spec.align, calendar, unix_s));
            assert_eq!(recent.find(unix_s), Some(window));
            assert_ne!(recent.find(window.end_s), Some(window));
        }
    }

    #[test]
    fn no_time_is_without_a_window() {
        for limit in ["10 per calendar day", "10 per calendar month anchor 31", "10 per calendar year"] {
            let quota = quota(&format!("{limit} zone Asia/Tokyo"));
            for at_us in [unix_us("1970-02-01T00:00:00Z"), unix_us("2300-01-01T00:00:00Z"), u64::MAX / 2] {
                let start_us = start(&quota, at_us);
                let end_us = end(&quota, start_us);
                assert!(start_us <= at_us && at_us < end_us, "{limit} at {at_us}: {start_us} to {end_us}");
            }
        }
    }
}

//! Times as people and databases write them: `2026-12-01T00:00:00Z`.

/// 9999-12-31T23:59:59Z in seconds since 1970: the last time that can be written.
pub const UNIX_S_MAX: u64 = 253_402_300_799;

const DAY_S: u64 = 86_400;

/// Seconds since 1970 as text; at most the year 9999.
///
/// ```
/// assert_eq!(checkdam::time::rfc3339(1_796_083_200), "2026-12-01T00:00:00Z");
/// ```
#[must_use]
pub fn rfc3339(unix_s: u64) -> String {
    let unix_s = unix_s.min(UNIX_S_MAX);
    let (year, month, day) = civil(unix_s / DAY_S);
    let (hour, minute, second) = (unix_s / 3_600 % 24, unix_s / 60 % 60, unix_s % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Reads a time from 1970 on: with `Z` or an offset, a fraction of a second
/// counts as a whole one.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<u64> {
    let (date, rest) = (text.get(..10)?, text.get(11..)?);
    if !matches!(text.as_bytes()[10], b'T' | b't' | b' ') {
        return None;
    }
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(rest.get(..8)?, ':', [2, 2, 2])?;
    let is_date = (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day) && year >= 1_970;
    // A leap second is the first of the next minute.
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (fraction, zone) = match rest.get(8..)?.strip_prefix('.') {
        Some(after) => {
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            let (fraction, zone) = after.split_at(digits);
            (Some(fraction).filter(|digits| !digits.is_empty())?, zone)
        }
        None => ("0", rest.get(8..)?),
    };
    let local_s = days(year, month, day) * DAY_S + hour * 3_600 + minute * 60 + second;
    let local_s = local_s + u64::from(fraction.bytes().any(|digit| digit != b'0'));
    let unix_s = match zone.as_bytes().first()? {
        b'Z' | b'z' if zone.len() == 1 => local_s,
        sign @ (b'+' | b'-') => {
            let [hours, minutes] = numbers(zone.get(1..)?, ':', [2, 2])?;
            let offset_s = Some(hours * 3_600 + minutes * 60).filter(|_| hours < 24 && minutes < 60)?;
            if *sign == b'-' { local_s + offset_s } else { local_s.checked_sub(offset_s)? }
        }
        _ => return None,
    };
    Some(unix_s).filter(|unix_s| *unix_s <= UNIX_S_MAX)
}

/// Numbers of these lengths with something between them.
fn numbers<const N: usize>(text: &str, between: char, lengths: [usize; N]) -> Option<[u64; N]> {
    let mut parts = text.split(between);
    let mut found = [0; N];
    for (number, length) in found.iter_mut().zip(lengths) {
        let part = parts.next().filter(|part| part.len() == length && part.bytes().all(|b| b.is_ascii_digit()))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(found)
}

const fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

const fn days_in(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970, counting years from March so that the leap day is the last.
const fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let march_month = (month + 9) % 12;
    365 * year + year / 4 - year / 100 + year / 400 + (153 * march_month + 2) / 5 + day - 1 - 719_468
}

/// Year, month and day of a day since 1970: the inverse of [`days`].
fn civil(day: u64) -> (u64, u64, u64) {
    // Years of 366 days lead to a year that is too early, if it is wrong.
    let mut year = 1_970 + day / 366;
    while days(year + 1, 1, 1) <= day {
        year += 1;
    }
    let mut month = 12;
    while days(year, month, 1) > day {
        month -= 1;
    }
    (year, month, day - days(year, month, 1) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        let table = [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-12-01T00:00:00Z", 1_796_083_200),
            ("2026-12-01t02:00:00.000+02:00", 1_796_083_200),
            ("2026-11-30 19:00:00-05:00", 1_796_083_200),
            ("2026-11-30T23:59:59.001Z", 1_796_083_200),
            ("2024-02-29T12:00:00Z", 1_709_208_000),
            ("9999-12-31T23:59:59Z", UNIX_S_MAX),
        ];
        for (text, unix_s) in table {
            assert_eq!(parse_rfc3339(text), Some(unix_s), "{text}");
            assert_eq!(parse_rfc3339(&rfc3339(unix_s)), Some(unix_s));
        }
        for text in [
            "",
            "2026-12-01",
            "2026-12-01T00:00:00",
            "2026-12-01T00:00Z",
            "2026-13-01T00:00:00Z",
            "2025-02-29T00:00:00Z",
            "2026-12-01T24:00:00Z",
            "2026-12-01T00:00:00+0200",
            "2026-12-01T00:00:00ZZ",
            "2026-12-01T00:00:00.Z",
            "1969-12-31T23:59:59Z",
            "tomorrow, or the day after",
            "2026-12-0\u{e9}T00:00:00Z",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }

    #[test]
    fn every_day_until_the_year_9999_comes_back() {
        for day in (0..=UNIX_S_MAX / DAY_S).step_by(7) {
            let (year, month, date) = civil(day);
            assert_eq!(days(year, month, date), day, "{year}-{month}-{date}");
        }
    }
}

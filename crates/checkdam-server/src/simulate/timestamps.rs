//! Times as logs write them, in microseconds since 1970.

use std::ops::RangeInclusive;

use checkdam::time::{EPOCH_UNIX_US, HORIZON_US, SECOND_US, rfc3339 as rfc3339_of};

/// Beyond these a plain number is milliseconds, microseconds and nanoseconds: a
/// time of seconds would be in the year 5138.
const MS_FROM: u64 = 100_000_000_000;
const US_FROM: u64 = MS_FROM * 1_000;
const NS_FROM: u64 = US_FROM * 1_000;
const MONTHS: [&[u8]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// Times that a log can be of: from 1990, before which nobody logged requests (a
/// clock that was never set begins in 1970 or 1980), to the end of our time.
const BELIEVED_US: RangeInclusive<u64> = 631_152_000 * SECOND_US..=EPOCH_UNIX_US + HORIZON_US;

/// Says why a time cannot be that of a request.
pub(super) fn check_plausible(at_us: u64) -> Result<(), String> {
    if BELIEVED_US.contains(&at_us) {
        return Ok(());
    }
    let (first_s, last_s) = (BELIEVED_US.start() / SECOND_US, BELIEVED_US.end() / SECOND_US);
    let (first, last) = (rfc3339_of(first_s), rfc3339_of(last_s));
    Err(format!("its time is {} s since 1970, which is not between {first} and {last}", at_us / SECOND_US))
}

/// Reads `10/Oct/2026:13:55:36 -0700`, `2026-10-10T13:55:36.123Z`, or a number of
/// seconds (with decimals or without), milliseconds, microseconds or nanoseconds.
pub(super) fn parse(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    match bytes {
        [_, _, b'/', ..] => clf(bytes),
        [_, _, _, _, b'-', ..] => rfc3339(bytes),
        _ => unix(text),
    }
}

/// `10/Oct/2026:13:55:36 -0700`.
pub(super) fn clf(bytes: &[u8]) -> Option<u64> {
    let (date, rest) = bytes.split_at_checked(12)?;
    let [d0, d1, b'/', m0, m1, m2, b'/', y0, y1, y2, y3, b':'] = date else { return None };
    let month = MONTHS.iter().position(|month| *month == [*m0, *m1, *m2])? as u64 + 1;
    let day = days(digits(&[*y0, *y1, *y2, *y3])?, month, digits(&[*d0, *d1])?)?;
    let (time, zone) = rest.split_at_checked(8)?;
    apply_offset(day * 86_400 + time_of_day(time)?, 0, zone.strip_prefix(b" ").unwrap_or(zone))
}

fn rfc3339(bytes: &[u8]) -> Option<u64> {
    let (date, rest) = bytes.split_at_checked(11)?;
    let [y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1, b'T' | b't' | b' '] = date else { return None };
    let day = days(digits(&[*y0, *y1, *y2, *y3])?, digits(&[*m0, *m1])?, digits(&[*d0, *d1])?)?;
    let (time, rest) = rest.split_at_checked(8)?;
    let (us, zone) = match rest {
        [b'.' | b',', after @ ..] => {
            let count = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
            (fraction(after.get(..count)?)?, after.get(count..)?)
        }
        _ => (0, rest),
    };
    apply_offset(day * 86_400 + time_of_day(time)?, us, zone.strip_prefix(b" ").unwrap_or(zone))
}

fn unix(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let number = digits(whole.as_bytes())?;
    if !decimals.is_empty() || text.ends_with('.') {
        return number.checked_mul(SECOND_US)?.checked_add(fraction(decimals.as_bytes())?);
    }
    match number {
        ..MS_FROM => Some(number * SECOND_US),
        MS_FROM..US_FROM => Some(number * 1_000),
        US_FROM..NS_FROM => Some(number),
        NS_FROM.. => Some(number / 1_000),
    }
}

/// A time without a zone is taken as UTC.
fn apply_offset(local_s: u64, us: u64, zone: &[u8]) -> Option<u64> {
    let offset = |sign: u8, h: &[u8], m: &[u8]| {
        let offset_s = digits(h)? * 3_600 + digits(m)? * 60;
        if sign == b'-' { local_s.checked_add(offset_s) } else { local_s.checked_sub(offset_s) }
    };
    let unix_s = match zone {
        [] | [b'Z' | b'z'] => Some(local_s),
        [sign @ (b'+' | b'-'), h0, h1, m0, m1] => offset(*sign, &[*h0, *h1], &[*m0, *m1]),
        [sign @ (b'+' | b'-'), h0, h1, b':', m0, m1] => offset(*sign, &[*h0, *h1], &[*m0, *m1]),
        _ => None,
    }?;
    Some(unix_s * SECOND_US + us)
}

fn time_of_day(time: &[u8]) -> Option<u64> {
    let [h0, h1, b':', m0, m1, b':', s0, s1] = time else { return None };
    let (hour, minute, second) = (digits(&[*h0, *h1])?, digits(&[*m0, *m1])?, digits(&[*s0, *s1])?);
    // A leap second is the first of the next minute.
    (hour < 24 && minute < 60 && second <= 60).then_some(hour * 3_600 + minute * 60 + second)
}

/// The first six decimals.
fn fraction(decimals: &[u8]) -> Option<u64> {
    let shown = &decimals[..decimals.len().min(6)];
    if !decimals.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits(shown).unwrap_or(0) * 10_u64.pow(6 - shown.len() as u32))
}

fn digits(bytes: &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for byte in bytes {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number = number.checked_mul(10)?.checked_add(digit.into())?;
    }
    (!bytes.is_empty()).then_some(number)
}

/// Days since 1970, counting years from March so that the leap day is the last.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1_970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = year - u64::from(month <= 2);
    let march_month = (month + 9) % 12;
    (365 * year + year / 4 - year / 100 + year / 400 + (153 * march_month + 2) / 5 + day - 1).checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_however_they_are_written() {
        let table = [
            ("01/Dec/2026:00:00:00 +0000", 1_796_083_200_000_000),
            ("30/Nov/2026:19:00:00 -0500", 1_796_083_200_000_000),
            ("2026-12-01T02:00:00+02:00", 1_796_083_200_000_000),
            ("2026-12-01 00:00:00.25", 1_796_083_200_250_000),
            ("2026-12-01T00:00:00,1234567Z", 1_796_083_200_123_456),
            ("1796083200", 1_796_083_200_000_000),
            ("1796083200.5", 1_796_083_200_500_000),
            ("1796083200123", 1_796_083_200_123_000),
            ("1796083200123456", 1_796_083_200_123_456),
            ("1796083200123456789", 1_796_083_200_123_456),
            ("29/Feb/2024:12:00:00 +0000", 1_709_208_000_000_000),
        ];
        for (text, unix_us) in table {
            assert_eq!(parse(text), Some(unix_us), "{text}");
        }
        for text in ["", "-", "yesterday", "01/Foo/2026:00:00:00 +0000", "2026-13-01T00:00:00Z", "12.x", "1e9", "-5"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}

//! Parses and formats RFC 3339 timestamps: `2026-12-01T00:00:00Z`.

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::fmt::temporal::Pieces;

/// 9999-12-31T23:59:59Z in seconds since 1970: the last time that can be written.
pub const UNIX_S_MAX: u64 = 253_402_300_799;

/// 1970-01-01T00:00:00 in UTC.
const UNIX_EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// Seconds since 1970 as text; at most the year 9999.
///
/// ```
/// assert_eq!(checkdam::time::rfc3339(1_796_083_200), "2026-12-01T00:00:00Z");
/// ```
#[must_use]
pub fn rfc3339(unix_s: u64) -> String {
    // A civil time and no `Timestamp`, which ends a day before the year 9999 does.
    let since = SignedDuration::from_secs(unix_s.min(UNIX_S_MAX) as i64);
    format!("{}Z", UNIX_EPOCH.saturating_add(since))
}

/// Reads a time from 1970 on: with `Z` or an offset, a fraction of a second
/// counts as a whole one.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<u64> {
    // What else is read here belongs to ISO 8601: times without seconds, `20261201`, `+0200`.
    let bytes = text.as_bytes();
    let has = |place: usize, byte: u8| bytes.get(place) == Some(&byte);
    let zone = bytes.len().checked_sub(3).filter(|place| *place > 16)?;
    let is_utc = text.ends_with(['Z', 'z']);
    if !(has(4, b'-') && has(7, b'-') && has(13, b':') && has(16, b':') && (is_utc || has(zone, b':'))) {
        return None;
    }
    parse_iso8601_us(bytes).map(|unix_us| unix_us.div_ceil(1_000_000)).filter(|unix_s| *unix_s <= UNIX_S_MAX)
}

/// Microseconds since 1970 of a time in any form of ISO 8601, such as
/// `2026-12-01 00:00:00.25` or `20261201T000000+0200`; without a zone it is UTC.
#[must_use]
pub fn parse_iso8601_us(text: &[u8]) -> Option<u64> {
    let pieces = Pieces::parse(text).ok()?;
    let offset_s = pieces.to_numeric_offset().map_or(0, |offset| offset.seconds().into());
    let local = pieces.date().to_datetime(pieces.time()?).duration_since(UNIX_EPOCH);
    u64::try_from((local - SignedDuration::from_secs(offset_s)).as_micros()).ok()
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
            "20261201T000000Z",
            "2026-12-01T00:00:00Z[UTC]",
            "2026-12-01T00:00:00+02:00[Europe/Paris]",
            "+002026-12-01T00:00:00Z",
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
}

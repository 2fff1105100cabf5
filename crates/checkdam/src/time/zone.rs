//! Time zones: names of the [IANA time zone database](https://www.iana.org/time-zones), and
//! where their days begin.
//!
//! The database is compiled into the program and never read from the machine. So all nodes of
//! one version have the same days, and a container needs no files.

use std::fmt;
use std::num::NonZeroU16;
use std::sync::{LazyLock, OnceLock};

use jiff::Timestamp;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase};

const DAY_S: i64 = 86_400;

/// A time zone of the IANA database, such as `Europe/Berlin`; UTC by default.
///
/// ```
/// use checkdam::time::Zone;
/// assert_eq!(Zone::by_name("Europe/Berlin").unwrap().name(), "Europe/Berlin");
/// assert_eq!(Zone::by_name("Mars/Olympus"), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Zone(NonZeroU16);

/// The zones of the database but UTC, in the order of their names.
static ZONES: LazyLock<Vec<ZoneEntry>> = LazyLock::new(|| {
    let database = TimeZoneDatabase::bundled();
    let mut names: Vec<String> = database.available().map(|name| name.as_str().to_owned()).collect();
    names.retain(|name| name != UTC);
    names.sort_unstable();
    // The number of a zone has 16 bits; the database has about 600 names.
    names.truncate(usize::from(u16::MAX) - OFFSET);
    names.into_iter().map(|name| ZoneEntry { name, zone: OnceLock::new() }).collect()
});

const UTC: &str = "UTC";
/// The number of the first zone of [`ZONES`]: 1 is UTC.
const OFFSET: usize = 2;

struct ZoneEntry {
    name: String,
    /// None if its data are damaged.
    zone: OnceLock<Option<TimeZone>>,
}

impl ZoneEntry {
    fn load(&self) -> Option<&TimeZone> {
        self.zone.get_or_init(|| TimeZoneDatabase::bundled().get(&self.name).ok()).as_ref()
    }
}

impl Zone {
    /// Coordinated Universal Time.
    pub const UTC: Self = Self(NonZeroU16::MIN);

    /// The zone of exactly that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        if name == UTC {
            return Some(Self::UTC);
        }
        let place = ZONES.binary_search_by(|entry| entry.name.as_str().cmp(name)).ok()?;
        ZONES[place].load()?;
        u16::try_from(place + OFFSET).ok().and_then(NonZeroU16::new).map(Self)
    }

    /// Its name in the database.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.entry().map_or(UTC, |entry| entry.name.as_str())
    }

    /// The name that was probably meant: in another case, or without its region.
    #[must_use]
    pub(crate) fn similar_name(name: &str) -> Option<&'static str> {
        let name = name.replace(' ', "_");
        let names = || ZONES.iter().map(|zone| zone.name.as_str()).chain([UTC]);
        let is_place = |known: &&str| known.rsplit('/').next().is_some_and(|place| place.eq_ignore_ascii_case(&name));
        names().find(|known| known.eq_ignore_ascii_case(&name)).or_else(|| names().find(is_place))
    }

    /// How many zones there can be, and the number of this one below that.
    pub(crate) fn count() -> usize {
        ZONES.len() + OFFSET
    }

    pub(crate) const fn number(self) -> usize {
        self.0.get() as usize
    }

    #[inline]
    pub(crate) fn is_utc(self) -> bool {
        self == Self::UTC
    }

    fn entry(self) -> Option<&'static ZoneEntry> {
        ZONES.get(self.number().checked_sub(OFFSET)?)
    }

    fn time_zone(self) -> Option<&'static TimeZone> {
        self.entry()?.load()
    }

    /// The date at a time in seconds since 1970, as days since 1970-01-01; none if the time is
    /// out of range, and for UTC.
    pub(crate) fn day_at(self, unix_s: i64) -> Option<i64> {
        let offset = self.time_zone()?.to_offset(Timestamp::from_second(unix_s).ok()?);
        Some((unix_s + i64::from(offset.seconds())).div_euclid(DAY_S))
    }

    /// The first second since 1970 at which that date, or a later one, is the date. Midnight may
    /// be skipped, then the date begins when the clocks were changed; or it may occur twice,
    /// then the first counts.
    pub(crate) fn day_start_s(self, day: i64) -> Option<i64> {
        let zone = self.time_zone()?;
        let midnight_s = day.checked_mul(DAY_S)?;
        let midnight = Offset::UTC.to_datetime(Timestamp::from_second(midnight_s).ok()?);
        let at = |offset: Offset| midnight_s - i64::from(offset.seconds());
        match zone.to_ambiguous_timestamp(midnight).offset() {
            AmbiguousOffset::Unambiguous { offset } => Some(at(offset)),
            AmbiguousOffset::Fold { before, .. } => Some(at(before)),
            AmbiguousOffset::Gap { before, .. } => {
                // Not before the change: the clocks skip midnight.
                let after_change = Timestamp::from_second(at(before) + 1).ok()?;
                zone.preceding(after_change).next().map(|change| change.timestamp().as_second())
            }
        }
    }
}

impl Default for Zone {
    fn default() -> Self {
        Self::UTC
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Zone({})", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str) -> Zone {
        Zone::by_name(name).unwrap()
    }

    /// The start of a civil date, in UTC.
    fn start(name: &str, date: &str) -> String {
        let date: jiff::civil::Date = date.parse().unwrap();
        let day = date.since((jiff::Unit::Day, jiff::civil::date(1970, 1, 1))).unwrap().get_days();
        let start_s = zone(name).day_start_s(i64::from(day)).unwrap();
        Timestamp::from_second(start_s).unwrap().to_string()
    }

    #[test]
    fn the_database_is_in_the_program_and_every_zone_of_it_is_found() {
        assert!(ZONES.len() > 500, "{}", ZONES.len());
        for entry in ZONES.iter() {
            assert_eq!(zone(&entry.name).name(), entry.name);
        }
        assert_eq!((zone("UTC"), zone("UTC").name()), (Zone::UTC, "UTC"));
        for name in ["", "Mars/Olympus", "europe/berlin", "Europe/Berlin ", "Europe"] {
            assert_eq!(Zone::by_name(name), None, "{name}");
        }
    }

    #[test]
    fn names_in_other_letters_or_without_a_region_are_recognized() {
        for (name, meant) in [
            ("europe/berlin", Some("Europe/Berlin")),
            ("Berlin", Some("Europe/Berlin")),
            ("new york", Some("America/New_York")),
            ("utc", Some("UTC")),
            ("Atlantis", None),
        ] {
            assert_eq!(Zone::similar_name(name), meant, "{name}");
        }
    }

    #[test]
    fn a_date_begins_at_its_first_instant() {
        for (name, date, expected) in [
            ("Europe/Berlin", "2026-03-29", "2026-03-28T23:00:00Z"),
            ("Europe/Berlin", "2026-03-30", "2026-03-29T22:00:00Z"),
            // Clocks went from 24:00 to 01:00: there was no midnight.
            ("America/Sao_Paulo", "2018-11-04", "2018-11-04T03:00:00Z"),
            ("Asia/Beirut", "2026-03-29", "2026-03-28T22:00:00Z"),
            // From 00:00 back to 23:00: the date begins an hour later.
            ("America/Sao_Paulo", "2018-02-18", "2018-02-18T03:00:00Z"),
            // From 01:00 back to 00:00: midnight occurs twice.
            ("America/Havana", "2026-11-01", "2026-11-01T04:00:00Z"),
            // From 00:01 back to 23:01: the date begins, ends, and begins again.
            ("America/St_Johns", "2010-11-07", "2010-11-07T02:30:00Z"),
            // From 23:30 to 00:30: the first minute of the date was 00:30.
            ("America/Toronto", "1919-03-31", "1919-03-31T04:30:00Z"),
            // A date that was left out begins and ends with the change.
            ("Pacific/Apia", "2011-12-30", "2011-12-30T10:00:00Z"),
            ("Pacific/Apia", "2011-12-31", "2011-12-30T10:00:00Z"),
        ] {
            assert_eq!(start(name, date), expected, "{name} {date}");
        }
    }

    #[test]
    fn times_out_of_range_have_no_date() {
        for unix_s in [i64::MIN, i64::MAX, 9_000_000_000_000] {
            assert_eq!(zone("Europe/Berlin").day_at(unix_s), None);
            assert_eq!(zone("Europe/Berlin").day_start_s(unix_s), None);
        }
        assert_eq!(zone("America/New_York").day_at(0), Some(-1));
    }
}

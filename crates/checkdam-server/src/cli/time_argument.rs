//! Parses points in time: `1h` (ago), or `2026-12-01T00:00:00Z`.

use std::str::FromStr;
use std::time::Duration;

use checkdam::time::{SECOND_US, parse_rfc3339};

use crate::config::DurationText;

/// A point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeArgument {
    /// So long ago.
    Ago(Duration),
    /// Then, in seconds since 1970.
    At(u64),
}

impl TimeArgument {
    /// Seconds since 1970.
    pub(super) fn unix_s(self) -> u64 {
        match self {
            Self::Ago(length) => now_unix_s().saturating_sub(length.as_secs()),
            Self::At(unix_s) => unix_s,
        }
    }
}

impl FromStr for TimeArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(unix_s) = parse_rfc3339(text) {
            return Ok(Self::At(unix_s));
        }
        text.parse::<DurationText>().map(|span| Self::Ago(span.into())).map_err(|_| {
            format!("{text:?} is not a time: write how long ago, such as 10m, 1h or 7d, or 2026-12-01T00:00:00Z")
        })
    }
}

/// The time, in seconds since 1970.
pub(super) fn now_unix_s() -> u64 {
    checkdam::time::unix_us() / SECOND_US
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_lengths_or_times() {
        assert_eq!("1h".parse(), Ok(TimeArgument::Ago(Duration::from_secs(3_600))));
        assert_eq!("2026-12-01T00:00:00Z".parse(), Ok(TimeArgument::At(1_796_083_200)));
        for text in ["", "yesterday", "1", "2026-12-01", "-1h"] {
            assert!(text.parse::<TimeArgument>().unwrap_err().contains("how long ago"), "{text}");
        }
    }
}

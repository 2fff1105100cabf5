//! Durations as text: `500ms`, `10s`, `1m`, `30d`.

use std::str::FromStr;
use std::time::Duration;

use super::layers::from_text;

/// Nothing that is configured lasts longer: ten years.
const MAX: Duration = Duration::from_secs(3_650 * 24 * 3_600);

/// A length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub struct DurationText(Duration);

impl FromStr for DurationText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (count, unit) = text.split_at(digits);
        let unit_ms = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(format!("{text:?} is not a time: write it with its unit, such as 500ms, 10s or 1m")),
        };
        let time = count.parse::<u64>().ok().and_then(|count| count.checked_mul(unit_ms)).map(Duration::from_millis);
        match time {
            Some(time) if time <= MAX => Ok(Self(time)),
            Some(_) => Err(format!("{text:?} is too long: use at most 3650d")),
            None => Err(format!("{text:?} is not a time: write a whole number and a unit, such as 500ms, 10s or 1m")),
        }
    }
}

from_text!(DurationText);

impl From<DurationText> for Duration {
    fn from(span: DurationText) -> Self {
        span.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_a_whole_number_and_a_unit() {
        let given = |text: &str| text.parse::<DurationText>().map(Duration::from);
        assert_eq!(given("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(given("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(given("1m"), Ok(Duration::from_secs(60)));
        assert_eq!(given("30d"), Ok(Duration::from_secs(30 * 86_400)));
        for text in ["", "10", "s", "1.5s", "-1s", "10 s", "3651d", "99999999999999999999s"] {
            assert!(given(text).is_err(), "{text:?} was taken for a time");
        }
    }
}

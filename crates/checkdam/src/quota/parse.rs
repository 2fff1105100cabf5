//! Parses and formats quotas as text: `"10/s burst 50"`, `"100/m"`, `"5 per 30s"`,
//! `"10000 per calendar month zone Europe/Berlin anchor 15"`.

use std::fmt;
use std::str::FromStr;

use super::calendar::{parse_anchor, parse_weekday, parse_zone};
use super::{Algorithm, Align, CalendarOptions, DAY_US, Quota, QuotaError, QuotaSpec};
use crate::time::SECOND_US;

/// Unit names, the first of each length being the one we print.
const UNITS: [(&str, u64); 24] = [
    ("y", 365 * DAY_US),
    ("year", 365 * DAY_US),
    ("years", 365 * DAY_US),
    ("month", 30 * DAY_US),
    ("months", 30 * DAY_US),
    ("w", 7 * DAY_US),
    ("week", 7 * DAY_US),
    ("weeks", 7 * DAY_US),
    ("d", DAY_US),
    ("day", DAY_US),
    ("days", DAY_US),
    ("h", 3_600 * SECOND_US),
    ("hour", 3_600 * SECOND_US),
    ("hours", 3_600 * SECOND_US),
    ("m", 60 * SECOND_US),
    ("min", 60 * SECOND_US),
    ("minute", 60 * SECOND_US),
    ("minutes", 60 * SECOND_US),
    ("s", SECOND_US),
    ("sec", SECOND_US),
    ("second", SECOND_US),
    ("seconds", SECOND_US),
    ("ms", 1_000),
    ("us", 1),
];

/// The text is cut to this many characters in messages.
const SHOWN_MAX: usize = 80;

/// A period as short text: `1s` is `s`, `90s` stays `90s`.
pub(crate) fn period_text(period_us: u64) -> String {
    for (name, unit_us) in UNITS {
        if period_us >= unit_us && period_us % unit_us == 0 {
            let count = period_us / unit_us;
            return if count == 1 { name.to_owned() } else { format!("{count}{name}") };
        }
    }
    format!("{period_us}us")
}

/// A length of time such as `100ms`, `30s` or `1h` in microseconds.
#[cfg(feature = "yaml")]
pub(crate) fn parse_period(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at(digits);
    let count = if count.is_empty() { 1 } else { count.parse::<u64>().ok()? };
    let unit = unit.trim_start();
    let (_, unit_us) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    count.checked_mul(unit_us)
}

impl FromStr for QuotaSpec {
    type Err = QuotaError;

    fn from_str(text: &str) -> Result<Self, QuotaError> {
        Parser { text, rest: text }.quota()
    }
}

impl Quota {
    /// The quota that `text` describes, for `algorithm`.
    ///
    /// # Errors
    /// Says what is wrong with the text or with a value, and what would fit.
    pub fn parse(text: &str, algorithm: Algorithm) -> Result<Self, QuotaError> {
        Self::new(text.parse()?, algorithm)
    }
}

/// A token bucket.
impl FromStr for Quota {
    type Err = QuotaError;

    fn from_str(text: &str) -> Result<Self, QuotaError> {
        Self::parse(text, Algorithm::TokenBucket)
    }
}

impl fmt::Display for QuotaSpec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.align.calendar_name() {
            None => write!(out, "{}/{}", self.amount, period_text(self.period_us))?,
            Some(name) => write!(out, "{} per calendar {name}", self.amount)?,
        }
        self.calendar.fmt(out)?;
        if let Some(burst) = self.burst {
            write!(out, " burst {burst}")?;
        }
        if let Some(initial) = self.initial {
            write!(out, " initial {initial}")?;
        }
        if let Some(algorithm) = self.algorithm {
            write!(out, " {algorithm}")?;
        }
        Ok(())
    }
}

/// As it is written with a limit: the name, and `strict` after it.
impl fmt::Display for Algorithm {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())?;
        if *self == (Self::SlidingWindow { strict: true }) { out.write_str(" strict") } else { Ok(()) }
    }
}

/// As it was written, with the calendar options of its rule.
impl fmt::Display for Quota {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spec_in(CalendarOptions::default()).fmt(out)
    }
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn quota(mut self) -> Result<QuotaSpec, QuotaError> {
        let amount = self.number("the limit")?;
        if !self.eat_symbol('/') && !self.eat_word("per") {
            return Err(self.error("expected '/' or 'per' after the limit".to_owned()));
        }
        let (period_us, align) = self.period()?;
        let mut spec = QuotaSpec { align, ..QuotaSpec::new(amount, period_us) };
        loop {
            if self.eat_word("burst") && spec.burst.is_none() {
                spec.burst = Some(self.number("burst")?);
            } else if self.eat_word("initial") && spec.initial.is_none() {
                spec.initial = Some(self.number("initial")?);
            } else if self.eat_word("zone") && spec.calendar.zone.is_none() {
                spec.calendar.zone = Some(parse_zone(self.name())?);
            } else if self.eat_word("anchor") && spec.calendar.anchor.is_none() {
                spec.calendar.anchor = Some(parse_anchor(self.number("anchor")?)?);
            } else if self.eat_name("week_starts") && spec.calendar.week_starts.is_none() {
                spec.calendar.week_starts = Some(parse_weekday(self.name())?);
            } else if self.rest.trim().is_empty() {
                return Ok(spec);
            } else if let Some(algorithm) = spec.algorithm.is_none().then(|| self.algorithm()).flatten() {
                spec.algorithm = Some(algorithm);
            } else {
                return Err(self.unexpected(align));
            }
        }
    }

    /// The rest of the text is no part of a quota.
    fn unexpected(&self, align: Align) -> QuotaError {
        let what = shown(self.rest.trim());
        let options = match align {
            Align::Epoch => "'burst N', 'initial N'",
            Align::Day | Align::Year => "'zone NAME'",
            Align::Week => "'zone NAME', 'week_starts WEEKDAY'",
            Align::Month => "'zone NAME', 'anchor DAY'",
        };
        self.error(format!(
            "{what:?} is unexpected; only {options} and an algorithm such as 'fixed_window' may follow, once each"
        ))
    }

    fn period(&mut self) -> Result<(u64, Align), QuotaError> {
        if self.eat_word("calendar") {
            let unit = self.word();
            let Some((align, period_us)) = Align::by_calendar_name(unit) else {
                let unit = shown(unit);
                return Err(self.error(format!("calendar {unit:?} is not a period: use day, week, month or year")));
            };
            return Ok((period_us, align));
        }
        let starts_with_digit = self.rest.trim_start().starts_with(|c: char| c.is_ascii_digit());
        let count = if starts_with_digit { self.number("the period")? } else { 1 };
        let unit = self.word();
        let Some((_, unit_us)) = UNITS.into_iter().find(|(name, _)| *name == unit) else {
            let unit = shown(unit);
            return Err(self.error(format!("{unit:?} is not a unit: use ms, s, m, h, d, w, month or y")));
        };
        let period_us =
            count.checked_mul(unit_us).ok_or_else(|| self.error(format!("the period {count}{unit} is too long")))?;
        Ok((period_us, Align::Epoch))
    }

    /// The name of an algorithm, and `strict` after it.
    fn algorithm(&mut self) -> Option<Algorithm> {
        let rest = self.rest.trim_start();
        let length = rest.bytes().take_while(|b| b.is_ascii_alphabetic() || *b == b'_').count();
        let (name, after) = rest.split_at(length);
        let algorithm = Algorithm::by_name(name)?;
        self.rest = after;
        match algorithm {
            Algorithm::SlidingWindow { .. } => Some(Algorithm::SlidingWindow { strict: self.eat_word("strict") }),
            other => Some(other),
        }
    }

    /// Digits, with `_` allowed between them.
    fn number(&mut self, what: &str) -> Result<u64, QuotaError> {
        let rest = self.rest.trim_start();
        let length = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'_').count();
        let (digits, after) = rest.split_at(length);
        if after.starts_with('.') {
            return Err(self.error(format!("{what} must be a whole number")));
        }
        let Some(value) = digits.replace('_', "").parse::<u64>().ok().filter(|_| !digits.starts_with('_')) else {
            let reason = if length == 0 {
                format!("expected a number for {what}")
            } else {
                format!("{what} {} is too large", shown(digits))
            };
            return Err(self.error(reason));
        };
        self.rest = after;
        Ok(value)
    }

    fn word(&mut self) -> &'a str {
        let rest = self.rest.trim_start();
        let length = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (word, after) = rest.split_at(length);
        self.rest = after;
        word
    }

    /// What stands before the next space.
    fn name(&mut self) -> &'a str {
        let rest = self.rest.trim_start();
        let (name, after) = rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len()));
        self.rest = after;
        name
    }

    fn eat_name(&mut self, expected: &str) -> bool {
        let before = self.rest;
        let found = self.name() == expected;
        if !found {
            self.rest = before;
        }
        found
    }

    fn eat_word(&mut self, expected: &str) -> bool {
        let before = self.rest;
        let found = self.word() == expected;
        if !found {
            self.rest = before;
        }
        found
    }

    fn eat_symbol(&mut self, symbol: char) -> bool {
        let Some(after) = self.rest.trim_start().strip_prefix(symbol) else { return false };
        self.rest = after;
        true
    }

    fn error(&self, reason: String) -> QuotaError {
        QuotaError::Syntax { text: shown(self.text), reason }
    }
}

fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

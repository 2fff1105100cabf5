//! Parses rate-limit signals of a response: whether it is a denial, when to retry,
//! and how much remains.
//!
//! Supported are `Retry-After` (RFC 9110), `RateLimit` and `RateLimit-Policy`
//! (draft-ietf-httpapi-ratelimit-headers), and limit, remaining and reset under their
//! customary names. No clock is read: dates are compared with the response's own
//! `Date`.

use std::time::Duration;

use http::header::{DATE, HeaderMap, RETRY_AFTER};
use http::{Response, StatusCode};
use sfv::{BareItem, List, ListEntry, Parameters, Parser};

/// The parts of a response that a polite caller reads.
pub trait RateLimitedResponse {
    /// Its status.
    fn status(&self) -> StatusCode;
    /// Its headers.
    fn headers(&self) -> &HeaderMap;
}

impl<B> RateLimitedResponse for Response<B> {
    fn status(&self) -> StatusCode {
        self.status()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }
}

impl RateLimitedResponse for (StatusCode, HeaderMap) {
    fn status(&self) -> StatusCode {
        self.0
    }

    fn headers(&self) -> &HeaderMap {
        &self.1
    }
}

/// The rate-limit signals of a response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Signal {
    /// 429, or 503: it was not executed and may be retried.
    pub(super) is_refused: bool,
    pub(super) retry_after_us: Option<u64>,
    pub(super) standing: Option<Standing>,
}

/// The state of the limit that is nearest to exhaustion.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Standing {
    /// The limit's name, or empty.
    pub(super) policy: String,
    pub(super) remaining: u64,
    /// How long until it is full again. In whole seconds, rounded up.
    pub(super) reset_after_us: Option<u64>,
    pub(super) limit: Option<u64>,
    /// The period in which as much as the limit may pass.
    pub(super) window_us: Option<u64>,
}

/// Prefixes of the customary headers.
const FAMILIES: [&str; 3] = ["x-ratelimit-", "x-rate-limit-", "ratelimit-"];
/// Numbers from here on are dates in seconds, and from the next one in milliseconds:
/// no window lasts thirty years.
const UNIX_S_MIN: u64 = 1_000_000_000;
const UNIX_MS_MIN: u64 = 1_000_000_000_000;

impl Signal {
    pub(super) fn read(response: &impl RateLimitedResponse) -> Self {
        let (status, headers) = (response.status(), response.headers());
        let is_refused = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let retry_after_us = if is_refused { retry_after_us(headers) } else { None };
        Self { is_refused, retry_after_us, standing: ietf(headers).or_else(|| customary(headers)) }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn micros(seconds: u64) -> u64 {
    seconds.saturating_mul(1_000_000)
}

/// Seconds, or a date.
fn retry_after_us(headers: &HeaderMap) -> Option<u64> {
    let value = text(headers, RETRY_AFTER.as_str())?;
    if let Ok(seconds) = value.parse() {
        return Some(micros(seconds));
    }
    let wait = httpdate::parse_http_date(value).ok()?.duration_since(date(headers)?).unwrap_or(Duration::ZERO);
    u64::try_from(wait.as_micros()).ok()
}

/// The server's time.
fn date(headers: &HeaderMap) -> Option<std::time::SystemTime> {
    httpdate::parse_http_date(text(headers, DATE.as_str())?).ok()
}

/// `RateLimit: "name";r=49;t=5` and `RateLimit-Policy: "name";q=50;w=5`: the one with
/// the least remaining.
fn ietf(headers: &HeaderMap) -> Option<Standing> {
    let list = |name: &str| -> Option<List> { Parser::new(text(headers, name)?).parse().ok() };
    let policies = list("ratelimit-policy").unwrap_or_default();
    let policies: Vec<_> = policies.iter().filter_map(named).collect();
    let standings = list("ratelimit")?;
    let standings = standings.iter().filter_map(named).filter_map(|(name, standing)| {
        let policy = policies.iter().find(|(known, _)| *known == name).map(|(_, policy)| *policy);
        Some(Standing {
            policy: name.to_owned(),
            remaining: number(standing, "r")?,
            reset_after_us: number(standing, "t").map(micros),
            limit: policy.and_then(|policy| number(policy, "q")),
            window_us: policy.and_then(|policy| number(policy, "w")).map(micros),
        })
    });
    standings.min_by_key(|standing| standing.remaining)
}

fn named(entry: &ListEntry) -> Option<(&str, &Parameters)> {
    match entry {
        ListEntry::Item(item) => match &item.bare_item {
            BareItem::String(name) => Some((name.as_str(), &item.params)),
            BareItem::Token(name) => Some((name.as_str(), &item.params)),
            _ => None,
        },
        ListEntry::InnerList(_) => None,
    }
}

fn number(parameters: &Parameters, name: &str) -> Option<u64> {
    u64::try_from(i64::from(parameters.get(name)?.as_integer()?)).ok()
}

fn customary(headers: &HeaderMap) -> Option<Standing> {
    FAMILIES.iter().find_map(|family| {
        let number = |word: &str| leading_number(text(headers, &format!("{family}{word}"))?);
        Some(Standing {
            policy: String::new(),
            remaining: number("remaining")?,
            reset_after_us: number("reset").and_then(|reset| reset_after_us(reset, headers)),
            limit: number("limit"),
            window_us: None,
        })
    })
}

/// Some servers append more to the number: `10, 10;w=60`.
fn leading_number(text: &str) -> Option<u64> {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// A duration, or a date in seconds or milliseconds since 1970.
fn reset_after_us(reset: u64, headers: &HeaderMap) -> Option<u64> {
    let unix_s = match reset {
        0..UNIX_S_MIN => return Some(micros(reset)),
        UNIX_S_MIN..UNIX_MS_MIN => reset,
        _ => reset.div_ceil(1_000),
    };
    let now = date(headers)?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(micros(unix_s.saturating_sub(now.as_secs())))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Headers = &'static [(&'static str, &'static str)];

    fn read(status: u16, headers: &[(&str, &str)]) -> Signal {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        Signal::read(&response.body(()).unwrap())
    }

    fn standing(
        policy: &str,
        remaining: u64,
        reset_s: Option<u64>,
        limit: Option<u64>,
        window_s: Option<u64>,
    ) -> Standing {
        let (reset_after_us, window_us) = (reset_s.map(micros), window_s.map(micros));
        Standing { policy: policy.to_owned(), remaining, reset_after_us, limit, window_us }
    }

    #[test]
    fn every_customary_way_to_tell_what_is_left_is_understood() {
        const DAY: (&str, &str) = ("date", "Tue, 14 Nov 2023 22:13:20 GMT"); // 1,700,000,000
        let cases: &[(Headers, Option<Standing>)] = &[
            (&[], None),
            (
                &[
                    ("ratelimit", "\"a\";r=9;t=5, \"b\";r=3;t=60"),
                    ("ratelimit-policy", "\"a\";q=10;w=1, \"b\";q=100;w=60"),
                ],
                Some(standing("b", 3, Some(60), Some(100), Some(60))),
            ),
            (&[("ratelimit", "default;r=9")], Some(standing("default", 9, None, None, None))),
            (&[("ratelimit", "no field;;"), ("x-ratelimit-remaining", "7")], Some(standing("", 7, None, None, None))),
            (
                &[("x-ratelimit-limit", "10, 10;w=60"), ("x-ratelimit-remaining", "4"), ("x-ratelimit-reset", "30")],
                Some(standing("", 4, Some(30), Some(10), None)),
            ),
            (
                &[DAY, ("x-rate-limit-remaining", "4"), ("x-rate-limit-reset", "1700000012")],
                Some(standing("", 4, Some(12), None, None)),
            ),
            (
                &[DAY, ("ratelimit-remaining", "4"), ("ratelimit-reset", "1700000012001")],
                Some(standing("", 4, Some(13), None, None)),
            ),
            (
                &[("x-ratelimit-remaining", "4"), ("x-ratelimit-reset", "1700000012")],
                Some(standing("", 4, None, None, None)),
            ),
            (&[("x-ratelimit-remaining", "-1")], None),
        ];
        for (headers, expected) in cases {
            assert_eq!(read(200, headers).standing, *expected, "{headers:?}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_and_counts_on_refusals() {
        let dated = [("date", "Tue, 14 Nov 2023 22:13:20 GMT"), ("retry-after", "Tue, 14 Nov 2023 22:13:27 GMT")];
        let past = [("date", "Tue, 14 Nov 2023 22:13:20 GMT"), ("retry-after", "Tue, 14 Nov 2023 22:13:00 GMT")];
        for (status, headers, is_refused, retry_after_us) in [
            (429, &[("retry-after", "3")][..], true, Some(3_000_000)),
            (503, &[("retry-after", "3")], true, Some(3_000_000)),
            (429, &dated, true, Some(7_000_000)),
            (429, &past, true, Some(0)),
            (429, &dated[1..], true, None),
            (429, &[("retry-after", "soon")], true, None),
            (200, &[("retry-after", "3")], false, None),
            (500, &[("retry-after", "3")], false, None),
        ] {
            let signal = read(status, headers);
            assert_eq!(
                (signal.is_refused, signal.retry_after_us),
                (is_refused, retry_after_us),
                "{status} {headers:?}"
            );
        }
    }
}

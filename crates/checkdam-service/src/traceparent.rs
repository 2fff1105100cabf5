//! Parses the `traceparent` header of W3C Trace Context, level 1 and what later
//! levels have in common with it.

use std::fmt;

use axum::http::HeaderMap;

const HEADER: &str = "traceparent";
/// Version, trace, parent and flags, with the dashes between them.
const LENGTH: usize = 2 + 1 + 32 + 1 + 16 + 1 + 2;

/// A trace; never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId(pub(crate) u128);

/// The caller's span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TraceParent {
    pub trace: TraceId,
    /// Never zero.
    pub span: u64,
    /// Whether the caller records its own.
    pub is_sampled: bool,
}

impl TraceParent {
    /// What the headers say; none if they say it twice or not right.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(HEADER).iter();
        let value = values.next().filter(|_| values.next().is_none())?;
        Self::parse(value.as_bytes())
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let (known, rest) = text.split_at_checked(LENGTH)?;
        let dashes = known[2] == b'-' && known[35] == b'-' && known[52] == b'-';
        let version = hexadecimal(&known[..2])?;
        // Later versions may append something, and 255 never is one.
        let is_whole = if version == 0 { rest.is_empty() } else { rest.is_empty() || rest[0] == b'-' };
        let (trace, span) = (hexadecimal(&known[3..35])?, hexadecimal(&known[36..52])?);
        let flags = hexadecimal(&known[53..])?;
        let is_valid = dashes && version != 0xff && is_whole && trace != 0 && span != 0;
        is_valid.then_some(Self { trace: TraceId(trace), span: span as u64, is_sampled: flags & 1 == 1 })
    }
}

/// Lower case only, as the recommendation demands.
fn hexadecimal(text: &[u8]) -> Option<u128> {
    text.iter().try_fold(0, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

impl fmt::Display for TraceId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn parsed(text: &str) -> Option<TraceParent> {
        TraceParent::parse(text.as_bytes())
    }

    #[test]
    fn what_is_right_is_read() {
        let parent = parsed(GOOD).unwrap();
        assert_eq!(parent.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!((parent.span, parent.is_sampled), (0x00f0_67aa_0ba9_02b7, true));
        assert!(!parsed(&GOOD.replace("-01", "-00")).unwrap().is_sampled);
        assert!(parsed(&GOOD.replace("-01", "-03")).unwrap().is_sampled, "other flags are not ours");
        assert!(parsed(&format!("cc{}-what-the-future-brings", &GOOD[2..])).is_some());
    }

    #[test]
    fn what_is_not_right_is_not_guessed() {
        let zero_trace = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let zero_span = "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01";
        let appended = format!("{GOOD}-more");
        let (future, shouted) = (format!("cc{}.x", &GOOD[2..]), GOOD.to_uppercase());
        let (never, spaced, cut) = (format!("ff{}", &GOOD[2..]), format!(" {GOOD}"), &GOOD[..54]);
        let undashed = GOOD.replace('-', "_");
        for text in ["", zero_trace, zero_span, &appended, &future, &shouted, &never, &spaced, cut, &undashed] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn two_answers_are_none() {
        let mut headers = HeaderMap::new();
        headers.append(HEADER, GOOD.parse().unwrap());
        assert!(TraceParent::from_headers(&headers).is_some());
        headers.append(HEADER, GOOD.parse().unwrap());
        assert_eq!(TraceParent::from_headers(&headers), None);
    }
}

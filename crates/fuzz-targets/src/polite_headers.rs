//! Fuzz target: parsing of rate-limit headers by the polite client.

use checkdam_client::fuzzing::{next_calls_us, remaining, retry_after_us};
use http::{HeaderMap, StatusCode};

use crate::header_lines;

/// The input has one response after another, each a status, its headers, and an empty line. The next
/// call after a denial is not sent before `Retry-After`.
pub fn polite_headers(data: &[u8]) {
    let lines: Vec<_> = data.split(|byte| *byte == b'\n').collect();
    let responses = lines.split(|line| line.is_empty()).take(20).map(read_response);
    let responses: Vec<_> = responses.collect();
    let next_calls = next_calls_us(&responses);
    assert_eq!(next_calls.len(), responses.len());
    let times = (0_u64..).step_by(1_000_000);
    for ((now_us, response), next_us) in times.zip(&responses).zip(next_calls) {
        let _ = remaining(response);
        let next_us = next_us.expect("nothing is in flight");
        assert!(next_us >= now_us, "{next_us} is before {now_us}");
        let is_denial = matches!(response.0.as_u16(), 429 | 503);
        let wait_us = retry_after_us(response);
        assert!(is_denial || wait_us.is_none(), "{response:?}");
        assert!(next_us >= now_us.saturating_add(wait_us.unwrap_or(0)), "{next_us} at {now_us} after {response:?}");
        let seconds = response.1.get("retry-after").and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok());
        if let Some(seconds) = seconds.filter(|_| is_denial) {
            assert_eq!(wait_us, Some(seconds.saturating_mul(1_000_000)), "{response:?}");
        }
    }
}

fn read_response(lines: &[&[u8]]) -> (StatusCode, HeaderMap) {
    let status = lines.first().and_then(|line| StatusCode::from_bytes(line).ok()).unwrap_or(StatusCode::OK);
    (status, header_lines(lines.iter().skip(1).copied()))
}

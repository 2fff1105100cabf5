//! Problem details (RFC 9457) of a denied request: the same members as the server's,
//! without the list of tiers, which is internal.

use std::fmt::Write;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};

use crate::decision::Verdict;
use crate::outcome::{Outcome, TierView};

/// Writes the document.
pub(super) fn body(outcome: &Outcome, status: u16, detail: &str) -> String {
    let (kind, title) = match outcome.verdict() {
        Verdict::CostExceedsBurst => {
            ("urn:checkdam:problem:cost_exceeds_burst", "The cost exceeds what a limit can ever hold")
        }
        Verdict::Banned => ("urn:checkdam:problem:banned", "The request is banned"),
        Verdict::Unavailable => ("urn:checkdam:problem:store_unavailable", "The store of the limits does not answer"),
        Verdict::Denied | Verdict::Allowed => (
            "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "Request cannot be satisfied as assigned quota has been exceeded",
        ),
    };
    let mut out = JsonObject::new();
    out.text("type", kind);
    out.text("title", title);
    out.number("status", u64::from(status));
    out.text("detail", detail);
    out.texts("violated-policies", outcome.denying().map(|tier| tier.policy_name().to_owned()));
    out.raw("allowed", "false");
    if let Some(tier) = outcome.governing() {
        out.number("limit", tier.decision.limit);
        out.number("remaining", tier.decision.remaining);
    }
    out.number("retry_after_ms", millis(outcome.retry_after_us()));
    out.number("reset_after_ms", outcome.governing().map_or(0, |tier| millis(tier.decision.reset_after_us)));
    match outcome.violated() {
        Some(tier) => out.text("violated", &tier.rule.name),
        None => out.raw("violated", "null"),
    }
    out.text("decided_by", outcome.decided_by().name());
    out.finish()
}

/// The response to an ambiguous request.
pub(super) fn bad_request(detail: &str) -> Response<Bytes> {
    let mut out = JsonObject::new();
    out.text("type", "urn:checkdam:problem:bad_request");
    out.text("title", "The request cannot be understood");
    out.number("status", u64::from(StatusCode::BAD_REQUEST.as_u16()));
    out.text("detail", detail);
    let mut response = Response::new(Bytes::from(out.finish()));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}

/// The rule that denies a request of this cost, and when to retry.
pub(super) fn detail(outcome: &Outcome, cost: u64) -> String {
    match (outcome.ban(), outcome.violated()) {
        // The banned subject and the reason are shown to operators only.
        (Some(_), _) => "the request is banned".to_owned(),
        (None, Some(tier)) => violated(&tier, cost),
        (None, None) => String::new(),
    }
}

fn violated(tier: &TierView<'_>, cost: u64) -> String {
    let (rule, quota) = (&tier.rule.name, tier.quota);
    match tier.decision.verdict {
        Verdict::CostExceedsBurst => {
            let limit = tier.decision.limit;
            format!("a cost of {cost} can never pass rule {rule:?} ({quota}): at most {limit} can pass at once")
        }
        Verdict::Unavailable => {
            format!("rule {rule:?} ({quota}) denies what its store cannot decide: try again later")
        }
        _ => format!("rule {rule:?} ({quota}) is exceeded: try again in {} ms", millis(tier.decision.retry_after_us)),
    }
}

const fn millis(us: u64) -> u64 {
    us.div_ceil(1_000)
}

/// A JSON object that is written member by member: all that is needed of JSON
/// here. `serde_json` would be four crates more for users of the `tower` feature
/// alone; the test reads what this writes with it. Writing into a string cannot fail.
struct JsonObject(String);

impl JsonObject {
    fn new() -> Self {
        let mut out = String::with_capacity(512);
        out.push('{');
        Self(out)
    }

    fn name(&mut self, name: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.string(name);
        self.0.push(':');
    }

    fn raw(&mut self, name: &str, value: &str) {
        self.name(name);
        self.0.push_str(value);
    }

    fn number(&mut self, name: &str, value: u64) {
        self.raw(name, itoa::Buffer::new().format(value));
    }

    fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        self.string(value);
    }

    fn texts(&mut self, name: &str, values: impl Iterator<Item = String>) {
        self.name(name);
        self.0.push('[');
        for (index, value) in values.enumerate() {
            if index > 0 {
                self.0.push(',');
            }
            self.string(&value);
        }
        self.0.push(']');
    }

    fn string(&mut self, text: &str) {
        self.0.push('"');
        for character in text.chars() {
            match character {
                '"' | '\\' => {
                    self.0.push('\\');
                    self.0.push(character);
                }
                '\0'..='\u{1f}' => {
                    let _ = write!(self.0, "\\u{:04x}", u32::from(character));
                }
                _ => self.0.push(character),
            }
        }
        self.0.push('"');
    }

    fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_text_holds_it_reads_as_the_same_again() {
        let text = "\"quoted\" \\ \n\t\0\u{1f} é 🦫 </script>";
        let mut object = JsonObject::new();
        object.text("text", text);
        object.number("number", 7);
        object.texts("texts", [text.to_owned(), String::new()].into_iter());
        object.raw("raw", "null");
        let read: serde_json::Value = serde_json::from_str(&object.finish()).unwrap();
        assert_eq!(read, serde_json::json!({"text": text, "number": 7, "texts": [text, ""], "raw": null}));
    }
}

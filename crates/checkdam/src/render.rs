//! JSON bodies of outcomes: the state of a request's limits, and problem details
//! ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)) of a denied request.
//!
//! Members are written one by one. serde scans every name for characters to escape, which
//! takes longer than the decision, and would be four crates more for users of the `tower`
//! feature alone. Writing into memory cannot fail, so errors of the writer are ignored.

use std::fmt::Write;
use std::time::Duration;

use crate::ban::Ban;
use crate::decision::Verdict;
use crate::outcome::{Outcome, TierView};
use crate::request::Request;
use crate::time::rfc3339;

/// The HTTP status of a verdict.
#[must_use]
pub const fn status(verdict: Verdict) -> u16 {
    match verdict {
        Verdict::Allowed => 200,
        Verdict::Denied => 429,
        Verdict::CostExceedsBurst => 422,
        Verdict::Banned => 403,
        Verdict::Unavailable => 503,
    }
}

/// The state of a request's limits.
pub fn write_state(out: &mut impl Write, request: &Request<'_>, outcome: &Outcome) {
    let mut json = JsonWriter::new(out);
    json.raw("{");
    json.state(request, outcome);
}

/// Why a request is denied, and the state of its limits, for the program that asked.
pub fn write_denial(out: &mut impl Write, request: &Request<'_>, outcome: &Outcome) {
    let mut json = JsonWriter::new(out);
    let detail = match (outcome.ban(), outcome.violated()) {
        (Some(ban), _) => ban_detail(ban),
        (None, Some(tier)) => tier_detail(&tier, request.cost()),
        (None, None) => String::new(),
    };
    json.denial(outcome, status(outcome.verdict()), &detail);
    json.raw(",");
    json.state(request, outcome);
}

/// The states of several requests, or why they are denied, each with its status.
pub fn write_batch(out: &mut impl Write, decided: &[(Request<'_>, Outcome)]) {
    let mut opening = "{\"results\":[";
    for (request, outcome) in decided {
        JsonWriter::new(out).raw(opening);
        if outcome.is_allowed() {
            let mut json = JsonWriter::new(out);
            json.raw("{\"status\":200,");
            json.state(request, outcome);
        } else {
            write_denial(out, request, outcome);
        }
        opening = ",";
    }
    JsonWriter::new(out).raw(if opening == "," { "]}" } else { "{\"results\":[]}" });
}

/// Why a request is denied, for the end client to which a proxy passes it on: when to
/// retry, and nothing of other tiers, subjects or an operator's reasons.
pub fn write_client_denial(out: &mut impl Write, outcome: &Outcome) {
    let mut json = JsonWriter::new(out);
    let reason = match outcome.verdict() {
        Verdict::CostExceedsBurst => "the request costs more than a limit can ever hold",
        Verdict::Banned => "requests like this one are banned",
        Verdict::Unavailable => "the limits cannot be checked at the moment",
        Verdict::Denied | Verdict::Allowed => "too many requests",
    };
    let detail = match outcome.retry_after() {
        None => reason.to_owned(),
        Some(wait) => format!("{reason}: try again in {} ms", millis(wait)),
    };
    json.denial(outcome, status(outcome.verdict()), &detail);
    json.retry_after(outcome.retry_after());
    json.raw("}");
}

/// Why a request is denied, for the client of a service that the tower layer limits: the
/// members of [`write_denial`] without the list of tiers and the ban, which are internal.
#[cfg(feature = "tower")]
pub(crate) fn write_layer_denial(out: &mut impl Write, outcome: &Outcome, status: u16, detail: &str) {
    let mut json = JsonWriter::new(out);
    json.denial(outcome, status, detail);
    json.raw(",");
    json.limits(outcome, "");
    json.violated(outcome);
    json.text(",\"decided_by\":\"", outcome.decided_by().name());
    json.raw("}");
}

/// A problem that is not a denial.
#[cfg(feature = "tower")]
pub(crate) fn write_problem(out: &mut impl Write, kind: &str, title: &str, status: u16, detail: &str) {
    let mut json = JsonWriter::new(out);
    json.problem(kind, title, status, detail);
    json.raw("}");
}

fn ban_detail(ban: &Ban) -> String {
    let until = ban.until_unix_s.map(|until| format!(" until {}", rfc3339(until))).unwrap_or_default();
    let reason = if ban.reason.is_empty() { String::new() } else { format!(": {}", ban.reason) };
    format!("{:?} is banned{until}{reason}", ban.subject())
}

/// The rule that denies a request of this cost, and when to retry.
pub(crate) fn tier_detail(tier: &TierView<'_>, cost: u64) -> String {
    let (rule, quota) = (&tier.rule.name, tier.quota);
    match tier.decision.verdict {
        Verdict::CostExceedsBurst => {
            let limit = tier.decision.limit;
            format!("a cost of {cost} can never pass rule {rule:?} ({quota}): at most {limit} can pass at once")
        }
        Verdict::Unavailable => {
            format!("rule {rule:?} ({quota}) denies what its store cannot decide: try again later")
        }
        _ => format!(
            "rule {rule:?} ({quota}) is exceeded: try again in {} ms",
            tier.decision.retry_after_us.div_ceil(1_000)
        ),
    }
}

/// The type and title of a denial's problem details.
const fn type_and_title(verdict: Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::CostExceedsBurst => {
            ("urn:checkdam:problem:cost_exceeds_burst", "The cost exceeds what a limit can ever hold")
        }
        Verdict::Banned => ("urn:checkdam:problem:banned", "The request is banned"),
        Verdict::Unavailable => ("urn:checkdam:problem:store_unavailable", "The store of the limits does not answer"),
        Verdict::Denied | Verdict::Allowed => (
            "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "Request cannot be satisfied as assigned quota has been exceeded",
        ),
    }
}

/// Milliseconds, rounded up, so that a client that waits for them passes.
const fn millis(wait: Duration) -> u64 {
    wait.as_secs() * 1_000 + (wait.subsec_micros() as u64).div_ceil(1_000)
}

/// Writes members of objects. A member's name is given as it is written, with what stands
/// before it and, of a text, with the opening quote.
struct JsonWriter<'a, W> {
    out: &'a mut W,
    digits: itoa::Buffer,
}

impl<'a, W: Write> JsonWriter<'a, W> {
    fn new(out: &'a mut W) -> Self {
        Self { out, digits: itoa::Buffer::new() }
    }

    /// The members of problem details, without the end of the object.
    fn problem(&mut self, kind: &str, title: &str, status: u16, detail: &str) {
        self.text("{\"type\":\"", kind);
        self.text(",\"title\":\"", title);
        self.number(",\"status\":", status.into());
        self.text(",\"detail\":\"", detail);
    }

    fn denial(&mut self, outcome: &Outcome, status: u16, detail: &str) {
        let (kind, title) = type_and_title(outcome.verdict());
        self.problem(kind, title, status, detail);
        self.raw(",\"violated-policies\":[");
        let mut opening = "\"";
        for tier in outcome.denying() {
            self.text(opening, tier.policy_name());
            opening = ",\"";
        }
        self.raw("]");
    }

    /// All members of a state, and the end of the object.
    fn state(&mut self, request: &Request<'_>, outcome: &Outcome) {
        self.limits(outcome, ",\"limit\":null,\"remaining\":null");
        match outcome.delay_us().div_ceil(1_000) {
            0 => {}
            delay_ms => self.number(",\"delay_ms\":", delay_ms),
        }
        if outcome.cut_off() > 0 {
            self.number(",\"cut_off\":", outcome.cut_off());
        }
        self.violated(outcome);
        if let Some(ban) = outcome.ban() {
            self.text(",\"ban\":{\"subject\":\"", &ban.subject());
            self.text(",\"reason\":\"", &ban.reason);
            match ban.until_unix_s {
                Some(until) => self.text(",\"until\":\"", &rfc3339(until)),
                None => self.raw(",\"until\":null"),
            }
            self.raw("}");
        }
        self.text(",\"decided_by\":\"", outcome.decided_by().name());
        self.raw(",\"tiers\":[");
        // A rule's tiers have one subject: it is rendered once a rule.
        let (mut key, mut subject) = ("", String::new());
        let mut opening = "{\"rule\":\"";
        for tier in outcome.tiers() {
            if key != tier.rule.key.text() {
                key = tier.rule.key.text();
                subject.clear();
                tier.rule.key.render_into(request, &mut subject);
            }
            self.tier(opening, &tier, &subject);
            opening = ",{\"rule\":\"";
        }
        self.raw("]}");
    }

    /// The result, and the limit that governs; `ungoverned` is written where there is none.
    fn limits(&mut self, outcome: &Outcome, ungoverned: &str) {
        self.raw(if outcome.is_allowed() { "\"allowed\":true" } else { "\"allowed\":false" });
        let governing = outcome.governing();
        match &governing {
            Some(tier) => {
                self.number(",\"limit\":", tier.decision.limit);
                self.number(",\"remaining\":", tier.decision.remaining);
            }
            None => self.raw(ungoverned),
        }
        self.retry_after(outcome.retry_after());
        self.number(",\"reset_after_ms\":", governing.map_or(0, |tier| tier.decision.reset_after_us.div_ceil(1_000)));
    }

    fn violated(&mut self, outcome: &Outcome) {
        match outcome.violated() {
            Some(tier) => self.text(",\"violated\":\"", &tier.rule.name),
            None => self.raw(",\"violated\":null"),
        }
    }

    fn tier(&mut self, opening: &str, tier: &TierView<'_>, subject: &str) {
        self.text(opening, &tier.rule.name);
        self.text(",\"scope\":\"", &tier.rule.scope);
        self.text(",\"subject\":\"", subject);
        self.text(",\"limit_name\":\"", tier.limit_name());
        self.raw(if tier.decision.is_allowed() { ",\"allowed\":true" } else { ",\"allowed\":false" });
        self.number(",\"limit\":", tier.decision.limit);
        self.number(",\"remaining\":", tier.decision.remaining);
        if tier.decision.debt > 0 {
            self.number(",\"debt\":", tier.decision.debt);
        }
        self.retry_after(tier.decision.retry_after());
        self.number(",\"reset_after_ms\":", tier.decision.reset_after_us.div_ceil(1_000));
        self.raw(if tier.is_enforced() { "}" } else { ",\"shadow\":true}" });
    }

    /// 0 if it passes now, null if it never will.
    fn retry_after(&mut self, wait: Option<Duration>) {
        match wait {
            Some(wait) => self.number(",\"retry_after_ms\":", millis(wait)),
            None => self.raw(",\"retry_after_ms\":null"),
        }
    }

    fn raw(&mut self, text: &str) {
        let _ = self.out.write_str(text);
    }

    fn number(&mut self, name: &str, number: u64) {
        self.raw(name);
        let _ = self.out.write_str(self.digits.format(number));
    }

    fn text(&mut self, name: &str, text: &str) {
        self.raw(name);
        if text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
            self.raw(text);
        } else {
            text.chars().for_each(|character| self.escaped(character));
        }
        self.raw("\"");
    }

    #[cold]
    fn escaped(&mut self, character: char) {
        let _ = match character {
            '"' => self.out.write_str("\\\""),
            '\\' => self.out.write_str("\\\\"),
            '\u{8}' => self.out.write_str("\\b"),
            '\t' => self.out.write_str("\\t"),
            '\n' => self.out.write_str("\\n"),
            '\u{c}' => self.out.write_str("\\f"),
            '\r' => self.out.write_str("\\r"),
            '\0'..='\u{1f}' => write!(self.out, "\\u{:04x}", u32::from(character)),
            _ => self.out.write_char(character),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_as_serde_escapes_them() {
        let all: String = ('\0'..'\u{100}').chain("é 🦫 </script>".chars()).collect();
        for text in ["", "plain", "\"", &all] {
            let mut out = String::new();
            JsonWriter::new(&mut out).text("\"", text);
            assert_eq!(out, serde_json::to_string(text).unwrap());
        }
    }
}

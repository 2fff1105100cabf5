//! Serializes responses to checks as JSON, directly into the bytes that are sent.
//!
//! serde scans every name it writes for characters to escape, which takes longer than
//! the decision. The output equals serde's, which a test verifies.

use axum::http::StatusCode;
use bytes::{BufMut, BytesMut};
use checkdam::{Outcome, Request, TierView};

use super::responses::{BanAnswer, denial_text, kind_and_title, millis};

/// Most responses are shorter, their headers included.
const BODY_BYTES: usize = 1_024;

/// The state of a request's limits.
pub(super) fn write_standing(request: &Request<'_>, outcome: &Outcome) -> BytesMut {
    let mut body = BodyWriter::new();
    body.write_literal("{");
    body.write_fields(request, outcome);
    body.out
}

/// Why a request is denied, and the state of its limits.
pub(super) fn write_denial(request: &Request<'_>, outcome: &Outcome, status: StatusCode) -> BytesMut {
    let mut body = BodyWriter::new();
    let (kind, title) = kind_and_title(status);
    body.write_text("{\"type\":", kind);
    body.write_text(",\"title\":", title);
    body.write_number(",\"status\":", status.as_u16().into());
    body.write_text(",\"detail\":", &denial_text(request, outcome));
    let mut opening = ",\"violated-policies\":[";
    for tier in outcome.denying() {
        body.write_text(opening, tier.policy_name());
        opening = ",";
    }
    body.write_literal(if opening == "," { "]," } else { ",\"violated-policies\":[]," });
    body.write_fields(request, outcome);
    body.out
}

struct BodyWriter {
    out: BytesMut,
    digits: itoa::Buffer,
}

impl BodyWriter {
    fn new() -> Self {
        Self { out: BytesMut::with_capacity(BODY_BYTES), digits: itoa::Buffer::new() }
    }

    /// The fields of a response, and the end of their object.
    fn write_fields(&mut self, request: &Request<'_>, outcome: &Outcome) {
        let governing = outcome.governing();
        self.write_bool("\"allowed\":", outcome.is_allowed());
        self.write_optional(",\"limit\":", governing.map(|tier| tier.decision.limit));
        self.write_optional(",\"remaining\":", governing.map(|tier| tier.decision.remaining));
        self.write_number(",\"retry_after_ms\":", millis(outcome.retry_after_us()));
        self.write_number(",\"reset_after_ms\":", governing.map_or(0, |tier| millis(tier.decision.reset_after_us)));
        match millis(outcome.delay_us()) {
            0 => {}
            delay_ms => self.write_number(",\"delay_ms\":", delay_ms),
        }
        match outcome.violated() {
            Some(tier) => self.write_text(",\"violated\":", &tier.rule.name),
            None => self.write_literal(",\"violated\":null"),
        }
        if let Some(ban) = BanAnswer::from_outcome(outcome) {
            self.write_literal(",\"ban\":");
            self.out.extend_from_slice(&super::json(&ban));
        }
        self.write_text(",\"decided_by\":", outcome.decided_by().name());
        self.write_literal(",\"tiers\":[");
        // A rule's tiers have one subject: it is written once a rule.
        let (mut key, mut subject) = ("", String::new());
        let mut opening = "{\"rule\":";
        for tier in outcome.tiers() {
            if key != tier.rule.key.text() {
                key = tier.rule.key.text();
                subject.clear();
                tier.rule.key.render_into(request, &mut subject);
            }
            self.write_tier(opening, &tier, &subject);
            opening = ",{\"rule\":";
        }
        self.write_literal("]}");
    }

    fn write_tier(&mut self, opening: &str, tier: &TierView<'_>, subject: &str) {
        self.write_text(opening, &tier.rule.name);
        self.write_text(",\"scope\":", &tier.rule.scope);
        self.write_text(",\"subject\":", subject);
        self.write_bool(",\"allowed\":", tier.decision.is_allowed());
        self.write_number(",\"limit\":", tier.decision.limit);
        self.write_number(",\"remaining\":", tier.decision.remaining);
        self.write_number(",\"retry_after_ms\":", millis(tier.decision.retry_after_us));
        self.write_number(",\"reset_after_ms\":", millis(tier.decision.reset_after_us));
        self.write_literal(if tier.is_enforced() { "}" } else { ",\"shadow\":true}" });
    }

    fn write_literal(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn write_bool(&mut self, name: &str, truth: bool) {
        self.write_literal(name);
        self.write_literal(if truth { "true" } else { "false" });
    }

    fn write_number(&mut self, name: &str, number: u64) {
        self.write_literal(name);
        self.out.extend_from_slice(self.digits.format(number).as_bytes());
    }

    fn write_optional(&mut self, name: &str, number: Option<u64>) {
        match number {
            Some(number) => self.write_number(name, number),
            None => {
                self.write_literal(name);
                self.write_literal("null");
            }
        }
    }

    fn write_text(&mut self, name: &str, text: &str) {
        self.write_literal(name);
        let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
        if text.bytes().all(is_plain) {
            self.out.put_u8(b'"');
            self.write_literal(text);
            self.out.put_u8(b'"');
        } else {
            self.out.extend_from_slice(&super::json(&text));
        }
    }
}

#[cfg(test)]
mod tests {
    use checkdam::store::{self, MemoryOptions, MemoryStore, Operation, Store, Tier};
    use checkdam::{DecidedBy, Decision, Limiter, Verdict, rule_file};

    use super::super::responses::{Answer, Denied, status};
    use super::*;

    const RULES: &str = r#"
rules:
  - { name: per-user, key: "user:{user}", limits: ["1/m burst 2", "100/d"] }
  - { name: watched, key: "user:{user}", limits: ["1/h"], mode: shadow }
  - { name: 'a "quoted\name"', key: "path:{path}", limits: ["1/m"] }
  - { name: queue, key: "queue:{queue}", algorithm: leaky_bucket, limits: ["2/s burst 3"] }
bans:
  - { subject: "user:banned", reason: "said \"no\"" }
  - { subject: "user:paused", until: "2999-12-01T00:00:00Z" }
"#;

    /// A store that failed, with rules that pass nothing then.
    struct Failed;

    impl Store for Failed {
        async fn apply(&self, _: Operation, tiers: &[Tier<'_>]) -> store::TierDecisions {
            let decisions = tiers.iter().map(|tier| Decision {
                verdict: Verdict::Unavailable,
                limit: tier.quota.limit(),
                remaining: 0,
                retry_after_us: 1_000_000,
                reset_after_us: 0,
                delay_us: 0,
            });
            store::TierDecisions { decisions: decisions.collect(), at_us: 0, by: DecidedBy::Policy }
        }
    }

    /// Writes both bodies, and compares them with serde's.
    async fn compare(limiter: &Limiter<impl Store>, request: &Request<'_>) -> u16 {
        let outcome = limiter.check(request).await;
        let status = status(outcome.verdict());
        let by_serde = serde_json::to_string(&Answer::new(request, &outcome)).unwrap();
        assert_eq!(String::from_utf8_lossy(&write_standing(request, &outcome)), by_serde);
        let by_serde = serde_json::to_string(&Denied::new(request, &outcome)).unwrap();
        assert_eq!(String::from_utf8_lossy(&write_denial(request, &outcome, status)), by_serde);
        status.as_u16()
    }

    #[tokio::test]
    async fn what_is_written_is_what_serde_would_write() {
        let rules = rule_file::compile(RULES).unwrap();
        let limiter = Limiter::new(rules, MemoryStore::new(MemoryOptions::default()));
        let asked = |pairs: &[(&'static str, &'static str)], cost| {
            let with = |request: Request<'static>, (name, value): &(&'static str, &'static str)| {
                request.with(*name, *value).unwrap()
            };
            pairs.iter().fold(Request::new(), with).costing(cost)
        };
        let mut seen = Vec::new();
        for (pairs, cost) in [
            (&[("user", "a\"b\\c\n\u{1}ü")][..], 1),
            (&[("user", "42"), ("queue", "mail")], 1),
            (&[("user", "42"), ("queue", "mail")], 1),
            (&[("user", "42"), ("queue", "mail")], 1),
            (&[("user", "42")], 200),
            (&[("user", "banned")], 1),
            (&[("user", "paused")], 1),
            (&[("path", "/")], 1),
            (&[("path", "/")], 1),
            (&[("nobody", "x")], 1),
        ] {
            seen.push(compare(&limiter, &asked(pairs, cost)).await);
        }
        assert_eq!(seen, [200, 200, 200, 429, 422, 403, 403, 200, 429, 200]);
        let failed = Limiter::new(rule_file::compile(RULES).unwrap(), Failed);
        assert_eq!(compare(&failed, &asked(&[("user", "42"), ("path", "/")], 1)).await, 503);
    }
}

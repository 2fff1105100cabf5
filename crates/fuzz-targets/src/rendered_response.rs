//! Fuzz target: renders arbitrary outcomes, and checks their JSON and headers against
//! serde_json.

use checkdam::headers::{self, Dialect};
use checkdam::render;
use checkdam::store::{Operation, Store, Tier, TierDecisions};
use checkdam::{
    Algorithm, Ban, DecidedBy, Decision, Definitions, KeyPattern, Limiter, Mode, Outcome, Quota, Request, Rule,
    RuleSet, Verdict,
};
use serde_json::{Value, json};

use crate::in_memory_http::block_on;
use crate::text_lines;

/// The lines of the input are a user, a reason, the subject of a ban, and then for each rule its
/// name, its scope and its decision: a verdict and seven numbers. Every body parses to the members of
/// the outcome.
pub fn rendered_response(data: &[u8]) {
    let lines = text_lines(data);
    let mut lines = lines.iter().map(String::as_str);
    let mut next = || lines.next().unwrap_or_default();
    let (user, reason, banned) = (next(), next(), next());
    let (mut rules, mut decisions, mut cut_off) = (Vec::new(), Vec::new(), 0_u64);
    for number in 0..4 {
        let (name, scope, decision) = (next(), next(), next());
        let Some((decision, cut)) = parse_decision(decision) else { break };
        let key: KeyPattern = if number % 2 == 0 { "user:{user}" } else { "all" }.parse().expect("the keys are valid");
        let quota = Quota::new("10/s".parse().expect("the quota is valid"), Algorithm::TokenBucket);
        let mut rule = Rule::new(name, key, vec![quota.expect("the quota is valid")]);
        scope.clone_into(&mut rule.scope);
        rule.mode = if number == 2 { Mode::Shadow } else { Mode::Enforce };
        rules.push(rule);
        decisions.push(decision);
        cut_off = cut_off.saturating_add(cut);
    }
    let ban = Ban::new(banned).map(|ban| Ban { reason: reason.to_owned(), ..ban });
    let definitions = Definitions { rules, bans: ban.into_iter().collect(), ..Definitions::default() };
    let Ok(rules) = RuleSet::compile(definitions) else { return };
    let Ok(request) = Request::new().with("user", user) else { return };
    let outcome = block_on(Limiter::new(rules, Decided(decisions, cut_off)).check(&request));
    check_bodies(&request, &outcome);
    check_headers(&outcome);
    let (denial, expected) = (written(|out| render::write_client_denial(out, &outcome)), retry_after_us(&outcome));
    assert_eq!(denial["retry_after_ms"], json!(outcome.retry_after().map(|_| expected.div_ceil(1_000))), "{denial}");
    let (state, is_allowed) = (members(&request, &outcome), outcome.is_allowed());
    let mut batch = written(|out| render::write_batch(out, &[(request, outcome)]));
    let item = batch["results"][0].as_object_mut().expect("a batch has an object for each request");
    assert_eq!(item.remove("status") == Some(json!(200)), is_allowed, "{item:?}");
    assert!(state.as_object().is_some_and(|state| state.iter().all(|(name, value)| item.get(name) == Some(value))));
}

/// 0 if the request passes now, or never.
fn retry_after_us(outcome: &Outcome) -> u64 {
    outcome.retry_after().map_or(0, |wait| u64::try_from(wait.as_micros()).expect("a wait fits"))
}

/// What is written, which must be JSON.
fn written(write: impl FnOnce(&mut String)) -> Value {
    let mut text = String::new();
    write(&mut text);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn check_bodies(request: &Request<'_>, outcome: &Outcome) {
    let expected = members(request, outcome);
    assert_eq!(written(|out| render::write_state(out, request, outcome)), expected);
    if outcome.is_allowed() {
        return;
    }
    let mut body = written(|out| render::write_denial(out, request, outcome));
    let denial = body.as_object_mut().expect("a denial is an object");
    let policies: Vec<_> = outcome.denying().map(|tier| tier.policy_name().to_owned()).collect();
    assert_eq!(denial.remove("violated-policies"), Some(json!(policies)));
    assert_eq!(denial.remove("status"), Some(json!(render::status(outcome.verdict()))));
    for name in ["type", "title", "detail"] {
        let text = denial.remove(name);
        assert!(text.is_some_and(|text| text.as_str().is_some_and(|text| !text.is_empty())), "{name}");
    }
    assert_eq!(body, expected);
}

/// Every header is a valid one, and only a denial says when to retry.
fn check_headers(outcome: &Outcome) {
    let mut headers = http::HeaderMap::new();
    headers::write(outcome, Dialect::Both, |name, value| {
        headers.insert(name, value.parse().expect("a header has a valid value"));
    });
    let has_retry_after = match outcome.verdict() {
        Verdict::Denied | Verdict::Unavailable => true,
        Verdict::Banned => retry_after_us(outcome) > 0,
        Verdict::Allowed | Verdict::CostExceedsBurst => false,
    };
    assert_eq!(headers.contains_key("retry-after"), has_retry_after, "{headers:?}");
}

/// The members of a response, by the outcome's own methods.
fn members(request: &Request<'_>, outcome: &Outcome) -> Value {
    let millis = |us: u64| us.div_ceil(1_000);
    let governing = outcome.governing();
    let tiers = outcome.tiers().map(|tier| {
        let mut members = json!({
            "rule": tier.rule.name, "scope": tier.rule.scope, "subject": tier.rule.key.render(request),
            "limit_name": tier.quota.to_string(),
            "allowed": tier.decision.is_allowed(), "limit": tier.decision.limit, "remaining": tier.decision.remaining,
            "retry_after_ms": tier.decision.retry_after().map(|_| millis(tier.decision.retry_after_us)),
            "reset_after_ms": millis(tier.decision.reset_after_us),
        });
        if tier.decision.debt > 0 {
            members["debt"] = tier.decision.debt.into();
        }
        if tier.rule.mode == Mode::Shadow {
            members["shadow"] = true.into();
        }
        members
    });
    let mut members = json!({
        "allowed": outcome.is_allowed(),
        "limit": governing.map(|tier| tier.decision.limit),
        "remaining": governing.map(|tier| tier.decision.remaining),
        "retry_after_ms": outcome.retry_after().map(|_| millis(retry_after_us(outcome))),
        "reset_after_ms": governing.map_or(0, |tier| millis(tier.decision.reset_after_us)),
        "violated": outcome.violated().map(|tier| tier.rule.name.clone()),
        "decided_by": outcome.decided_by().name(),
        "tiers": tiers.collect::<Vec<_>>(),
    });
    if outcome.delay_us() > 0 {
        members["delay_ms"] = millis(outcome.delay_us()).into();
    }
    if outcome.cut_off() > 0 {
        members["cut_off"] = outcome.cut_off().into();
    }
    if let Some(ban) = outcome.ban() {
        members["ban"] = json!({"subject": ban.subject(), "reason": ban.reason, "until": null});
    }
    members
}

/// A verdict and up to seven numbers; the last is what was cut off.
fn parse_decision(line: &str) -> Option<(Decision, u64)> {
    let mut words = line.split(' ');
    let verdict = match words.next()? {
        "allowed" => Verdict::Allowed,
        "denied" => Verdict::Denied,
        "exceeds" => Verdict::CostExceedsBurst,
        "unavailable" => Verdict::Unavailable,
        _ => return None,
    };
    let mut number = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    let (limit, remaining, retry_after_us) = (number(), number(), number());
    let (reset_after_us, delay_us, debt) = (number(), number(), number());
    let decision = Decision { verdict, limit, remaining, debt, retry_after_us, reset_after_us, delay_us };
    Some((decision, number()))
}

/// A store with these decisions, and what it cut off.
struct Decided(Vec<Decision>, u64);

impl Store for Decided {
    async fn apply(&self, _: Operation, tiers: &[Tier<'_>]) -> TierDecisions {
        let decisions = self.0.iter().take(tiers.len()).copied().collect();
        TierDecisions { decisions, at_us: 0, by: DecidedBy::Memory, cut_off: self.1 }
    }
}

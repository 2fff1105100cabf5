//! Rate-limit response headers.
//!
//! Two forms: the customary `X-RateLimit-*`, and `RateLimit` and `RateLimit-Policy`
//! (draft-ietf-httpapi-ratelimit-headers-11). Parts that do not depend on the request
//! are rendered once, when the rules are compiled.

use crate::decision::Verdict;
use crate::outcome::{Outcome, TierView};
use crate::ruleset::FIELD_MAX;
use crate::small_buffer::SmallBuffer;
use crate::time::{EPOCH_UNIX_US, SECOND_US};

/// Which headers are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// Both families.
    #[default]
    Both,
    /// `X-RateLimit-*` only.
    X,
    /// `RateLimit` and `RateLimit-Policy` only.
    Ietf,
    /// Neither; `Retry-After` stays.
    None,
}

/// The maximum number of policies listed: proxies reject long headers.
const POLICIES_MAX: usize = 32;

/// Calls `set` with each header of an outcome, allowed or denied. There are none for
/// a request that no rule applies to, and only `Retry-After` for one that is banned
/// for a time.
pub fn write(outcome: &Outcome, dialect: Dialect, mut set: impl FnMut(&'static str, &str)) {
    let mut number = itoa::Buffer::new();
    if outcome.verdict() == Verdict::Banned && retry_after_us(outcome) > 0 {
        set("retry-after", number.format(retry_after_seconds(outcome)));
    }
    let Some(tier) = outcome.governing() else { return };
    if matches!(dialect, Dialect::Both | Dialect::X) {
        set("x-ratelimit-limit", number.format(tier.decision.limit));
        set("x-ratelimit-remaining", number.format(tier.decision.remaining));
        let reset_us = (EPOCH_UNIX_US + outcome.at_us()).saturating_add(tier.decision.reset_after_us);
        set("x-ratelimit-reset", number.format(reset_us.div_ceil(SECOND_US)));
    }
    if matches!(dialect, Dialect::Both | Dialect::Ietf) {
        let mut text = SmallBuffer::new();
        for tier in outcome.tiers().filter(TierView::is_enforced).take(POLICIES_MAX) {
            if !text.is_empty() {
                text.push_str(", ");
            }
            if tier.decision.limit == tier.quota.limit() {
                text.push_str(&tier.policy.policy);
            } else {
                // A share of the quota was applied: as much less in the same time.
                text.push_str(&tier.policy.name);
                text.push_str(";q=");
                text.push_str(number.format(tier.decision.limit.min(FIELD_MAX)));
                text.push_str(&tier.policy.window);
            }
        }
        set("ratelimit-policy", text.as_str());
        text.clear();
        text.push_str(&tier.policy.name);
        text.push_str(";r=");
        text.push_str(number.format(tier.decision.remaining.min(FIELD_MAX)));
        // Retry-After must never be earlier than t.
        let until_us = match outcome.verdict() {
            Verdict::Allowed => tier.decision.reset_after_us,
            Verdict::Denied | Verdict::Unavailable => tier.decision.retry_after_us,
            Verdict::CostExceedsBurst | Verdict::Banned => 0,
        };
        text.push_str(";t=");
        text.push_str(number.format(until_us.div_ceil(SECOND_US)));
        set("ratelimit", text.as_str());
    }
    if matches!(outcome.verdict(), Verdict::Denied | Verdict::Unavailable) {
        set("retry-after", number.format(retry_after_seconds(outcome)));
    }
}

/// `Retry-After` in whole seconds, rounded up, so that a client that obeys it
/// passes.
#[must_use]
pub fn retry_after_seconds(outcome: &Outcome) -> u64 {
    retry_after_us(outcome).div_ceil(SECOND_US)
}

/// [`Outcome::retry_after`] as a number, which is 0 both for a request that passes and for
/// one that never will.
#[must_use]
pub fn retry_after_us(outcome: &Outcome) -> u64 {
    let wait = outcome.retry_after().unwrap_or_default();
    wait.as_secs() * SECOND_US + u64::from(wait.subsec_micros())
}

//! Converts outcomes to statuses and headers of a rate limit response.

use checkdam::headers::retry_after_us;
use checkdam::time::{EPOCH_UNIX_US, SECOND_US};
use checkdam::{Algorithm, Align, DescriptorAllowance, Outcome, Quota, TierView, Unit, Verdict};

use super::request::UNITS;
use crate::config::HeaderNames;
use checkdam_envoy_proto::{Code, DescriptorStatus, HeaderValue, LimitUnit, RateLimit};

pub(super) fn status(outcome: &Outcome) -> DescriptorStatus {
    let code = if outcome.is_allowed() { Code::Ok } else { Code::OverLimit }.into();
    if is_unlimited(outcome) && outcome.is_allowed() && outcome.tiers().len() == 0 {
        return DescriptorStatus { code, limit_remaining: u32::MAX, ..DescriptorStatus::default() };
    }
    // A limit in shadow mode never governs, and is reported all the same.
    let Some(tier) = outcome.governing().or_else(|| outcome.tiers().next()) else {
        let wait = retry_after_us(outcome);
        let duration_until_reset = (wait > 0).then(|| duration(wait));
        return DescriptorStatus { code, duration_until_reset, ..DescriptorStatus::default() };
    };
    let decision = tier.decision;
    DescriptorStatus {
        code,
        current_limit: Some(RateLimit {
            requests_per_unit: clamp_to_u32(decision.limit),
            unit: unit(tier.quota, decision.limit).into(),
            name: limit_name(&tier),
        }),
        limit_remaining: if decision.is_allowed() { clamp_to_u32(decision.remaining) } else { 0 },
        duration_until_reset: Some(duration(until_reset_us(&tier, outcome.at_us()))),
    }
}

/// The rate-limit headers: of the descriptor that denies the request, otherwise of
/// the one with the least remaining. `is_quota` marks descriptors that do not deny
/// individually.
pub(super) fn headers(names: &HeaderNames, statuses: &[DescriptorStatus], is_quota: &[bool]) -> Vec<HeaderValue> {
    let limited = statuses.iter().zip(is_quota).filter(|(status, _)| status.current_limit.is_some());
    let nearest = limited.min_by_key(|(status, is_quota)| {
        let denies = status.code() == Code::OverLimit && !**is_quota;
        (!denies, status.limit_remaining, std::cmp::Reverse(until_reset_s(status)))
    });
    let Some((status, _)) = nearest else { return Vec::new() };
    let limit = status.current_limit.as_ref().map_or(0, |limit| limit.requests_per_unit);
    let header = |key: &str, value: String| HeaderValue { key: key.to_owned(), value };
    vec![
        header(&names.limit, limit.to_string()),
        header(&names.remaining, status.limit_remaining.to_string()),
        header(&names.reset, until_reset_s(status).to_string()),
    ]
}

/// Whether the limit that it matched lets everything pass.
pub(super) fn is_unlimited(outcome: &Outcome) -> bool {
    let limit = outcome.descriptor().and_then(|descriptor| descriptor.limit.as_ref());
    limit.is_some_and(|limit| limit.allowance == DescriptorAllowance::Unlimited)
}

/// The limit's name as it is written. A limit of a tree may have none: the rule that
/// represents it has its own name, and the limit's name as its description.
fn limit_name(tier: &TierView<'_>) -> String {
    let rule = tier.rule;
    if rule.scope == "descriptor" { rule.description.clone() } else { rule.name.clone() }
}

/// The unit of the limit, if there is one: a bucket that holds more or less than a
/// period's worth has none.
fn unit(quota: &Quota, limit: u64) -> LimitUnit {
    let is_per_period = quota.spec().amount == limit || limit == 0;
    let unit = Unit::of_period(quota.period_us()).filter(|_| is_per_period);
    let found = UNITS.iter().find(|(known, _)| Some(*known) == unit);
    found.map_or(LimitUnit::Unknown, |(_, unit)| *unit)
}

/// For a fixed window, when it ends. Else when the request could pass, or if it
/// did, when nothing is owed any more.
fn until_reset_us(tier: &TierView<'_>, at_us: u64) -> u64 {
    let decision = tier.decision;
    let is_window = tier.quota.algorithm() == Algorithm::FixedWindow && tier.quota.spec().align == Align::Epoch;
    if is_window && decision.verdict != Verdict::Unavailable {
        let period_us = tier.quota.period_us();
        return period_us - (EPOCH_UNIX_US + at_us) % period_us;
    }
    if decision.is_allowed() { decision.reset_after_us } else { decision.retry_after_us }
}

fn until_reset_s(status: &DescriptorStatus) -> i64 {
    status.duration_until_reset.map_or(0, |until| until.seconds)
}

fn duration(us: u64) -> prost_types::Duration {
    prost_types::Duration { seconds: us.div_ceil(SECOND_US).cast_signed(), nanos: 0 }
}

fn clamp_to_u32(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

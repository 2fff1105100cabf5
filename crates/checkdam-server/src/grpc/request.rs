//! Converts descriptors of a rate limit request to requests of the limiter.

use checkdam::{LIMIT_MAX, Request, RequestLimit, Unit};

use super::decision_error::DecisionError;
use super::proto::{LimitUnit, RateLimitDescriptor, RateLimitRequest};

/// The most descriptors in a request: each may be a tier, and no store charges
/// more at once. Envoy's configuration says how many there are, not its clients.
pub(super) const DESCRIPTORS_MAX: usize = checkdam::TIERS_MAX;

/// The requests in the descriptors of a message.
#[derive(Debug)]
pub(super) struct DescriptorRequests<'a> {
    /// What is to be charged, in the order of the descriptors.
    pub(super) checks: Vec<Request<'a>>,
    /// Refunds, each with the index of its descriptor.
    pub(super) refunds: Vec<(usize, Request<'a>)>,
}

/// Reads the descriptors, in their order. One without entries matches no limit, as
/// in envoyproxy/ratelimit: an error would let the whole request pass. `is_quota`
/// says that they deny only all together.
pub(super) fn read(message: &RateLimitRequest, is_quota: bool) -> Result<DescriptorRequests<'_>, DecisionError> {
    if message.domain.is_empty() {
        return Err(DecisionError::NoDomain);
    }
    match message.descriptors.len() {
        0 => return Err(DecisionError::NoDescriptors),
        count if count > DESCRIPTORS_MAX => return Err(DecisionError::TooManyDescriptors { count }),
        _ => {}
    }
    let mut asked = DescriptorRequests { checks: Vec::with_capacity(message.descriptors.len()), refunds: Vec::new() };
    for (index, descriptor) in message.descriptors.iter().enumerate() {
        let request = descriptor.to_request(message, index)?;
        let request = if is_quota { request.in_quota_mode() } else { request };
        if descriptor.is_negative_hits {
            asked.refunds.push((index, request));
        } else {
            asked.checks.push(request);
        }
    }
    Ok(asked)
}

impl RateLimitDescriptor {
    fn to_request<'a>(&'a self, message: &'a RateLimitRequest, index: usize) -> Result<Request<'a>, DecisionError> {
        // Invalid UTF-8 is replaced: sending it must not make a request unlimited.
        let entries = self.entries.iter().map(|entry| (entry.key.as_str(), String::from_utf8_lossy(&entry.value)));
        let request = Request::from_entries(message.domain.as_str(), entries)
            .map_err(|reason| DecisionError::Entries { index, reason })?;
        let request = match &self.limit {
            Some(limit) => {
                let unit = unit(limit.unit).ok_or(DecisionError::Unit { index, unit: limit.unit })?;
                request.with_limit(RequestLimit { amount: limit.requests_per_unit, unit })
            }
            None => request,
        };
        // A cost of 0 is a peek, but only if the descriptor itself has it.
        let cost = self.hits_addend.unwrap_or_else(|| u64::from(message.hits_addend).max(1));
        // More than any limit can hold is over every limit.
        Ok(request.costing(cost.min(LIMIT_MAX)))
    }
}

/// The unit of a request limit. Its own enum has no week; the number of a week in
/// responses is unambiguous.
fn unit(number: i32) -> Option<Unit> {
    match LimitUnit::try_from(number).ok()? {
        LimitUnit::Unknown => None,
        LimitUnit::Second => Some(Unit::Second),
        LimitUnit::Minute => Some(Unit::Minute),
        LimitUnit::Hour => Some(Unit::Hour),
        LimitUnit::Day => Some(Unit::Day),
        LimitUnit::Week => Some(Unit::Week),
        LimitUnit::Month => Some(Unit::Month),
        LimitUnit::Year => Some(Unit::Year),
    }
}

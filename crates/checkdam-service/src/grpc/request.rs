//! Converts descriptors of a rate limit request to requests of the limiter.

use checkdam::{LIMIT_MAX, Request, RequestError, RequestLimit, Unit};
use tonic::Code;

use checkdam_envoy_proto::{LimitUnit, RateLimitDescriptor, RateLimitRequest};

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
        let request = to_request(descriptor, message, index)?;
        let request = if is_quota { request.in_quota_mode() } else { request };
        if descriptor.is_negative_hits {
            asked.refunds.push((index, request));
        } else {
            asked.checks.push(request);
        }
    }
    Ok(asked)
}

fn to_request<'a>(
    descriptor: &'a RateLimitDescriptor,
    message: &'a RateLimitRequest,
    index: usize,
) -> Result<Request<'a>, DecisionError> {
    // Invalid UTF-8 is replaced: sending it must not make a request unlimited.
    let entries = descriptor.entries.iter().map(|entry| (entry.key.as_str(), String::from_utf8_lossy(&entry.value)));
    let request = Request::from_entries(message.domain.as_str(), entries)
        .map_err(|reason| DecisionError::Entries { index, reason })?;
    let request = match &descriptor.limit {
        Some(limit) => {
            let unit = unit(limit.unit).ok_or(DecisionError::Unit { index, unit: limit.unit })?;
            request.with_limit(RequestLimit { amount: limit.requests_per_unit, unit })
        }
        None => request,
    };
    // More than any limit can hold is over every limit.
    Ok(match descriptor.hits_addend {
        // Envoy sends it when it is known what a request used, and 0 to ask on arrival: it is
        // charged whether it fits or not.
        Some(used) if !descriptor.is_negative_hits => request.costing(used.min(LIMIT_MAX)).metered(),
        Some(refunded) => request.costing(refunded.min(LIMIT_MAX)),
        None => request.costing(u64::from(message.hits_addend).clamp(1, LIMIT_MAX)),
    })
}

/// The units as Envoy numbers them. The enum of request limits has no week; the number of
/// a week in responses is unambiguous.
pub(super) const UNITS: [(Unit, LimitUnit); 7] = [
    (Unit::Second, LimitUnit::Second),
    (Unit::Minute, LimitUnit::Minute),
    (Unit::Hour, LimitUnit::Hour),
    (Unit::Day, LimitUnit::Day),
    (Unit::Week, LimitUnit::Week),
    (Unit::Month, LimitUnit::Month),
    (Unit::Year, LimitUnit::Year),
];

fn unit(number: i32) -> Option<Unit> {
    let found = UNITS.iter().find(|(_, unit)| i32::from(*unit) == number);
    found.map(|(unit, _)| *unit)
}

/// Why nothing was decided.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecisionError {
    #[error("the domain is empty: give the one that the limits are written for")]
    NoDomain,
    #[error("there are no descriptors: give at least one")]
    NoDescriptors,
    #[error("there are {count} descriptors: at most {DESCRIPTORS_MAX} fit")]
    TooManyDescriptors { count: usize },
    #[error("{reason}")]
    Entries { index: usize, reason: RequestError },
    #[error("the unit {unit} is unknown: use 1 to 6 for second, minute, hour, day, month and year, or 7 for week")]
    Unit { index: usize, unit: i32 },
    #[error("there are no rules yet")]
    NoRules,
}

impl DecisionError {
    /// The invalid field of the request; none if the cause is elsewhere.
    pub fn field(&self) -> Option<String> {
        match self {
            Self::NoDomain => Some("domain".to_owned()),
            Self::NoDescriptors | Self::TooManyDescriptors { .. } => Some("descriptors".to_owned()),
            Self::Entries { index, .. } => Some(format!("descriptors[{index}].entries")),
            Self::Unit { index, .. } => Some(format!("descriptors[{index}].limit.unit")),
            Self::NoRules => None,
        }
    }
}

impl From<DecisionError> for tonic::Status {
    fn from(error: DecisionError) -> Self {
        match error.field() {
            Some(field) => Self::new(Code::InvalidArgument, format!("{field}: {error}")),
            None => Self::new(Code::Unavailable, error.to_string()),
        }
    }
}

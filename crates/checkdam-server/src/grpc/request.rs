//! What is asked: descriptors become requests.

use checkdam::{GivenLimit, LIMIT_MAX, Request, Unit};

use super::messages::{LimitUnit, RateLimitDescriptor, RateLimitRequest};
use super::refusal::Refusal;

/// The most descriptors in a request: each may be a tier, and no store charges
/// more at once. Envoy's configuration says how many there are, not its clients.
pub(super) const DESCRIPTORS_MAX: usize = checkdam::TIERS_MAX;

/// One descriptor.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) request: Request<'a>,
    /// Whether its cost is given back instead of charged.
    pub(super) is_refund: bool,
}

/// Reads the descriptors, in their order.
pub(super) fn read(message: &RateLimitRequest) -> Result<Vec<Asked<'_>>, Refusal> {
    if message.domain.is_empty() {
        return Err(Refusal::NoDomain);
    }
    match message.descriptors.len() {
        0 => return Err(Refusal::NoDescriptors),
        count if count > DESCRIPTORS_MAX => return Err(Refusal::TooManyDescriptors { count }),
        _ => {}
    }
    let descriptors = message.descriptors.iter().enumerate();
    descriptors.map(|(index, descriptor)| descriptor.asked(message, index)).collect()
}

impl RateLimitDescriptor {
    fn asked<'a>(&'a self, message: &'a RateLimitRequest, index: usize) -> Result<Asked<'a>, Refusal> {
        if self.entries.is_empty() {
            return Err(Refusal::NoEntries { index });
        }
        // What is no text is read as some: who sends it must not pass unlimited.
        let entries = self.entries.iter().map(|entry| (entry.key.as_str(), String::from_utf8_lossy(&entry.value)));
        let request = Request::of_entries(message.domain.as_str(), entries)
            .map_err(|reason| Refusal::Entries { index, reason })?;
        let request = match &self.limit {
            Some(limit) => {
                let unit = unit(limit.unit).ok_or(Refusal::Unit { index, unit: limit.unit })?;
                request.limited_to(GivenLimit { amount: limit.requests_per_unit, unit })
            }
            None => request,
        };
        // A cost of 0 asks without charging, but only if the descriptor says so.
        let cost = self.hits_addend.unwrap_or_else(|| u64::from(message.hits_addend).max(1));
        // More than any limit can hold is over every limit.
        Ok(Asked { request: request.costing(cost.min(LIMIT_MAX)), is_refund: self.is_negative_hits })
    }
}

/// The unit of a limit that is brought along. Its own enum has no week; the
/// number of a week in answers can mean nothing else.
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

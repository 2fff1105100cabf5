//! Privileged rate limit requests, where the gRPC listener does not accept them: what
//! makes them privileged is ignored, and the rest is decided.
//!
//! An error would be worse. By default Envoy lets a request pass on an error, so that no
//! limit would apply to it, not even those of its other descriptors.

use checkdam_envoy_proto::RateLimitRequest;

/// The warning for operators.
pub(super) const IGNORED: &str = "rate limit requests contain limits or refunds (descriptors[].limit, \
     is_negative_hits), which the gRPC listener ignores: the limits of the rules count, and nothing is refunded; set \
     --privileged-requests allow, give Envoy an API token or a client certificate, or change Envoy's configuration";

/// The message without request limits, and with peeks in place of refunds; none if it has
/// neither.
pub(super) fn without(message: &RateLimitRequest) -> Option<RateLimitRequest> {
    let is_privileged = |descriptor: &checkdam_envoy_proto::RateLimitDescriptor| {
        descriptor.limit.is_some() || descriptor.is_negative_hits
    };
    if !message.descriptors.iter().any(is_privileged) {
        return None;
    }
    let mut message = message.clone();
    for descriptor in &mut message.descriptors {
        descriptor.limit = None;
        if std::mem::take(&mut descriptor.is_negative_hits) {
            // A cost of 0 is a peek.
            descriptor.hits_addend = Some(0);
        }
    }
    Some(message)
}

#[cfg(test)]
mod tests {
    use checkdam_envoy_proto::{RateLimitDescriptor, RateLimitOverride};

    use super::*;

    #[test]
    fn limits_are_left_out_and_refunds_become_peeks() {
        let plain = RateLimitDescriptor { hits_addend: Some(3), ..RateLimitDescriptor::default() };
        let message = |descriptors: &[RateLimitDescriptor]| RateLimitRequest {
            domain: "edge".to_owned(),
            descriptors: descriptors.to_vec(),
            hits_addend: 2,
        };
        assert_eq!(without(&message(std::slice::from_ref(&plain))), None);
        let limit = Some(RateLimitOverride { requests_per_unit: 1_000, unit: 1 });
        let limited = RateLimitDescriptor { limit, ..plain.clone() };
        let refund = RateLimitDescriptor { is_negative_hits: true, ..plain.clone() };
        let peek = RateLimitDescriptor { hits_addend: Some(0), ..plain.clone() };
        assert_eq!(without(&message(&[limited, plain.clone(), refund])), Some(message(&[plain.clone(), plain, peek])));
    }
}

//! Attributes that identify the clients of a sample, to tell limits of one client
//! from shared limits.

use std::collections::HashMap;

use checkdam::{Request, Rule};

use crate::telemetry::{IDENTITIES, SampledRequest};

/// How many entries there are by what they are known by, and by which of
/// [`IDENTITIES`] they have.
#[derive(Debug)]
pub(super) struct ClientAttributes(HashMap<(&'static str, u32), u64>);

impl ClientAttributes {
    pub(super) fn from_sample(entries: &[SampledRequest<'_>]) -> Self {
        let mut counts = HashMap::new();
        for entry in entries.iter().map(|one| one.entry) {
            let Some(requests) = entry.requests() else { continue };
            let has = identity_bits(|name| requests.iter().any(|request: &Request<'_>| request.get(name).is_some()));
            *counts.entry((entry.identity().unwrap_or_default(), has)).or_default() += 1;
        }
        Self(counts)
    }

    /// Whether a rule counts per client, so that all of a client's requests are in the
    /// sample. It does if its key names the attribute that identifies clients; if that
    /// differs between the requests that it can apply to, by majority.
    pub(super) fn is_per_client(&self, rule: &Rule) -> bool {
        let key = identity_bits(|name| rule.key.attributes().any(|known| known == name));
        let (mut own, mut shared) = (0, 0);
        for ((identity, has), count) in &self.0 {
            if has & key == key {
                let is_named = rule.key.attributes().any(|name| name == *identity);
                *if is_named { &mut own } else { &mut shared } += count;
            }
        }
        own > shared
    }
}

/// Those of [`IDENTITIES`] for which it is so, one bit each.
fn identity_bits(is_so: impl Fn(&str) -> bool) -> u32 {
    IDENTITIES.iter().zip(0..).filter(|(name, _)| is_so(name)).map(|(_, place)| 1 << place).sum()
}

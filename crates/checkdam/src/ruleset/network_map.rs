//! Index of CIDR networks: finds all that contain an address.

use std::net::IpAddr;

use ipnet::IpNet;

use super::index::Map;
use crate::rule::parse_network;

/// Values by network: one lookup for every prefix length in use.
#[derive(Debug, Default)]
pub(super) struct NetworkMap<T> {
    four: AddressFamily<T>,
    six: AddressFamily<T>,
}

/// The networks of one kind of address.
#[derive(Debug, Default)]
struct AddressFamily<T> {
    /// The lengths that networks have, ascending, once each.
    lengths: Vec<u8>,
    filed: Map<(u8, u128), T>,
}

impl<T: Default> NetworkMap<T> {
    /// What is filed under a network, for more to be added.
    pub(super) fn entry(&mut self, network: IpNet) -> &mut T {
        let (address, length) = (network.network(), network.prefix_len());
        let family = if address.is_ipv4() { &mut self.four } else { &mut self.six };
        if let Err(place) = family.lengths.binary_search(&length) {
            family.lengths.insert(place, length);
        }
        family.filed.entry((length, bits(address) & mask(length))).or_default()
    }

    /// Calls `found` with all that is filed under networks of which `value` is
    /// an address, or a part.
    pub(super) fn find(&self, value: &str, mut found: impl FnMut(&T)) {
        if self.four.lengths.is_empty() && self.six.lengths.is_empty() {
            return;
        }
        let Some(own) = parse_network(value) else { return };
        let address = own.network();
        let (family, bits) = (if address.is_ipv4() { &self.four } else { &self.six }, bits(address));
        for length in family.lengths.iter().take_while(|length| **length <= own.prefix_len()) {
            if let Some(filed) = family.filed.get(&(*length, bits & mask(*length))) {
                found(filed);
            }
        }
    }
}

/// The address's bits, the first of them uppermost.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(four) => u128::from(four.to_bits()) << 96,
        IpAddr::V6(six) => six.to_bits(),
    }
}

/// The uppermost `length` bits.
fn mask(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

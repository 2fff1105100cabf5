//! Addresses in X-Forwarded-For, and the address that limits go by.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use axum::http::header::{HeaderMap, HeaderName};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// One client has a network of this length: every address in it is the same.
const SUBJECT_MASK: u128 = u128::MAX << 64;

/// What X-Forwarded-For lists, the last addition first: an address, or `None` for
/// an entry that is none. Several such headers are one list.
pub(super) fn from_the_right(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    let lists = headers.get_all(X_FORWARDED_FOR).iter().rev();
    let entries = lists.flat_map(|list| list.as_bytes().rsplit(|byte| *byte == b','));
    entries.map(<[u8]>::trim_ascii).filter(|entry| !entry.is_empty()).map(parse)
}

/// The address that limits go by: IPv4, or an IPv6 network's first.
pub(super) fn subject(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => Ipv6Addr::from_bits(six.to_bits() & SUBJECT_MASK).into(),
        four => four,
    }
}

/// An address as proxies write it: bare, in brackets, or with a port.
fn parse(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().or_else(|_| text.parse::<SocketAddr>().map(|address| address.ip())).ok()?;
    Some(address.to_canonical())
}

//! Parses addresses of `X-Forwarded-For`.

use std::net::{IpAddr, SocketAddr};

use axum::http::header::{HeaderMap, HeaderName};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// What X-Forwarded-For lists, the last addition first: an address, or `None` for
/// an entry that is none. Several such headers are one list.
pub(super) fn addresses_from_right(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    let lists = headers.get_all(X_FORWARDED_FOR).iter().rev();
    let entries = lists.flat_map(|list| list.as_bytes().rsplit(|byte| *byte == b','));
    entries.map(<[u8]>::trim_ascii).filter(|entry| !entry.is_empty()).map(parse)
}

/// An address as proxies write it: bare, in brackets, or with a port.
fn parse(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().or_else(|_| text.parse::<SocketAddr>().map(|address| address.ip())).ok()?;
    Some(address.to_canonical())
}

/// An address as text, without the machinery that formats anything.
pub(crate) fn address_text(address: IpAddr) -> String {
    let IpAddr::V4(address) = address else { return address.to_string() };
    let mut text = String::with_capacity("255.255.255.255".len());
    for (place, part) in address.octets().into_iter().enumerate() {
        if place > 0 {
            text.push('.');
        }
        text.push_str(itoa::Buffer::new().format(part));
    }
    text
}

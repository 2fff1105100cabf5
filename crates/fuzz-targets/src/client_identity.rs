//! Fuzz target: derivation of the client address from a peer and `X-Forwarded-For`, and
//! normalization of paths and hosts.

use std::net::{IpAddr, Ipv6Addr};

use checkdam::normalize::{self, PathNormalization, Slashes, client_address};
use checkdam_service::client_identity::{ClientIdentity, DescribedRequest};
use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;

use crate::split_line;

const TRUSTED: [&str; 2] = ["10.0.0.0/8", "fd00::/8"];

/// The lines of the input are the peer's address, the request target and the host; each line after
/// them is a header `X-Forwarded-For`. Normal forms are their own normal forms, and the client is
/// never left of the right-most address that is not trusted.
pub fn client_identity(data: &[u8]) {
    let (peer, rest) = split_line(data);
    let (target, rest) = split_line(rest);
    let (host, forwarded) = split_line(rest);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (target, host) = (text(target), text(host));
    check_normal_forms(&target, &host);
    let peer: IpAddr = text(peer).parse().unwrap_or([10, 0, 0, 1].into());
    let lines: Vec<_> = forwarded.split(|byte| *byte == b'\n').collect();
    let lines: Vec<_> = lines.into_iter().filter(|line| HeaderValue::from_bytes(line).is_ok()).take(200).collect();
    let mut headers = HeaderMap::new();
    for line in &lines {
        let value = HeaderValue::from_bytes(line).expect("it was checked");
        headers.append(HeaderName::from_static("x-forwarded-for"), value);
    }
    let trusted: Vec<IpNet> = TRUSTED.map(|network| network.parse().expect("the networks are valid")).to_vec();
    let paths = PathNormalization::AS_WRITTEN;
    let identity = ClientIdentity { trusted: trusted.clone(), headers: Vec::new(), cost_header: None, paths };
    let client = identity.client_ip(peer, &headers);
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(&address));
    assert_eq!(client, expected_client(peer, &lines, is_trusted), "{peer}, {headers:?}");
    assert_eq!(client, client_address(client), "{client} is in its normal form");
    let asked = DescribedRequest { method: "GET", target: &target, host: Some(&host), headers: &headers, peer };
    if let Ok(request) = identity.request(asked) {
        assert_eq!(request.get("ip"), Some(&*client.to_string()));
        assert!(request.get("endpoint").is_some_and(|path| path.starts_with('/') || path == "*"), "{target}");
    }
}

/// The client by a walk from the left: the right-most entry that is not trusted, or the entry right
/// of it if it is no address.
fn expected_client(peer: IpAddr, lines: &[&[u8]], is_trusted: impl Fn(IpAddr) -> bool) -> IpAddr {
    let entries = lines.iter().flat_map(|line| line.split(|byte| *byte == b','));
    let entries: Vec<_> = entries.map(<[u8]>::trim_ascii).filter(|entry| !entry.is_empty()).collect();
    let mut addresses: Vec<_> = entries.into_iter().map(address).collect();
    addresses.push(Some(peer.to_canonical()));
    let is_stranger = |address: &Option<IpAddr>| address.is_none_or(|address| !is_trusted(address));
    let client = match addresses.iter().rposition(is_stranger) {
        Some(place) => addresses[place].or_else(|| addresses.get(place + 1).copied().flatten()),
        None => addresses[0],
    };
    client_address(client.expect("the peer has an address"))
}

/// An address by itself, in brackets, or with a port.
fn address(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let with_port = || text.parse().ok().map(|address: std::net::SocketAddr| address.ip());
    bare.parse().ok().or_else(with_port).map(|address: IpAddr| address.to_canonical())
}

/// Whether a text is a host: what others become is not defined.
fn is_host(text: &str) -> bool {
    let six = text.split_once('[').map(|(_, rest)| rest.split(']').next().unwrap_or(rest));
    let is_bracketed_right = six.is_none_or(|six| six.parse::<Ipv6Addr>().is_ok());
    text.parse::<http::uri::Authority>().is_ok() && is_bracketed_right
}

fn check_normal_forms(path: &str, host: &str) {
    for slashes in [Slashes::Reject, Slashes::Keep, Slashes::Decode] {
        for bits in 0..8 {
            let forms = PathNormalization {
                slashes,
                are_parameters_stripped: bits & 1 != 0,
                is_trailing_slash_stripped: bits & 2 != 0,
                is_lower_case: bits & 4 != 0,
            };
            let Ok(normal) = forms.endpoint(path) else { continue };
            assert_eq!(forms.endpoint(&normal).as_ref(), Ok(&normal), "{path:?} by {forms:?}");
            assert!(!forms.has_dot_segments(&normal), "{path:?} by {forms:?}");
        }
    }
    if let Some(normal) = normalize::host(host).filter(|_| is_host(host)) {
        assert_eq!(normalize::host(&normal).as_ref(), Some(&normal), "{host:?}");
    }
    let method = normalize::method(path);
    assert_eq!(normalize::method(&method), method, "{path:?}");
}

//! The client address of a request: the connection's peer, or an `X-Forwarded-For`
//! entry that trusted proxies have written. Entries that the client itself wrote are
//! never used.

use std::net::{IpAddr, SocketAddr};

use http::HeaderValue;
use http::request::Parts;
use ipnet::IpNet;

use crate::normalize::forwarded_client;

type Peer = Box<dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync>;

/// How the address of a request's client is found.
///
/// IPv6 addresses count by their /64: see [`client_address`](crate::normalize::client_address).
pub struct Address {
    peer: Peer,
    trusted: Vec<IpNet>,
}

impl Address {
    /// The peer is the [`SocketAddr`] in the request's extensions, if the server has put
    /// one there. axum and tonic put another type there: without [`of`](Self::of) there
    /// is no address, and rules that need one never apply.
    #[must_use]
    pub fn peer() -> Self {
        Self::of(|parts| parts.extensions.get::<SocketAddr>().map(SocketAddr::ip))
    }

    /// The peer is returned by a closure: with axum
    /// `parts.extensions.get::<ConnectInfo<SocketAddr>>()`, with tonic
    /// `parts.extensions.get::<TcpConnectInfo>()`.
    pub fn of(peer: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        Self { peer: Box::new(peer), trusted: Vec::new() }
    }

    /// Trusts `X-Forwarded-For` as far as proxies in these networks wrote it: from the
    /// right, the first address that is in none of them. Without this, the header is
    /// ignored.
    #[must_use]
    pub fn behind(mut self, trusted: impl IntoIterator<Item = IpNet>) -> Self {
        self.trusted.extend(trusted);
        self
    }

    /// The client's address.
    pub(super) fn read(&self, parts: &Parts) -> Option<IpAddr> {
        let peer = (self.peer)(parts)?;
        let lines = parts.headers.get_all("x-forwarded-for").iter().map(HeaderValue::as_bytes);
        let is_trusted = |address| self.trusted.iter().any(|network| network.contains(&address));
        Some(forwarded_client(peer, lines, is_trusted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trusted networks, peer, lines of X-Forwarded-For, client.
    const CASES: &[(&[&str], &str, &[&str], &str)] = &[
        (&[], "198.51.100.7", &["203.0.113.9"], "198.51.100.7"),
        (&["10.0.0.0/8"], "198.51.100.7", &["203.0.113.9"], "198.51.100.7"),
        (&["10.0.0.0/8"], "10.0.0.1", &["203.0.113.9"], "203.0.113.9"),
        (&["10.0.0.0/8"], "10.0.0.1", &["1.1.1.1, 203.0.113.9, 10.2.3.4"], "203.0.113.9"),
        (&["10.0.0.0/8"], "10.0.0.1", &["1.1.1.1", "203.0.113.9", "10.2.3.4"], "203.0.113.9"),
        (&["10.0.0.0/8"], "10.0.0.1", &["10.9.9.9, 10.2.3.4"], "10.9.9.9"),
        (&["10.0.0.0/8"], "10.0.0.1", &["203.0.113.9, nonsense"], "10.0.0.1"),
        (&["10.0.0.0/8"], "10.0.0.1", &["203.0.113.9:4711"], "203.0.113.9"),
        (&["10.0.0.0/8"], "::ffff:10.0.0.1", &["[2001:db8:1:2:3:4:5:6]:80"], "2001:db8:1:2::"),
        (&["10.0.0.0/8"], "10.0.0.1", &["[2001:db8::1]"], "2001:db8::"),
        (&["10.0.0.0/8"], "10.0.0.1", &["::ffff:203.0.113.9"], "203.0.113.9"),
        (&["10.0.0.0/8"], "10.0.0.1", &["203.0.113.9,, ", ""], "203.0.113.9"),
        (&["10.0.0.0/8"], "10.0.0.1", &[], "10.0.0.1"),
        (&["fd00::/8"], "fd00::1", &["2001:db8:1:2:3::1"], "2001:db8:1:2::"),
    ];

    #[test]
    fn the_client_is_the_first_from_the_right_that_no_trusted_network_holds() {
        for (trusted, peer, lines, client) in CASES {
            let peer: IpAddr = peer.parse().unwrap();
            let address = Address::of(move |_| Some(peer)).behind(trusted.iter().map(|text| text.parse().unwrap()));
            let mut request = http::Request::new(());
            for line in *lines {
                request.headers_mut().append("x-forwarded-for", line.parse().unwrap());
            }
            let found = address.read(&request.into_parts().0);
            assert_eq!(found, Some(client.parse().unwrap()), "{trusted:?} {peer} {lines:?}");
        }
    }
}

//! The server under load: its URL and addresses.

use std::net::{SocketAddr, ToSocketAddrs};

use checkdam::store::redis::redacted_url;
use checkdam_net::{ServerUrl, ServerUrlError};

/// A server that is reached by HTTP, with or without TLS.
#[derive(Debug, Clone)]
pub struct Target {
    /// As it was given.
    pub url: String,
    pub is_tls: bool,
    /// The name or the address in the URL, without brackets: the certificate must be for it.
    pub host: String,
    /// Host and port, as the `Host` header has them.
    pub authority: String,
    /// The prefix of every path.
    pub prefix: String,
    /// All addresses that its name resolves to; at least one.
    pub addresses: Vec<SocketAddr>,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    #[error("the target {url:?} {reason}: write it such as http://127.0.0.1:8080")]
    Url { url: String, reason: ServerUrlError },
    #[error("the target {url:?} has no address: {reason}")]
    Unknown { url: String, reason: String },
    #[error(
        "the target {url:?} is not on this machine: load that its owner does not expect is an attack. \
         If it is yours, say so with --target-is-mine"
    )]
    Foreign { url: String },
}

impl Target {
    /// Parses a URL and resolves its host. Only machines that the user declares their own
    /// are loaded; this machine always may be.
    pub fn resolve(url: &str, is_mine: bool) -> Result<Self, TargetError> {
        let given = || url.to_owned();
        let parsed = ServerUrl::with_default_scheme(url);
        let server = parsed.map_err(|reason| TargetError::Url { url: redacted_url(url), reason })?;
        let unknown = |reason: String| TargetError::Unknown { url: given(), reason };
        let found = (server.host(), server.port()).to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
        let addresses: Vec<SocketAddr> = found.collect();
        if addresses.is_empty() {
            return Err(unknown("the host name does not resolve".to_owned()));
        }
        if !is_mine && !are_local(&addresses) {
            return Err(TargetError::Foreign { url: given() });
        }
        let (is_tls, host) = (server.is_tls(), server.host().to_owned());
        let ServerUrl { scheme, authority, prefix } = server;
        let url = format!("{scheme}://{authority}{prefix}");
        Ok(Self { url, is_tls, host, authority: authority.to_string(), prefix, addresses })
    }
}

/// Whether all of them are on this machine.
fn are_local(addresses: &[SocketAddr]) -> bool {
    addresses.iter().all(|address| address.ip().to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_on_this_machine_or_said_to_be_ones_own() {
        for (url, address, prefix) in [
            ("http://127.0.0.1:8080", "127.0.0.1:8080", ""),
            ("127.0.0.1:81/limits/", "127.0.0.1:81", "/limits"),
            ("http://[::1]", "[::1]:80", ""),
            ("https://[::1]", "[::1]:443", ""),
            ("https://127.0.0.1:8443", "127.0.0.1:8443", ""),
            ("http://[::ffff:127.0.0.1]:1", "[::ffff:127.0.0.1]:1", ""),
        ] {
            let target = Target::resolve(url, false).unwrap();
            assert_eq!(target.addresses, [address.parse().unwrap()], "{url}");
            assert_eq!(target.prefix, prefix, "{url}");
            assert_eq!(target.is_tls, url.starts_with("https:"), "{url}");
        }
        assert!(Target::resolve("http://192.0.2.1:8080", true).is_ok());
        for (url, part) in [
            ("http://192.0.2.1:8080", "--target-is-mine"),
            ("http://0.0.0.0:8080", "--target-is-mine"),
            ("https://192.0.2.1", "--target-is-mine"),
            ("ftp://127.0.0.1", "not reached by HTTP"),
            ("http://", "not a URL"),
            ("http://127.0.0.1:99999", "port \"99999\""),
        ] {
            let refused = Target::resolve(url, false).unwrap_err().to_string();
            assert!(refused.contains(part) && refused.contains(url), "{url}: {refused}");
        }
        let addresses = ["127.0.0.1:80", "[::1]:80", "192.0.2.1:80"].map(|address| address.parse().unwrap());
        assert!(are_local(&addresses[..2]) && !are_local(&addresses), "one that is elsewhere suffices");
    }
}

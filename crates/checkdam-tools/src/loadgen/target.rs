//! The server under load: its URL and addresses.

use std::net::{SocketAddr, ToSocketAddrs};

use axum::http::Uri;

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
    #[error("the target {url:?} is not a URL: write it such as http://127.0.0.1:8080")]
    NotAUrl { url: String },
    #[error("the target {url:?} has a login or a query in it: give a scheme, a host, a port and at most a path")]
    Extra { url: String },
    #[error("the target {url:?} has the port {port:?}: ports are numbers up to 65535")]
    Port { url: String, port: String },
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
        let with_scheme = if url.contains("://") { given() } else { format!("http://{url}") };
        let uri: Uri = with_scheme.parse().map_err(|_| TargetError::NotAUrl { url: given() })?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(TargetError::NotAUrl { url: given() }),
        };
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        if authority.contains('@') || uri.query().is_some() {
            return Err(TargetError::Extra { url: given() });
        }
        if let Some(port) = invalid_port(&uri) {
            return Err(TargetError::Port { url: given(), port: port.to_owned() });
        }
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let unknown = |reason: String| TargetError::Unknown { url: given(), reason };
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let found = (host, port).to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
        let addresses: Vec<SocketAddr> = found.collect();
        if addresses.is_empty() {
            return Err(unknown("the host name does not resolve".to_owned()));
        }
        if !is_mine && !are_local(&addresses) {
            return Err(TargetError::Foreign { url: given() });
        }
        let prefix = uri.path().trim_end_matches('/').to_owned();
        let host = host.to_owned();
        Ok(Self { url: with_scheme, is_tls, host, authority, prefix, addresses })
    }
}

/// An invalid port: URL parsing would drop it, and the default port would be used.
pub fn invalid_port(uri: &Uri) -> Option<&str> {
    if uri.port().is_some() {
        return None;
    }
    let (before, port) = uri.authority()?.as_str().rsplit_once(':')?;
    // An IPv6 address without a port ends in a bracket.
    (uri.host() == Some(before)).then_some(port)
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
            ("ftp://127.0.0.1", "not a URL"),
            ("http://", "not a URL"),
            ("http://user@127.0.0.1", "login"),
            ("http://127.0.0.1/?a=1", "query"),
            ("http://127.0.0.1:99999", "port \"99999\""),
            ("http://[::1]:99999", "port \"99999\""),
            ("http://127.0.0.1:", "port \"\""),
        ] {
            let refused = Target::resolve(url, false).unwrap_err().to_string();
            assert!(refused.contains(part) && refused.contains(url), "{url}: {refused}");
        }
        let addresses = ["127.0.0.1:80", "[::1]:80", "192.0.2.1:80"].map(|address| address.parse().unwrap());
        assert!(are_local(&addresses[..2]) && !are_local(&addresses), "one that is elsewhere suffices");
    }
}

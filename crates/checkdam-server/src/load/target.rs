//! Whom the load is for.

use std::net::{SocketAddr, ToSocketAddrs};

use axum::http::Uri;

/// A server that is reached by plain HTTP.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// As it was given.
    pub(crate) url: String,
    /// Host and port, as the `Host` header has them.
    pub(crate) authority: String,
    /// What stands before every path.
    pub(crate) prefix: String,
    pub(crate) address: SocketAddr,
}

/// Why nobody is loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum TargetError {
    #[error("the target {url:?} is not a URL: write it such as http://127.0.0.1:8080")]
    NotAUrl { url: String },
    #[error("the target {url:?} asks for TLS, which this does not speak: name a door without TLS, http://…")]
    Tls { url: String },
    #[error("the target {url:?} has a login or a query in it: give a scheme, a host, a port and at most a path")]
    Extra { url: String },
    #[error("the target {url:?} has no address: {reason}")]
    Unknown { url: String, reason: String },
    #[error(
        "the target {url:?} is not on this machine: load that its owner does not expect is an attack. \
         If it is yours, say so with --target-is-mine"
    )]
    Foreign { url: String },
}

impl Target {
    /// Reads a URL and looks its host up. Only machines that are said to be
    /// one's own are loaded, and this one always is.
    pub(crate) fn find(url: &str, is_mine: bool) -> Result<Self, TargetError> {
        let given = || url.to_owned();
        let with_scheme = if url.contains("://") { given() } else { format!("http://{url}") };
        let uri: Uri = with_scheme.parse().map_err(|_| TargetError::NotAUrl { url: given() })?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(TargetError::Tls { url: given() }),
            _ => return Err(TargetError::NotAUrl { url: given() }),
        }
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        if authority.contains('@') || uri.query().is_some() {
            return Err(TargetError::Extra { url: given() });
        }
        // What stands behind the host and is no port is dropped when it is read.
        if uri.port().is_none() && uri.host().is_none_or(|host| authority != host) {
            return Err(TargetError::NotAUrl { url: given() });
        }
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let unknown = |reason: String| TargetError::Unknown { url: given(), reason };
        let mut found =
            (host, uri.port_u16().unwrap_or(80)).to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
        let address = found.next().ok_or_else(|| unknown("its name is nobody's".to_owned()))?;
        if !is_mine && !address.ip().to_canonical().is_loopback() {
            return Err(TargetError::Foreign { url: given() });
        }
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { url: with_scheme, authority, prefix, address })
    }
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
            ("http://[::ffff:127.0.0.1]:1", "[::ffff:127.0.0.1]:1", ""),
        ] {
            let target = Target::find(url, false).unwrap();
            assert_eq!((target.address.to_string().as_str(), target.prefix.as_str()), (address, prefix), "{url}");
        }
        assert!(Target::find("http://192.0.2.1:8080", true).is_ok());
        for (url, part) in [
            ("http://192.0.2.1:8080", "--target-is-mine"),
            ("http://0.0.0.0:8080", "--target-is-mine"),
            ("https://127.0.0.1", "TLS"),
            ("ftp://127.0.0.1", "not a URL"),
            ("http://", "not a URL"),
            ("http://user@127.0.0.1", "login"),
            ("http://127.0.0.1/?a=1", "query"),
            ("http://127.0.0.1:99999", "not a URL"),
        ] {
            let refused = Target::find(url, false).unwrap_err().to_string();
            assert!(refused.contains(part) && refused.contains(url), "{url}: {refused}");
        }
    }
}

//! URLs of HTTP servers that commands call and the proxy forwards to:
//! `http://host:port/prefix` or `https://…`.

use std::str::FromStr;

use axum::http::Uri;
use axum::http::uri::{Authority, Scheme};

/// A valid URL of a server, without login and query.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerUrl {
    /// `http` or `https`.
    pub scheme: Scheme,
    /// Host and port, as the `Host` header has them.
    pub authority: Authority,
    /// The prefix of every path, without a slash at its end.
    pub prefix: String,
}

/// Why a text is not the URL of a server; to be written after the URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerUrlError {
    /// It cannot be parsed, or has no scheme or no host.
    #[error("is not a URL")]
    NotAUrl,
    /// Its scheme is neither http nor https.
    #[error("is not reached by HTTP")]
    NotHttp,
    /// It has a user or a password.
    #[error("contains a login")]
    Login,
    /// It has a query.
    #[error("contains a query")]
    Query,
    /// Its port is not one. The parser would drop it, and the default port would be used.
    #[error("has the port {port:?}, which is not a number up to 65535")]
    Port {
        /// The port.
        port: String,
    },
}

impl ServerUrl {
    /// Parses a URL, or a host and a port, which are reached by plain HTTP.
    pub fn with_default_scheme(text: &str) -> Result<Self, ServerUrlError> {
        if text.contains("://") { text.parse() } else { format!("http://{text}").parse() }
    }

    /// Whether it is `https`.
    pub fn is_tls(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// The host, without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        self.authority.host().trim_matches(['[', ']'])
    }

    /// The port, which is 80 or 443 if the URL has none.
    pub fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.is_tls() { 443 } else { 80 })
    }
}

impl FromStr for ServerUrl {
    type Err = ServerUrlError;

    fn from_str(text: &str) -> Result<Self, ServerUrlError> {
        let uri: Uri = text.parse().map_err(|_| ServerUrlError::NotAUrl)?;
        let prefix = uri.path().trim_end_matches('/').to_owned();
        let has_query = uri.query().is_some();
        let parts = uri.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(ServerUrlError::NotAUrl);
        };
        match authority.as_str().rsplit_once(':') {
            _ if scheme != Scheme::HTTP && scheme != Scheme::HTTPS => Err(ServerUrlError::NotHttp),
            _ if authority.as_str().contains('@') => Err(ServerUrlError::Login),
            _ if authority.host().is_empty() => Err(ServerUrlError::NotAUrl),
            _ if has_query => Err(ServerUrlError::Query),
            // An IPv6 address without a port ends in a bracket.
            Some((host, port)) if authority.port().is_none() && host == authority.host() => {
                Err(ServerUrlError::Port { port: port.to_owned() })
            }
            _ => Ok(Self { scheme, authority, prefix }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_scheme_a_host_a_port_and_a_prefix() {
        for (text, expected) in [
            ("http://127.0.0.1:8080", (false, "127.0.0.1", 8080, "")),
            ("https://limits.example/api/", (true, "limits.example", 443, "/api")),
            ("http://[::1]", (false, "::1", 80, "")),
            ("localhost:81/x", (false, "localhost", 81, "/x")),
        ] {
            let url = ServerUrl::with_default_scheme(text).unwrap();
            assert_eq!((url.is_tls(), url.host(), url.port(), &*url.prefix), expected, "{text}");
        }
        let port = |port: &str| ServerUrlError::Port { port: port.to_owned() };
        for (text, error) in [
            ("", ServerUrlError::NotAUrl),
            ("127.0.0.1:3000", ServerUrlError::NotAUrl),
            ("http://", ServerUrlError::NotAUrl),
            ("http://:80", ServerUrlError::NotAUrl),
            ("ftp://x", ServerUrlError::NotHttp),
            ("http://u:p@x", ServerUrlError::Login),
            ("http://x?q", ServerUrlError::Query),
            ("http://x:99999", port("99999")),
            ("http://[::1]:99999", port("99999")),
            ("http://x:", port("")),
        ] {
            assert_eq!(text.parse::<ServerUrl>(), Err(error), "{text}");
        }
    }
}

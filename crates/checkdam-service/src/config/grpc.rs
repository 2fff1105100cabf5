//! Settings of the gRPC listener and of Envoy's rate limit service.

use super::{ConfigError, Settings};

/// Options of the rate limit service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RateLimitOptions {
    /// Whether every request passes; the states of its descriptors are reported all the
    /// same. Default false.
    pub is_shadow: bool,
    /// Whether a request is denied only if all of its descriptors are over their
    /// limits. Default false.
    pub is_quota: bool,
    /// The headers that Envoy adds to its client's response. Default none, since Envoy
    /// can make them itself.
    pub headers: Option<HeaderNames>,
    /// Whether the response has dynamic metadata for Envoy's other filters: the request,
    /// and the metadata of the limits that let it pass. Default false.
    pub has_metadata: bool,
}

/// The names of the three headers, in the order of [`HeaderNames::DEFAULT`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderNames {
    /// What the limit is.
    pub limit: String,
    /// What is left of it.
    pub remaining: String,
    /// In how many seconds it is whole again, or the next request would pass.
    pub reset: String,
}

impl HeaderNames {
    /// As envoyproxy/ratelimit calls them.
    pub const DEFAULT: [&str; 3] = ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"];

    /// Headers of these names; none if one could not be a header's.
    pub fn new([limit, remaining, reset]: [&str; 3]) -> Option<Self> {
        let read = |name: &str| axum::http::HeaderName::try_from(name).ok().map(|_| name.to_owned());
        Some(Self { limit: read(limit)?, remaining: read(remaining)?, reset: read(reset)? })
    }
}

/// The address of the gRPC listener; none if it is disabled.
pub(super) fn listen_address(settings: &Settings, host: &str) -> Option<String> {
    let listen = settings.grpc_listen.as_ref();
    Some(listen.cloned().unwrap_or_else(|| super::address(host, "8081"))).filter(|listen| listen != "off")
}

/// The options of the rate limit service.
pub(super) fn rate_limits(settings: &Settings) -> Result<RateLimitOptions, ConfigError> {
    let headers = settings.grpc_headers.as_deref().unwrap_or("off");
    Ok(RateLimitOptions {
        is_shadow: settings.grpc_shadow.unwrap_or(false),
        is_quota: settings.grpc_quota.unwrap_or(false),
        headers: if headers == "off" { None } else { Some(header_names(headers)?) },
        has_metadata: settings.grpc_metadata.unwrap_or(false),
    })
}

fn header_names(text: &str) -> Result<HeaderNames, ConfigError> {
    if text == "on" {
        return HeaderNames::new(HeaderNames::DEFAULT).ok_or_else(|| invalid_header_names(text));
    }
    let names: Vec<&str> = text.split(',').map(str::trim).collect();
    names.try_into().ok().and_then(HeaderNames::new).ok_or_else(|| invalid_header_names(text))
}

fn invalid_header_names(text: &str) -> ConfigError {
    ConfigError::HeaderNames { value: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_off_or_three_names() {
        let read = |text: &str| {
            let given = Settings { grpc_headers: Some(text.to_owned()), ..Settings::default() };
            rate_limits(&given).map(|options| options.headers.map(|names| names.reset))
        };
        assert_eq!(read("off").unwrap(), None);
        assert_eq!(read("on").unwrap().as_deref(), Some("RateLimit-Reset"));
        assert_eq!(read("a, b, c").unwrap().as_deref(), Some("c"));
        for text in ["", "a,b", "a,b,c,d", "a,b,c d"] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}

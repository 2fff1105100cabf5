//! The settings of the gRPC door and of Envoy's rate limit service.

use super::{ConfigError, Settings};
use crate::grpc::{HeaderNames, RateLimitOptions};

/// Where the gRPC door listens; none if it is switched off.
pub(super) fn listen_address(given: &Settings, file: &Settings, host: &str) -> Option<String> {
    let listen = given.grpc_listen.as_ref().or(file.grpc_listen.as_ref());
    Some(listen.cloned().unwrap_or_else(|| super::address(host, "8081"))).filter(|listen| listen != "off")
}

/// How the rate limit service answers.
pub(super) fn rate_limits(given: &Settings, file: &Settings) -> Result<RateLimitOptions, ConfigError> {
    let headers = given.grpc_headers.as_deref().or(file.grpc_headers.as_deref()).unwrap_or("off");
    Ok(RateLimitOptions {
        is_shadow: given.grpc_shadow.or(file.grpc_shadow).unwrap_or(false),
        is_quota: given.grpc_quota.or(file.grpc_quota).unwrap_or(false),
        headers: if headers == "off" { None } else { Some(header_names(headers)?) },
        has_metadata: given.grpc_metadata.or(file.grpc_metadata).unwrap_or(false),
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
            rate_limits(&given, &Settings::default()).map(|options| options.headers.map(|names| names.reset))
        };
        assert_eq!(read("off").unwrap(), None);
        assert_eq!(read("on").unwrap().as_deref(), Some("RateLimit-Reset"));
        assert_eq!(read("a, b, c").unwrap().as_deref(), Some("c"));
        for text in ["", "a,b", "a,b,c,d", "a,b,c d"] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}

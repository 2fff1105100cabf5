//! What a caller of the HTTP API or of the gRPC listener may do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::HeaderMap;
use clap::ValueEnum;

use super::token::{TokenSet, bearer};

/// The setting that permits privileged requests, for messages.
pub const PRIVILEGED_SETTING: &str = "--privileged-requests";

/// Which listeners accept privileged requests: resets, refunds (also `is_negative_hits`),
/// and limits sent in a request (`descriptors[].limit`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PrivilegedRequests {
    /// Accept them on loopback addresses, and where callers are authenticated
    #[default]
    Auto,
    /// Accept them from every caller
    Allow,
    /// Accept resets and refunds on the admin API only, and ignore limits sent in requests
    Deny,
}

/// What is known of the callers of a listener.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListenerTrust {
    /// Only programs on this machine can connect.
    pub is_loopback: bool,
    /// Every caller has sent an API token.
    pub needs_token: bool,
    /// Every caller has presented a client certificate (mutual TLS).
    pub verifies_certificates: bool,
}

impl PrivilegedRequests {
    /// Whether a listener accepts privileged requests.
    pub const fn are_permitted(self, trust: ListenerTrust) -> bool {
        match self {
            Self::Auto => trust.is_loopback || trust.needs_token || trust.verifies_certificates,
            Self::Allow => true,
            Self::Deny => false,
        }
    }
}

/// The access control of one listener.
#[derive(Debug)]
pub struct ListenerAccess {
    /// Its name, for the log.
    listener: &'static str,
    /// The API tokens; without them every caller is accepted.
    tokens: Option<Arc<TokenSet>>,
    permits_privileged: bool,
    /// How many requests had no valid token.
    rejected: AtomicU64,
}

impl ListenerAccess {
    /// The access control of the listener of this name.
    pub const fn new(listener: &'static str, tokens: Option<Arc<TokenSet>>, permits_privileged: bool) -> Self {
        Self { listener, tokens, permits_privileged, rejected: AtomicU64::new(0) }
    }

    /// Whether callers must send a token.
    pub const fn needs_token(&self) -> bool {
        self.tokens.is_some()
    }

    /// Whether it accepts privileged requests.
    pub const fn permits_privileged(&self) -> bool {
        self.permits_privileged
    }

    /// Whether a request carries a valid token, or needs none.
    #[inline]
    pub fn accepts(&self, headers: &HeaderMap) -> bool {
        match &self.tokens {
            None => true,
            Some(tokens) => bearer(headers).is_some_and(|given| tokens.contains(given)),
        }
    }

    /// Whether a text is a valid token, or none is needed.
    pub fn accepts_token(&self, given: &[u8]) -> bool {
        self.tokens.as_ref().is_none_or(|tokens| tokens.contains(given))
    }

    /// Logs a request without a valid token, but not a thousand times a second: a proxy
    /// may show the response to no one.
    pub fn log_rejected(&self, advice: &str) {
        let rejected = self.rejected.fetch_add(1, Ordering::Relaxed) + 1;
        if rejected.is_power_of_two() {
            let listener = self.listener;
            tracing::warn!(listener, rejected, "a request has no valid API token: {advice}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileged_requests_are_for_callers_that_are_known() {
        let trust = |is_loopback, needs_token, verifies_certificates| ListenerTrust {
            is_loopback,
            needs_token,
            verifies_certificates,
        };
        let anyone = trust(false, false, false);
        for known in [trust(true, false, false), trust(false, true, false), trust(false, false, true)] {
            assert!(PrivilegedRequests::Auto.are_permitted(known), "{known:?}");
            assert!(!PrivilegedRequests::Deny.are_permitted(known), "{known:?}");
        }
        assert!(!PrivilegedRequests::Auto.are_permitted(anyone));
        assert!(PrivilegedRequests::Allow.are_permitted(anyone));
    }
}

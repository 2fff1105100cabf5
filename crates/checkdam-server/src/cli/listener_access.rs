//! Builds the access control of each request listener, and logs at startup which do not
//! accept privileged requests.

use std::net::SocketAddr;
use std::sync::Arc;

use checkdam_net::TlsFiles;
use checkdam_service::access::{ListenerAccess, ListenerTrust, PrivilegedRequests, TokenSet, follow_token_files};
use checkdam_service::config::Config;

/// The access control of the listener of this name at this address.
pub(super) fn of_listener(
    config: &Config,
    listener: &'static str,
    address: SocketAddr,
    tls: Option<&TlsFiles>,
) -> Arc<ListenerAccess> {
    let tokens = config.api_tokens.clone();
    let trust = ListenerTrust {
        is_loopback: address.ip().to_canonical().is_loopback(),
        needs_token: tokens.is_some(),
        verifies_certificates: tls.is_some_and(|files| files.client_ca.is_some()),
    };
    let is_permitted = config.privileged_requests.are_permitted(trust);
    if !is_permitted && config.privileged_requests == PrivilegedRequests::Auto {
        tracing::info!(
            listener,
            %address,
            "resets, refunds and request limits are off: others can reach this address, and neither an API token \
             nor a CA of client certificates is set; permit them with --api-token, --tls-client-ca or \
             --privileged-requests allow"
        );
    } else if !is_permitted {
        tracing::info!(listener, %address, "resets, refunds and request limits are off (--privileged-requests deny)");
    }
    Arc::new(ListenerAccess::new(listener, tokens, is_permitted))
}

/// Reads files of tokens again when they change, until the program ends.
pub(super) fn follow_tokens(config: &Config) {
    let admin = config.admin.iter().flat_map(|admin| admin.tokens.sets());
    let sets: Vec<Arc<TokenSet>> = config.api_tokens.iter().chain(admin).cloned().collect();
    tokio::spawn(follow_token_files(sets));
}

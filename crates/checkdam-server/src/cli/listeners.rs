//! The request listeners of a server: HTTP and gRPC, shut down together, and their access
//! control.

use std::net::SocketAddr;
use std::sync::Arc;

use checkdam_net::{ShutdownOptions, TlsFiles};
use checkdam_service::access::{ListenerAccess, ListenerTrust, PrivilegedRequests, TokenSet, follow_token_files};
use checkdam_service::config::Config;
use checkdam_service::grpc;
use checkdam_service::http::HttpServer;
use tokio::sync::mpsc;

pub(super) struct Listeners {
    pub(super) http: HttpServer,
    pub(super) grpc: Option<grpc::GrpcListener>,
}

impl Listeners {
    /// Serves until a stop message, and then until requests in flight are answered.
    pub(super) async fn run(self, stop: mpsc::Receiver<()>, shutdown: ShutdownOptions) {
        let [http_stop, grpc_stop] = duplicate(stop);
        let grpc = async {
            if let Some(grpc) = self.grpc {
                grpc.run(grpc_stop, shutdown).await;
            }
        };
        tokio::join!(self.http.run(http_stop, shutdown), grpc);
    }
}

/// Every message to both.
fn duplicate(mut from: mpsc::Receiver<()>) -> [mpsc::Receiver<()>; 2] {
    let ((first, http), (second, grpc)) = (mpsc::channel(1), mpsc::channel(1));
    tokio::spawn(async move {
        while from.recv().await.is_some() {
            // Full means that a message is already pending, closed that the receiver has ended.
            let _ = first.try_send(());
            let _ = second.try_send(());
        }
    });
    [http, grpc]
}

/// The access control of the listener of this name at this address.
pub(super) fn access_of_listener(
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

//! Transport: listeners, TLS, connections and their limits, request framing, load
//! shedding and graceful shutdown.
//!
//! A listener's requests are answered by a [`Responder`]; nothing here depends on the
//! content of a request.

mod backlog_drain;
mod bounded_file;
mod connection_timeouts;
mod connections;
mod lazy_timer;
mod load_shedding;
mod options;
mod peer_connections;
mod queueing_delay;
mod request_framing;
mod responder;
mod response_framing;
mod server;
mod server_url;
mod shared_state;
mod tls;

pub use self::bounded_file::{FILE_MAX, file_text, read_file, read_regular_file};
pub use self::connections::ListenerTraits;
pub use self::lazy_timer::LazyTimer;
pub use self::load_shedding::{LoadShedding, SheddingListener, SheddingPolicy};
pub use self::options::{ConnectionOptions, OverloadOptions, Protocol, ShutdownOptions};
pub use self::request_framing::{FramingFault, chunk_size, content_length};
pub use self::responder::{
    ClientWait, InFlightRequest, RequestArrival, RequestPeer, Responder, ResponderResponse, StreamingResponse, route,
};
pub use self::response_framing::{BodyFraming, ResponseFraming, ResponseFramingError};
pub use self::server::{Listener, Server};
pub use self::server_url::{ServerUrl, ServerUrlError};
pub use self::shared_state::ServerState;
pub use self::tls::{
    ClientCaTrust, ClientTlsFiles, FileRole, HandshakeFailure, ListenerTls, SecureStream, TlsError, TlsFiles,
    config_without_roots, follow_certificate_files,
};

/// Entry point of the fuzz targets: the framing of HTTP/1 requests.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing {
    use crate::request_framing::{FramingFault, FramingScanner};

    /// Scans the bytes of a connection, part by part. A fault has the number of its request, from 1.
    pub fn scan_framing<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Option<(u64, FramingFault)> {
        let mut scanner = FramingScanner::new();
        parts.into_iter().find_map(|part| scanner.scan(part))
    }
}

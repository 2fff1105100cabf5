//! Transport: listeners, connections and their limits, request framing, load
//! shedding and graceful shutdown.
//!
//! A listener's requests are answered by a [`Responder`]; nothing here knows what
//! they ask for.

mod backlog_drain;
mod connection_timeouts;
mod connections;
mod lazy_timer;
mod load_shedding;
mod options;
mod overload;
mod peer_connections;
mod queueing_delay;
mod request_framing;
mod responder;
mod server;
mod server_state;

pub use self::connections::{ClientWait, InFlightRequest, ListenerTraits, Protocol, RequestPeer};
pub use self::lazy_timer::LazyTimer;
pub use self::load_shedding::LoadShedding;
pub use self::options::{ConnectionOptions, OverloadOptions, ShutdownOptions};
pub use self::overload::{Overload, SheddingListener, log_episodes as log_overload};
pub use self::request_framing::{FramingFault, chunk_size, content_length};
pub use self::responder::{RequestArrival, Responder, ResponderResponse, StreamingResponse, route};
pub use self::server::{Listener, Server};
pub use self::server_state::ServerState;

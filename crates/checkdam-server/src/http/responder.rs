//! Who answers the requests that come through a door.

use std::net::IpAddr;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use tower_service::Service;

use super::connections::{Peer, UnderWay};
use super::framing::Fault;

/// How a request came.
pub(crate) struct Arrival {
    /// Whom the connection comes from.
    pub(crate) peer: IpAddr,
    /// Why it is ambiguous where the request ends, if it is.
    pub(crate) fault: Option<Fault>,
    /// To be dropped when the request is answered, its body included.
    pub(crate) under_way: UnderWay,
}

/// Answers requests.
pub(crate) trait Responder: Clone + Send + Sync + 'static {
    /// Whether requests are looked over for ambiguities: those who pass them
    /// on must know.
    const IS_STRICT: bool;

    /// Answers one.
    fn answer(&self, request: Request<Incoming>, arrival: Arrival) -> impl Future<Output = Response<Body>> + Send;
}

impl Responder for Router {
    const IS_STRICT: bool = false;

    async fn answer(&self, mut request: Request<Incoming>, arrival: Arrival) -> Response<Body> {
        request.extensions_mut().insert(Peer(arrival.peer));
        let answered = self.clone().call(request).await;
        // Our answers are whole: what is left is only to be written.
        drop(arrival.under_way);
        match answered {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

//! Who answers the requests that come through a door.

use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, Response};
use hyper::body::{Frame, Incoming, SizeHint};
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
        let response = match answered {
            Ok(response) => response,
            Err(never) => match never {},
        };
        if response.extensions().get::<Lasting>().is_some() {
            return response.map(|body| Body::new(LastingBody { body, _under_way: arrival.under_way }));
        }
        // Our other answers are whole: what is left is only to be written.
        drop(arrival.under_way);
        response
    }
}

/// Marks an answer whose body goes on: its connection does not rest meanwhile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lasting;

/// A body that counts as under way until it ends.
struct LastingBody {
    body: Body,
    _under_way: UnderWay,
}

impl hyper::body::Body for LastingBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

//! `Responder`: the trait that answers a listener's requests.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Request, Response};
use http_body_util::{Either, Empty};
use hyper::body::{Frame, Incoming, SizeHint};
use tower_service::Service;

use super::connection_timeouts::RequestProgress;
use super::request_framing::FramingFault;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How a request arrived.
pub struct RequestArrival {
    /// The address of the connection's peer.
    pub peer: IpAddr,
    /// Since when it waits, by the clock of `overload`.
    pub since: u64,
    /// Whether it came over TLS.
    pub is_tls: bool,
    /// Why the request's end is ambiguous, if it is.
    pub fault: Option<FramingFault>,
    /// To be dropped when the response, body included, has been sent.
    pub under_way: InFlightRequest,
}

/// A response: with a body of the responder's own type, which is not boxed, or with
/// any.
pub type ResponderResponse<B> = Response<Either<B, Body>>;

/// Answers requests.
pub trait Responder: Clone + Send + Sync + 'static {
    /// Whether requests are checked for ambiguous framing, which matters if they are
    /// forwarded.
    const IS_STRICT: bool;

    /// The body of the most frequent responses.
    type Own: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static;

    /// Answers one request.
    fn respond(
        &self,
        request: Request<Incoming>,
        arrival: RequestArrival,
    ) -> impl Future<Output = ResponderResponse<Self::Own>> + Send;
}

impl Responder for Router {
    const IS_STRICT: bool = false;

    type Own = Empty<Bytes>;

    async fn respond(&self, request: Request<Incoming>, arrival: RequestArrival) -> ResponderResponse<Self::Own> {
        route(self, request, arrival).await.map(Either::Right)
    }
}

/// Answers a request by a router.
pub async fn route(router: &Router, mut request: Request<Incoming>, arrival: RequestArrival) -> Response<Body> {
    request.extensions_mut().insert(RequestPeer { ip: arrival.peer, since: arrival.since });
    let answered = router.clone().call(request).await;
    let response = match answered {
        Ok(response) => response,
        Err(never) => match never {},
    };
    if response.extensions().get::<StreamingResponse>().is_some() {
        return response.map(|body| Body::new(StreamingBody { body, _under_way: arrival.under_way }));
    }
    // Our other responses are complete: they only have to be written.
    drop(arrival.under_way);
    response
}

/// Marks a response with a streaming body: its connection is not idle meanwhile.
#[derive(Debug, Clone, Copy)]
pub struct StreamingResponse;

/// A body that counts as in flight until it ends.
struct StreamingBody {
    body: Body,
    _under_way: InFlightRequest,
}

impl hyper::body::Body for StreamingBody {
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

/// The sender of a request, and since when it waits; an extension of every request.
#[derive(Debug, Clone, Copy)]
pub struct RequestPeer {
    /// The address of the connection's other end.
    pub ip: IpAddr,
    /// Since when it waits, by the clock of [`LoadShedding`](crate::LoadShedding).
    pub since: u64,
}

/// A request in flight. It ends when this is dropped, however it ended: also when the
/// client resets its stream.
pub struct InFlightRequest {
    progress: Arc<RequestProgress>,
    /// An upgraded connection still counts as open.
    _open: Arc<dyn Send + Sync>,
}

impl InFlightRequest {
    /// A request of the connection that is open as long as `open` is held.
    pub(crate) fn new(progress: Arc<RequestProgress>, open: Arc<dyn Send + Sync>) -> Self {
        Self { progress, _open: open }
    }

    /// Tells when the request waits for its client.
    pub fn client_wait(&self) -> ClientWait {
        ClientWait { progress: Arc::clone(&self.progress), is_waiting: false }
    }
}

/// Tells when a request waits for its client: for more of its body, or until it has
/// taken some of the response. A connection on which all do for seconds may be closed
/// when there is hardly room for others.
pub struct ClientWait {
    progress: Arc<RequestProgress>,
    is_waiting: bool,
}

impl ClientWait {
    /// Whether the request waits for the client now.
    pub fn set_waiting(&mut self, is_waiting: bool) {
        if std::mem::replace(&mut self.is_waiting, is_waiting) != is_waiting {
            self.progress.set_waiting(is_waiting);
        }
    }

    /// So much of a body has come from the client, or is handed to it.
    pub fn add_bytes(&self, bytes: usize) {
        self.progress.add_body_bytes(bytes);
    }
}

impl Drop for ClientWait {
    fn drop(&mut self) {
        self.set_waiting(false);
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.progress.end_request();
    }
}

//! The tower service that a layer wraps around another service.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Either, Full};
use tower_service::Service;

use super::settings::{Action, Settings, add_headers};
use crate::store::Store;

/// The body of a response: the service's own, or that of a denial.
pub type LimitedBody<B> = Either<B, Full<Bytes>>;

/// A service that is called only by requests that pass.
///
/// It is ready when the inner service is, and keeps that readiness for the request
/// while it is decided or delayed; a denied request drops it.
pub struct RateLimit<T, S> {
    inner: T,
    settings: Arc<Settings<S>>,
}

impl<T, S> RateLimit<T, S> {
    pub(super) const fn new(inner: T, settings: Arc<Settings<S>>) -> Self {
        Self { inner, settings }
    }

    /// The service behind it.
    pub const fn get_ref(&self) -> &T {
        &self.inner
    }
}

impl<T: Clone, S> Clone for RateLimit<T, S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), settings: Arc::clone(&self.settings) }
    }
}

impl<T, S> fmt::Debug for RateLimit<T, S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RateLimit").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Decides, waits, calls. It is the only allocation for a request besides headers: a
/// decision borrows the request, and no nameable type holds both.
pub struct ResponseFuture<B, E>(Pin<Box<dyn Future<Output = ServiceResult<B, E>> + Send>>);

type ServiceResult<B, E> = Result<Response<LimitedBody<B>>, E>;

impl<B, E> Future for ResponseFuture<B, E> {
    type Output = ServiceResult<B, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<ServiceResult<B, E>> {
        self.0.as_mut().poll(context)
    }
}

impl<B, E> fmt::Debug for ResponseFuture<B, E> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ResponseFuture")
    }
}

impl<T, S, B, R> Service<Request<B>> for RateLimit<T, S>
where
    T: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    T::Future: Send,
    S: Store + 'static,
    B: Send + 'static,
{
    type Response = Response<LimitedBody<R>>;
    type Error = T::Error;
    type Future = ResponseFuture<R, T::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), T::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The clone that was made ready must be the one that is called.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let settings = Arc::clone(&self.settings);
        ResponseFuture(Box::pin(async move {
            let (parts, body) = request.into_parts();
            let (headers, delay) = match settings.decide(&parts).await {
                Action::Forward { headers, delay } => (headers, delay),
                Action::Respond(response) => return Ok(response.map(|body| Either::Right(Full::new(body)))),
            };
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            let mut response = inner.call(Request::from_parts(parts, body)).await?;
            add_headers(headers, &mut response);
            Ok(response.map(Either::Left))
        }))
    }
}

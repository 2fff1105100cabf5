//! Setup of the layer's tests.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use checkdam::layer::{LimitedBody, RateLimitLayerBuilder};
use checkdam::store::Store;
use checkdam::{Limiter, rule_file};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tower_layer::Layer;
use tower_service::Service;

/// A service that counts its calls and insists on being ready for each.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    pub(crate) calls: Arc<AtomicUsize>,
    is_ready: bool,
}

impl Counting {
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Clone for Counting {
    /// A clone is not ready because the original is.
    fn clone(&self) -> Self {
        Self { calls: Arc::clone(&self.calls), is_ready: false }
    }
}

impl<B> Service<Request<B>> for Counting {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "called without being ready");
        self.calls.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok(Response::new(Full::new(Bytes::from_static(b"served")))))
    }
}

/// A limiter of these rules, written as YAML.
pub(crate) fn limiter<S: Store>(rules: &str, store: S) -> Arc<Limiter<S>> {
    Arc::new(Limiter::new(rule_file::compile(rules).unwrap(), store))
}

/// Sends one request through a layer before a service.
pub(crate) async fn send<T, S>(service: &mut T, request: Request<S>) -> Response<Bytes>
where
    T: Service<Request<S>, Response = Response<LimitedBody<Full<Bytes>>>, Error = Infallible>,
{
    poll_fn(|context| service.poll_ready(context)).await.unwrap();
    let (parts, body) = service.call(request).await.unwrap().into_parts();
    Response::from_parts(parts, body.collect().await.unwrap().to_bytes())
}

/// What the layer puts before a service, and the service.
pub(crate) fn before<S: Store + 'static>(
    builder: RateLimitLayerBuilder<S>,
) -> (impl Service<Request<()>, Response = Response<LimitedBody<Full<Bytes>>>, Error = Infallible>, Counting) {
    let inner = Counting::default();
    (builder.build().unwrap().layer(inner.clone()), inner)
}

/// A request with these headers.
pub(crate) fn request(path: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

/// A header of a response, as text.
pub(crate) fn header<'a>(response: &'a Response<Bytes>, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

//! Handles a proxied request: validates, charges, delays, forwards and responds.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use axum::http::uri::PathAndQuery;
use axum::http::{Method, Request, Response, StatusCode, Version};
use axum::response::IntoResponse;
use checkdam_net::{
    FramingFault, InFlightRequest, Listener, ListenerTraits, Protocol, RequestArrival, Responder, ResponderResponse,
    Server, SheddingListener,
};
use checkdam_service::app::App;
use checkdam_service::client_identity::{ClientIdentity, DescribedRequest, join_cookies};
use checkdam_service::config::ProxyOptions;
use checkdam_service::http;
use checkdam_service::trace::Traced;
use http_body_util::Either;
use hyper::body::Incoming;

use super::error_responses::ProxyError;
use super::forwarded_headers::{self, ForwardedFor, ForwardedHead};
use super::forwarder::Forwarder;
use super::request_body::{ClientPace, LentBody, discard};
use super::response_body::{ByteCharge, ProxyBody};
use super::routes::{Route, RouteTable};
use super::tunnel;
use super::upload_limit::{UploadLimit, UploadPermit};

pub type ProxyServer = Server<Traced<ProxyResponder>>;

pub struct Proxy {
    app: Arc<App>,
    identity: ClientIdentity,
    routes: RouteTable,
    forwarder: Arc<Forwarder>,
    cost_header: Option<HeaderName>,
    /// The headers that rules read, which are not taken from trailers.
    decisive_headers: Arc<[HeaderName]>,
    idle_timeout: Duration,
    body_timeout: Duration,
    pace: ClientPace,
    /// The uploads of clients; none if upstreams use HTTP/2, where a body does not occupy
    /// a connection.
    uploads: Option<Arc<UploadLimit>>,
    delay_max: Duration,
}

/// A request that may pass.
struct AdmittedRequest {
    /// What is still to be charged, if the response is.
    charge: Option<Box<ByteCharge>>,
    /// The rate-limit headers; empty if no rule applies.
    standing: Vec<(HeaderName, HeaderValue)>,
}

impl Proxy {
    /// A proxy with these settings. It starts the health checks, if enabled.
    pub fn start(app: Arc<App>, options: &ProxyOptions, identity: &ClientIdentity) -> anyhow::Result<Self> {
        let (routes, forwarder) = (RouteTable::new(options), Arc::new(Forwarder::new(options)?));
        let is_http1 = !options.is_upstream_http2;
        let bytes_per_s_min = Some(options.body_rate_min).filter(|rate| *rate > 0 && is_http1);
        for upstream in routes.upstreams() {
            upstream.pool.sweep();
        }
        if let Some(path) = &options.health_path {
            let path: PathAndQuery = path.parse()?;
            for upstream in routes.upstreams() {
                let (forwarder, upstream) = (Arc::clone(&forwarder), Arc::clone(upstream));
                let (path, every) = (path.clone(), options.health_interval);
                tokio::spawn(async move { forwarder.check_health(&upstream, path, every).await });
            }
        }
        Ok(Self {
            app,
            identity: identity.clone(),
            routes,
            forwarder,
            cost_header: identity.cost_header.clone(),
            decisive_headers: identity
                .headers
                .iter()
                .map(|(header, _)| header)
                .chain(&identity.cost_header)
                .cloned()
                .collect(),
            idle_timeout: options.idle_timeout,
            body_timeout: options.body_timeout,
            pace: ClientPace { patience: options.body_timeout, bytes_per_s_min },
            uploads: is_http1.then(|| Arc::new(UploadLimit::new(options.uploads_per_client))),
            delay_max: options.delay_max,
        })
    }

    pub fn serve(self, listener: Listener) -> ProxyServer {
        let (state, tracer) = (Arc::clone(self.app.server()), Arc::clone(self.app.tracer()));
        // It sheds by itself: it knows what to do with the bodies.
        let kind = ListenerTraits { name: "proxy", protocol: Protocol::Http, shedding: None, health_paths: &[] };
        Server::new(listener, state, Traced::new(tracer, ProxyResponder(Arc::new(self))), kind)
    }

    async fn handle(
        &self,
        mut request: Request<Incoming>,
        arrival: RequestArrival,
    ) -> Result<ResponderResponse<ProxyBody>, ProxyError> {
        if let Some(fault) = arrival.fault {
            return Err(ProxyError::Ambiguous(fault));
        }
        if request.headers().get_all(CONTENT_LENGTH).iter().count() > 1 {
            // In HTTP/2; with HTTP/1 the bytes were checked.
            return Err(ProxyError::Ambiguous(FramingFault::RepeatedLength));
        }
        if request.method() == Method::CONNECT {
            return Err(ProxyError::Connect);
        }
        if self.app.overload().should_shed(SheddingListener::Proxy, arrival.since) {
            discard(request.into_body());
            return Err(ProxyError::Overloaded);
        }
        let uploading = match self.upload_permit(&request, arrival.peer) {
            Ok(uploading) => uploading,
            Err(error) => {
                discard(request.into_body());
                return Err(error);
            }
        };
        if request.version() == Version::HTTP_2 {
            join_cookies(request.headers_mut());
        }
        let host = forwarded_headers::host(&request)?;
        if host.as_ref().is_none_or(HeaderValue::is_empty) && self.needs_host() {
            return Err(ProxyError::BadHost("the request names no host, and rules or routes go by it: name one"));
        }
        let asked = self.identity.request(DescribedRequest {
            method: request.method().as_str(),
            target: request.uri().path_and_query().map_or("/", PathAndQuery::as_str),
            host: host.as_ref().and_then(|host| host.to_str().ok()),
            headers: request.headers(),
            peer: arrival.peer,
        })?;
        let route = self.routes.find(&asked).ok_or(ProxyError::NoRoute)?;
        let is_trusted = self.identity.is_trusted(arrival.peer);
        let names_cost = |header: &HeaderName| is_trusted && request.headers().contains_key(header);
        let asked = route.charged_request(asked, request.method(), self.cost_header.as_ref().is_some_and(names_cost));
        // On the heap, so that a request that waits for its upstream does not carry the room for it.
        let AdmittedRequest { charge, standing } = match Box::pin(self.admit(route, asked)).await {
            Ok(admitted) => admitted,
            Err(answer) => {
                discard(request.into_body());
                return Ok(answer);
            }
        };
        let sender = ForwardedFor { peer: arrival.peer, is_trusted, is_tls: arrival.is_tls };
        let head = ForwardedHead::new(&mut request, host, sender, &self.identity.paths);
        let mut response = match self.forward(route, (request, uploading), &head, charge, arrival.under_way).await {
            Ok(response) => response,
            Err(error) => error_response(error),
        };
        set_headers(response.headers_mut(), standing);
        Ok(response)
    }

    /// Counts a request's body as an upload of its client, if it has one. A proxy that is
    /// trusted or on this machine, and does not name its client, is not limited as one.
    fn upload_permit(&self, request: &Request<Incoming>, peer: IpAddr) -> Result<Option<UploadPermit>, ProxyError> {
        let Some(uploads) = self.uploads.as_ref().filter(|_| !request.body().is_end_stream()) else { return Ok(None) };
        let client = self.identity.client_ip(peer, request.headers());
        let peer = peer.to_canonical();
        let is_local = peer.is_loopback() && client == checkdam::normalize::client_address(peer);
        if is_local || self.identity.is_trusted(client) {
            return Ok(None);
        }
        let refused = ProxyError::TooManyUploads { max: uploads.per_client_max() };
        uploads.begin(client).map(Some).ok_or(refused)
    }

    /// Whether a request without a host would pass by a rule or a route.
    fn needs_host(&self) -> bool {
        self.routes.match_hosts() || self.app.telemetry().attributes().is_named("host")
    }

    /// Charges a request and delays it if necessary; returns the response, if it is
    /// denied.
    async fn admit(
        &self,
        route: &Route,
        asked: checkdam::Request<'static>,
    ) -> Result<AdmittedRequest, ResponderResponse<ProxyBody>> {
        let dialect = self.app.dialect();
        let outcome = self.app.check_with_delay(&asked, self.delay_max).await;
        if !outcome.is_allowed() {
            return Err(http::denial_response(&outcome, dialect).map(|body| Either::Right(Body::new(body))));
        }
        let delay = Duration::from_micros(outcome.delay_us());
        let standing = http::rate_limit_headers(&outcome, dialect);
        drop(outcome);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let charge = route.response_bytes.map(|bytes| Box::new(ByteCharge::new(Arc::clone(&self.app), asked, bytes)));
        Ok(AdmittedRequest { charge, standing })
    }

    async fn forward(
        &self,
        route: &Route,
        (mut request, uploading): (Request<Incoming>, Option<UploadPermit>),
        head: &ForwardedHead,
        charge: Option<Box<ByteCharge>>,
        under_way: InFlightRequest,
    ) -> Result<ResponderResponse<ProxyBody>, ProxyError> {
        let is_http2 = request.version() == Version::HTTP_2;
        let client = head.upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
        let source =
            LentBody::new(request.into_body(), self.pace, uploading, &self.decisive_headers, under_way.client_wait());
        let mut response = match self.forwarder.forward(&route.upstreams, head, &source).await {
            Ok(response) => response,
            Err(error) => {
                if let Some(body) = source.into_untouched() {
                    discard(body);
                }
                return Err(error);
            }
        };
        source.end_client_wait();
        let is_switch = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let mut headers = std::mem::take(response.headers_mut());
        let status = response.status();
        let body = response.into_body();
        match body {
            Either::Left(body) if is_switch => {
                let (client, upstream) = client.zip(body.into_connection()).ok_or(ProxyError::Broken)?;
                tokio::spawn(tunnel::run(client, upstream, self.idle_timeout, under_way));
                return Ok(switching_protocols(headers));
            }
            // HTTP/2 has no such response.
            Either::Right(_) if is_switch => return Err(ProxyError::Broken),
            Either::Right(_) => forwarded_headers::strip_hop_by_hop(&mut headers),
            Either::Left(_) => {}
        }
        let body = ProxyBody::new(body, charge, self.idle_timeout, under_way);
        let body = if is_http2 { body.with_client_timeout(self.body_timeout) } else { body };
        let mut answer = Response::new(Either::Left(body));
        (*answer.status_mut(), *answer.headers_mut()) = (status, headers);
        Ok(answer)
    }
}

#[derive(Clone)]
pub struct ProxyResponder(Arc<Proxy>);

impl Responder for ProxyResponder {
    const IS_STRICT: bool = true;

    type Own = ProxyBody;

    async fn respond(&self, request: Request<Incoming>, arrival: RequestArrival) -> ResponderResponse<ProxyBody> {
        self.0.handle(request, arrival).await.unwrap_or_else(error_response)
    }
}

fn error_response(error: ProxyError) -> ResponderResponse<ProxyBody> {
    error.into_response().map(Either::Right)
}

/// Answers that the connection becomes something else.
fn switching_protocols(mut headers: HeaderMap) -> ResponderResponse<ProxyBody> {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    let mut answer = Response::new(Either::Right(Body::empty()));
    (*answer.status_mut(), *answer.headers_mut()) = (StatusCode::SWITCHING_PROTOCOLS, headers);
    answer
}

/// Sets the rate-limit headers of a response: they replace the upstream's own, if a
/// rule applied to the request.
fn set_headers(headers: &mut HeaderMap, standing: Vec<(HeaderName, HeaderValue)>) {
    if standing.is_empty() {
        return;
    }
    forwarded_headers::remove(headers, |name| http::STANDING.contains(name));
    headers.extend(standing);
}

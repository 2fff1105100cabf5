//! An upstream server in this process: it counts its requests, and its paths behave
//! as their names say.

use std::convert::Infallible;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, UPGRADE};
use axum::http::{Request, Response, StatusCode, Version};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

/// What the sample key of RFC 6455 is answered with.
pub(crate) const WEBSOCKET_ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
const PART: usize = 64 << 10;

/// A running server, ended with the test.
pub(crate) struct Upstream {
    url: String,
    seen: Arc<RequestCounts>,
    _runtime: Runtime,
}

#[derive(Default)]
struct RequestCounts {
    requests: AtomicU64,
    smuggled: AtomicU64,
    is_ill: AtomicBool,
}

impl Upstream {
    pub(crate) fn start() -> Self {
        Self::start_with(None)
    }

    /// With TLS, if there are a certificate and its key, as files in PEM.
    pub(crate) fn start_with(tls: Option<(PathBuf, PathBuf)>) -> Self {
        let acceptor = tls.map(acceptor);
        let scheme = if acceptor.is_some() { "https" } else { "http" };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let (address, seen) = (listener.local_addr().unwrap().to_string(), Arc::<RequestCounts>::default());
        let counted = Arc::clone(&seen);
        runtime.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (seen, acceptor) = (Arc::clone(&counted), acceptor.clone());
                tokio::spawn(async move {
                    let service = service_fn(move |request| answer(request, Arc::clone(&seen)));
                    let builder = auto::Builder::new(TokioExecutor::new());
                    // Proxies that cut connections are part of the tests.
                    let Some(acceptor) = acceptor else {
                        let _ = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
                        return;
                    };
                    if let Ok(stream) = acceptor.accept(stream).await {
                        let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                    }
                });
            }
        });
        Self { url: format!("{scheme}://{address}"), seen, _runtime: runtime }
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    pub(crate) fn port(&self) -> u16 {
        self.url.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap()
    }

    /// How many requests came, those for `/health` not counted.
    pub(crate) fn requests(&self) -> u64 {
        self.seen.requests.load(Ordering::Relaxed)
    }

    /// How many requests came for `/smuggled`.
    pub(crate) fn smuggled(&self) -> u64 {
        self.seen.smuggled.load(Ordering::Relaxed)
    }

    /// Whether `/health` is answered with 503.
    pub(crate) fn set_ill(&self, is_ill: bool) {
        self.seen.is_ill.store(is_ill, Ordering::Relaxed);
    }
}

fn acceptor((certificate, key): (PathBuf, PathBuf)) -> TlsAcceptor {
    let certificates = CertificateDer::pem_file_iter(certificate).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(key).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    Arc::new(builder.with_single_cert(certificates, key).unwrap()).into()
}

async fn answer(request: Request<Incoming>, seen: Arc<RequestCounts>) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path().to_owned();
    if request.version() == Version::HTTP_11 && !request.headers().contains_key(HOST) {
        // As servers do that keep to the standard.
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return Ok(response);
    }
    if path == "/health" {
        let mut response = Response::new(Body::empty());
        if seen.is_ill.load(Ordering::Relaxed) {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        return Ok(response);
    }
    seen.requests.fetch_add(1, Ordering::Relaxed);
    seen.smuggled.fetch_add(u64::from(path == "/smuggled"), Ordering::Relaxed);
    let number = path.rsplit('/').next().and_then(|number| number.parse().ok()).unwrap_or(0);
    Ok(match path.split('/').nth(1).unwrap_or_default() {
        "echo" => echo(request),
        "sink" => sink(request).await,
        "zeros" => Response::new(Body::new(ZeroBody { left: number })),
        "completion" => completion(number),
        "completion-stream" => completion_stream(number),
        "trailers" => trailers(),
        "received-trailers" => received_trailers(request).await,
        "limits" => limits(),
        "slow" => {
            tokio::time::sleep(Duration::from_millis(number as u64)).await;
            Response::new(Body::from("slow"))
        }
        "stall" => Response::new(Body::new(ZeroBody { left: 10 }.chain_pending())),
        "websocket" => websocket(request),
        _ => described(&request),
    })
}

/// The request's head as JSON, lists in their order.
fn described(request: &Request<Incoming>) -> Response<Body> {
    let mut headers = serde_json::Map::new();
    for name in request.headers().keys() {
        let values = request.headers().get_all(name).iter();
        let values: Vec<_> = values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
        headers.insert(name.to_string(), json!(values.join(" | ")));
    }
    let head = json!({"method": request.method().as_str(), "target": request.uri().to_string(), "headers": headers});
    Response::new(Body::from(head.to_string()))
}

fn echo(request: Request<Incoming>) -> Response<Body> {
    Response::new(Body::new(request.into_body()))
}

/// Reads the body and tells its length.
async fn sink(request: Request<Incoming>) -> Response<Body> {
    let (mut body, mut length) = (request.into_body(), 0);
    while let Some(Ok(frame)) = body.frame().await {
        length += frame.data_ref().map_or(0, Bytes::len);
    }
    Response::new(Body::from(length.to_string()))
}

/// A language model's answer that used so many tokens.
fn completion(tokens: usize) -> Response<Body> {
    let answer = json!({"choices": [{"message": {"content": "hello"}}], "usage": {"total_tokens": tokens}});
    let mut response = Response::new(Body::from(answer.to_string()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The same as server-sent events; the last but one has the tokens.
fn completion_stream(tokens: usize) -> Response<Body> {
    let word = |word: &str| json!({"choices": [{"delta": {"content": word}}], "usage": null}).to_string();
    let usage = json!({"choices": [], "usage": {"total_tokens": tokens}}).to_string();
    let events = [word("hello"), word("world"), usage, "[DONE]".to_owned()];
    let mut response = Response::new(Body::new(EventBody(events.into_iter())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

fn trailers() -> Response<Body> {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-checksum", HeaderValue::from_static("42"));
    // Of unknown length: HTTP/1.1 has trailers behind chunks only.
    let body = ZeroBody { left: 4 }.with_trailers(async move { Some(Ok(trailers)) });
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert("trailer", HeaderValue::from_static("x-checksum"));
    response
}

/// Tells which trailers came.
async fn received_trailers(request: Request<Incoming>) -> Response<Body> {
    let body = request.into_body().collect().await.unwrap();
    let names: Vec<_> = body.trailers().into_iter().flat_map(HeaderMap::keys).map(ToString::to_string).collect();
    Response::new(Body::from(names.join(" ")))
}

/// Limits of the upstream's own, and headers that concern one connection.
fn limits() -> Response<Body> {
    let mut response = Response::new(Body::from("limits"));
    for (name, value) in [
        ("x-ratelimit-limit", "7"),
        ("ratelimit", "\"own\";r=1;t=1"),
        ("x-own", "stays"),
        ("keep-alive", "timeout=5"),
        ("x-hop", "goes"),
        ("connection", "x-hop"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Echoes the payloads of WebSocket frames shorter than 126 bytes.
fn websocket(mut request: Request<Incoming>) -> Response<Body> {
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut socket = TokioIo::new(upgraded.await.unwrap());
        loop {
            let mut head = [0; 6];
            if socket.read_exact(&mut head).await.is_err() {
                return;
            }
            let mut payload = vec![0; usize::from(head[1] & 0x7f)];
            socket.read_exact(&mut payload).await.unwrap();
            for (byte, mask) in payload.iter_mut().zip(head[2..].iter().cycle()) {
                *byte ^= mask;
            }
            let mut frame = vec![head[0], payload.len() as u8];
            frame.extend(payload);
            if socket.write_all(&frame).await.is_err() {
                return;
            }
        }
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
    response.headers_mut().insert("sec-websocket-accept", HeaderValue::from_static(WEBSOCKET_ACCEPT));
    response
}

/// So many zeros.
struct ZeroBody {
    left: usize,
}

impl ZeroBody {
    /// The same, and then nothing, for ever.
    fn chain_pending(self) -> StallingBody {
        StallingBody(self)
    }
}

impl HttpBody for ZeroBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        static PARTS: [u8; PART] = [0; PART];
        let length = self.left.min(PART);
        self.left -= length;
        Poll::Ready((length > 0).then(|| Ok(Frame::data(Bytes::from_static(&PARTS[..length])))))
    }
}

/// Server-sent events, each in a frame of its own.
struct EventBody(std::array::IntoIter<String, 4>);

impl HttpBody for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let event = self.0.next();
        Poll::Ready(event.map(|event| Ok(Frame::data(Bytes::from(format!("data: {event}\n\n"))))))
    }
}

struct StallingBody(ZeroBody);

impl HttpBody for StallingBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match Pin::new(&mut self.0).poll_frame(context) {
            Poll::Ready(None) => Poll::Pending,
            polled => polled,
        }
    }
}

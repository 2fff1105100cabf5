//! Responses while a node starts: live, but not ready.
//!
//! A node normally starts within milliseconds, during which clients wait in the
//! accept backlog. Only if it takes longer, because a database is not available yet,
//! do clients get these responses instead of waiting.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{CONNECTION, HeaderValue, RETRY_AFTER};
use axum::http::{Request, Response, Version};
use axum::response::IntoResponse;
use checkdam_net::ListenerTls;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::health;
use super::problem::Problem;
use crate::readiness::Readiness;

/// How long clients are kept waiting in the hope that it is done by then.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a client may take to send its request.
const ASK_LIMIT: Duration = Duration::from_secs(5);
/// The maximum number of clients served at a time; others wait.
const CLIENTS_MAX: usize = 64;
/// The pause after `accept` fails.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Waits for `opened`, and meanwhile answers clients of the listener.
pub async fn respond_until_opened<T>(
    listener: &TcpListener,
    tls: Option<&Arc<ListenerTls>>,
    opened: impl Future<Output = T>,
) -> T {
    tokio::select! {
        biased;
        opened = opened => opened,
        never = respond_unready(listener, tls) => match never {},
    }
}

async fn respond_unready(listener: &TcpListener, tls: Option<&Arc<ListenerTls>>) -> Infallible {
    tokio::time::sleep(PATIENCE).await;
    let places = Arc::new(Semaphore::new(CLIENTS_MAX));
    loop {
        let place = Arc::clone(&places).acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let tls = tls.cloned();
                tokio::spawn(async move {
                    let served = async {
                        match tls {
                            Some(tls) => {
                                if let Some((stream, _)) = tls.accept(stream).await {
                                    serve(stream).await;
                                }
                            }
                            None => serve(stream).await,
                        }
                    };
                    // A client without a request by then is disconnected.
                    let _ = tokio::time::timeout(ASK_LIMIT, served).await;
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    // Clients with TLS may have negotiated HTTP/2.
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    let service =
        service_fn(|request: Request<Incoming>| async move { Ok::<_, Infallible>(unready_response(&request)) });
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(error, "a connection ended early");
    }
}

fn unready_response(request: &Request<Incoming>) -> Response<axum::body::Body> {
    let mut response = match request.uri().path() {
        "/livez" => health::alive_response(),
        "/readyz" | "/healthz" | "/healthcheck" => health::readiness_response(Readiness::Starting, None),
        _ => Problem::busy("this node is being opened and has no rules yet: try again in a moment").into_response(),
    };
    // The next request is for the listener itself.
    if request.version() < Version::HTTP_2 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if response.status().is_server_error() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

//! Connects to upstreams by TCP or TLS, within a timeout.

use std::io::{Error, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Context as _;
use axum::http::Uri;
use axum::http::uri::Scheme;
use checkdam_net::config_without_roots;
use checkdam_service::config::{ProxyOptions, UpstreamUrl};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use super::http1::Stream;

type ConnectResult = Result<MaybeHttpsStream<TokioIo<TcpStream>>, Box<dyn std::error::Error + Send + Sync>>;

/// Why an upstream sent no response.
pub(super) enum SendError {
    /// It has as many connections as it may: it has seen nothing of the request.
    Full,
    /// There was no connection: it has seen nothing of the request.
    Unreachable(String),
    /// The connection was closed before any byte of a response.
    Lost(String),
    /// It broke off, or its response is invalid.
    Broken(String),
    Slow,
}

#[derive(Clone)]
pub(super) struct Connector {
    inner: HttpsConnector<HttpConnector>,
    patience: Duration,
}

impl Connector {
    pub(super) fn new(options: &ProxyOptions) -> anyhow::Result<Self> {
        let is_https = options.routes.iter().flat_map(|route| &route.upstreams).any(|url| url.scheme == Scheme::HTTPS);
        let config = match &options.upstream_tls {
            files if is_https || files.ca.is_some() => files.config().context("see upstream_ca")?,
            // Machines without certificates need none for plain connections.
            _ => config_without_roots()?,
        };
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        let https = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http();
        let inner = if options.is_upstream_http2 {
            https.enable_http2().wrap_connector(http)
        } else {
            https.enable_http1().wrap_connector(http)
        };
        Ok(Self { inner, patience: options.connect_timeout })
    }
}

impl Connector {
    pub(super) async fn connect(&self, url: &UpstreamUrl) -> Result<Stream, SendError> {
        let uri =
            Uri::builder().scheme(url.scheme.clone()).authority(url.authority.clone()).path_and_query("/").build();
        let uri = uri.map_err(|error| SendError::Unreachable(error.to_string()))?;
        let connected = self.clone().call(uri).await;
        connected.map(Stream::from).map_err(|error| SendError::Unreachable(error_chain(&*error)))
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = ConnectResult> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connecting, patience) = (self.inner.call(uri), self.patience);
        Box::pin(async move {
            let connected = tokio::time::timeout(patience, connecting).await;
            connected.unwrap_or_else(|_| Err(Error::new(ErrorKind::TimedOut, "connecting took too long").into()))
        })
    }
}

/// An error and what caused it, for people.
pub(super) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

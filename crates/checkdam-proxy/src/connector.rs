//! Connects to upstreams by TCP or TLS, within a timeout.

use std::io::{Error, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::Uri;
use axum::http::uri::Scheme;
use checkdam_service::config::{ProxyOptions, UpstreamUrl};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
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
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?;
        let verifying = match &options.upstream_ca {
            Some(pem) => builder.with_root_certificates(root_certificates(pem)?),
            None if is_https => builder.with_native_roots()?,
            // Machines without certificates need none for plain connections.
            None => builder.with_root_certificates(RootCertStore::empty()),
        };
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        let https = HttpsConnectorBuilder::new().with_tls_config(verifying.with_no_client_auth()).https_or_http();
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

fn root_certificates(pem: &[u8]) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate.map_err(|error| anyhow::anyhow!("upstream_ca is not valid PEM: {error}"))?)?;
    }
    anyhow::ensure!(!roots.is_empty(), "upstream_ca holds no certificate: give a file in PEM");
    Ok(roots)
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

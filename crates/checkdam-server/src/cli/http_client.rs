//! HTTP client of the command line, for a server's APIs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{HeaderName, Method, Request, StatusCode};
use bytes::Bytes;
use checkdam_net::{ClientTlsFiles, ServerUrl, ServerUrlError};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::api_token::ApiTokenArguments;

/// Default timeout of a response.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Default maximum size of a response, in bytes.
const ANSWER_MAX: usize = 8 << 20;

/// TLS of commands that call a server.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ClientTlsArguments {
    /// CA certificate (PEM) that verifies an https:// server [default: the system's]
    #[arg(long, value_name = "FILE", env = "CHECKDAM_CA_FILE")]
    ca_file: Option<PathBuf>,

    /// Client certificate (PEM) for an https:// server that requires one
    #[arg(long, value_name = "FILE", env = "CHECKDAM_CLIENT_CERT")]
    client_cert: Option<PathBuf>,

    /// Private key (PEM) of the client certificate [default: in the file of --client-cert]
    #[arg(long, value_name = "FILE", env = "CHECKDAM_CLIENT_KEY", requires = "client_cert")]
    client_key: Option<PathBuf>,
}

impl ClientTlsArguments {
    /// What connections are made with.
    pub(super) fn config(&self) -> anyhow::Result<ClientConfig> {
        let Self { ca_file: ca, client_cert: certificate, client_key: key } = self.clone();
        ClientTlsFiles { ca, certificate, key }.config().context("see --ca-file and --client-cert")
    }
}

/// One question.
pub(super) struct ApiRequest {
    pub(super) method: Method,
    /// Path and query.
    pub(super) path: String,
    pub(super) headers: Vec<(HeaderName, String)>,
    pub(super) body: Bytes,
    /// The timeout of the response.
    pub(super) timeout: Duration,
    /// The maximum size of the response, in bytes.
    pub(super) answer_max: usize,
}

/// The response of a server.
pub(super) struct ApiResponse {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
}

impl ApiRequest {
    /// A question without a body.
    pub(super) fn new(method: Method, path: impl Into<String>) -> Self {
        let (timeout, answer_max) = (TIMEOUT, ANSWER_MAX);
        Self { method, path: path.into(), headers: Vec::new(), body: Bytes::new(), timeout, answer_max }
    }

    /// The same with one header more.
    pub(super) fn header(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The same with a body, which is of this kind unless a header says otherwise.
    pub(super) fn body(self, kind: &str, body: impl Into<Bytes>) -> Self {
        let typed = if self.has_header(&CONTENT_TYPE) { self } else { self.header(CONTENT_TYPE, kind) };
        Self { body: body.into(), ..typed }
    }

    /// Asks the server.
    pub(super) fn send(self, server: &str, tls: &ClientTlsArguments) -> anyhow::Result<ApiResponse> {
        self.connect_and_send(&ServerAddress::parse(server)?, tls)
    }

    /// Asks the server at this one of its addresses.
    pub(super) fn send_to_address(
        self,
        server: &str,
        at: SocketAddr,
        tls: &ClientTlsArguments,
    ) -> anyhow::Result<ApiResponse> {
        let address = ServerAddress { at: Some(at), ..ServerAddress::parse(server)? };
        self.connect_and_send(&address, tls)
    }

    fn has_header(&self, wanted: &HeaderName) -> bool {
        self.headers.iter().any(|(name, _)| name == wanted)
    }

    fn connect_and_send(self, address: &ServerAddress, tls: &ClientTlsArguments) -> anyhow::Result<ApiResponse> {
        let server = &address.server;
        let tls = if address.url.is_tls() { Some(TlsConnector::from(Arc::new(tls.config()?))) } else { None };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let timeout = self.timeout;
        match runtime.block_on(async { tokio::time::timeout(timeout, self.connect(address, tls)).await }) {
            Ok(answer) => answer,
            Err(_) => bail!("the server at {server} did not answer within {} s", timeout.as_secs()),
        }
    }

    async fn connect(self, address: &ServerAddress, tls: Option<TlsConnector>) -> anyhow::Result<ApiResponse> {
        let server = &address.server;
        let connected = match address.at {
            Some(at) => TcpStream::connect(at).await,
            None => TcpStream::connect((address.url.host(), address.url.port())).await,
        };
        let stream = connected.with_context(|| {
            format!("cannot reach a server at {server}: start one with `checkdam serve`, or give another address")
        })?;
        let Some(tls) = tls else { return self.exchange(address, stream).await };
        let name = ServerName::try_from(address.url.host().to_owned())
            .with_context(|| format!("the server {server:?} has no host name that a certificate could have"))?;
        let stream = tls.connect(name, stream).await.with_context(|| no_tls(server))?;
        self.exchange(address, stream).await
    }

    async fn exchange(
        self,
        address: &ServerAddress,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> anyhow::Result<ApiResponse> {
        let server = &address.server;
        let has_host = self.has_header(&HOST);
        let talked = async {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            let mut request =
                Request::builder().method(self.method).uri(format!("{}{}", address.url.prefix, self.path));
            if !has_host {
                request = request.header(HOST, address.url.authority.as_str());
            }
            for (name, value) in self.headers {
                request = request.header(name, value);
            }
            let response = sender.send_request(request.body(Full::new(self.body))?).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), self.answer_max).collect().await;
            let body = body.map_err(|error| anyhow::anyhow!("the response is incomplete: {error}"))?;
            anyhow::Ok(ApiResponse { status, body: body.to_bytes().to_vec() })
        };
        talked.await.with_context(|| format!("the server at {server} does not answer: is it checkdam?"))
    }
}

/// The message of a TLS handshake that failed.
pub(super) fn no_tls(server: &str) -> String {
    format!("cannot make a secure connection to {server}: see --ca-file, and whether that port has TLS")
}

/// Posts `body` to `path` of the server and returns the JSON of its response,
/// whatever its status.
pub(super) fn post(
    server: &str,
    (token, tls): (&ApiTokenArguments, &ClientTlsArguments),
    path: &str,
    body: String,
) -> anyhow::Result<Vec<u8>> {
    let call = ApiRequest::new(Method::POST, path).body("application/json", body);
    Ok(token.sign(call)?.send(server, tls)?.body)
}

/// Reads a decision; anything else that a server says is an error in its own
/// words.
pub(super) fn parse_decision<T: DeserializeOwned>(answer: &[u8]) -> anyhow::Result<T> {
    let value: Value = serde_json::from_slice(answer).context("the response is not JSON: is it a checkdam server?")?;
    if !value["allowed"].is_boolean() {
        let detail = value["detail"].as_str().unwrap_or("the answer is no decision: is it a checkdam server?");
        bail!("the server rejected the request: {}", super::table::printable(detail));
    }
    serde_json::from_value(value).context("cannot parse the response: does the server have another version?")
}

struct ServerAddress {
    /// As it was given.
    server: String,
    url: ServerUrl,
    /// The only address to try of those that the host resolves to.
    at: Option<SocketAddr>,
}

impl ServerAddress {
    fn parse(server: &str) -> anyhow::Result<Self> {
        match ServerUrl::with_default_scheme(server) {
            Ok(url) => Ok(Self { server: server.to_owned(), url, at: None }),
            Err(ServerUrlError::Login) => bail!(
                "the server's URL contains a login, which no listener accepts: give the API token with --api-token-file, \
                 or the admin token with --token-file"
            ),
            Err(error) => bail!("the server {server:?} {error}: give a URL such as http://127.0.0.1:8080"),
        }
    }
}

//! Asks a server over plain HTTP.

use std::time::Duration;

use anyhow::{Context, bail};
use axum::http::{Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::TcpStream;

/// The server has this long to answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The longest answer in bytes.
const ANSWER_MAX: usize = 8 << 20;

/// Posts `body` to `path` of the server and returns the JSON that it answers.
pub(super) fn post(server: &str, path: &str, body: String) -> anyhow::Result<Vec<u8>> {
    let address = Address::parse(server)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answered = runtime.block_on(async { tokio::time::timeout(TIMEOUT, ask(&address, path, body)).await });
    match answered {
        Ok(answer) => answer,
        Err(_) => bail!("the server at {server} did not answer within {} s", TIMEOUT.as_secs()),
    }
}

/// Reads a decision; anything else that a server says is an error in its own
/// words.
pub(super) fn decision<T: DeserializeOwned>(answer: &[u8]) -> anyhow::Result<T> {
    let value: Value = serde_json::from_slice(answer).context("the answer is not JSON: is it a checkdam server?")?;
    if !value["allowed"].is_boolean() {
        let detail = value["detail"].as_str().unwrap_or("the answer is no decision: is it a checkdam server?");
        bail!("the server refuses the request: {}", super::table::printable(detail));
    }
    serde_json::from_value(value).context("the answer is not understood: is the server of another version?")
}

struct Address {
    server: String,
    /// Host and port, as the `Host` header has them.
    authority: String,
    host: String,
    port: u16,
    prefix: String,
}

impl Address {
    fn parse(server: &str) -> anyhow::Result<Self> {
        let with_scheme = if server.contains("://") { server.to_owned() } else { format!("http://{server}") };
        let uri: Uri = with_scheme.parse().with_context(|| format!("the server {server:?} is not a URL"))?;
        if uri.scheme_str() != Some("http") {
            bail!("the server {server:?} is not reached by plain HTTP: give a URL such as http://127.0.0.1:8080");
        }
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { server: server.to_owned(), authority, host, port: uri.port_u16().unwrap_or(80), prefix })
    }
}

async fn ask(address: &Address, path: &str, body: String) -> anyhow::Result<Vec<u8>> {
    let server = &address.server;
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await.with_context(|| {
        format!("cannot reach a server at {server}: start one with `checkdam serve`, or name another with --server")
    })?;
    let talked = async {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::post(format!("{}{path}", address.prefix))
            .header(header::HOST, &address.authority)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(bytes::Bytes::from(body)))?;
        let response = sender.send_request(request).await?;
        let answer = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
        let answer = answer.map_err(|error| anyhow::anyhow!("the answer breaks off: {error}"))?;
        anyhow::Ok(answer.to_bytes().to_vec())
    };
    talked.await.with_context(|| format!("the server at {server} does not answer: is it checkdam?"))
}

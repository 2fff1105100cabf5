//! HTTP client of a checkdam server, with connection reuse.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::answer::{Answer, Batch, Problem};
use crate::request::Request;

/// Default deadline of an answer: some round trips, and no more than a caller would
/// wait for a limiter.
const DEADLINE: Duration = Duration::from_millis(100);
/// The longest answer in bytes: 256 requests of many tiers.
const ANSWER_MAX: usize = 8 << 20;
/// How long an unused connection is kept. Servers keep theirs longer.
const IDLE: Duration = Duration::from_secs(5);

/// The answer to a check when no server can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// It is allowed.
    Open,
    /// It is denied.
    Closed,
    /// It is an error, and the caller decides.
    Error,
}

/// Why a client could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the server {url:?} is not usable: {reason}")]
#[non_exhaustive]
pub struct UrlError {
    /// The URL.
    pub url: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Why a token cannot be used. It does not show the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token is empty or has a character that no header can carry")]
#[non_exhaustive]
pub struct TokenError;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The server cannot be reached, or closed the connection.
    #[error("the server at {server} cannot be asked: {reason}")]
    Unreachable {
        /// The server.
        server: String,
        /// What happened.
        reason: String,
    },
    /// The server did not answer in time. Whether it charged the request is unknown, so
    /// it is not retried.
    #[error("the server at {server} did not answer within {} ms", deadline.as_millis())]
    DeadlinePassed {
        /// The server.
        server: String,
        /// How long it had.
        deadline: Duration,
    },
    /// The server rejects the request as invalid, and has charged nothing.
    #[error("the server refuses the request with {status}: {detail}")]
    Refused {
        /// The status.
        status: StatusCode,
        /// What is wrong, by the server.
        detail: String,
        /// The invalid field of the request.
        field: Option<String>,
    },
    /// The response is not from a checkdam server.
    #[error("the server at {server} answers with {status} and no decision: is it a checkdam server?")]
    NotUnderstood {
        /// The server.
        server: String,
        /// The status.
        status: StatusCode,
    },
}

/// How connections are made.
#[cfg(feature = "tls")]
type Connector = hyper_rustls::HttpsConnector<HttpConnector>;
#[cfg(not(feature = "tls"))]
type Connector = HttpConnector;

fn tcp_connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    // The connector around it knows https.
    connector.enforce_http(false);
    connector
}

/// Whether a valid URL is one of HTTPS.
fn is_https(url: &str) -> Result<bool, UrlError> {
    let refused = || UrlError {
        url: url.to_owned(),
        reason: "give a URL such as http://127.0.0.1:8080, without a query".to_owned(),
    };
    let uri: Uri = url.parse().map_err(|_| refused())?;
    if uri.host().is_none_or(str::is_empty) || uri.query().is_some() {
        return Err(refused());
    }
    match uri.scheme_str() {
        Some("http") => Ok(false),
        Some("https") => Ok(true),
        _ => Err(refused()),
    }
}

/// A client of one server. Clones share its connections.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use checkdam_client::{Client, OnFailure, Request};
/// let client = Client::new("http://127.0.0.1:8080", OnFailure::Open)?;
/// let answer = client.check(&Request::new().with("user", "42")).await?;
/// if !answer.allowed {
///     println!("come back in {:?}", answer.retry_after());
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    pool: Pool<Connector, Full<Bytes>>,
    server: String,
    deadline: Duration,
    on_failure: OnFailure,
    /// `Authorization`, if the server needs a token.
    authorization: Option<HeaderValue>,
}

impl Client {
    /// A client of the server at this URL, which connects on first use.
    /// `on_failure` is the answer to checks while the server cannot be reached.
    ///
    /// # Errors
    /// If the URL is invalid; of an `https` URL, if the system has no CA certificates, or
    /// without the feature `tls`.
    pub fn new(url: &str, on_failure: OnFailure) -> Result<Self, UrlError> {
        let is_tls = is_https(url)?;
        #[cfg(feature = "tls")]
        let connector = {
            let tls = if is_tls { crate::ClientTls::system_roots() } else { crate::ClientTls::without_roots() };
            let tls = tls.map_err(|error| UrlError { url: url.to_owned(), reason: error.to_string() })?;
            tls.connector(tcp_connector())
        };
        #[cfg(not(feature = "tls"))]
        let connector = if is_tls {
            let reason = "it needs the feature `tls`: enable it, or give a URL such as http://127.0.0.1:8080";
            return Err(UrlError { url: url.to_owned(), reason: reason.to_owned() });
        } else {
            tcp_connector()
        };
        Ok(Self::with_connector(url, connector, on_failure))
    }

    /// The same with CAs of one's own, or with a client certificate, for an `https` URL.
    ///
    /// # Errors
    /// If the URL is invalid, or not `https`.
    #[cfg(feature = "tls")]
    pub fn with_tls(url: &str, on_failure: OnFailure, tls: &crate::ClientTls) -> Result<Self, UrlError> {
        if !is_https(url)? {
            let reason = "certificates are given with it, and it is not TLS: write https://";
            return Err(UrlError { url: url.to_owned(), reason: reason.to_owned() });
        }
        Ok(Self::with_connector(url, tls.connector(tcp_connector()), on_failure))
    }

    fn with_connector(url: &str, connector: Connector, on_failure: OnFailure) -> Self {
        let pool =
            Pool::builder(TokioExecutor::new()).pool_idle_timeout(IDLE).pool_timer(TokioTimer::new()).build(connector);
        Self { pool, server: url.trim_end_matches('/').to_owned(), deadline: DEADLINE, on_failure, authorization: None }
    }

    /// The same with the server's API token. Without a valid one such a server answers with
    /// 401, which is [`CallError::Refused`].
    ///
    /// # Errors
    /// If no header can carry the token.
    pub fn token(mut self, token: &str) -> Result<Self, TokenError> {
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError);
        }
        let mut authorization = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| TokenError)?;
        authorization.set_sensitive(true);
        self.authorization = Some(authorization);
        Ok(self)
    }

    /// The same with another deadline for every answer. Default: 100 ms.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Charges a request to every limit that applies to it, or to none.
    ///
    /// # Errors
    /// If the server rejects the request as invalid; and if it cannot be reached,
    /// with [`OnFailure::Error`].
    pub async fn check(&self, request: &Request) -> Result<Answer, CallError> {
        let answered = self.post("/v1/check", request).await;
        answered.or_else(|error| self.by_policy(error, 1)?.pop().ok_or_else(|| self.nothing()))
    }

    /// Charges several requests, each on its own, in their order: at most 256.
    ///
    /// # Errors
    /// As [`check`](Self::check). If one request is invalid, the whole batch is
    /// rejected, and nothing is charged.
    pub async fn check_batch(&self, requests: &[Request]) -> Result<Vec<Answer>, CallError> {
        #[derive(Serialize)]
        struct Body<'a> {
            requests: &'a [Request],
        }
        let answered: Result<Batch, _> = self.post("/v1/check/batch", &Body { requests }).await;
        match answered {
            Ok(batch) if batch.results.len() == requests.len() => Ok(batch.results),
            Ok(_) => self.by_policy(self.nothing(), requests.len()),
            Err(error) => self.by_policy(error, requests.len()),
        }
    }

    /// Charges `request` for what it used already, in place of its own cost, whatever is left:
    /// tokens of a model, bytes, rows. Never denied; beyond a limit the bucket is in debt, and
    /// nothing passes until that is paid back. The answer has the state of the limits
    /// afterwards: [`Answer::allowed`] is whether a request would pass now.
    ///
    /// # Errors
    /// If there is no answer, whatever `on_failure` is. After
    /// [`CallError::DeadlinePassed`] it may have been charged.
    pub async fn record(&self, request: &Request, cost: u64) -> Result<Answer, CallError> {
        self.post("/v1/record", &request.clone().costing(cost)).await
    }

    /// Decides as a check would, without charging.
    ///
    /// # Errors
    /// If there is no answer, whatever `on_failure` is.
    pub async fn peek(&self, request: &Request) -> Result<Answer, CallError> {
        self.post("/v1/peek", request).await
    }

    /// Refunds the request's cost to every limit that applies to it.
    ///
    /// # Errors
    /// If there is no answer, whatever `on_failure` is.
    pub async fn refund(&self, request: &Request) -> Result<Answer, CallError> {
        self.post("/v1/refund", request).await
    }

    /// Resets every limit that applies to the request.
    ///
    /// # Errors
    /// If there is no answer, whatever `on_failure` is.
    pub async fn reset(&self, request: &Request) -> Result<Answer, CallError> {
        self.post("/v1/reset", request).await
    }

    /// The answers if the server cannot be reached. Rejections are returned as errors.
    fn by_policy(&self, error: CallError, count: usize) -> Result<Vec<Answer>, CallError> {
        let allowed = match self.on_failure {
            _ if matches!(error, CallError::Refused { .. }) => return Err(error),
            OnFailure::Error => return Err(error),
            OnFailure::Open => true,
            OnFailure::Closed => false,
        };
        let detail = error.to_string();
        Ok((0..count).map(|_| Answer::by_client(allowed, detail.clone())).collect())
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, CallError> {
        let body = serde_json::to_vec(body).map_err(|error| self.unreachable(&error))?;
        let mut request = http::Request::post(format!("{}{path}", self.server))
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(|error| self.unreachable(&error))?;
        let talked = async {
            let response = self.pool.request(request).await.map_err(|error| self.unreachable(&error))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
            let body = body.map_err(|error| self.unreachable(error.as_ref()))?;
            Ok((status, body.to_bytes()))
        };
        let deadline = self.deadline;
        let (status, body) = tokio::time::timeout(deadline, talked)
            .await
            .map_err(|_| CallError::DeadlinePassed { server: self.server.clone(), deadline })??;
        self.read(status, &body)
    }

    /// A denied request is answered with a decision too; an invalid one is not.
    fn read<T: DeserializeOwned>(&self, status: StatusCode, body: &[u8]) -> Result<T, CallError> {
        if let Ok(answer) = serde_json::from_slice(body) {
            return Ok(answer);
        }
        match serde_json::from_slice::<Problem>(body) {
            Ok(problem)
                if status.is_client_error() && status != StatusCode::REQUEST_TIMEOUT && !problem.detail.is_empty() =>
            {
                Err(CallError::Refused { status, detail: problem.detail, field: problem.field })
            }
            _ => Err(CallError::NotUnderstood { server: self.server.clone(), status }),
        }
    }

    fn nothing(&self) -> CallError {
        CallError::NotUnderstood { server: self.server.clone(), status: StatusCode::OK }
    }

    /// With all sources of an error: its own text says little.
    fn unreachable(&self, error: &(dyn std::error::Error + 'static)) -> CallError {
        let causes = std::iter::successors(Some(error), |error| error.source());
        let reason = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
        CallError::Unreachable { server: self.server.clone(), reason }
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;

    #[test]
    fn certificates_need_an_https_url() {
        let tls = crate::ClientTls::without_roots().unwrap();
        let refused = Client::with_tls("http://localhost:8080", OnFailure::Error, &tls).unwrap_err();
        assert!(refused.to_string().contains("write https://"), "{refused}");
        assert!(Client::with_tls("https://localhost:8080", OnFailure::Error, &tls).is_ok());
    }
}

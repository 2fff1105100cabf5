//! Error responses of the proxy itself, as problem details.

use axum::body::Body;
use axum::http::header::{CONNECTION, HeaderValue, RETRY_AFTER};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use checkdam_net::FramingFault;
use checkdam_service::client_identity::IdentityError;
use checkdam_service::http::Problem;

/// Why the body of a request did not arrive whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum UploadError {
    #[error("the client sent nothing for too long")]
    Stalled,
    #[error("the client sent its body too slowly")]
    Slow,
    #[error("the client closed the connection")]
    Broken,
}

/// Why a request was not forwarded, or got no response.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProxyError {
    #[error("{0}")]
    Ambiguous(FramingFault),
    #[error("{0}")]
    BadHost(&'static str),
    #[error("this proxy forwards requests to its own upstreams only")]
    Connect,
    #[error("{0}")]
    Origin(#[from] IdentityError),
    #[error("no route leads there")]
    NoRoute,
    #[error("{0}")]
    Upload(UploadError),
    #[error("this client is already sending {max} bodies; nothing was charged: finish one before the next")]
    TooManyUploads { max: usize },
    #[error("nothing was charged or forwarded: try again after a second")]
    Overloaded,
    #[error("the upstream has reached its connection limit: try again after a second")]
    Full,
    #[error("no upstream can be reached: try again later")]
    Unreachable,
    #[error("the upstream closed the connection before it responded")]
    Broken,
    #[error("the upstream did not answer within {seconds} s")]
    Slow { seconds: u64 },
}

impl ProxyError {
    fn status_and_title(&self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::Ambiguous(_) => {
                (StatusCode::BAD_REQUEST, "urn:checkdam:problem:ambiguous_request", "The request's end is ambiguous")
            }
            Self::BadHost(_) | Self::Origin(_) => {
                (StatusCode::BAD_REQUEST, "urn:checkdam:problem:bad_request", "The request cannot be understood")
            }
            Self::Connect => (StatusCode::METHOD_NOT_ALLOWED, "about:blank", "Method Not Allowed"),
            Self::NoRoute => (StatusCode::NOT_FOUND, "urn:checkdam:problem:no_route", "No route leads there"),
            Self::Upload(UploadError::Stalled | UploadError::Slow) => {
                (StatusCode::REQUEST_TIMEOUT, "urn:checkdam:problem:timeout", "The request took too long")
            }
            Self::Upload(UploadError::Broken) => {
                (StatusCode::BAD_REQUEST, "urn:checkdam:problem:malformed_body", "The body could not be read")
            }
            Self::TooManyUploads { .. } => (
                StatusCode::TOO_MANY_REQUESTS,
                "urn:checkdam:problem:too_many_uploads",
                "The client sends too many bodies at a time",
            ),
            Self::Full => (
                StatusCode::SERVICE_UNAVAILABLE,
                "urn:checkdam:problem:upstream_full",
                "The upstream has too much to do",
            ),
            Self::Overloaded => {
                (StatusCode::SERVICE_UNAVAILABLE, "urn:checkdam:problem:overloaded", "The server has too much to do")
            }
            Self::Unreachable => {
                (StatusCode::BAD_GATEWAY, "urn:checkdam:problem:upstream_unreachable", "The upstream cannot be reached")
            }
            Self::Broken => (
                StatusCode::BAD_GATEWAY,
                "urn:checkdam:problem:upstream_failed",
                "The upstream did not answer properly",
            ),
            Self::Slow { .. } => {
                (StatusCode::GATEWAY_TIMEOUT, "urn:checkdam:problem:upstream_timeout", "The upstream took too long")
            }
        }
    }

    /// Whether what follows on the connection cannot be relied on.
    const fn ends_connection(&self) -> bool {
        matches!(self, Self::Ambiguous(_) | Self::BadHost(_) | Self::Connect | Self::Upload(_))
    }
}

impl IntoResponse for ProxyError {
    fn into_response(self) -> Response<Body> {
        let (status, kind, title) = self.status_and_title();
        let mut response = Problem::new(kind, title, status, self.to_string()).into_response();
        if self.ends_connection() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

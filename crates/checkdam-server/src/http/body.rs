//! Reads a request's body: all of it, within a bound and a time.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;

use super::problem::Problem;

/// The largest body in bytes.
const BODY_MAX: usize = 64 << 10;
/// What is read and thrown away of a larger one, so that its sender is still
/// listening when the refusal comes.
const DISCARD_MAX: usize = 1 << 20;
/// How long a body may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The whole body.
pub(super) async fn read(body: Body) -> Result<Bytes, Problem> {
    // The timer is armed only if the body is not there yet.
    match tokio::time::timeout(TIMEOUT, collect(body)).await {
        Ok(read) => read,
        Err(_) => Err(Problem::timeout(TIMEOUT.as_secs())),
    }
}

async fn collect(mut body: Body) -> Result<Bytes, Problem> {
    let announced = body.size_hint().lower();
    if announced > DISCARD_MAX as u64 {
        return Err(Problem::too_large(BODY_MAX));
    }
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| Problem::interrupted(&error.to_string()))?.into_data() else { continue };
        length += data.len();
        if length > DISCARD_MAX {
            break;
        }
        if length > BODY_MAX {
            continue;
        }
        if length == data.len() {
            first = data;
        } else {
            if joined.is_empty() {
                joined.extend_from_slice(&first);
            }
            joined.extend_from_slice(&data);
        }
    }
    match length {
        _ if length > BODY_MAX => Err(Problem::too_large(BODY_MAX)),
        _ if joined.is_empty() => Ok(first),
        _ => Ok(joined.freeze()),
    }
}

//! Reads whole request bodies, with a maximum size and a timeout.

use std::fmt::Display;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use axum::body::HttpBody;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;

use super::problem::Problem;

/// The largest body in bytes.
pub(super) const BODY_MAX: usize = 64 << 10;
/// How much of a larger body is read and discarded, so that its sender still receives
/// the response.
const DISCARD_MAX: usize = 1 << 20;
/// How long a body may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long a whole document may take.
const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(60);

/// The whole body.
pub(super) async fn read<B>(body: B) -> Result<Bytes, Problem>
where
    B: HttpBody<Data = Bytes, Error: Display> + Unpin,
{
    read_within(body, BODY_MAX).await
}

/// The whole body, which may be larger and take longer than usual.
pub(super) async fn read_within<B>(body: B, bytes_max: usize) -> Result<Bytes, Problem>
where
    B: HttpBody<Data = Bytes, Error: Display> + Unpin,
{
    let limit = if bytes_max > BODY_MAX { DOCUMENT_TIMEOUT } else { TIMEOUT };
    let mut reading = std::pin::pin!(collect(body, bytes_max));
    if let Some(read) = poll_twice(reading.as_mut()).await {
        return read;
    }
    match tokio::time::timeout(limit, reading).await {
        Ok(read) => read,
        Err(_) => Err(Problem::timeout(limit.as_secs())),
    }
}

/// The result of the first or second poll, so that most requests arm no timer: with
/// HTTP/1, hyper reads a body only when it is polled.
async fn poll_twice<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    let mut is_second = false;
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if is_second => Poll::Ready(None),
        Poll::Pending => {
            is_second = true;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}

async fn collect<B>(mut body: B, bytes_max: usize) -> Result<Bytes, Problem>
where
    B: HttpBody<Data = Bytes, Error: Display> + Unpin,
{
    let discarded_max = DISCARD_MAX.max(bytes_max);
    let announced = body.size_hint().lower();
    if announced > discarded_max as u64 {
        return Err(Problem::too_large(bytes_max));
    }
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| Problem::interrupted(&error.to_string()))?.into_data() else { continue };
        length += data.len();
        if length > discarded_max {
            break;
        }
        if length > bytes_max {
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
        _ if length > bytes_max => Err(Problem::too_large(bytes_max)),
        _ if joined.is_empty() => Ok(first),
        _ => Ok(joined.freeze()),
    }
}

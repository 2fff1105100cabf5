//! hyper's HTTP/1 server on bytes in memory.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;

/// How often a future may be polled: in memory each poll makes progress.
const POLLS_MAX: usize = 100_000;

/// Serves the requests in these bytes, then closes the connection.
pub(crate) fn serve<F>(bytes: &[u8], respond: impl Fn(Request<Incoming>) -> F)
where
    F: Future<Output = ()>,
{
    let service = service_fn(|request| {
        let responding = respond(request);
        async move {
            responding.await;
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let connection = http1::Builder::new().serve_connection(Memory(bytes), service);
    // An error of the connection is a rejected request.
    let _ = block_on(connection);
}

/// Polls a future that waits for nothing but itself.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..POLLS_MAX {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
    panic!("a future in memory did not end");
}

/// Reads the bytes, and discards what is written.
struct Memory<'a>(&'a [u8]);

impl Read for Memory<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, mut buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let (read, rest) = self.0.split_at(buffer.remaining().min(self.0.len()));
        buffer.put_slice(read);
        self.0 = rest;
        Poll::Ready(Ok(()))
    }
}

impl Write for Memory<'_> {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

//! The byte stream of a connection, plain or TLS.
//!
//! Both are variants of one enum: reading a plain connection costs one comparison more
//! than the socket itself, and no indirect call.

use std::io::{Error, ErrorKind, IoSlice};
use std::net::TcpStream as StdTcpStream;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// How much of a request is read to detect health paths.
pub(crate) const START_MAX: usize = 24;

/// A connection after its handshake.
pub type SecureStream = TlsStream<TlsTransport>;

/// The socket below TLS. It can be moved to another runtime.
#[derive(Debug)]
pub struct TlsTransport {
    /// None only while it is moved.
    stream: Option<TcpStream>,
    /// Whether the client has taken bytes since this was last asked for.
    has_written: bool,
}

/// The stream of a served connection.
#[derive(Debug)]
pub(crate) enum ServerStream {
    Plain(TcpStream),
    Tls(Box<TlsConnection>),
}

/// A secure connection of which the first bytes may have been read already.
#[derive(Debug)]
pub(crate) struct TlsConnection {
    stream: SecureStream,
    start: [u8; START_MAX],
    /// How much of `start` is filled, and how much of that was read again.
    filled: usize,
    consumed: usize,
}

impl TlsTransport {
    pub(super) const fn new(stream: TcpStream) -> Self {
        Self { stream: Some(stream), has_written: false }
    }

    pub(super) fn into_stream(self) -> Option<TcpStream> {
        self.stream
    }

    fn stream(&mut self) -> Result<Pin<&mut TcpStream>, Error> {
        self.stream.as_mut().map(Pin::new).ok_or_else(|| ErrorKind::NotConnected.into())
    }
}

impl TlsConnection {
    pub(crate) const fn new(stream: SecureStream) -> Self {
        Self { stream, start: [0; START_MAX], filled: 0, consumed: 0 }
    }

    /// Waits for the first bytes of a request, which are read again later. Nothing if the
    /// connection has ended.
    pub(crate) async fn peek(&mut self) -> &[u8] {
        if self.filled == 0 {
            self.filled = self.stream.read(&mut self.start).await.unwrap_or(0);
        }
        &self.start[..self.filled]
    }

    /// Takes the socket off its runtime.
    pub(crate) fn detach(&mut self) -> Option<StdTcpStream> {
        self.stream.get_mut().0.stream.take()?.into_std().ok()
    }

    /// Registers the socket with the current runtime.
    pub(crate) fn attach(&mut self, stream: StdTcpStream) -> Result<(), Error> {
        self.stream.get_mut().0.stream = Some(TcpStream::from_std(stream)?);
        Ok(())
    }
}

impl ServerStream {
    /// Whether the client has taken bytes since the last call, where a write or flush that
    /// is pending does not show it.
    pub(crate) fn take_write_progress(&mut self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => std::mem::take(&mut tls.stream.get_mut().0.has_written),
        }
    }

    pub(crate) const fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }
}

impl AsyncRead for TlsTransport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<(), Error>> {
        self.stream()?.poll_read(context, buffer)
    }
}

impl AsyncWrite for TlsTransport {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, Error>> {
        let written = std::task::ready!(self.stream()?.poll_write(context, bytes));
        self.has_written = true;
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.stream()?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.stream()?.poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        let written = std::task::ready!(self.stream()?.poll_write_vectored(context, slices));
        self.has_written = true;
        Poll::Ready(written)
    }
}

impl AsyncRead for ServerStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<(), Error>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(tls) if tls.consumed < tls.filled => {
                let length = (tls.filled - tls.consumed).min(buffer.remaining());
                buffer.put_slice(&tls.start[tls.consumed..tls.consumed + length]);
                tls.consumed += length;
                Poll::Ready(Ok(()))
            }
            Self::Tls(tls) => Pin::new(&mut tls.stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for ServerStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, Error>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(tls) => Pin::new(&mut tls.stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(tls) => Pin::new(&mut tls.stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(tls) => Pin::new(&mut tls.stream).poll_shutdown(context),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(tls) => tls.stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Tls(tls) => Pin::new(&mut tls.stream).poll_write_vectored(context, slices),
        }
    }
}

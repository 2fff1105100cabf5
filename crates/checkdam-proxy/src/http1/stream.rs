//! The byte stream of a connection, TCP or TLS.

use std::io::{Error, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::TcpStream;

type TlsStream = TokioIo<MaybeHttpsStream<TokioIo<TcpStream>>>;

pub(crate) enum Stream {
    Plain(TcpStream),
    Secured(Box<TlsStream>),
    /// Read half only: another task writes.
    Half(ReadHalf<Box<Self>>),
    /// Given away.
    None,
}

impl Stream {
    pub(super) fn split_write_half(&mut self) -> WriteHalf<Box<Self>> {
        let (reads, writes) = tokio::io::split(Box::new(std::mem::replace(self, Self::None)));
        *self = Self::Half(reads);
        writes
    }
}

impl From<MaybeHttpsStream<TokioIo<TcpStream>>> for Stream {
    fn from(stream: MaybeHttpsStream<TokioIo<TcpStream>>) -> Self {
        match stream {
            MaybeHttpsStream::Http(plain) => Self::Plain(plain.into_inner()),
            secured => Self::Secured(Box::new(TokioIo::new(secured))),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<(), Error>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Secured(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Half(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::None => Poll::Ready(Err(ErrorKind::NotConnected.into())),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, Error>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Secured(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Half(_) | Self::None => Poll::Ready(Err(ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Secured(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Half(_) | Self::None => Poll::Ready(Err(ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Secured(stream) => Pin::new(stream).poll_flush(context),
            Self::Half(_) | Self::None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Secured(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Half(_) | Self::None => Poll::Ready(Ok(())),
        }
    }
}

//! How the load generator's connections are opened: TCP, and TLS if the target is
//! `https://`.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::{InvalidDnsNameError, ServerName};

/// Protocols to negotiate by ALPN.
const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";

/// An address that is loaded, and how.
#[derive(Clone)]
pub struct Endpoint {
    address: SocketAddr,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Endpoint {
    pub const fn plain(address: SocketAddr) -> Self {
        Self { address, tls: None }
    }

    /// With TLS: the certificate must be for `host`, a name or an address.
    pub fn tls(
        address: SocketAddr,
        host: &str,
        mut config: ClientConfig,
        is_grpc: bool,
    ) -> Result<Self, InvalidDnsNameError> {
        config.alpn_protocols = vec![if is_grpc { HTTP2 } else { HTTP1 }.to_vec()];
        let name = ServerName::try_from(host.to_owned())?;
        Ok(Self { address, tls: Some((TlsConnector::from(Arc::new(config)), name)) })
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) async fn connect(&self) -> io::Result<Connection> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let Some((connector, name)) = &self.tls else { return Ok(Connection::Plain(stream)) };
        Ok(Connection::Tls(Box::new(connector.connect(name.clone(), stream).await?)))
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.tls.as_ref().map(|(_, name)| name);
        formatter.debug_struct("Endpoint").field("address", &self.address).field("tls", &name).finish()
    }
}

/// An open connection.
#[derive(Debug)]
pub(super) enum Connection {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection {
    /// Whether the server has neither closed it nor sent unsolicited data, which would be
    /// taken for the next response. Session tickets of TLS are no data. Makes a system call
    /// only if something has arrived.
    pub(super) async fn is_quiet(&mut self) -> bool {
        let stream = match self {
            Self::Plain(stream) => {
                let nothing = stream.try_read(&mut [0]);
                return matches!(nothing, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
            }
            Self::Tls(stream) => stream,
        };
        let mut byte = [0];
        let polled = poll_fn(|context| {
            Poll::Ready(Pin::new(&mut *stream).poll_read(context, &mut ReadBuf::new(&mut byte)).is_pending())
        });
        // Without the task's budget, which would say "pending" of a connection that is closed.
        tokio::task::unconstrained(polled).await
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, into),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }
}

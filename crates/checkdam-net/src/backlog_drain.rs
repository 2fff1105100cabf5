//! Drains the accept backlog of a listener before it is closed.
//!
//! Closing a listening socket resets connections that are established but not yet
//! accepted, although their clients may already have sent a request. So the backlog
//! is shrunk and filled with connections of our own, so that no connection of a client
//! can enter it. Only connections still in the TCP handshake are reset.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;

/// The smallest backlog at which Linux does not report a SYN flood. The queue holds
/// one connection more than this.
const BACKLOG: i32 = 1;
/// Timeout of a connection to ourselves, which fails when the backlog is full.
const LIMIT: Duration = Duration::from_millis(20);

/// The shrunk backlog of a listener.
pub(crate) struct BacklogDrain {
    address: SocketAddr,
}

/// A backlog filled with our own connections, until this is dropped.
#[derive(Debug)]
pub(crate) struct FilledBacklog {
    _first: TcpStream,
    _second: TcpStream,
}

impl BacklogDrain {
    /// Shrinks the backlog to the minimum; none if the system does not support it.
    pub(crate) fn shrink(listener: &TcpListener) -> Option<Self> {
        let mut address = listener.local_addr().ok()?;
        SockRef::from(listener).listen(BACKLOG).ok()?;
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        Some(Self { address })
    }

    /// Fills the backlog; none if a client is in it, which must be accepted first.
    pub(crate) async fn fill(&self) -> Option<FilledBacklog> {
        Some(FilledBacklog { _first: self.connect().await?, _second: self.connect().await? })
    }

    async fn connect(&self) -> Option<TcpStream> {
        tokio::time::timeout(LIMIT, TcpStream::connect(self.address)).await.ok()?.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux drops SYN packets of clients while the backlog is full.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn nobody_else_waits_once_the_last_places_are_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let early = TcpStream::connect(address).await.unwrap();
        let places = BacklogDrain::shrink(&listener).unwrap();
        assert!(places.fill().await.is_none(), "one is somebody else's");
        let (_, peer) = listener.accept().unwrap();
        assert_eq!(peer, early.local_addr().unwrap(), "who came first is accepted first");
        while listener.accept().is_ok() {}
        let taken = places.fill().await.unwrap();
        let late = tokio::time::timeout(Duration::from_millis(100), TcpStream::connect(address)).await;
        assert!(late.is_err(), "no place is left: {late:?}");
        drop((listener, taken));
        let refused = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    }
}

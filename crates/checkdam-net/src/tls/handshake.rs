//! The TLS handshake of a connection, and what is counted and logged if it fails.

use std::io::{Error, ErrorKind};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{CertificateError, Error as RustlsError};

use super::ListenerTls;
use super::client_ca::{ClientCaTrust, ClientCas};
use super::stream::{SecureStream, TlsTransport};

/// How often failed handshakes are logged as a warning.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// How long and how much is still read after a failure, so that the client receives the
/// alert before the connection is reset.
const LINGER: Duration = Duration::from_millis(500);
const LINGER_MAX: usize = 64 << 10;

/// The response to a request without TLS.
const PLAINTEXT_RESPONSE: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n\
    content-length: 49\r\n\r\nThis port expects TLS: use https:// in the URL.\r\n";

/// Why a handshake failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeFailure {
    /// The client closed the connection.
    Closed,
    /// It took longer than a request's head may.
    Timeout,
    /// The client sent a request without TLS.
    Plaintext,
    /// The client sent no certificate, or one that is not accepted.
    ClientCertificate,
    /// Client and server have no protocol version, cipher suite or ALPN protocol in
    /// common, the client rejected our certificate, or it did not send TLS.
    Protocol,
}

impl HandshakeFailure {
    /// All of them, in their order.
    pub const ALL: [Self; 5] = [Self::Closed, Self::Timeout, Self::Plaintext, Self::ClientCertificate, Self::Protocol];

    /// The label in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Timeout => "timeout",
            Self::Plaintext => "plaintext",
            Self::ClientCertificate => "client_certificate",
            Self::Protocol => "protocol",
        }
    }

    fn of(error: &Error) -> Self {
        match error.get_ref().and_then(|source| source.downcast_ref::<RustlsError>()) {
            Some(RustlsError::NoCertificatesPresented | RustlsError::InvalidCertificate(_)) => Self::ClientCertificate,
            Some(_) => Self::Protocol,
            None if error.kind() == ErrorKind::InvalidData => Self::Protocol,
            None => Self::Closed,
        }
    }
}

impl ListenerTls {
    /// Makes a connection secure; none if that fails, which is counted and logged. A client
    /// that closes the connection without having sent anything has not failed: load
    /// balancers test ports so.
    ///
    /// The caller bounds the time, and closes the connection when its CA is removed.
    pub async fn accept(&self, stream: TcpStream) -> Option<(SecureStream, ClientCaTrust)> {
        let mut first = [0];
        match stream.peek(&mut first).await {
            Ok(1..) => {}
            _ => return None,
        }
        if first[0].is_ascii_uppercase() {
            self.record_failure(HandshakeFailure::Plaintext, &"a request without TLS");
            reject_plaintext(stream).await;
            return None;
        }
        let (acceptor, trust) = {
            let active = self.active.load();
            let trust = active.client_cas.as_ref().map(ClientCas::trust).unwrap_or_default();
            (TlsAcceptor::from(std::sync::Arc::clone(&active.config)), trust)
        };
        match acceptor.accept(TlsTransport::new(stream)).into_fallible().await {
            Ok(stream) => Some((stream, trust)),
            Err((error, transport)) => {
                self.record_failure(HandshakeFailure::of(&error), &describe(&error));
                if let Some(stream) = transport.into_stream() {
                    linger(stream).await;
                }
                None
            }
        }
    }

    /// How many handshakes have failed, by reason.
    pub fn failures(&self) -> impl Iterator<Item = (HandshakeFailure, u64)> {
        HandshakeFailure::ALL.into_iter().zip(&self.failures).map(|(why, count)| (why, count.load(Ordering::Relaxed)))
    }

    /// Counts a handshake that has taken too long.
    pub(crate) fn record_timeout(&self) {
        self.record_failure(HandshakeFailure::Timeout, &"it took too long");
    }

    fn record_failure(&self, why: HandshakeFailure, detail: &dyn std::fmt::Display) {
        self.failures[why as usize].fetch_add(1, Ordering::Relaxed);
        let (listener, reason) = (self.listener, why.name());
        tracing::debug!(listener, reason, %detail, "a TLS handshake failed");
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.0.is_some_and(|at| at.elapsed() < WARN_EVERY) {
            logged.1 += 1;
            return;
        }
        let before = std::mem::take(&mut logged.1);
        logged.0 = Some(Instant::now());
        drop(logged);
        tracing::warn!(listener, reason, %detail, before, "a TLS handshake failed; further ones are logged once a minute");
    }
}

/// What an error says, in words for those who configure the client.
fn describe(error: &Error) -> String {
    match error.get_ref().and_then(|source| source.downcast_ref::<RustlsError>()) {
        Some(RustlsError::NoCertificatesPresented) => "the client sent no certificate".to_owned(),
        Some(RustlsError::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "the client's certificate is of another CA".to_owned()
        }
        Some(error) => error.to_string(),
        None => error.to_string(),
    }
}

/// Answers a request without TLS.
async fn reject_plaintext(mut stream: TcpStream) {
    if stream.write_all(PLAINTEXT_RESPONSE.as_bytes()).await.is_ok() {
        linger(stream).await;
    }
}

/// Closes a connection after the client could read what was sent: closing a socket with
/// unread input resets the connection.
async fn linger(mut stream: TcpStream) {
    let read_rest = async {
        stream.shutdown().await?;
        let (mut rest, mut total) = ([0; 1024], 0);
        while total < LINGER_MAX {
            match stream.read(&mut rest).await? {
                0 => break,
                length => total += length,
            }
        }
        Ok::<_, Error>(())
    };
    // Whatever happens, the connection is closed.
    let _ = tokio::time::timeout(LINGER, read_rest).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plaintext_response_says_how_long_it_is() {
        let (head, body) = PLAINTEXT_RESPONSE.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{head} {}", body.len());
    }

    #[test]
    fn failures_are_counted_in_their_order() {
        for (position, why) in HandshakeFailure::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, position);
        }
    }
}

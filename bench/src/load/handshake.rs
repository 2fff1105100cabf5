//! TLS handshakes: each on a connection of its own, with one small request on it.
//!
//! The client verifies neither the certificate nor the signature, which would cost more than
//! the server's own work and leave the server waiting.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use super::{connect, in_pinned_runtime, since_ns, summary};
use crate::machine::cpu_seconds;

/// What [`run`] measures.
pub const METRICS: &[&str] = &["handshakes/s", "µs p50", "µs p99", "CPU µs/handshake", "server busy"];

const REQUEST: &[u8] = b"GET /none HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

/// Keeps `in_flight` connections under way for that long: TCP and TLS 1.3 handshake by X25519
/// without resumption, a request, its response, close.
///
/// # Panics
/// If a connection fails.
#[must_use]
pub fn run(address: SocketAddr, process: u32, in_flight: usize, length: Duration) -> Vec<f64> {
    in_pinned_runtime(address, async move {
        let connector = connector();
        let (cpu, start) = (cpu_seconds(process), Instant::now());
        let end = start + length;
        let tasks: Vec<_> = (0..in_flight).map(|_| tokio::spawn(drive(address, connector.clone(), end))).collect();
        let mut waits_ns = Vec::new();
        for task in tasks {
            waits_ns.extend(task.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())));
        }
        let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds(process) - cpu);
        summary(&mut waits_ns, seconds, cpu)
    })
}

async fn drive(address: SocketAddr, connector: TlsConnector, end: Instant) -> Vec<u32> {
    let name = ServerName::IpAddress(address.ip().into());
    let (mut waits, mut seen) = (Vec::with_capacity(1 << 14), vec![0; 4_096]);
    loop {
        let start = Instant::now();
        if start >= end {
            return waits;
        }
        let stream = connect(address).await;
        let mut stream = connector.connect(name.clone(), stream).await.unwrap_or_else(|error| panic!("TLS: {error}"));
        stream.write_all(REQUEST).await.unwrap_or_else(|error| panic!("cannot write: {error}"));
        let count = stream.read(&mut seen).await.unwrap_or_else(|error| panic!("cannot read: {error}"));
        let text = String::from_utf8_lossy(&seen[..count]);
        assert!(text.starts_with("HTTP/1.1 404"), "not what was expected:\n{text}");
        // The server closes first: its side keeps the port in TIME-WAIT, not the client's, which would run out of them.
        while stream.read(&mut seen).await.is_ok_and(|count| count > 0) {}
        waits.push(since_ns(start));
    }
}

fn connector() -> TlsConnector {
    let mut provider = ring::default_provider();
    provider.kx_groups = vec![ring::kx_group::X25519];
    let provider = Arc::new(provider);
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])
        .unwrap_or_else(|error| panic!("TLS 1.3: {error}"))
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Unverified(provider)))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    TlsConnector::from(Arc::new(config))
}

/// Accepts every certificate: the servers are ours.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

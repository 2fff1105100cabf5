//! TLS on a listener: certificates from PEM files, mutual TLS, reload without a restart.
//!
//! The cryptography is [rustls](https://docs.rs/rustls) with ring, TLS 1.2 and 1.3. No
//! process-wide provider is installed. A handshake that fails closes its connection and
//! is counted; it is answered with an alert, or with 400 if the client sent plain HTTP.

mod certificate_files;
mod client;
mod client_ca;
mod handshake;
mod reload;
mod stream;

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio::time::Instant;
use tokio_rustls::rustls::ServerConfig;

use self::certificate_files::{FileContents, UsableCertificate};
pub use self::certificate_files::{FileRole, TlsError, TlsFiles};
pub use self::client::{ClientTlsFiles, config_without_roots};
pub use self::client_ca::ClientCaTrust;
use self::client_ca::ClientCas;
pub use self::handshake::HandshakeFailure;
pub use self::reload::follow_certificate_files;
pub use self::stream::SecureStream;
pub(crate) use self::stream::{START_MAX, ServerStream, TlsConnection};
use super::options::Protocol;

/// TLS of one listener. Handshakes use the certificate that was loaded last.
#[derive(Debug)]
pub struct ListenerTls {
    /// The listener's name in logs and metrics.
    listener: &'static str,
    files: TlsFiles,
    protocol: Protocol,
    active: ArcSwap<ActiveCertificate>,
    reload: Mutex<reload::ReloadState>,
    failures: [AtomicU64; HandshakeFailure::ALL.len()],
    /// When a failed handshake was last logged as a warning, and how many were not since.
    logged: Mutex<(Option<Instant>, u64)>,
}

#[derive(Debug)]
struct ActiveCertificate {
    config: Arc<ServerConfig>,
    /// Identifies the contents of the files.
    digest: u64,
    /// When the server's own certificate expires, in Unix time; none if that
    /// cannot be parsed.
    expires_unix_s: Option<u64>,
    /// What client certificates are verified against, with mutual TLS.
    client_cas: Option<ClientCas>,
}

impl ActiveCertificate {
    fn new(files: &TlsFiles, contents: &FileContents, protocol: Protocol) -> Result<Self, TlsError> {
        let UsableCertificate { mut config, expires_unix_s, client_roots } = UsableCertificate::new(files, contents)?;
        config.alpn_protocols = match protocol {
            Protocol::Http => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            Protocol::Grpc => vec![b"h2".to_vec()],
        };
        let (config, client_cas) = (Arc::new(config), client_roots.map(ClientCas::new));
        Ok(Self { config, digest: contents.digest(), expires_unix_s, client_cas })
    }

    /// Makes this the successor of another; returns whether connections that a client CA of
    /// that one has admitted are to end.
    fn succeed(&mut self, old: &Self) -> bool {
        let cas = self.client_cas.as_mut().zip(old.client_cas.as_ref());
        cas.is_some_and(|(new, old)| new.succeed(old))
    }
}

impl ListenerTls {
    /// Loads the files for a listener of this name. An expired certificate is loaded too:
    /// clients reject it, and it can be replaced without a restart.
    pub fn load(listener: &'static str, files: TlsFiles, protocol: Protocol) -> Result<Self, TlsError> {
        let contents = FileContents::read(&files)?;
        let active = ActiveCertificate::new(&files, &contents, protocol)?;
        Ok(Self {
            listener,
            files,
            protocol,
            active: ArcSwap::from_pointee(active),
            reload: Mutex::default(),
            failures: Default::default(),
            logged: Mutex::default(),
        })
    }

    /// The listener's name.
    pub const fn listener(&self) -> &'static str {
        self.listener
    }

    /// The file of the certificate.
    pub fn certificate_file(&self) -> &Path {
        &self.files.certificate
    }

    /// Whether clients must present a certificate.
    pub const fn verifies_clients(&self) -> bool {
        self.files.client_ca.is_some()
    }

    /// When the active certificate, or one of its chain, expires, in Unix time.
    pub fn expires_unix_s(&self) -> Option<u64> {
        self.active.load().expires_unix_s
    }

    /// Why newer files are not active, if they are not.
    pub fn reload_error(&self) -> Option<String> {
        self.reload.lock().unwrap_or_else(PoisonError::into_inner).reported_error().map(str::to_owned)
    }
}

//! TLS of clients: of the commands that call a server, and of the proxy.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::client::WantsClientCert;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, ConfigBuilder, Error as RustlsError, RootCertStore};

use super::certificate_files::{FileRole, TlsError, certificates, invalid, private_key, read};

/// The PEM files of a client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientTlsFiles {
    /// The CAs that verify the server's certificate. Default the system's.
    pub ca: Option<PathBuf>,
    /// The client's own certificate, for servers that require one.
    pub certificate: Option<PathBuf>,
    /// Its private key. Default in the file of the certificate.
    pub key: Option<PathBuf>,
}

impl ClientTlsFiles {
    /// What connections are made with.
    pub fn config(&self) -> Result<ClientConfig, TlsError> {
        let roots = match &self.ca {
            Some(path) => roots_of_file(path)?,
            None => system_roots()?,
        };
        let builder = with_roots(roots)?;
        let Some(certificate) = &self.certificate else { return Ok(builder.with_no_client_auth()) };
        let key = self.key.as_ref().unwrap_or(certificate);
        let chain = certificates(FileRole::Certificate, certificate, &read(FileRole::Certificate, certificate)?)?;
        let parsed = private_key(key, &read(FileRole::Key, key)?)?;
        builder.with_client_auth_cert(chain, parsed).map_err(|error| match error {
            RustlsError::InconsistentKeys(_) => {
                TlsError::Mismatch { certificate: certificate.clone(), key: key.clone() }
            }
            error => invalid(FileRole::Certificate, certificate, &error),
        })
    }
}

/// For plain connections by a connector that could use TLS, on a machine that may have no
/// CAs.
pub fn config_without_roots() -> Result<ClientConfig, TlsError> {
    Ok(with_roots(RootCertStore::empty())?.with_no_client_auth())
}

/// TLS 1.2 and 1.3 by ring, whatever provider the process has installed.
fn with_roots(roots: RootCertStore) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, TlsError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_protocol_versions(&[&TLS13, &TLS12]);
    let builder = builder.map_err(|error| TlsError::SystemRoots { reason: error.to_string() })?;
    Ok(builder.with_root_certificates(roots))
}

fn roots_of_file(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(FileRole::Ca, path, &read(FileRole::Ca, path)?)? {
        roots.add(certificate).map_err(|error| invalid(FileRole::Ca, path, &error))?;
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    match found.errors.first() {
        _ if !roots.is_empty() => Ok(roots),
        Some(error) => Err(TlsError::SystemRoots { reason: error.to_string() }),
        None => Err(TlsError::SystemRoots { reason: "it has none".to_owned() }),
    }
}

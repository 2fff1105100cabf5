//! TLS of a client: which CAs verify the server, and the client's own certificate.

use std::sync::Arc;

use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::client::WantsClientCert;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};

/// TLS 1.2 and 1.3 to an `https` server.
///
/// ```no_run
/// # fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use checkdam_client::{Client, ClientTls, OnFailure};
/// let tls = ClientTls::with_ca(&std::fs::read("ca.pem")?)?
///     .client_certificate(&std::fs::read("client.pem")?, &std::fs::read("client.key")?)?;
/// let client = Client::with_tls("https://limits.example:8080", OnFailure::Open, &tls)?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct ClientTls {
    roots: Roots,
    config: ClientConfig,
}

/// Which CAs verify the server.
#[derive(Debug, Clone)]
enum Roots {
    System,
    Own(Arc<RootCertStore>),
}

/// Why TLS cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientTlsError {
    /// The system's CA certificates cannot be used.
    #[error("the system's CA certificates cannot be used: {reason}")]
    SystemRoots {
        /// What is wrong.
        reason: String,
    },
    /// The CA cannot be used.
    #[error("the CA is not a certificate in PEM: {reason}")]
    Ca {
        /// What is wrong.
        reason: String,
    },
    /// The client certificate cannot be used.
    #[error("the client certificate and its key are not a pair in PEM: {reason}")]
    ClientCertificate {
        /// What is wrong.
        reason: String,
    },
}

impl ClientTls {
    /// The system's CAs verify the server.
    ///
    /// # Errors
    /// If the system has none.
    pub fn system_roots() -> Result<Self, ClientTlsError> {
        Self::new(Roots::System)
    }

    /// These CAs, in PEM, verify the server, and no others.
    ///
    /// # Errors
    /// If it contains no certificate.
    pub fn with_ca(pem: &[u8]) -> Result<Self, ClientTlsError> {
        let invalid = |error: &dyn std::fmt::Display| ClientTlsError::Ca { reason: error.to_string() };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| invalid(&error))?;
            roots.add(certificate).map_err(|error| invalid(&error))?;
        }
        if roots.is_empty() {
            return Err(invalid(&"it contains none"));
        }
        Self::new(Roots::Own(Arc::new(roots)))
    }

    /// The same with a certificate for the server to verify: its chain and its private
    /// key, both in PEM.
    ///
    /// # Errors
    /// If they are invalid, or do not belong together.
    pub fn client_certificate(self, chain: &[u8], key: &[u8]) -> Result<Self, ClientTlsError> {
        let invalid = |error: &dyn std::fmt::Display| ClientTlsError::ClientCertificate { reason: error.to_string() };
        let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| invalid(&error))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| invalid(&error))?;
        let config = builder(&self.roots)?.with_client_auth_cert(chain, key).map_err(|error| invalid(&error))?;
        Ok(Self { config, ..self })
    }

    /// For plain connections, on a machine that may have no CAs.
    pub(crate) fn without_roots() -> Result<Self, ClientTlsError> {
        Self::new(Roots::Own(Arc::new(RootCertStore::empty())))
    }

    pub(crate) fn connector(&self, tcp: HttpConnector) -> HttpsConnector<HttpConnector> {
        let builder = HttpsConnectorBuilder::new().with_tls_config(self.config.clone());
        builder.https_or_http().enable_http1().wrap_connector(tcp)
    }

    fn new(roots: Roots) -> Result<Self, ClientTlsError> {
        let config = builder(&roots)?.with_no_client_auth();
        Ok(Self { roots, config })
    }
}

fn builder(roots: &Roots) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, ClientTlsError> {
    match roots {
        Roots::Own(roots) => Ok(versions()?.with_root_certificates(Arc::clone(roots))),
        Roots::System => {
            let found = versions()?.with_native_roots();
            found.map_err(|error| ClientTlsError::SystemRoots { reason: error.to_string() })
        }
    }
}

/// TLS 1.2 and 1.3 by ring, whatever provider the process has installed.
fn versions() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, ClientTlsError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions();
    builder.map_err(|error| ClientTlsError::SystemRoots { reason: error.to_string() })
}

//! Certificate, private key and client CA of a listener, read from PEM files and
//! validated together.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{Error as RustlsError, RootCertStore, ServerConfig};
use x509_cert::der::Decode;

use crate::bounded_file::{FILE_MAX, read_regular_file};

/// The PEM files of a listener's TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by the intermediate ones of its chain.
    pub certificate: PathBuf,
    /// Its private key: PKCS#8, PKCS#1 or SEC1. It may be the same file.
    pub key: PathBuf,
    /// CAs that client certificates are verified against; `None` disables mutual TLS.
    pub client_ca: Option<PathBuf>,
}

/// Why files cannot be used for TLS.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read the {role} {}: {reason}", path.display())]
    Unreadable {
        /// What it should contain.
        role: FileRole,
        /// The file.
        path: PathBuf,
        /// The system's message.
        reason: String,
    },
    /// A file is not PEM.
    #[error(
        "the {role} {} is not PEM, which begins with -----BEGIN: convert it, for example with openssl {}",
        path.display(), role.conversion()
    )]
    NotPem {
        /// What it should contain.
        role: FileRole,
        /// The file.
        path: PathBuf,
    },
    /// A file is PEM and does not contain what it should.
    #[error("the {role} {} contains no {}: give the file that does", path.display(), role.content())]
    Missing {
        /// What it should contain.
        role: FileRole,
        /// The file.
        path: PathBuf,
    },
    /// The private key has a passphrase.
    #[error("the private key {} is encrypted: decrypt it, for example with openssl pkey", path.display())]
    EncryptedKey {
        /// The file.
        path: PathBuf,
    },
    /// A file cannot be parsed.
    #[error("the {role} {} is not valid: {reason}", path.display())]
    Invalid {
        /// What it should contain.
        role: FileRole,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The key belongs to another certificate.
    #[error(
        "the private key {} does not fit the certificate {}: give the key with which that certificate was requested",
        key.display(), certificate.display()
    )]
    Mismatch {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// The system has no certificates that verify servers.
    #[error("the system's CA certificates cannot be used: {reason}; give a CA file")]
    SystemRoots {
        /// What is wrong with them.
        reason: String,
    },
}

/// What a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileRole {
    /// The listener's certificate and its chain.
    Certificate,
    /// Its private key.
    Key,
    /// The CAs of client certificates.
    ClientCa,
    /// The CAs that verify a server.
    Ca,
}

impl FileRole {
    const fn content(self) -> &'static str {
        match self {
            Self::Certificate | Self::ClientCa | Self::Ca => "certificate",
            Self::Key => "private key",
        }
    }

    const fn conversion(self) -> &'static str {
        match self {
            Self::Certificate | Self::ClientCa | Self::Ca => "x509 -inform DER",
            Self::Key => "pkey -inform DER",
        }
    }
}

impl fmt::Display for FileRole {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Certificate => "certificate",
            Self::Key => "private key",
            Self::ClientCa => "client CA",
            Self::Ca => "CA",
        })
    }
}

/// What the files contain.
#[derive(Hash)]
pub(super) struct FileContents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

impl FileContents {
    /// Reads all files. They may be symbolic links, as Kubernetes mounts secrets.
    pub(super) fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let client_ca = files.client_ca.as_deref().map(|path| read(FileRole::ClientCa, path)).transpose()?;
        Ok(Self {
            certificate: read(FileRole::Certificate, &files.certificate)?,
            key: read(FileRole::Key, &files.key)?,
            client_ca,
        })
    }

    /// Differs if the contents do. The private key is not kept to be compared.
    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

pub(super) fn invalid(role: FileRole, path: &Path, error: &dyn fmt::Display) -> TlsError {
    TlsError::Invalid { role, path: path.to_owned(), reason: error.to_string() }
}

pub(super) fn read(role: FileRole, path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable =
        |error: std::io::Error| TlsError::Unreadable { role, path: path.to_owned(), reason: error.to_string() };
    read_regular_file(path, FILE_MAX).map_err(unreadable)
}

/// A certificate that can be used.
pub(super) struct UsableCertificate {
    pub(super) config: ServerConfig,
    pub(super) expires_unix_s: Option<u64>,
    /// The CAs of client certificates, with mutual TLS.
    pub(super) client_roots: Option<Vec<CertificateDer<'static>>>,
}

impl UsableCertificate {
    /// Validates what the files contain.
    pub(super) fn new(files: &TlsFiles, contents: &FileContents) -> Result<Self, TlsError> {
        let chain = certificates(FileRole::Certificate, &files.certificate, &contents.certificate)?;
        let key = private_key(&files.key, &contents.key)?;
        let expires_unix_s = chain.first().and_then(expires_unix_s);
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| invalid(FileRole::Certificate, &files.certificate, &error))?;
        let mut client_roots = None;
        let builder = match files.client_ca.as_deref().zip(contents.client_ca.as_deref()) {
            Some((path, pem)) => {
                let role = FileRole::ClientCa;
                let mut roots = RootCertStore::empty();
                let found = certificates(role, path, pem)?;
                for certificate in &found {
                    roots.add(certificate.clone()).map_err(|error| invalid(role, path, &error))?;
                }
                client_roots = Some(found);
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| invalid(role, path, &error))?)
            }
            None => builder.with_no_client_auth(),
        };
        let config = builder.with_single_cert(chain, key).map_err(|error| match error {
            RustlsError::InconsistentKeys(_) => {
                TlsError::Mismatch { certificate: files.certificate.clone(), key: files.key.clone() }
            }
            error @ RustlsError::InvalidCertificate(_) => invalid(FileRole::Certificate, &files.certificate, &error),
            error => invalid(FileRole::Key, &files.key, &error),
        });
        let mut config = config?;
        if files.client_ca.is_some() {
            // A resumed session does not verify the client's certificate again, and gets a new
            // ticket: it would outlive the certificate.
            config.send_tls13_tickets = 0;
            config.session_storage = Arc::new(NoServerSessionStorage {});
        } else {
            // Sessions are resumed by tickets, which need no memory for each client.
            config.ticketer = ring::Ticketer::new().map_err(|error| invalid(FileRole::Key, &files.key, &error))?;
        }
        Ok(Self { config, expires_unix_s, client_roots })
    }
}

pub(super) fn certificates(role: FileRole, path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    match found {
        Ok(found) if found.is_empty() => Err(nothing_found(role, path, pem)),
        Ok(found) => Ok(found),
        Err(error) => Err(invalid(role, path, &error)),
    }
}

pub(super) fn private_key(path: &Path, pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        PemError::NoItemsFound => nothing_found(FileRole::Key, path, pem),
        error => invalid(FileRole::Key, path, &error),
    })
}

fn nothing_found(role: FileRole, path: &Path, pem: &[u8]) -> TlsError {
    let text = String::from_utf8_lossy(pem);
    let path = path.to_owned();
    match role {
        _ if !text.contains("-----BEGIN ") => TlsError::NotPem { role, path },
        FileRole::Key if text.contains("-----BEGIN ENCRYPTED PRIVATE KEY") => TlsError::EncryptedKey { path },
        _ => TlsError::Missing { role, path },
    }
}

/// When a certificate expires, in Unix time; none if it cannot be parsed, which rustls may
/// still be able to use.
fn expires_unix_s(certificate: &CertificateDer<'_>) -> Option<u64> {
    let parsed = x509_cert::Certificate::from_der(certificate).ok()?;
    Some(parsed.tbs_certificate.validity.not_after.to_unix_duration().as_secs())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    struct TestFiles {
        folder: tempfile::TempDir,
    }

    impl TestFiles {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().unwrap() }
        }

        fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
            let path = self.folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        }
    }

    fn self_signed() -> (String, String) {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_after = date_time_ymd(2030, 1, 2);
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    fn load(certificate: PathBuf, key: PathBuf, client_ca: Option<PathBuf>) -> Result<Option<u64>, String> {
        let files = TlsFiles { certificate, key, client_ca };
        let contents = FileContents::read(&files).map_err(|error| error.to_string())?;
        let usable = UsableCertificate::new(&files, &contents).map_err(|error| error.to_string())?;
        Ok(usable.expires_unix_s)
    }

    #[test]
    fn one_file_may_contain_certificate_and_key() {
        let files = TestFiles::new();
        let (certificate, key) = self_signed();
        let both = files.write("both.pem", format!("{key}{certificate}"));
        assert_eq!(load(both.clone(), both.clone(), Some(both)), Ok(Some(1_893_542_400)));
    }

    #[test]
    fn unfit_files_are_named_with_the_reason() {
        let files = TestFiles::new();
        let ((certificate, key), (_, other_key)) = (self_signed(), self_signed());
        let (good, good_key) = (files.write("good.crt", &certificate), files.write("good.key", &key));
        let other_key = files.write("other.key", &other_key);
        let binary = files.write("binary.der", [0x30, 0x82, 0xff, 0]);
        let empty = files.write("empty.pem", "");
        let half = files.write("half.crt", &certificate[..certificate.len() / 2]);
        let body = files.write("body.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        let locked = files
            .write("locked.key", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n");
        let missing = files.folder.path().join("missing.pem");
        let huge = files.write("huge.pem", vec![b'x'; FILE_MAX as usize + 1]);
        let device = PathBuf::from("/dev/zero");
        for (certificate, key, client_ca, expected) in [
            (&missing, &good_key, None, "cannot read the certificate"),
            (&good, &missing, None, "cannot read the private key"),
            (&good, &good_key, Some(&missing), "cannot read the client CA"),
            (&device, &good_key, None, "the certificate /dev/zero: it is a pipe or a device"),
            (&good, &device, None, "the private key /dev/zero: it is a pipe or a device"),
            (&good, &good_key, Some(&device), "the client CA /dev/zero: it is a pipe or a device"),
            (&good, &huge, None, "longer than 1 MiB"),
            (&binary, &good_key, None, "is not PEM"),
            (&good, &binary, None, "openssl pkey -inform DER"),
            (&good_key, &good_key, None, "contains no certificate"),
            (&good, &good, None, "contains no private key"),
            (&good, &locked, None, "is encrypted"),
            (&half, &good_key, None, "half.crt is not valid"),
            (&body, &good_key, None, "body.crt is not valid"),
            (&good, &other_key, None, "does not fit the certificate"),
            (&good, &good_key, Some(&empty), "empty.pem is not PEM"),
            (&good, &good_key, Some(&good_key), "contains no certificate"),
        ] {
            let said = load(certificate.clone(), key.clone(), client_ca.cloned()).unwrap_err();
            assert!(said.contains(expected), "{expected}: {said}");
        }
    }
}

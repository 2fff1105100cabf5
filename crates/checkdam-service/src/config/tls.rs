//! TLS settings of the listeners: files for all listeners, and files for a single one.

use std::path::Path;

use checkdam_net::TlsFiles;

use super::{ConfigError, Settings};

/// Switches TLS, or client certificates, off for one listener.
const OFF: &str = "off";

/// The TLS files of each listener; none for a listener without TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    pub http: Option<TlsFiles>,
    pub grpc: Option<TlsFiles>,
    pub admin: Option<TlsFiles>,
    pub proxy: Option<TlsFiles>,
}

/// The three settings of a listener, or of all.
struct FileSettings<'a> {
    /// Their names: certificate, key, client CA.
    names: [&'static str; 3],
    certificate: Option<&'a Path>,
    key: Option<&'a Path>,
    client_ca: Option<&'a Path>,
}

impl TlsOptions {
    pub(super) fn from_settings(settings: &Settings) -> Result<Self, ConfigError> {
        macro_rules! files {
            ($certificate:ident, $key:ident, $client_ca:ident) => {
                FileSettings {
                    names: [stringify!($certificate), stringify!($key), stringify!($client_ca)],
                    certificate: settings.$certificate.as_deref(),
                    key: settings.$key.as_deref(),
                    client_ca: settings.$client_ca.as_deref(),
                }
            };
        }
        let all = files!(tls_cert, tls_key, tls_client_ca);
        all.files()?;
        Ok(Self {
            http: files!(http_tls_cert, http_tls_key, http_tls_client_ca).or(&all)?,
            grpc: files!(grpc_tls_cert, grpc_tls_key, grpc_tls_client_ca).or(&all)?,
            admin: files!(admin_tls_cert, admin_tls_key, admin_tls_client_ca).or(&all)?,
            proxy: files!(proxy_tls_cert, proxy_tls_key, proxy_tls_client_ca).or(&all)?,
        })
    }
}

impl FileSettings<'_> {
    /// These settings of a listener, and those of all listeners where it has none. A
    /// certificate of its own has a key of its own.
    fn or(&self, all: &FileSettings<'_>) -> Result<Option<TlsFiles>, ConfigError> {
        let (certificate, key) = match self.certificate {
            Some(certificate) => (Some(certificate), self.key),
            None if self.key.is_some() => {
                return Err(ConfigError::NoTlsCertificate { name: self.names[1], needed: self.names[0] });
            }
            None => (all.certificate, all.key),
        };
        // What is set for all listeners does not concern one without TLS.
        let has_tls = certificate.is_some_and(|path| !is_off(path));
        let client_ca = self.client_ca.or(all.client_ca.filter(|_| has_tls));
        FileSettings { names: self.names, certificate, key, client_ca }.files()
    }

    fn files(&self) -> Result<Option<TlsFiles>, ConfigError> {
        let client_ca = self.client_ca.filter(|path| !is_off(path));
        let Some(certificate) = self.certificate.filter(|path| !is_off(path)) else {
            let orphan = [self.key.map(|_| self.names[1]), client_ca.map(|_| self.names[2])];
            return match orphan.into_iter().flatten().next() {
                Some(name) => Err(ConfigError::NoTlsCertificate { name, needed: self.names[0] }),
                None => Ok(None),
            };
        };
        Ok(Some(TlsFiles {
            certificate: certificate.to_owned(),
            key: self.key.unwrap_or(certificate).to_owned(),
            client_ca: client_ca.map(Path::to_owned),
        }))
    }
}

fn is_off(path: &Path) -> bool {
    path == Path::new(OFF)
}

/// Whether clients of the admin listener need a certificate of a CA that is meant for
/// operators. The CA of all listeners is not: its certificates are those of services.
pub(super) fn has_operator_ca(settings: &Settings) -> bool {
    settings.admin_tls_client_ca.as_deref().is_some_and(|path| !is_off(path))
}

#[cfg(test)]
mod tests {
    use super::super::layers::Layered;
    use super::*;

    fn options(text: &str, flags: &str) -> Result<TlsOptions, String> {
        let settings = |text: &str| toml::from_str::<Settings>(&text.replace("; ", "\n")).unwrap();
        TlsOptions::from_settings(&settings(flags).or(settings(text))).map_err(|error| error.to_string())
    }

    fn files(certificate: &str, key: &str, client_ca: Option<&str>) -> Option<TlsFiles> {
        Some(TlsFiles { certificate: certificate.into(), key: key.into(), client_ca: client_ca.map(Into::into) })
    }

    #[test]
    fn a_listener_has_the_files_of_all_unless_it_has_its_own() {
        assert_eq!(options("", ""), Ok(TlsOptions::default()));
        let all = options("tls_cert = 'a.crt'; tls_key = 'a.key'; tls_client_ca = 'ca.crt'", "").unwrap();
        for listener in [all.http, all.grpc, all.admin, all.proxy] {
            assert_eq!(listener, files("a.crt", "a.key", Some("ca.crt")));
        }
        let some = options(
            "tls_cert = 'a.crt'; tls_key = 'a.key'; tls_client_ca = 'ca.crt'; http_tls_client_ca = 'off'; \
             grpc_tls_cert = 'both.pem'; admin_tls_cert = 'off'",
            "tls_key = 'flag.key'; proxy_tls_client_ca = 'other.crt'",
        )
        .unwrap();
        assert_eq!(some.http, files("a.crt", "flag.key", None));
        assert_eq!(some.grpc, files("both.pem", "both.pem", Some("ca.crt")));
        assert_eq!(some.admin, None);
        assert_eq!(some.proxy, files("a.crt", "flag.key", Some("other.crt")));
        assert_eq!(options("grpc_tls_cert = 'a.pem'", "").unwrap().http, None);
    }

    #[test]
    fn a_key_or_a_client_ca_needs_a_certificate() {
        for (text, name) in [
            ("tls_key = 'a.key'", "tls_key is given without tls_cert"),
            ("tls_client_ca = 'ca.crt'", "tls_client_ca is given without tls_cert"),
            ("tls_cert = 'a'; http_tls_key = 'b'", "http_tls_key is given without http_tls_cert"),
            ("admin_tls_client_ca = 'ca.crt'", "admin_tls_client_ca is given without admin_tls_cert"),
            ("tls_cert = 'a'; grpc_tls_cert = 'off'; grpc_tls_client_ca = 'c'", "grpc_tls_client_ca is given"),
        ] {
            let said = options(text, "").unwrap_err();
            assert!(said.starts_with(name), "{said}");
        }
    }
}

//! Addresses of Redis: one server, a master behind Sentinels, or a cluster.

use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError};

use super::{ClientCertificate, RedisOptions};

/// An idle connection is probed after this time, so that a vanished peer is noticed
/// and firewalls keep the connection.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);
/// The pause between probes, and how many may fail.
const KEEPALIVE_PAUSE: Duration = Duration::from_secs(3);
const KEEPALIVE_PROBES: u32 = 3;
/// How long what was sent may stay without acknowledgement.
#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(10);

/// The address of Redis, parsed from a URL.
#[derive(Debug, Clone)]
pub(super) enum Target {
    /// One server.
    Single(Endpoint),
    /// The master of that name, as reported by the Sentinels.
    Sentinel { sentinels: Vec<Endpoint>, endpoint: Endpoint, master: String },
    /// A cluster, entered at any of these.
    Cluster { seeds: Vec<Endpoint> },
}

/// A server's address and how to log in.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    info: ConnectionInfo,
    certificates: Certificates,
}

/// What TLS is made with, all in PEM.
#[derive(Debug, Clone, Default)]
pub(super) struct Certificates {
    /// A CA in place of the system's.
    root: Option<Vec<u8>>,
    client: Option<ClientCertificate>,
}

/// Why a store URL is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the store {url:?} is not understood: {reason}")]
pub struct StoreUrlError {
    /// The URL, without its password.
    pub url: String,
    /// What is wrong with it.
    pub reason: String,
}

/// How a store is written.
const FORMS: &str = "write redis://host:port, rediss://host:port, redis+unix:///path, \
    redis-cluster://host:port,host:port or redis-sentinel://host:port,host:port/master-name";

impl Certificates {
    /// Whether these can be used with such a URL.
    fn validate(&self, scheme: &str) -> Result<(), String> {
        let is_tls = scheme.starts_with("rediss");
        let secure = || scheme.replacen("redis", "rediss", 1);
        if let Some(root) = &self.root {
            if !is_tls {
                return Err(format!(
                    "a CA is given with it (--store-ca), and {scheme}:// is not TLS: write {}, or leave the CA out",
                    secure()
                ));
            }
            if !has_certificate(root) {
                return Err(
                    "the CA that is given with it (--store-ca) holds no certificate in PEM, which begins with \
                            -----BEGIN CERTIFICATE-----: convert it, for example with openssl x509 -inform DER"
                        .to_owned(),
                );
            }
        }
        let Some(client) = &self.client else { return Ok(()) };
        if !is_tls {
            return Err(format!(
                "a client certificate is given with it (--store-client-cert), and {scheme}:// is not TLS: write {}, \
                 or leave the certificate out",
                secure()
            ));
        }
        if !has_certificate(&client.chain) {
            return Err("--store-client-cert holds no certificate in PEM, which begins with \
                        -----BEGIN CERTIFICATE-----"
                .to_owned());
        }
        if !has_private_key(&client.key) {
            return Err("--store-client-key holds no private key in PEM that is not encrypted".to_owned());
        }
        Ok(())
    }
}

#[cfg(feature = "redis-tls")]
fn has_certificate(pem: &[u8]) -> bool {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    matches!(CertificateDer::pem_slice_iter(pem).next(), Some(Ok(_)))
}

#[cfg(feature = "redis-tls")]
fn has_private_key(pem: &[u8]) -> bool {
    use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
    PrivateKeyDer::from_pem_slice(pem).is_ok()
}

/// Without TLS every URL that takes certificates was rejected before.
#[cfg(not(feature = "redis-tls"))]
const fn has_certificate(_: &[u8]) -> bool {
    true
}

#[cfg(not(feature = "redis-tls"))]
const fn has_private_key(_: &[u8]) -> bool {
    true
}

impl Target {
    /// The target that the options name.
    pub(super) fn of_options(options: &RedisOptions) -> Result<Self, StoreUrlError> {
        let (root, client) = (options.root_certificate.clone(), options.client_certificate.clone());
        Self::parse(&options.url, &Certificates { root, client })
    }

    /// Whether connections use TLS.
    pub(super) fn is_tls(&self) -> bool {
        match self {
            Self::Single(endpoint) | Self::Sentinel { endpoint, .. } => endpoint.is_tls(),
            Self::Cluster { seeds } => seeds.iter().any(Endpoint::is_tls),
        }
    }

    /// Reads a URL; the certificates are for TLS.
    fn parse(url: &str, certificates: &Certificates) -> Result<Self, StoreUrlError> {
        let refuse = |reason: String| StoreUrlError { url: redacted_url(url), reason };
        let fail = |reason: String| refuse(format!("{reason}; {FORMS}"));
        let (scheme, rest) = url.split_once("://").ok_or_else(|| fail("it has no scheme".to_owned()))?;
        let endpoint = |text: &str| Endpoint::parse(text, certificates).map_err(|error| fail(error.to_string()));
        let several = |plain: &str, hosts: &str| {
            let (login, hosts) = hosts.rsplit_once('@').map_or(("", hosts), |(login, hosts)| (login, hosts));
            let at = if login.is_empty() { "" } else { "@" };
            hosts
                .split(',')
                .map(|host| endpoint(&format!("{plain}://{login}{at}{host}")))
                .collect::<Result<Vec<_>, _>>()
        };
        if cfg!(not(feature = "redis-tls")) && scheme.starts_with("rediss") {
            return Err(refuse("it needs TLS: enable the feature redis-tls of the crate checkdam".to_owned()));
        }
        certificates.validate(scheme).map_err(refuse)?;
        match scheme {
            "redis" | "rediss" | "redis+unix" | "unix" => Ok(Self::Single(endpoint(url)?)),
            "redis-cluster" | "rediss-cluster" => {
                let plain = scheme.trim_end_matches("-cluster");
                Ok(Self::Cluster { seeds: several(plain, rest.trim_end_matches('/'))? })
            }
            "redis-sentinel" | "rediss-sentinel" => {
                let plain = scheme.trim_end_matches("-sentinel");
                let missing = || fail("it has no master name after the hosts".to_owned());
                let (hosts, master) = rest.split_once('/').ok_or_else(missing)?;
                if master.is_empty() {
                    return Err(missing());
                }
                let bare = hosts.rsplit_once('@').map_or(hosts, |(_, hosts)| hosts);
                let mut masters = several(plain, hosts)?;
                let sentinels = several(plain, bare)?;
                Ok(Self::Sentinel { sentinels, endpoint: masters.swap_remove(0), master: master.to_owned() })
            }
            other => Err(fail(format!("the scheme {other:?} is unknown"))),
        }
    }
}

impl Endpoint {
    fn parse(text: &str, certificates: &Certificates) -> Result<Self, RedisError> {
        let info = text.into_connection_info()?;
        // Naming the library takes a permission that nothing else needs.
        let settings = info.redis_settings().clone().set_skip_set_lib_name();
        let info = info.set_redis_settings(settings).set_tcp_settings(tcp_settings());
        Ok(Self { info, certificates: certificates.clone() })
    }

    /// The same login at another address.
    pub(super) fn at(&self, host: &str, port: u16) -> Self {
        let addr = match self.info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                host: host.to_owned(),
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host.to_owned(), port),
        };
        Self { info: self.info.clone().set_addr(addr), certificates: self.certificates.clone() }
    }

    /// `host:port`, or the path of a socket.
    pub(super) fn address(&self) -> String {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => format!("{host}:{port}"),
            other => other.to_string(),
        }
    }

    /// The host, for nodes that announce none of their own.
    pub(super) fn host(&self) -> String {
        let address = self.address();
        address.rsplit_once(':').map_or(address.clone(), |(host, _)| host.to_owned())
    }

    pub(super) fn is_tls(&self) -> bool {
        matches!(self.info.addr(), ConnectionAddr::TcpTls { .. })
    }

    /// The login's user name.
    pub(super) fn user(&self) -> &str {
        self.info.redis_settings().username().unwrap_or("default")
    }

    pub(super) fn has_password(&self) -> bool {
        self.info.redis_settings().password().is_some()
    }

    pub(super) fn client(&self) -> Result<Client, RedisError> {
        #[cfg(feature = "redis-tls")]
        if self.is_tls() {
            // Without a provider the client library panics.
            if !has_crypto_provider() {
                return Err(RedisError::from((redis::ErrorKind::InvalidClientConfig, NO_CRYPTO_PROVIDER)));
            }
            let Certificates { root, client } = self.certificates.clone();
            let client_tls =
                client.map(|client| redis::ClientTlsConfig { client_cert: client.chain, client_key: client.key });
            let certificates = redis::TlsCertificates { client_tls, root_cert: root };
            return Client::build_with_tls(self.info.clone(), certificates);
        }
        Client::open(self.info.clone())
    }
}

/// What to do about [`has_crypto_provider`].
pub(super) const NO_CRYPTO_PROVIDER: &str = "TLS needs a cryptography provider: install one of rustls at the start of \
    the program, for example with rustls::crypto::ring::default_provider().install_default()";

/// Whether the process has chosen its cryptography. The library installs none: that is
/// the program's choice, and counts for the whole process.
pub(super) fn has_crypto_provider() -> bool {
    #[cfg(feature = "redis-tls")]
    return rustls::crypto::CryptoProvider::get_default().is_some();
    #[cfg(not(feature = "redis-tls"))]
    return false;
}

/// Without TCP_NODELAY a small call waits until the one before it is acknowledged,
/// which takes a round trip.
fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER);
    #[cfg(not(any(target_os = "openbsd", target_os = "redox", target_os = "solaris", target_os = "haiku")))]
    let keepalive = keepalive.with_interval(KEEPALIVE_PAUSE).with_retries(KEEPALIVE_PROBES);
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let settings = settings.set_user_timeout(UNACKNOWLEDGED_MAX);
    settings
}

/// A URL that may be shown: with an ellipsis in place of its login, which ends at the last
/// `@`, and of its query, which may contain one too.
pub fn redacted_url(url: &str) -> String {
    let scheme = url.split_once("://").map_or(String::new(), |(scheme, _)| format!("{scheme}://"));
    let shown = url.rsplit_once('@').map_or(url.to_owned(), |(_, hosts)| format!("{scheme}…@{hosts}"));
    match shown.split_once('?') {
        Some((shown, _)) => format!("{shown}?…"),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_or_refused_without_their_password() {
        for (url, shown) in [
            ("redis://127.0.0.1:6379", "redis://127.0.0.1:6379"),
            ("redis://user:p@ss@h:1", "redis://…@h:1"),
            ("redis//:secret@h:1", "…@h:1"),
            ("redis+unix:///run/redis.sock?db=1&pass=secret", "redis+unix:///run/redis.sock?…"),
            ("redis://:p?ss@h:1/0?x=y", "redis://…@h:1/0?…"),
            ("http://user:pa@ss@collector:4317/v1?x=y", "http://…@collector:4317/v1?…"),
            ("user:secret@collector:4317", "…@collector:4317"),
            ("http://collector:4317/v1", "http://collector:4317/v1"),
        ] {
            assert_eq!(redacted_url(url), shown);
        }
        let parse = |url: &str| Target::parse(url, &Certificates::default());
        assert!(matches!(parse("redis://127.0.0.1:6379"), Ok(Target::Single(_))));
        assert!(matches!(parse("rediss://user:secret@localhost:6379/0"), Ok(Target::Single(_))));
        let Ok(Target::Cluster { seeds }) = parse("redis-cluster://a:b@h1:1,h2:2") else { panic!() };
        assert_eq!(seeds.iter().map(Endpoint::address).collect::<Vec<_>>(), ["h1:1", "h2:2"]);
        let Ok(Target::Sentinel { sentinels, master, .. }) = parse("redis-sentinel://h1:1,h2:2/main") else { panic!() };
        assert_eq!((sentinels.len(), master.as_str()), (2, "main"));
        for (url, words) in [
            ("localhost:6379", "no scheme"),
            ("http://localhost", "\"http\" is unknown"),
            ("redis-sentinel://h1:1", "no master name"),
            ("redis://user:secret@host:notaport", "redis://…@host:notaport"),
        ] {
            let error = parse(url).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn every_connection_sends_at_once_and_notices_a_peer_that_vanished() {
        #[cfg(feature = "redis-tls")]
        let _ = rustls::crypto::ring::default_provider().install_default();
        let endpoints = |url: &str| match Target::parse(url, &Certificates::default()).unwrap() {
            Target::Single(endpoint) => vec![endpoint],
            Target::Sentinel { sentinels, endpoint, .. } => [vec![endpoint], sentinels].concat(),
            Target::Cluster { seeds } => seeds,
        };
        for url in ["redis://h:1", "rediss://h:1", "redis-sentinel://h:1,h:2/main", "redis-cluster://h:1,h:2"] {
            for endpoint in endpoints(url) {
                for endpoint in [endpoint.at("other", 2), endpoint] {
                    let client = endpoint.client().unwrap();
                    let settings = client.get_connection_info().tcp_settings();
                    assert!(settings.nodelay(), "{url}");
                    assert!(settings.keepalive().is_some(), "{url}");
                    #[cfg(target_os = "linux")]
                    assert_eq!(settings.user_timeout(), Some(UNACKNOWLEDGED_MAX), "{url}");
                }
            }
        }
    }
}

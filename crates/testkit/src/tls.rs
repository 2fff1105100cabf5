//! Generates certificates, one set per server under test.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    SerialNumber, date_time_ymd,
};

/// The names a client dials a server by.
const SERVER_NAMES: [&str; 2] = ["localhost", "127.0.0.1"];
/// What the misissued certificate says instead.
const WRONG_NAMES: [&str; 1] = ["elsewhere.invalid"];

/// The files of one server's TLS set-up, all in PEM.
#[derive(Debug)]
pub struct Tls {
    dir: PathBuf,
}

impl Tls {
    /// Makes two unrelated authorities in `dir`, and two server certificates signed by the first.
    pub fn generate(dir: &Path) -> Self {
        let tls = Self { dir: dir.to_owned() };
        let authority = tls.authority("ca");
        tls.authority("unrelated-ca");
        tls.certificate("server", &SERVER_NAMES, &authority);
        tls.certificate("wrong-host", &WRONG_NAMES, &authority);
        tls.certificate("client", &[], &authority);
        tls
    }

    /// The certificate of the authority that signed the server's.
    pub fn ca_path(&self) -> PathBuf {
        self.path("ca.crt")
    }

    /// The certificate of an authority that signed nothing here: a client that trusts only it must refuse.
    pub fn unrelated_ca_path(&self) -> PathBuf {
        self.path("unrelated-ca.crt")
    }

    /// The certificate for `localhost` and `127.0.0.1`, and its key.
    pub fn server_paths(&self) -> (PathBuf, PathBuf) {
        (self.path("server.crt"), self.path("server.key"))
    }

    /// A certificate of the right authority for another host name, and its key.
    pub fn wrong_host_paths(&self) -> (PathBuf, PathBuf) {
        (self.path("wrong-host.crt"), self.path("wrong-host.key"))
    }

    /// A client certificate of the right authority, and its key.
    pub fn client_paths(&self) -> (PathBuf, PathBuf) {
        (self.path("client.crt"), self.path("client.key"))
    }

    fn authority(&self, name: &str) -> Issuer<'static, KeyPair> {
        let Authority { issuer, pem } = Authority::new(name);
        self.write(&format!("{name}.crt"), &pem);
        issuer
    }

    fn certificate(&self, name: &str, hosts: &[&str], authority: &Issuer<'_, KeyPair>) {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("bad host name");
        params.distinguished_name.push(DnType::CommonName, format!("testkit {name}"));
        let key = KeyPair::generate().expect("cannot generate a key");
        let certificate = params.signed_by(&key, authority).expect("cannot sign the server's certificate");
        self.write(&format!("{name}.crt"), &certificate.pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("cannot write the TLS file");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// An authority that issues certificates for one test.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate with its private key, both in PEM.
#[derive(Debug, Clone)]
pub struct IssuedCertificate {
    /// The certificate, and the intermediate one that signed it, if one did.
    pub chain: String,
    /// The private key, in PKCS#8.
    pub key: String,
}

impl Authority {
    /// Makes a root authority.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("cannot generate a key");
        let params = Self::params(name);
        let certificate = params.self_signed(&key).expect("cannot sign the authority's certificate");
        Self { pem: certificate.pem(), issuer: Issuer::new(params, key) }
    }

    /// Makes an intermediate authority that this one signs.
    #[must_use]
    pub fn intermediate(&self, name: &str) -> Self {
        let key = KeyPair::generate().expect("cannot generate a key");
        let params = Self::params(name);
        let certificate = params.signed_by(&key, &self.issuer).expect("cannot sign the authority's certificate");
        Self { pem: certificate.pem(), issuer: Issuer::new(params, key) }
    }

    /// Its own certificate, in PEM.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for these names and addresses, or for a client, with a serial number of the test's.
    #[must_use]
    pub fn issue(&self, names: &[&str], serial: u64) -> IssuedCertificate {
        self.signed(names, serial, 2100)
    }

    /// The same, long expired.
    #[must_use]
    pub fn issue_expired(&self, names: &[&str], serial: u64) -> IssuedCertificate {
        self.signed(names, serial, 2020)
    }

    fn signed(&self, names: &[&str], serial: u64, until: i32) -> IssuedCertificate {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("bad host name");
        params.distinguished_name.push(DnType::CommonName, format!("testkit certificate {serial}"));
        params.serial_number = Some(SerialNumber::from(serial));
        params.not_before = date_time_ymd(2010, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("cannot generate a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("cannot sign the certificate");
        IssuedCertificate { chain: certificate.pem(), key: key.serialize_pem() }
    }

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, format!("testkit {name}"));
        params
    }
}

//! Certificates for servers under test, generated for each.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

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

    fn authority(&self, name: &str) -> Issuer<'static, KeyPair> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, format!("testkit {name}"));
        let key = KeyPair::generate().expect("cannot generate a key");
        let certificate = params.self_signed(&key).expect("cannot sign the authority's certificate");
        self.write(&format!("{name}.crt"), &certificate.pem());
        Issuer::new(params, key)
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

//! Servers as processes on the servers' core: checkdam as users build it, nginx,
//! and our bare ones.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use testkit::{Daemon, Redis, free_port, wait_until};

use crate::client::Client;
use crate::load::{RequestKind, Target};
use crate::machine::{pin_process, server_core};

/// One limit a user of one endpoint, so high that all pass; the same for Envoy.
pub const ONE_TIER: &str = r#"rules:
  - { name: per-user, scope: user, key: "user:{user}", when: { endpoint: /api/search }, limits: ["1000000/s burst 1000000000"] }
  - { name: envoy, scope: user, domain: bench, key: "user:{user}", when: { endpoint: /api/search }, limits: ["1000000/s burst 1000000000"] }
"#;

/// Three limits a user, checked together.
pub const THREE_TIERS: &str = r#"rules:
  - name: per-user
    scope: user
    key: "user:{user}"
    when: { endpoint: /api/search }
    limits: ["1000000/s burst 1000000000", "10000000/m burst 1000000000", "100000000/h burst 1000000000"]
  - name: envoy
    scope: user
    domain: bench
    key: "user:{user}"
    when: { endpoint: /api/search }
    limits: ["1000000/s burst 1000000000", "10000000/m burst 1000000000", "100000000/h burst 1000000000"]
"#;

const START: Duration = Duration::from_secs(30);

/// A server, ended when it is dropped.
pub struct Server {
    daemon: Daemon,
    /// Where it speaks gRPC, if it is checkdam.
    grpc: Option<SocketAddr>,
    /// Where operators are let in, if it is checkdam.
    admin: Option<SocketAddr>,
}

/// The program that is measured.
///
/// # Panics
/// If it was not built.
#[must_use]
pub fn checkdam() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/checkdam");
    let path = std::env::var_os("BENCH_CHECKDAM").map_or(built, PathBuf::from);
    assert!(path.exists(), "{} is not there: bench/run builds it, or name another by BENCH_CHECKDAM", path.display());
    path
}

impl Server {
    /// `checkdam serve` with these rules, and other settings as they are by default.
    #[must_use]
    pub fn checkdam(rules: &str, arguments: &[&str]) -> Self {
        Self::serve(Some(rules), arguments.iter().map(Into::into).collect())
    }

    /// As [`checkdam`](Self::checkdam), with the rules of its database in that folder.
    #[must_use]
    pub fn checkdam_with_database(folder: &Path, arguments: &[&str]) -> Self {
        let mut all: Vec<OsString> = vec!["--data-dir".into(), folder.into()];
        all.extend(arguments.iter().map(Into::into));
        Self::serve(None, all)
    }

    fn serve(rules: Option<&str>, mut arguments: Vec<OsString>) -> Self {
        let grpc = loopback(free_port());
        arguments.extend(["--grpc-listen".into(), grpc.to_string().into()]);
        let server = Self::start("serve", "--http-listen", rules, &arguments);
        wait_until("checkdam to open its gRPC listener", START, || TcpStream::connect(grpc).is_ok());
        // Listeners are open before the rules are loaded, and close each connection until then.
        let ready = || Client::connect(server.address()).ask("GET", "/readyz", "").0 == 200;
        wait_until("checkdam to be ready", START, ready);
        Self { grpc: Some(grpc), ..server }
    }

    /// `checkdam serve` with TLS on its HTTP listener, and without gRPC.
    #[must_use]
    pub fn checkdam_with_tls(rules: &str, certificate: &Path, key: &Path) -> Self {
        let mut arguments: Vec<OsString> = ["--grpc-listen", "off", "--http-tls-cert"].map(Into::into).to_vec();
        arguments.extend([certificate.into(), "--http-tls-key".into(), key.into()]);
        let server = Self::start("serve", "--http-listen", Some(rules), &arguments);
        let ready = || Client::connect(server.admin()).ask("GET", "/readyz", "").0 == 200;
        wait_until("checkdam to be ready", START, ready);
        server
    }

    /// `checkdam proxy` before that upstream.
    #[must_use]
    pub fn proxy(rules: &str, upstream: SocketAddr) -> Self {
        let upstream = format!("http://{upstream}");
        let arguments = ["--header-attributes", "X-User=user", "--upstream", &upstream].map(Into::into);
        Self::start("proxy", "--listen", Some(rules), &arguments)
    }

    fn start(command: &str, listen: &str, rules: Option<&str>, arguments: &[OsString]) -> Self {
        let admin = loopback(free_port());
        let daemon = pinned(&checkdam(), |port, folder| {
            let mut all: Vec<OsString> = [command, listen].map(Into::into).to_vec();
            all.push(loopback(port).to_string().into());
            all.extend(["--admin-listen".into(), admin.to_string().into()]);
            if let Some(rules) = rules {
                let file = folder.join("rules.yaml");
                std::fs::write(&file, rules).unwrap_or_else(|error| panic!("cannot write the rules: {error}"));
                all.extend(["--rules".into(), file.into()]);
            }
            all.extend_from_slice(arguments);
            all
        });
        wait_until("checkdam to open its admin listener", START, || TcpStream::connect(admin).is_ok());
        Self { daemon, grpc: None, admin: Some(admin) }
    }

    /// One of our bare servers.
    #[must_use]
    pub fn bare(name: &str, redis: Option<&Redis>) -> Self {
        let program = std::env::current_exe().unwrap_or_else(|error| panic!("who am I? {error}"));
        let daemon = pinned(&program, |port, _| {
            let mut all: Vec<OsString> = ["serve".into(), name.into(), port.to_string().into()].to_vec();
            all.extend(redis.map(|redis| redis.url().into()));
            all
        });
        Self { daemon, grpc: None, admin: None }
    }

    /// nginx with one process and this site, on that core.
    #[must_use]
    pub fn nginx(core: usize, site: impl Fn(u16) -> String) -> Self {
        let daemon = Daemon::nginx(site);
        pin_process(daemon.pid(), core);
        Self { daemon, grpc: None, admin: None }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.daemon.address()
    }

    /// Whose CPU time counts.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.daemon.pid()
    }

    /// Where operators are let in.
    ///
    /// # Panics
    /// If it is not checkdam.
    #[must_use]
    pub fn admin(&self) -> SocketAddr {
        self.admin.unwrap_or_else(|| panic!("only checkdam has an admin listener"))
    }

    /// This server under load.
    #[must_use]
    pub fn target(&self, kind: RequestKind) -> Target {
        let address = match kind {
            RequestKind::Grpc => self.grpc.unwrap_or_else(|| self.address()),
            RequestKind::Check | RequestKind::Get => self.address(),
        };
        Target { address, process: self.daemon.pid(), kind }
    }
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Starts a program on the servers' core: how many threads it makes depends on it.
fn pinned(program: &Path, arguments: impl Fn(u16, &Path) -> Vec<OsString>) -> Daemon {
    Daemon::start(Path::new("taskset"), |port, folder| {
        let mut all: Vec<OsString> = ["-c".into(), server_core().to_string().into(), program.into()].to_vec();
        all.extend(arguments(port, folder));
        all
    })
}

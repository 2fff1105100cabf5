//! Servers as processes on the servers' core: checkdam as users build it, nginx,
//! and our bare ones.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use testkit::{Daemon, Redis, free_port, wait_until};

use crate::load::{Door, Target};
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
    let path = std::env::var_os("CHECKDAM_BIN").map_or(built, PathBuf::from);
    assert!(path.exists(), "{} is not there: bench/run builds it, or name another by CHECKDAM_BIN", path.display());
    path
}

impl Server {
    /// `checkdam serve` with these rules, and other settings as they are by default.
    #[must_use]
    pub fn checkdam(rules: &str, arguments: &[&str]) -> Self {
        Self::with_doors(
            |http, rule_file| {
                let mut all: Vec<OsString> = ["serve", "--http-listen"].map(Into::into).to_vec();
                all.extend([listen(http), "--rules".into(), rule_file.into()]);
                all.extend(arguments.iter().map(Into::into));
                all
            },
            Some(rules),
        )
    }

    /// As [`checkdam`](Self::checkdam), with the rules of its database.
    #[must_use]
    pub fn checkdam_with_database(folder: &Path, arguments: &[&str]) -> Self {
        Self::with_doors(
            |http, _| {
                let mut all: Vec<OsString> = ["serve", "--http-listen"].map(Into::into).to_vec();
                all.extend([listen(http), "--data-dir".into(), folder.into()]);
                all.extend(arguments.iter().map(Into::into));
                all
            },
            None,
        )
    }

    /// `checkdam proxy` before that upstream.
    #[must_use]
    pub fn proxy(rules: &str, upstream: SocketAddr) -> Self {
        Self::with_doors(
            |port, rule_file| {
                let mut all: Vec<OsString> = ["proxy", "--listen"].map(Into::into).to_vec();
                all.extend([listen(port), "--rules".into(), rule_file.into()]);
                all.extend(["--header-attributes", "X-User=user", "--upstream"].map(Into::into));
                all.push(format!("http://{upstream}").into());
                all
            },
            Some(rules),
        )
    }

    fn with_doors(arguments: impl Fn(u16, &Path) -> Vec<OsString>, rules: Option<&str>) -> Self {
        let (grpc, admin) = (loopback(free_port()), loopback(free_port()));
        let daemon = pinned(&checkdam(), |port, folder| {
            let rule_file = folder.join("rules.yaml");
            if let Some(rules) = rules {
                std::fs::write(&rule_file, rules).unwrap_or_else(|error| panic!("cannot write the rules: {error}"));
            }
            let mut all = arguments(port, &rule_file);
            let doors = ["--grpc-listen".into(), grpc.to_string(), "--admin-listen".into(), admin.to_string()];
            all.extend(doors.map(OsString::from));
            all
        });
        let is_open = |address: SocketAddr| TcpStream::connect(address).is_ok();
        wait_until("checkdam to open its doors", START, || is_open(grpc) && is_open(admin));
        Self { daemon, grpc: Some(grpc), admin: Some(admin) }
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

    /// Where operators are let in.
    ///
    /// # Panics
    /// If it is not checkdam.
    #[must_use]
    pub fn admin(&self) -> SocketAddr {
        self.admin.unwrap_or_else(|| panic!("only checkdam has an admin door"))
    }

    /// This server under load.
    #[must_use]
    pub fn target(&self, door: Door) -> Target {
        let address = match door {
            Door::Grpc => self.grpc.unwrap_or_else(|| self.address()),
            Door::Check | Door::Get => self.address(),
        };
        Target { address, process: self.daemon.pid(), door }
    }
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn listen(port: u16) -> OsString {
    loopback(port).to_string().into()
}

/// Starts a program on the servers' core: how many threads it makes depends on it.
fn pinned(program: &Path, arguments: impl Fn(u16, &Path) -> Vec<OsString>) -> Daemon {
    Daemon::start(Path::new("taskset"), |port, folder| {
        let mut all: Vec<OsString> = ["-c".into(), server_core().to_string().into(), program.into()].to_vec();
        all.extend(arguments(port, folder));
        all
    })
}

//! One Envoy process, with the test's configuration.

use std::fmt;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tempfile::TempDir;

use crate::install;
use crate::port::free_port;
use crate::process::Process;
use crate::wait::holds_within;

/// Another process may take a port between our look and Envoy's bind.
const ATTEMPTS: usize = 10;
const START_LIMIT: Duration = Duration::from_secs(30);

/// An Envoy of its own for one test, on free loopback ports. Dropping it kills the process.
pub struct Envoy {
    // Declared before the directory: the process must be gone before its directory is.
    process: Mutex<Process>,
    ports: EnvoyPorts,
    dir: TempDir,
}

/// The ports that the configuration must listen on.
#[derive(Clone, Copy, Debug)]
pub struct EnvoyPorts {
    /// For clients.
    pub listener: u16,
    /// For its admin interface.
    pub admin: u16,
}

impl Envoy {
    /// Starts Envoy with what `configuration` makes of two ports, and waits until it is ready. Panics, with Envoy's
    /// log, when it does not start.
    #[must_use]
    pub fn start(configuration: impl Fn(EnvoyPorts) -> String) -> Self {
        for _ in 0..ATTEMPTS {
            let dir = tempfile::Builder::new().prefix("checkdam-testkit-").tempdir().expect("cannot make a directory");
            let ports = EnvoyPorts { listener: free_port(), admin: free_port() };
            let file = dir.path().join("envoy.yaml");
            fs::write(&file, configuration(ports)).expect("cannot write Envoy's configuration");
            let mut command = Command::new(install::envoy());
            // One worker is enough, and several Envoys must not take each other for their successors.
            command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "warning", "-c"]).arg(file);
            let process = Process::spawn(&mut command, &dir.path().join("envoy.log"), dir.path());
            let envoy = Self { process: Mutex::new(process), ports, dir };
            let is_ready = || envoy.admin("/ready").is_some_and(|answer| answer.contains("LIVE"));
            if holds_within(START_LIMIT, || !envoy.is_running() || is_ready()) && envoy.is_running() {
                return envoy;
            }
            assert!(envoy.log().contains("Address already in use"), "Envoy did not start:\n{}", envoy.log());
        }
        panic!("Envoy lost its ports to other processes {ATTEMPTS} times in a row");
    }

    /// Where it listens for clients.
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports.listener))
    }

    /// The sum of all counters whose name ends so, such as `ratelimit.error`.
    pub fn counter(&self, end: &str) -> u64 {
        let stats = self.admin("/stats?type=Counters").expect("Envoy's admin interface answers");
        let counters = stats.lines().filter_map(|line| line.split_once(": "));
        counters.filter(|(name, _)| name.ends_with(end)).filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum()
    }

    /// Everything it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("envoy.log")).unwrap_or_default()
    }

    fn is_running(&self) -> bool {
        self.process.lock().unwrap_or_else(PoisonError::into_inner).is_running()
    }

    /// What the admin interface answers.
    fn admin(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.ports.admin)).ok()?;
        stream.set_read_timeout(Some(START_LIMIT)).ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}

impl fmt::Debug for Envoy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Envoy").field("ports", &self.ports).finish_non_exhaustive()
    }
}

//! Options of a Redis server to start.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::{ADMIN_USER, Files, Launch, Redis};
use crate::clock::Clock;
use crate::engine::Engine;
use crate::port::free_port;
use crate::tls::Tls;

/// Another process may take a port between our look and the server's bind.
const ATTEMPTS: usize = 10;

/// Which certificate the server shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Certificate {
    Right,
    WrongHost,
}

/// Options of a server; made by [`Redis::builder`].
#[derive(Clone, Default)]
pub struct RedisBuilder {
    engine: Engine,
    args: Vec<String>,
    certificate: Option<Certificate>,
    acl: Option<Vec<String>>,
    clock_offset_us: Option<i64>,
    cluster_node_timeout: Option<Duration>,
    sentinel_config: Option<String>,
}

impl RedisBuilder {
    /// Which server to start. Redis by default.
    #[must_use]
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// Further command-line arguments, such as `["--maxmemory", "1mb"]`. They win over the kit's own.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Serve TLS, and only TLS, with a certificate for `localhost` and `127.0.0.1`.
    #[must_use]
    pub fn tls(mut self, is_on: bool) -> Self {
        self.certificate = is_on.then_some(Certificate::Right);
        self
    }

    /// Serve TLS with a certificate for another host.
    #[must_use]
    pub fn tls_wrong_host(mut self) -> Self {
        self.certificate = Some(Certificate::WrongHost);
        self
    }

    /// The lines of the server's ACL file, such as `user checkdam on >secret ~cd:* +evalsha`. Say `user default off`
    /// to close the server to everyone else. The kit adds an administrator of its own, for [`Redis::command`].
    #[must_use]
    pub fn acl(mut self, lines: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.acl = Some(lines.into_iter().map(Into::into).collect());
        self
    }

    /// Put the server's wall clock under [`Redis::step_clock`].
    #[must_use]
    pub fn with_clock_shim(self) -> Self {
        self.clock_ahead_us(0)
    }

    /// As [`RedisBuilder::with_clock_shim`], with a clock that is `offset_us` ahead from the start, or behind if
    /// negative: a step would make a member of a cluster believe that the others were silent for so long.
    #[must_use]
    pub fn clock_ahead_us(mut self, offset_us: i64) -> Self {
        self.clock_offset_us = Some(offset_us);
        self
    }

    /// Take `each` for every key that is loaded after a restart, and answer in between: after every KiB, which is the
    /// least that the server permits, so give the keys that much. The server's own tests use these settings.
    #[must_use]
    pub fn loads_slowly(self, each: Duration) -> Self {
        let each_us = each.as_micros().to_string();
        self.args(["--loading-process-events-interval-bytes", "1024", "--key-load-delay", &each_us])
            .args(["--rdbcompression", "no"])
    }

    /// Make the server a member of a cluster that does not exist yet.
    #[must_use]
    pub(crate) fn cluster_node(mut self, timeout: Duration) -> Self {
        self.cluster_node_timeout = Some(timeout);
        self
    }

    /// Make the server a sentinel with these lines in its configuration file, which it rewrites as it goes.
    #[must_use]
    pub(crate) fn sentinel(mut self, config: String) -> Self {
        self.sentinel_config = Some(config);
        self
    }

    /// Starts the server and waits until it answers. Panics, with the server's log, when it does not.
    #[must_use]
    pub fn start(self) -> Redis {
        let is_tls = self.certificate.is_some();
        assert!(!(is_tls && self.engine == Engine::Valkey), "the Valkey build that the kit installs has no TLS");
        let program = self.engine.program();
        for _ in 0..ATTEMPTS {
            let dir = tempfile::Builder::new().prefix("checkdam-testkit-").tempdir().expect("cannot make a directory");
            let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
            let files = self.write_files(dir);
            let args = self.all_args(addr.port(), &files);
            let launch = Launch { program: program.clone(), args, addr, is_tls, has_acl: self.acl.is_some() };
            if let Some(redis) = Redis::launch(launch, files) {
                return redis;
            }
        }
        panic!("{} lost its port to another process {ATTEMPTS} times in a row", program.display());
    }

    fn write_files(&self, dir: TempDir) -> Files {
        let path = dir.path();
        if let Some(lines) = &self.acl {
            let admin = format!("user {ADMIN_USER} on >{ADMIN_USER} ~* &* +@all");
            let text: String = lines.iter().chain([&admin]).map(|line| format!("{line}\n")).collect();
            fs::write(path.join("users.acl"), text).expect("cannot write the ACL file");
        }
        if let Some(config) = &self.sentinel_config {
            fs::write(path.join("sentinel.conf"), config).expect("cannot write the sentinel's configuration");
        }
        let tls = self.certificate.map(|_| Tls::generate(path));
        let clock = self.clock_offset_us.map(|offset_us| Clock::new(path, offset_us));
        Files { tls, clock, dir }
    }

    fn all_args(&self, port: u16, files: &Files) -> Vec<String> {
        let dir = files.dir.path();
        let mut args = Args(Vec::new());
        if self.sentinel_config.is_some() {
            args.0.push(path_text(&dir.join("sentinel.conf")));
            args.0.push("--sentinel".to_owned());
        }
        args.set("bind", "127.0.0.1");
        args.set("dir", &path_text(dir));
        args.set("unixsocket", &path_text(&files.socket_path()));
        match (&files.tls, self.certificate) {
            (Some(tls), Some(certificate)) => self.tls_args(&mut args, port, tls, certificate),
            _ => args.set("port", &port.to_string()),
        }
        if self.sentinel_config.is_none() {
            self.data_args(&mut args, dir);
        }
        args.0.extend(self.args.iter().cloned());
        args.0
    }

    fn tls_args(&self, args: &mut Args, port: u16, tls: &Tls, certificate: Certificate) {
        let (certificate, key) = match certificate {
            Certificate::Right => tls.server_paths(),
            Certificate::WrongHost => tls.wrong_host_paths(),
        };
        args.set("port", "0");
        args.set("tls-port", &port.to_string());
        args.set("tls-cert-file", &path_text(&certificate));
        args.set("tls-key-file", &path_text(&key));
        args.set("tls-ca-cert-file", &path_text(&tls.ca_path()));
        args.set("tls-auth-clients", "no");
    }

    fn data_args(&self, args: &mut Args, dir: &Path) {
        args.set("save", "");
        args.set("appendonly", "no");
        args.set("enable-debug-command", "yes");
        // By default a master waits five seconds for more replicas before it sends its data.
        args.set("repl-diskless-sync-delay", "0");
        args.set("repl-ping-replica-period", "1");
        // Otherwise a replica would come back from a restart with what it last received.
        args.set("rdb-del-sync-files", "yes");
        if self.acl.is_some() {
            args.set("aclfile", &path_text(&dir.join("users.acl")));
        }
        if let Some(timeout) = self.cluster_node_timeout {
            args.set("cluster-enabled", "yes");
            args.set("cluster-port", &free_port().to_string());
            args.set("cluster-node-timeout", &timeout.as_millis().to_string());
            // However long it was cut off, a replica stands for election; and none changes its master by itself.
            args.set("cluster-replica-validity-factor", "0");
            args.set("cluster-allow-replica-migration", "no");
        }
    }
}

/// Command-line arguments under construction.
struct Args(Vec<String>);

impl Args {
    fn set(&mut self, name: &str, value: &str) {
        self.0.extend([format!("--{name}"), value.to_owned()]);
    }
}

/// The command that starts the server described by `launch`.
pub(crate) fn command(launch: &Launch, files: &Files) -> Command {
    let mut command = Command::new(&launch.program);
    command.args(&launch.args).current_dir(files.dir.path());
    if let Some(clock) = &files.clock {
        clock.apply(&mut command);
    }
    command
}

fn path_text(path: &Path) -> String {
    path.to_str().expect("the temporary directory's path is not UTF-8").to_owned()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_port_that_is_taken_is_noticed_on_both_engines() {
        for engine in [Engine::Redis, Engine::Valkey] {
            let node = Redis::builder().engine(engine).cluster_node(Duration::from_secs(1));
            let holder = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let taken = holder.local_addr().unwrap();
            for (addr, args) in [
                (taken, Vec::new()),
                (SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())), vec!["--cluster-port", "taken"]),
            ] {
                let files = node.write_files(tempfile::tempdir().unwrap());
                let mut all = node.all_args(addr.port(), &files);
                all.extend(args.into_iter().map(|arg| arg.replace("taken", &taken.port().to_string())));
                let launch = Launch { program: engine.program(), args: all, addr, is_tls: false, has_acl: false };
                assert!(Redis::launch(launch, files).is_none(), "{engine:?} started on a port that was taken");
            }
        }
    }
}

//! One Redis or Valkey server that a test can pause, kill and restart.

mod builder;

use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tempfile::TempDir;

pub use self::builder::RedisBuilder;
use self::builder::command;
use crate::clock::Clock;
use crate::connection::{Connection, Reply};
use crate::process::Process;
use crate::tls::Tls;
use crate::wait::{holds_within, wait_until};

/// The user, and the password, that the kit adds to an ACL file for itself.
pub(crate) const ADMIN_USER: &str = "testkit-admin";

const START_LIMIT: Duration = Duration::from_secs(15);

/// A server of its own for one test: a free loopback port, a temporary directory, no persistence. Dropping it kills
/// the process and removes the directory.
///
/// The kit talks to it over a Unix socket, so [`Redis::command`] works whatever the test does to TCP, TLS or users.
pub struct Redis {
    // Declared before `files`: the process must be gone before its directory is.
    process: Mutex<Process>,
    launch: Launch,
    files: Files,
}

/// How the process was started, for starting it again.
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) addr: SocketAddr,
    pub(crate) is_tls: bool,
    pub(crate) has_acl: bool,
}

/// What the server keeps on disk.
pub(crate) struct Files {
    pub(crate) dir: TempDir,
    pub(crate) tls: Option<Tls>,
    pub(crate) clock: Option<Clock>,
}

impl Files {
    pub(crate) fn socket_path(&self) -> PathBuf {
        self.dir.path().join("redis.sock")
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("server.log")
    }
}

impl Redis {
    /// Starts a Redis with default options and waits until it answers.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Options, then [`RedisBuilder::start`].
    #[must_use]
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }

    /// None when another process took the port first.
    pub(crate) fn launch(launch: Launch, files: Files) -> Option<Self> {
        let process = Process::spawn(&mut command(&launch, &files), &files.log_path(), files.dir.path());
        let redis = Self { process: Mutex::new(process), launch, files };
        if holds_within(START_LIMIT, || !redis.is_running() || redis.answers()) && redis.is_running() {
            return Some(redis);
        }
        let log = redis.log();
        assert!(log.contains("Address already in use"), "{} did not start:\n{log}", redis.launch.program.display());
        None
    }

    /// Where it listens for TCP, or for TLS if that is on.
    pub fn addr(&self) -> SocketAddr {
        self.launch.addr
    }

    /// `redis://127.0.0.1:port`, or `rediss://` with TLS.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme(), self.launch.addr)
    }

    /// [`Redis::url`] with a user's name and password in it.
    pub fn url_for(&self, user: &str, password: &str) -> String {
        format!("{}://{user}:{password}@{}", self.scheme(), self.launch.addr)
    }

    /// `redis+unix://` and the path of its Unix socket. Every server has one.
    pub fn unix_url(&self) -> String {
        format!("redis+unix://{}", self.unix_path().display())
    }

    /// Its Unix socket.
    pub fn unix_path(&self) -> PathBuf {
        self.files.socket_path()
    }

    /// Its certificates. Panics when it was started without TLS.
    pub fn tls(&self) -> &Tls {
        self.files.tls.as_ref().expect("this server was started without TLS: use Redis::builder().tls(true)")
    }

    /// The number of its process, which changes with [`Redis::restart`].
    pub fn pid(&self) -> u32 {
        self.process().id()
    }

    /// Whether its process exists; a paused one does.
    pub fn is_running(&self) -> bool {
        self.process().is_running()
    }

    /// SIGSTOP: it keeps its connections and answers nothing. Returns once it has stopped.
    pub fn pause(&self) {
        self.process().pause();
    }

    /// SIGCONT: it executes whatever has arrived meanwhile.
    pub fn resume(&self) {
        self.process().resume();
    }

    /// SIGKILL. Returns once the process is gone; its port then refuses connections.
    pub fn kill(&self) {
        self.process().kill();
    }

    /// Kills it if it runs and starts it on the same port, with the same options, and with what it last saved: nothing,
    /// unless the test told it to SAVE. A clock that was stepped stays so. Clients may hold connections or keep
    /// dialling meanwhile.
    pub fn restart(&self) {
        self.restart_until(Self::answers);
    }

    /// As [`Redis::restart`], but returns once it says that it is LOADING what it saved. How long it does is in the
    /// hands of the test: see [`RedisBuilder::loads_slowly`].
    pub fn restart_loading(&self) {
        self.restart_until(|server| {
            server.try_command(&["PING"]).is_ok_and(|reply| reply.error().is_some_and(|it| it.starts_with("LOADING")))
        });
    }

    /// Has it load the rest of what it saved at once.
    pub fn finish_loading(&self) {
        self.command(&["CONFIG", "SET", "key-load-delay", "0"]).expect_ok();
        wait_until("the server to have loaded what it saved", START_LIMIT, || self.answers());
    }

    fn restart_until(&self, is_back: impl Fn(&Self) -> bool) {
        self.kill();
        // A socket file of the dead process refuses connections; without it there is nothing to mistake for ready.
        drop(fs::remove_file(self.unix_path()));
        *self.process() =
            Process::spawn(&mut command(&self.launch, &self.files), &self.files.log_path(), self.files.dir.path());
        let is_up = holds_within(START_LIMIT, || !self.is_running() || is_back(self)) && self.is_running();
        assert!(is_up, "the server did not come back on {}:\n{}", self.launch.addr, self.log());
    }

    /// Moves the server's wall clock by `step_us`, forwards or back, on top of earlier steps. Panics unless it was
    /// started by [`RedisBuilder::with_clock_shim`].
    pub fn step_clock(&self, step_us: i64) {
        let clock = self.files.clock.as_ref();
        clock.expect("this server's clock is not ours: use Redis::builder().with_clock_shim()").step(step_us);
    }

    /// The server's wall clock in microseconds since 1970, by the TIME command.
    pub fn time_us(&self) -> i64 {
        let reply = self.command(&["TIME"]);
        reply.array()[0].int() * 1_000_000 + reply.array()[1].int()
    }

    /// Executes one command as an administrator. An error reply is a value; no reply within five seconds is a panic.
    pub fn command(&self, words: &[&str]) -> Reply {
        self.try_command(words).unwrap_or_else(|error| panic!("{words:?} on {}: {error}\n{}", self.url(), self.log()))
    }

    /// As [`Redis::command`], for a server that may be down.
    pub fn try_command(&self, words: &[&str]) -> io::Result<Reply> {
        self.admin()?.command(words)
    }

    /// A connection with all rights, over the Unix socket.
    pub fn admin(&self) -> io::Result<Connection> {
        let mut connection = Connection::unix(&self.unix_path())?;
        if self.launch.has_acl {
            connection.command(&["AUTH", ADMIN_USER, ADMIN_USER])?.expect_ok();
        }
        Ok(connection)
    }

    /// One section of INFO, as the server prints it.
    pub fn info(&self, section: &str) -> String {
        self.command(&["INFO", section]).text().to_owned()
    }

    /// One field of INFO. Panics when the section does not have it.
    pub fn info_field(&self, section: &str, field: &str) -> String {
        let info = self.info(section);
        field_of(&info, field).unwrap_or_else(|| panic!("INFO {section} has no {field}:\n{info}")).to_owned()
    }

    /// Processor time that the server has used, user and system, in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        let info = self.info("cpu");
        ["used_cpu_user", "used_cpu_sys"]
            .iter()
            .map(|field| field_of(&info, field).and_then(|value| value.parse::<f64>().ok()).expect("INFO cpu"))
            .sum()
    }

    /// Everything it has logged, including before a restart.
    pub fn log(&self) -> String {
        fs::read(self.files.log_path()).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default()
    }

    /// Waits until this replica's link to its master is up.
    pub(crate) fn wait_replica_in_sync(&self, limit: Duration) {
        wait_until(&format!("the replica {} to be in sync", self.addr()), limit, || {
            self.try_command(&["INFO", "replication"]).is_ok_and(|reply| {
                field_of(reply.text(), "role") == Some("slave")
                    && field_of(reply.text(), "master_link_status") == Some("up")
            })
        });
    }

    fn scheme(&self) -> &'static str {
        if self.launch.is_tls { "rediss" } else { "redis" }
    }

    fn answers(&self) -> bool {
        self.try_command(&["PING"]).is_ok_and(|reply| reply == Reply::Status("PONG".to_owned()))
    }

    /// A test that panicked while it held the lock left nothing half-done that a kill cannot end.
    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Redis").field("url", &self.url()).field("pid", &self.pid()).finish_non_exhaustive()
    }
}

/// A field in the `name:value` lines of INFO and CLUSTER INFO.
pub(crate) fn field_of<'a>(info: &'a str, field: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).map(str::trim)
}

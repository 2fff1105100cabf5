//! Starts a PostgreSQL server that a test can stop, kill and restart.

use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::install::{must_run, postgres_programs};
use crate::port::free_port;
use crate::process::Process;
use crate::wait::holds_within;

/// The superuser that the kit creates; the server trusts all loopback connections.
const USER: &str = "checkdam";
/// Another process may take a port between our look and the server's bind.
const ATTEMPTS: usize = 10;
const START_LIMIT: Duration = Duration::from_secs(30);
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// A server of its own: a free loopback port, a temporary directory, no password. Dropping it ends the server and
/// removes the directory.
pub struct Postgres {
    // Declared before `files`: the process must be gone before its directory is.
    process: Mutex<Process>,
    addr: SocketAddr,
    settings: Vec<String>,
    files: Files,
    databases: AtomicU32,
}

/// Options of a server; made by [`Postgres::builder`].
#[derive(Clone, Default)]
pub struct PostgresBuilder {
    settings: Vec<String>,
}

/// What the server keeps on disk, and whose that is.
struct Files {
    dir: TempDir,
    owner: Option<Owner>,
}

/// The server refuses to run as root, so root runs it as another user.
#[derive(Clone, Copy)]
struct Owner {
    user: u32,
    group: u32,
}

impl PostgresBuilder {
    /// One setting of `postgresql.conf`, such as `max_connections=10`.
    #[must_use]
    pub fn setting(mut self, setting: impl Into<String>) -> Self {
        self.settings.push(setting.into());
        self
    }

    /// Whether commits wait for the disk: on unless said otherwise. Off is faster, for tests that never lose power.
    #[must_use]
    pub fn fsync(self, is_on: bool) -> Self {
        self.setting(if is_on { "fsync=on" } else { "fsync=off" })
    }

    /// Starts the server and waits until it answers. Panics, with the server's log, when it does not.
    #[must_use]
    pub fn start(self) -> Postgres {
        for _ in 0..ATTEMPTS {
            let files = Files::create();
            let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
            let process = Mutex::new(files.spawn(addr, &self.settings));
            let settings = self.settings.clone();
            let server = Postgres { process, addr, settings, files, databases: AtomicU32::new(0) };
            if server.is_up_in_time() {
                return server;
            }
            assert!(server.log().contains("Address already in use"), "PostgreSQL did not start:\n{}", server.log());
        }
        panic!("PostgreSQL lost its port to another process {ATTEMPTS} times in a row");
    }
}

impl Postgres {
    /// Starts a server with default options and waits until it answers.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Options, then [`PostgresBuilder::start`].
    #[must_use]
    pub fn builder() -> PostgresBuilder {
        PostgresBuilder::default()
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Makes an empty database and returns its URL, so that tests may share a server without meeting each other.
    pub fn create_database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql(&self.url_of("postgres"), &format!("CREATE DATABASE {name}"));
        self.url_of(&name)
    }

    /// The URL of a database on this server, by name. Every server has one called `postgres`.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://{USER}@{}/{database}", self.addr)
    }

    /// What `psql` prints for these statements: values alone, one row a line. An error is a panic.
    pub fn sql(&self, url: &str, statements: &str) -> String {
        self.try_sql(url, statements).unwrap_or_else(|error| panic!("{statements}: {error}\n{}", self.log()))
    }

    /// As [`Postgres::sql`]; an error is its message.
    pub fn try_sql(&self, url: &str, statements: &str) -> Result<String, String> {
        let mut psql = Command::new(postgres_programs().join("psql"));
        let psql = psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statements, url]);
        let output = psql.output().unwrap_or_else(|error| panic!("cannot run {psql:?}: {error}"));
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Ends the server as an administrator would: connections are cut, everything is written. Returns once it is gone.
    pub fn stop(&self) {
        self.end(Signal::INT);
    }

    /// SIGKILL, to the server and to the processes that serve its connections: these would go on for a moment, and
    /// might still commit. Returns once all are gone; what the disk has stays.
    pub fn kill(&self) {
        let mut process = self.process();
        if !process.is_running() {
            return;
        }
        // Stopped, it starts no others while they are counted.
        process.pause();
        let children = children(process.id());
        process.kill();
        for child in &children {
            // It may have ended by itself.
            let _ = kill_process(*child, Signal::KILL);
        }
        let are_gone = holds_within(STOP_LIMIT, || !children.iter().any(|child| lives(*child)));
        assert!(are_gone, "PostgreSQL's processes outlived it");
    }

    /// Starts the server again on the same address with the same data, and waits until it answers.
    pub fn start_again(&self) {
        // After a kill the server's own children may still hold the data for a moment, and it refuses to start.
        let is_up = holds_within(START_LIMIT, || {
            *self.process() = self.files.spawn(self.addr, &self.settings);
            self.is_up_in_time()
        });
        assert!(is_up, "PostgreSQL did not come back on {}:\n{}", self.addr, self.log());
    }

    /// Whether its process exists.
    pub fn is_running(&self) -> bool {
        self.process().is_running()
    }

    /// Everything it has logged, including before a restart.
    pub fn log(&self) -> String {
        fs::read(self.files.log_path()).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default()
    }

    fn is_up_in_time(&self) -> bool {
        let answers = || {
            let port = self.addr.port().to_string();
            let mut ready = Command::new(postgres_programs().join("pg_isready"));
            ready.args(["-q", "-h", "127.0.0.1", "-p", &port]).status().is_ok_and(|status| status.success())
        };
        holds_within(START_LIMIT, || !self.is_running() || answers()) && self.is_running()
    }

    fn end(&self, signal: Signal) {
        let mut process = self.process();
        if !process.is_running() {
            return;
        }
        let id = Pid::from_raw(process.id().cast_signed()).expect("a process has a number");
        kill_process(id, signal).expect("cannot signal the server");
        assert!(holds_within(STOP_LIMIT, || !process.is_running()), "PostgreSQL ignored {signal:?}:\n{}", self.log());
    }

    /// A test that panicked while it held the lock left nothing half-done that a kill cannot end.
    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // A server that is killed leaves a segment of shared memory behind, so it is asked to end at once instead.
        let process = self.process.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let (true, Some(id)) = (process.is_running(), Pid::from_raw(process.id().cast_signed())) {
            let _ = kill_process(id, Signal::QUIT);
            holds_within(STOP_LIMIT, || !process.is_running());
        }
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Postgres").field("addr", &self.addr).finish_non_exhaustive()
    }
}

impl Files {
    /// A new directory with an empty cluster in it.
    fn create() -> Self {
        let dir = tempfile::Builder::new().prefix("checkdam-testkit-").tempdir().expect("cannot make a directory");
        let programs = postgres_programs();
        let owner = rustix::process::geteuid().is_root().then(Owner::find);
        if let Some(Owner { user, group }) = owner {
            chown(dir.path(), Some(user), Some(group)).expect("cannot give the directory to the server's user");
        }
        let files = Self { dir, owner };
        let mut initdb = files.command(programs.join("initdb"));
        initdb.args(["-A", "trust", "-U", USER, "-E", "UTF8", "--locale=C", "--no-sync", "-D"]).arg(files.data_path());
        must_run(&mut initdb, "initdb must work for a PostgreSQL of the test's own");
        files
    }

    fn spawn(&self, addr: SocketAddr, settings: &[String]) -> Process {
        let mut server = self.command(postgres_programs().join("postgres"));
        server.arg("-D").arg(self.data_path()).args(["-h", "127.0.0.1", "-p", &addr.port().to_string()]);
        // No socket file: a path below the temporary directory may be longer than one may be.
        server.args(["-k", ""]);
        for setting in settings {
            server.args(["-c", setting]);
        }
        Process::spawn(&mut server, &self.log_path(), self.dir.path())
    }

    /// A command that runs as the server's user.
    fn command(&self, program: PathBuf) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.dir.path()).env_remove("PGDATA").env("LC_ALL", "C");
        if let Some(Owner { user, group }) = self.owner {
            command.uid(user).gid(group);
        }
        command
    }

    fn data_path(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("server.log")
    }
}

impl Owner {
    /// The user `postgres`, which the packages create, or else `nobody`.
    fn find() -> Self {
        let users = fs::read_to_string("/etc/passwd").expect("cannot read /etc/passwd");
        let named = |name: &str| {
            let mut fields = users
                .lines()
                .map(|line| line.split(':'))
                .find_map(|mut fields| (fields.next() == Some(name)).then_some(fields))?;
            let user = fields.nth(1)?.parse().ok()?;
            Some(Self { user, group: fields.next()?.parse().ok()? })
        };
        named("postgres").or_else(|| named("nobody")).expect("PostgreSQL does not run as root: there is no other user")
    }
}

/// The processes that a process has started; none where the system does not tell.
fn children(id: u32) -> Vec<Pid> {
    let listed = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    listed.split_whitespace().filter_map(|child| Pid::from_raw(child.parse().ok()?)).collect()
}

/// Whether a process does anything yet; a zombie does not.
fn lives(id: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", id.as_raw_nonzero()));
    stat.is_ok_and(|stat| !stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['Z', 'X'])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_committed_survives_a_stop_and_a_kill() {
        let server = Postgres::start();
        let url = server.create_database();
        server.sql(&url, "CREATE TABLE kept (n INT); INSERT INTO kept VALUES (1)");
        server.stop();
        assert!(!server.is_running());
        assert!(server.try_sql(&url, "SELECT 1").is_err());
        server.start_again();
        server.sql(&url, "INSERT INTO kept VALUES (2)");
        server.kill();
        server.start_again();
        assert_eq!(server.sql(&url, "SELECT n FROM kept ORDER BY n"), "1\n2");
    }
}

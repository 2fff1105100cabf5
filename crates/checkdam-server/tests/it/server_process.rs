//! Starts the binary, and ends it with the test.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::time::Instant;

use crate::http_client::Client;

/// How long anything may take that should take no time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Tells the threads of a test that it is over, also when it fails: a scope waits for them.
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The binary, without settings from around the test.
pub(crate) fn checkdam() -> Command {
    // Another build, if one is named: longer suites measure the one that users run.
    let built = std::env::var_os("CHECKDAM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_checkdam").into());
    let mut command = Command::new(built);
    for (name, _) in std::env::vars() {
        let is_general = ["DATABASE_URL", "REDIS_URL", "RUNTIME_ROOT"].contains(&name.as_str());
        if ["CHECKDAM_", "LOG_", "OTEL_"].iter().any(|prefix| name.starts_with(prefix)) || is_general {
            command.env_remove(name);
        }
    }
    // Ports and data of its own, whatever else runs here.
    command.env("CHECKDAM_ADMIN_LISTEN", "127.0.0.1:0").env("CHECKDAM_GRPC_LISTEN", "127.0.0.1:0");
    command.env("CHECKDAM_DATA_DIR", folder());
    // Tests run many at a time on few cores: that work begins late is no news.
    command.env("CHECKDAM_SHED_AFTER", "0s");
    command.current_dir(env!("CARGO_TARGET_TMPDIR")).stdin(Stdio::null());
    command
}

/// Runs the binary to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    checkdam().args(arguments).output().expect("the binary runs")
}

/// What was written to standard output or error.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is UTF-8")
}

/// A folder of this test's own.
pub(crate) fn folder() -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&path).expect("a folder for the test");
    path
}

/// A rule file of this test's own.
pub(crate) fn rule_file(rules: &str) -> PathBuf {
    let path = folder().join("rules.yaml");
    std::fs::write(&path, rules).expect("the rule file is written");
    path
}

/// A running server, killed with the test.
pub(crate) struct Server {
    child: Child,
    address: String,
    grpc: String,
    admin: String,
    log: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Server {
    /// A server with the starter rules.
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// A server with these rules.
    pub(crate) fn with_rules(rules: &str) -> Self {
        Self::with(&["--rules", rule_file(rules).to_str().unwrap()])
    }

    /// A server with these arguments, listening.
    pub(crate) fn with(arguments: &[&str]) -> Self {
        let mut command = checkdam();
        command.args(["serve", "--http-listen", "127.0.0.1:0"]).args(arguments);
        Self::of(command)
    }

    /// The server that this command starts, listening.
    pub(crate) fn of(command: Command) -> Self {
        Self::run(command, "/v1/check", "listening  http://")
    }

    /// A proxy with these arguments, listening.
    pub(crate) fn proxy(arguments: &[&str]) -> Self {
        Self::proxy_in(&[], arguments)
    }

    /// A proxy with these variables and arguments, listening.
    pub(crate) fn proxy_in(variables: &[(&str, &str)], arguments: &[&str]) -> Self {
        let mut command = checkdam();
        command.envs(variables.iter().copied());
        command.args(["proxy", "--listen", "127.0.0.1:0"]).args(arguments);
        Self::run(command, "store      ", "proxy      http://")
    }

    /// Runs until it has said `ready`; its address stands behind `words`.
    fn run(command: Command, ready: &str, words: &str) -> Self {
        let mut server = Self::opening(command);
        server.wait_for_log(ready);
        let log = server.log().replace("https://", "http://");
        let behind = |words: &str| Some(log.split(words).nth(1)?.split(['/', ' ', '\n']).next()?.to_owned());
        server.address = behind(words).unwrap();
        server.grpc = behind("grpc       http://").unwrap_or_default();
        server.admin = behind("admin      http://").unwrap_or_default();
        server
    }

    /// The same, and whether it ever listens is for the test to see.
    pub(crate) fn opening(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the server starts");
        let stderr = BufReader::new(child.stderr.take().expect("standard error is piped"));
        let log = Arc::new(Mutex::new(String::new()));
        let written = Arc::clone(&log);
        let reader = std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                written.lock().unwrap().push_str(&format!("{line}\n"));
            }
        });
        let (address, grpc, admin) = Default::default();
        Self { child, address, grpc, admin, log, reader: Some(reader) }
    }

    /// How much memory it holds, in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.address)
    }

    /// Where Envoy's rate limit service is.
    pub(crate) fn grpc_address(&self) -> &str {
        &self.grpc
    }

    /// Where its admin API is.
    pub(crate) fn admin_address(&self) -> &str {
        &self.admin
    }

    pub(crate) fn admin(&self) -> Client {
        Client::connect(&self.admin)
    }

    /// What the server has said so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until the server has said `text`.
    pub(crate) fn wait_for_log(&mut self, text: &str) {
        let start = Instant::now();
        while !self.log().contains(text) {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the server ended with {status} before it said {text:?}:\n{}", self.log());
            }
            assert!(start.elapsed() < PATIENCE, "the server did not say {text:?}:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a signal such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Waits until the server has ended by itself.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                // All that it said is read before anybody asks for it.
                self.reader.take().map(JoinHandle::join);
                return status;
            }
            assert!(start.elapsed() < 2 * PATIENCE, "the server does not end:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the server said:\n{}", self.log());
        }
    }
}

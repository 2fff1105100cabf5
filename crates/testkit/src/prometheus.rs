//! One Prometheus server that scrapes the targets of the test.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::daemon::Daemon;
use crate::install::{prometheus, promtool};

const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// A Prometheus of its own for one test, on a free loopback port. Dropping it kills the process.
pub struct Prometheus {
    daemon: Daemon,
}

impl Prometheus {
    /// Starts Prometheus with a whole configuration; `files` are those that it names, and lie in its working directory.
    #[must_use]
    pub fn start(configuration: &str, files: &[(&str, &str)]) -> Self {
        let daemon = Daemon::start(&prometheus(), |port, dir| {
            write(dir, files);
            write(dir, &[("prometheus.yml", configuration)]);
            let listen = format!("--web.listen-address=127.0.0.1:{port}");
            let rest = ["--config.file=prometheus.yml", "--storage.tsdb.path=data", "--log.level=warn"];
            let exemplars = "--enable-feature=exemplar-storage";
            rest.into_iter().chain([listen.as_str(), exemplars]).map(Into::into).collect()
        });
        Self { daemon }
    }

    /// What its API answers to an instant query: JSON.
    pub fn query(&self, expression: &str) -> String {
        self.api("query", expression)
    }

    /// The exemplars of the last minute: JSON.
    pub fn exemplars(&self, expression: &str) -> String {
        self.api("query_exemplars", expression)
    }

    fn api(&self, path: &str, expression: &str) -> String {
        let mut query = String::new();
        for byte in expression.bytes() {
            let _ = write!(query, "%{byte:02X}");
        }
        // Without a range exemplars are asked for of all time, which the API refuses to take as a default.
        let range = if path == "query" { "" } else { "&start=1&end=99999999999" };
        let mut stream = TcpStream::connect(self.daemon.address()).expect("Prometheus accepts connections");
        stream.set_read_timeout(Some(ANSWER_LIMIT)).expect("a limit can be set");
        let request = format!("GET /api/v1/{path}?query={query}{range} HTTP/1.0\r\nhost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("Prometheus reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("Prometheus answers");
        let (_, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
        body.to_owned()
    }
}

/// Runs `promtool` in a folder with these files and this text on its standard input. Panics with what it says if it is
/// not content; whatever it says otherwise is returned.
pub fn run_promtool(arguments: &[&str], files: &[(&str, &str)], input: &str) -> String {
    let dir = TempDir::with_prefix("checkdam-testkit-").expect("cannot create a folder for promtool");
    write(dir.path(), files);
    write(dir.path(), &[("input", input)]);
    let input = fs::File::open(dir.path().join("input")).expect("what was written can be read");
    let run = Command::new(promtool()).args(arguments).current_dir(dir.path()).stdin(input).output();
    let output = run.expect("promtool runs");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "promtool {arguments:?} is not content:\n{said}");
    said
}

fn write(dir: &Path, files: &[(&str, &str)]) {
    for (name, content) in files {
        let path = dir.join(name);
        fs::write(&path, content).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    }
}

//! A Redis behind a link with real delay, in another network namespace.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::install::{kept_dir, locked, must_run, redis_server};
use crate::process::Process;
use crate::wait::wait_until;

const SOURCE: &str = include_str!("far_link.c");
const LIMIT: Duration = Duration::from_secs(10);

/// A Redis that is as far away as the test says. Needs root and `/dev/net/tun`.
pub struct FarRedis {
    link: Process,
    _server: Process,
    _dir: TempDir,
}

impl FarRedis {
    /// Starts a server to which every packet, and from which every packet, takes half of `round_trip`.
    #[must_use]
    pub fn start(round_trip: Duration) -> Self {
        let dir = TempDir::with_prefix("checkdam-testkit-").expect("cannot create a folder for the link");
        let log = dir.path().join("link.log");
        let one_way_us = (round_trip / 2).as_micros().to_string();
        let mut link = Process::spawn(Command::new(program()).arg(one_way_us), &log, dir.path());
        let said = || fs::read_to_string(&log).unwrap_or_default();
        let far = || said().trim().strip_prefix("ready ").map(str::to_owned);
        wait_until("the link to be there", LIMIT, || {
            assert!(link.is_running(), "a link with delay needs root and /dev/net/tun: {}", said());
            far().is_some()
        });
        let mut command = inside(&far().unwrap_or_default(), &redis_server());
        command.args(["--bind", "10.77.0.2", "--save", "", "--appendonly", "no", "--protected-mode", "no", "--dir"]);
        let server_log = dir.path().join("server.log");
        let mut server = Process::spawn(command.arg(dir.path()), &server_log, dir.path());
        wait_until("the far server to be ready", LIMIT, || {
            let said = fs::read_to_string(&server_log).unwrap_or_default();
            assert!(server.is_running(), "the far server has ended: {said}");
            said.contains("Ready to accept connections")
        });
        Self { link, _server: server, _dir: dir }
    }

    /// A program that can reach the server: nothing outside of the link can.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        inside(&self.link.id().to_string(), program)
    }

    /// Where the server is, for programs that can reach it.
    #[must_use]
    pub fn url(&self) -> &'static str {
        "redis://10.77.0.2:6379"
    }
}

/// A program in the network namespace of a process.
fn inside(process: &str, program: &Path) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["--net", "--target", process]).arg(program);
    command
}

/// The compiled link. Its name holds the hash of its source, so a change to the source compiles anew.
fn program() -> PathBuf {
    let mut hasher = DefaultHasher::new();
    SOURCE.hash(&mut hasher);
    let program = kept_dir().join(format!("far_link-{:016x}", hasher.finish()));
    locked(&kept_dir().join("far_link.lock"), || {
        if !program.exists() {
            let (source, unfinished) = (program.with_extension("c"), program.with_extension("part"));
            fs::write(&source, SOURCE).expect("cannot write the link's source");
            must_run(
                Command::new("cc").args(["-O2", "-o"]).arg(&unfinished).arg(&source),
                "a link with delay needs a C compiler named `cc` and the C library's headers \
                 (Debian: `apt-get install gcc libc6-dev`)",
            );
            fs::rename(&unfinished, &program).expect("cannot move the compiled link into place");
        }
    });
    program
}

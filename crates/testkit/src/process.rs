//! A child process that cannot outlive the test.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::holds_within;

/// Reads until the test process closes its end of the pipe, by exiting or by being killed, and then ends the server
/// and removes its files. `PR_SET_PDEATHSIG` would not do: it fires when the *thread* that spawned the child ends,
/// and every test runs in a thread of its own.
const WATCH: &str = r#"trap '' INT TERM HUP; read -r _; kill -9 "$1"; rm -rf "$2""#;

/// A running server process and the shell that watches over it.
pub(crate) struct Process {
    server: Child,
    watch: Child,
}

impl Process {
    /// Starts `command` with its output appended to `log`. `dir` is removed with the process if the test dies.
    pub(crate) fn spawn(command: &mut Command, log: &Path, dir: &Path) -> Self {
        let output = File::options().create(true).append(true).open(log).expect("cannot open the server's log");
        let server = command
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("cannot duplicate the log's descriptor"))
            .stderr(output)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let watch = Command::new("sh")
            .args(["-c", WATCH, "testkit-watch", &server.id().to_string()])
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("cannot start sh to watch over the server");
        Self { server, watch }
    }

    pub(crate) fn id(&self) -> u32 {
        self.server.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        let is_running = matches!(self.server.try_wait(), Ok(None));
        if !is_running {
            self.kill(); // A server that ended by itself leaves a watch behind.
        }
        is_running
    }

    /// SIGSTOP. Returns once the process has really stopped.
    pub(crate) fn pause(&mut self) {
        self.signal(Signal::STOP);
        assert!(holds_within(Duration::from_secs(5), || self.is_stopped()), "the server ignored SIGSTOP");
    }

    /// SIGCONT.
    pub(crate) fn resume(&mut self) {
        self.signal(Signal::CONT);
    }

    /// SIGKILL. Returns once the process is gone; does nothing if it already was.
    pub(crate) fn kill(&mut self) {
        // The watch goes first: once the server is reaped its number may belong to someone else.
        drop(self.watch.kill());
        drop(self.watch.wait());
        drop(self.server.kill());
        drop(self.server.wait());
    }

    fn signal(&mut self, signal: Signal) {
        assert!(self.is_running(), "cannot signal the server: it is not running");
        kill_process(self.pid(), signal).expect("cannot signal the server");
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.server)
    }

    /// The state is the first field after the program's name, which stands in parentheses.
    fn is_stopped(&self) -> bool {
        match std::fs::read_to_string(format!("/proc/{}/stat", self.server.id())) {
            Ok(stat) => stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')),
            Err(_) => true, // No /proc on this system: take the signal's word for it.
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

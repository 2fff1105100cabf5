//! `checkdam top`: once, and on a terminal.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::server_process::{PATIENCE, Server, checkdam, run, text};

const RULES: &str = r#"{"rules": [{"name": "free", "key": "user:{user}", "limits": ["1/h burst 3"]}]}"#;

/// A server at which somebody was denied seven times.
fn server() -> Server {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    for _ in 0..10 {
        client.post("/v1/check", r#"{"attributes": {"user": "loud"}}"#);
    }
    server
}

fn top(server: &Server, arguments: &[&str]) -> (Option<i32>, String, String) {
    let url = format!("http://{}", server.admin_address());
    let output = run(&[&["top", "--server", &url], arguments].concat());
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn without_a_terminal_it_prints_once() {
    let server = server();
    let (code, out, err) = top(&server, &[]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("most denied in the last minute") && lines[0].ends_with(": 7 in total"), "{out}");
    assert_eq!(lines[2..], ["COUNT  ERROR BOUND  RULE  SUBJECT", "    7            0  free  user:loud"]);
    let (code, out, _) = top(&server, &["--kind", "allowed", "--window", "hour", "--once"]);
    assert_eq!(code, Some(0));
    assert!(out.starts_with("most allowed in the last hour") && out.contains("    3            0  free"), "{out}");
    let (code, out, _) = top(&server, &["--json"]);
    let all: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &all["top"]["subjects"][0]["count"]), (Some(0), &Value::from(7)), "{out}");
    assert!(["traffic", "nodes", "status"].iter().all(|part| all[part].is_object()), "{out}");
    let (code, out, err) = top(&server, &["--rule", "nobody"]);
    assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
    assert!(err.contains("there is no rule \"nobody\""), "{err}");
}

#[test]
fn without_a_server_it_says_so_and_exits_with_2() {
    let url = format!("http://127.0.0.1:{}", testkit::free_port());
    for more in [&["--once"][..], &["--json"], &[]] {
        let output = run(&[&["top", "--server", &url], more].concat());
        assert_eq!(output.status.code(), Some(2), "{more:?}: {output:?}");
        assert!(text(&output.stderr).contains("cannot reach a server"), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}

/// Runs a shell's commands on a terminal of their own.
struct Terminal {
    child: std::process::Child,
    written: Arc<Mutex<Vec<u8>>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Terminal {
    fn start(commands: &str) -> Self {
        let mut command = Command::new("script");
        // Without settings from around the test.
        command.env_clear().envs(checkdam().get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("TERM", "xterm-256color");
        command.args(["--quiet", "--return", "--echo", "never", "--command", commands, "/dev/null"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script is installed");
        let written = Arc::new(Mutex::new(Vec::new()));
        let (mut out, kept) = (child.stdout.take().unwrap(), Arc::clone(&written));
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(count @ 1..) = out.read(&mut bytes) {
                kept.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        Self { child, written, reader: Some(reader) }
    }

    fn written(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    fn wait_for(&self, text: &str) {
        let start = Instant::now();
        while !self.written().contains(text) {
            assert!(start.elapsed() < 2 * PATIENCE, "no {text:?} in {:?}", self.written());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The number of the process that wrote it.
    fn pid(&self) -> String {
        let written = self.written();
        written.split("pid=").nth(1).and_then(|rest| rest.lines().next()).expect("its number").trim().to_owned()
    }

    fn press(&mut self, keys: &str) {
        self.child.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// How it ended, and all that was written.
    fn end(mut self) -> (Option<i32>, String) {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if start.elapsed() > 2 * PATIENCE {
                let _ = self.child.kill();
                panic!("it does not end: {:?}", self.written());
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        self.reader.take().map(std::thread::JoinHandle::join);
        (status.code(), self.written())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Of no use if it has ended; a test that failed leaves nothing behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn on_a_terminal_it_lives_on_without_its_server_and_leaves_everything_as_it_was() {
    let server = server();
    let (program, url) = (env!("CARGO_BIN_EXE_checkdam"), format!("http://{}", server.admin_address()));
    let commands =
        format!("stty cols 110 rows 30; stty -g; '{program}' top --server {url}; code=$?; stty -g; exit $code");
    let mut terminal = Terminal::start(&commands);
    terminal.wait_for("user:loud");
    terminal.press("?");
    terminal.wait_for("closes");
    terminal.press("x");
    drop(server);
    terminal.wait_for("cannot");
    terminal.press("q");
    let (code, written) = terminal.end();
    assert_eq!(code, Some(0), "{written:?}");
    assert_given_back(&written);
}

#[test]
fn a_terminal_is_given_back_also_when_it_is_told_to_end() {
    let server = server();
    let (program, url) = (env!("CARGO_BIN_EXE_checkdam"), format!("http://{}", server.admin_address()));
    let shown = format!("sh -c 'echo pid=$$; exec \"$0\" top --server {url}' '{program}'");
    let terminal = Terminal::start(&format!("stty cols 110 rows 30; stty -g; {shown}; code=$?; stty -g; exit $code"));
    terminal.wait_for("user:loud");
    assert!(Command::new("kill").args(["-TERM", &terminal.pid()]).status().expect("kill runs").success());
    let (code, written) = terminal.end();
    assert_eq!(code, Some(0), "{written:?}");
    assert_given_back(&written);
}

/// Whether a process has ended; one that nobody has waited for yet counts.
fn has_ended(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.map_or(true, |stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')))
}

#[test]
fn it_ends_when_its_terminal_hangs_up() {
    let server = server();
    let (program, url) = (env!("CARGO_BIN_EXE_checkdam"), format!("http://{}", server.admin_address()));
    // In a session of its own nothing sends it SIGHUP.
    for session in ["", "setsid --wait "] {
        let shown = format!("{session}sh -c 'echo pid=$$; exec \"$0\" top --server {url}' '{program}'");
        let mut terminal = Terminal::start(&format!("stty cols 110 rows 30; {shown}"));
        terminal.wait_for("user:loud");
        let pid = terminal.pid();
        terminal.child.kill().unwrap();
        terminal.child.wait().unwrap();
        let start = Instant::now();
        while !has_ended(&pid) {
            if start.elapsed() > PATIENCE {
                Command::new("kill").args(["-KILL", &pid]).status().expect("kill runs");
                panic!("it runs on without a terminal: {session:?}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Before it, the terminal's modes are written, and after it again.
fn assert_given_back(written: &str) {
    let (before, rest) = written.split_once("\x1b[?1049h").expect("the screen is taken");
    let (screen, after) = rest.split_once("\x1b[?1049l").expect("and given back");
    assert!([screen, after].iter().any(|part| part.contains("\x1b[?25h")), "the cursor is back: {after:?}");
    let modes = before.lines().next().unwrap();
    assert!(modes.contains(':') && after.trim_end().ends_with(modes), "{before:?} and {after:?}");
}

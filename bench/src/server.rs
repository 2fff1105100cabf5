//! A real server in release mode, and what asks it.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Builds the program as users do.
pub fn build() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let built = cargo.args(["build", "--release", "-p", "checkdam-server"]).current_dir(root).status().unwrap();
    assert!(built.success());
}

/// A server, ended when it is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Where it decides.
    pub http: String,
    /// Where operators are let in.
    pub admin: String,
}

impl Server {
    /// Starts one on free ports, with its data in that folder.
    #[must_use]
    pub fn start(data: &Path, arguments: &[&str]) -> Self {
        let binary = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/checkdam");
        let mut command = Command::new(binary);
        command.args([
            "serve",
            "--http-listen",
            "127.0.0.1:0",
            "--grpc-listen",
            "off",
            "--admin-listen",
            "127.0.0.1:0",
            "--data-dir",
        ]);
        let mut child = command.arg(data).args(arguments).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (mut http, mut admin) = (String::new(), String::new());
        for line in lines.by_ref().map_while(Result::ok) {
            let behind = |words: &str| Some(line.split_once(words)?.1.split(['/', ' ']).next()?.to_owned());
            http = behind("listening  http://").unwrap_or(http);
            admin = behind("admin      http://").unwrap_or(admin);
            if line.contains("/v1/check") {
                break;
            }
        }
        std::thread::spawn(move || lines.map_while(Result::ok).count());
        Self { child, http, admin }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One request and its answer: the status and the body.
pub fn ask(stream: &mut BufReader<TcpStream>, method: &str, path: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.get_mut().write_all(request.as_bytes()).unwrap();
    let (mut status, mut length) = (0, 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
            status = rest[..3].parse().unwrap();
        }
        if let Some(rest) = line.to_lowercase().strip_prefix("content-length: ") {
            length = rest.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    (status, String::from_utf8(body).unwrap())
}

/// A connection that is kept.
#[must_use]
pub fn connect(address: &str) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    BufReader::new(stream)
}

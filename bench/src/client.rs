//! Requests one at a time by blocking sockets, for what is not about speed, and
//! for load at a steady rate.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A connection that is kept.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// To that server.
    ///
    /// # Panics
    /// If it cannot be reached.
    #[must_use]
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap_or_else(|error| panic!("cannot reach {address}: {error}"));
        let _ = stream.set_nodelay(true);
        Self { stream: BufReader::new(stream) }
    }

    /// Sends bytes as they are.
    ///
    /// # Panics
    /// If the server is gone.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap_or_else(|error| panic!("the server is gone: {error}"));
    }

    /// The next answer: the status and the body.
    ///
    /// # Panics
    /// If the server is gone.
    pub fn receive(&mut self) -> (u16, String) {
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            let count = self.stream.read_line(&mut line).unwrap_or(0);
            assert!(count > 0, "the server is gone");
            if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
                status = rest.get(..3).and_then(|text| text.parse().ok()).unwrap_or(0);
            }
            if let Some(rest) = line.to_lowercase().strip_prefix("content-length: ") {
                length = rest.trim().parse().unwrap_or(0);
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).unwrap_or_else(|error| panic!("the server is gone: {error}"));
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    /// One request and its answer.
    pub fn ask(&mut self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.send(request(method, path, body).as_bytes());
        self.receive()
    }
}

/// A request as text.
#[must_use]
pub fn request(method: &str, path: &str, body: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Puts rules in place of those in a server's database.
///
/// # Panics
/// If they are refused.
pub fn import(admin: SocketAddr, document: &str) {
    let (status, answer) = Client::connect(admin).ask("POST", "/admin/v1/rules/import?replace=true", document);
    assert_eq!(status, 200, "{answer}");
}

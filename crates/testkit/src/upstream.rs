//! An HTTP server to put behind a proxy; it reports the requests that reached it.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// A server of HTTP/1.1 that answers every request with 200 and the head that arrived, and counts them. It lives until
/// the test process ends.
#[derive(Debug)]
pub struct Upstream {
    addr: SocketAddr,
    requests: Arc<AtomicU64>,
}

impl Upstream {
    /// Starts it on a free loopback port.
    #[must_use]
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("cannot listen on loopback");
        let addr = listener.local_addr().expect("a listener has an address");
        let requests = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counter = Arc::clone(&counter);
                // The client goes when it likes: that is no failure.
                thread::spawn(move || drop(serve(&stream, &counter)));
            }
        });
        Self { addr, requests }
    }

    /// Where it listens.
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// How many requests have reached it.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

fn serve(stream: &TcpStream, counter: &AtomicU64) -> Result<(), Error> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if reader.read_until(b'\n', &mut head)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        let head = String::from_utf8_lossy(&head);
        let lower = head.to_lowercase();
        let length = lower.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        reader.by_ref().take(length.unwrap_or(0)).read_to_end(&mut Vec::new())?;
        counter.fetch_add(1, Ordering::Relaxed);
        let answer =
            format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{head}", head.len());
        let mut writer = stream;
        writer.write_all(answer.as_bytes())?;
    }
}

//! A real application behind proxies: it responds with the request that it received.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) struct Application {
    address: SocketAddr,
    answered: Arc<AtomicUsize>,
}

impl Application {
    /// Listens until the test process ends.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answered = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&answered);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answered = Arc::clone(&counted);
                // A client that breaks off has nobody to tell.
                std::thread::spawn(move || drop(answer(stream, &answered)));
            }
        });
        Self { address, answered }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// How many requests it has answered.
    pub(crate) fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }
}

/// Answers each request with its own head in lower case, and its body.
fn answer(stream: TcpStream, answered: &AtomicUsize) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut seen = String::new();
        while !seen.ends_with("\r\n\r\n") {
            if stream.read_line(&mut seen)? == 0 {
                return Ok(());
            }
        }
        let mut seen = seen.to_lowercase();
        let length = seen.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body)?;
        seen.push_str(&String::from_utf8_lossy(&body));
        answered.fetch_add(1, Ordering::Relaxed);
        write!(stream.get_mut(), "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{seen}", seen.len())?;
    }
}

//! A minimal HTTP/1.1 client that exposes every byte; an incomplete response is an
//! error.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::server_process::PATIENCE;

pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    /// Whether the last answer was a 400, after which the connection is closed.
    is_refused: bool,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Client {
    pub(crate) fn connect(address: &str) -> Self {
        Self::try_connect(address).expect("the server accepts connections")
    }

    /// Connects as somebody at another address.
    pub(crate) fn connect_from(source: &str, server: SocketAddr) -> Self {
        let stream = testkit::connect_from(source.parse().unwrap(), server).expect("the server accepts connections");
        Self::over(stream).expect("the connection can be set up")
    }

    pub(crate) fn try_connect(address: &str) -> Result<Self, Error> {
        Self::over(TcpStream::connect(address)?)
    }

    fn over(stream: TcpStream) -> Result<Self, Error> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(2 * PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream), is_refused: false })
    }

    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.send("GET", path, "").expect("an answer")
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) -> Reply {
        self.send("POST", path, body).expect("an answer")
    }

    /// Posts and expects JSON with status 200.
    pub(crate) fn ok(&mut self, path: &str, body: &str) -> Value {
        let reply = self.post(path, body);
        assert_eq!(reply.status, 200, "{path} {body}: {reply:?}");
        reply.json()
    }

    pub(crate) fn send(&mut self, method: &str, path: &str, body: &str) -> Result<Reply, Error> {
        self.send_with(method, path, &[], body)
    }

    /// Sends a request with headers of its own, on another connection if the last
    /// one was refused.
    pub(crate) fn send_with(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Reply, Error> {
        if self.is_refused {
            let (here, there) = (self.stream.get_ref().local_addr()?, self.stream.get_ref().peer_addr()?);
            *self = Self::over(testkit::connect_from(here.ip(), there)?)?;
        }
        let length = body.len();
        let host = if headers.iter().any(|(name, _)| *name == "host") { "" } else { "host: localhost\r\n" };
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = format!("{method} {path} HTTP/1.1\r\n{host}{headers}content-length: {length}\r\n\r\n{body}");
        self.write(&request)?;
        self.read()
    }

    pub(crate) fn write(&mut self, bytes: impl AsRef<[u8]>) -> Result<(), Error> {
        self.stream.get_mut().write_all(bytes.as_ref())
    }

    /// Reads one answer.
    pub(crate) fn read(&mut self) -> Result<Reply, Error> {
        let status = self.line()?;
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| Error::new(ErrorKind::InvalidData, "no status"))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.push((name.to_lowercase(), value.to_owned()));
        }
        let mut reply = Reply { status, headers, body: String::new() };
        let length = reply.header("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        self.is_refused = status == 400 && reply.header("connection") == Some("close");
        reply.body = String::from_utf8(body).map_err(|error| Error::new(ErrorKind::InvalidData, error))?;
        Ok(reply)
    }

    fn line(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// Whether the server closes the connection without another word.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.stream.fill_buf(), Ok([]))
    }
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

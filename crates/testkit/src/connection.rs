//! A minimal client of the Redis protocol, so that test setup does not use the client under test: one connection,
//! one command, one reply.

use std::fmt;
use std::io::{self, BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long a connection waits for a reply unless told otherwise.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The null bulk string or array.
    Nil,
    /// An integer.
    Int(i64),
    /// A status line, such as `OK`.
    Status(String),
    /// An error line with its code, such as `NOSCRIPT No matching script`.
    Error(String),
    /// A bulk string; bytes that are not UTF-8 are replaced.
    Bulk(String),
    /// An array of replies.
    Array(Vec<Reply>),
}

impl Reply {
    /// The text of a status or bulk string. Panics on anything else.
    pub fn text(&self) -> &str {
        match self {
            Self::Status(text) | Self::Bulk(text) => text,
            other => panic!("expected text, the server answered {other:?}"),
        }
    }

    /// The integer, also when it came as text. Panics on anything else.
    pub fn int(&self) -> i64 {
        match self {
            Self::Int(value) => *value,
            Self::Bulk(text) => text.parse().unwrap_or_else(|_| panic!("expected an integer, got {text:?}")),
            other => panic!("expected an integer, the server answered {other:?}"),
        }
    }

    /// The elements of an array. Panics on anything else.
    pub fn array(&self) -> &[Reply] {
        match self {
            Self::Array(items) => items,
            other => panic!("expected an array, the server answered {other:?}"),
        }
    }

    /// The error line, if this is one.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Error(line) => Some(line),
            _ => None,
        }
    }

    /// Panics unless the reply is the status `OK`.
    pub fn expect_ok(&self) {
        assert_eq!(*self, Self::Status("OK".to_owned()));
    }
}

/// One connection to a server, over TCP or a Unix socket.
pub struct Connection {
    stream: BufReader<Box<dyn Stream>>,
}

trait Stream: Read + Write + Send {}
impl<S: Read + Write + Send> Stream for S {}

impl Connection {
    /// Connects over TCP.
    pub fn tcp(addr: SocketAddr) -> io::Result<Self> {
        Self::tcp_with_timeout(addr, TIMEOUT)
    }

    /// Connects over TCP; connecting and every reply may take at most `timeout`.
    pub fn tcp_with_timeout(addr: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        Ok(Self { stream: BufReader::new(Box::new(stream)) })
    }

    /// Connects to a Unix socket.
    pub fn unix(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self { stream: BufReader::new(Box::new(stream)) })
    }

    /// Sends one command and reads its reply. An error reply is a [`Reply::Error`], not an `Err`.
    pub fn command(&mut self, words: &[&str]) -> io::Result<Reply> {
        self.send(words)?;
        self.receive()
    }

    /// Sends one command without waiting for the reply.
    pub fn send(&mut self, words: &[&str]) -> io::Result<()> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.stream.get_mut().write_all(request.as_bytes())
    }

    /// Reads one reply.
    pub fn receive(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let Some((kind, rest)) = line.split_at_checked(1) else {
            return Err(malformed(&line));
        };
        match kind {
            "+" => Ok(Reply::Status(rest.to_owned())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => Ok(Reply::Int(rest.parse().map_err(|_| malformed(&line))?)),
            "$" => match length(rest, &line)? {
                None => Ok(Reply::Nil),
                Some(length) => self.bulk(length),
            },
            "*" => match length(rest, &line)? {
                None => Ok(Reply::Nil),
                Some(length) => (0..length).map(|_| self.receive()).collect::<io::Result<_>>().map(Reply::Array),
            },
            _ => Err(malformed(&line)),
        }
    }

    fn bulk(&mut self, length: usize) -> io::Result<Reply> {
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(Reply::Bulk(String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(Error::new(ErrorKind::UnexpectedEof, "the server closed the connection"));
        }
        Ok(line.trim_end().to_owned())
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Connection").finish_non_exhaustive()
    }
}

fn length(text: &str, line: &str) -> io::Result<Option<usize>> {
    let length: i64 = text.parse().map_err(|_| malformed(line))?;
    Ok(usize::try_from(length).ok())
}

fn malformed(line: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("not a reply: {line:?}"))
}

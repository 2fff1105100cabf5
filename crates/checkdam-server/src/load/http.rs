//! Requests over HTTP/1.1, one connection a lane: their text is prepared but
//! for the key, and of answers no more is read than counts.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::answer::{Answer, Fault, Verdict};
use super::lane::Door;
use super::reply::{Replies, Reply};
use super::template::Template;

/// The text of requests.
#[derive(Debug)]
pub(crate) struct HttpRequest {
    /// The request line and the headers but the length, each with its line end.
    head: Template,
    body: Option<Template>,
}

impl HttpRequest {
    /// Asks to decide, by `POST`.
    pub(crate) fn check(path: &Template, authority: &str, headers: &[Template], body: Template) -> Self {
        let head = head("POST", path, authority, headers);
        Self { head: head.text("content-type: application/json\r\n"), body: Some(body) }
    }

    /// Asks for a page, by `GET`.
    pub(crate) fn get(path: &Template, authority: &str, headers: &[Template]) -> Self {
        Self { head: head("GET", path, authority, headers), body: None }
    }

    fn write(&self, key: u64, out: &mut Vec<u8>) {
        let mut digits = itoa::Buffer::new();
        let key = digits.format(key);
        out.clear();
        self.head.write(key, out);
        if let Some(body) = &self.body {
            out.extend_from_slice(b"content-length: ");
            out.extend_from_slice(itoa::Buffer::new().format(body.length(key.len())).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
        if let Some(body) = &self.body {
            body.write(key, out);
        }
    }

    fn verdict(&self, status: u16) -> Verdict {
        let is_check = self.body.is_some();
        match status {
            200..=299 => Verdict::Allowed,
            300..=399 if !is_check => Verdict::Allowed,
            429 => Verdict::Limited,
            // A ban.
            403 if is_check => Verdict::Limited,
            _ => Verdict::Undecided,
        }
    }
}

fn head(method: &str, path: &Template, authority: &str, headers: &[Template]) -> Template {
    let mut head = Template::of(format!("{method} ")).then(path).text(" HTTP/1.1\r\n");
    head = head.text(&format!("host: {authority}\r\n"));
    for header in headers {
        head = head.then(header).text("\r\n");
    }
    head
}

/// A connection, and a new one where it has ended.
#[derive(Debug)]
pub(crate) struct HttpDoor {
    address: SocketAddr,
    request: Arc<HttpRequest>,
    connection: Option<Connection>,
    text: Vec<u8>,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    replies: Replies,
}

impl HttpDoor {
    pub(crate) const fn new(address: SocketAddr, request: Arc<HttpRequest>) -> Self {
        Self { address, request, connection: None, text: Vec::new() }
    }

    async fn connect(&self) -> Result<Connection, Fault> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, replies: Replies::default() })
    }
}

impl Door for HttpDoor {
    async fn open(&mut self) {
        self.connection = self.connect().await.ok();
    }

    async fn ask(&mut self, key: u64) -> Result<Answer, Fault> {
        // Taken out: a connection whose answer was not awaited is never used again.
        let kept = self.connection.take().filter(Connection::is_alive);
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        self.request.write(key, &mut self.text);
        connection.stream.write_all(&self.text).await?;
        let has_decision = self.request.body.is_some();
        let reply = connection.replies.read(&mut connection.stream, has_decision).await?;
        let Reply { status, is_kept, decided_by, bytes } = reply;
        if is_kept {
            self.connection = Some(connection);
        }
        Ok(Answer {
            verdict: self.request.verdict(status),
            status: Some(status),
            decided_by,
            sent_bytes: self.text.len(),
            received_bytes: bytes,
        })
    }
}

impl Connection {
    /// Whether the server has not closed it meanwhile. Asks the system only if
    /// something has come.
    fn is_alive(&self) -> bool {
        let nothing = self.stream.try_read(&mut [0]);
        matches!(nothing, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_say_how_long_they_are() {
        let path = "/p/{key}".parse().unwrap();
        let headers = ["x-user: u{key}".parse().unwrap()];
        let body = Template::of("{\"a\":\"").then(&"{key}".parse().unwrap()).text("\"}");
        let check = HttpRequest::check(&path, "here:1", &headers, body);
        let mut text = Vec::new();
        check.write(1234, &mut text);
        assert_eq!(
            String::from_utf8(text.clone()).unwrap(),
            "POST /p/1234 HTTP/1.1\r\nhost: here:1\r\nx-user: u1234\r\ncontent-type: application/json\r\n\
             content-length: 12\r\n\r\n{\"a\":\"1234\"}"
        );
        HttpRequest::get(&path, "here:1", &[]).write(7, &mut text);
        assert_eq!(String::from_utf8(text).unwrap(), "GET /p/7 HTTP/1.1\r\nhost: here:1\r\n\r\n");
    }

    #[test]
    fn verdicts_follow_the_status() {
        let path = Template::of("/");
        let check = HttpRequest::check(&path, "", &[], Template::of("{}"));
        let get = HttpRequest::get(&path, "", &[]);
        for (status, of_check, of_get) in [
            (200, Verdict::Allowed, Verdict::Allowed),
            (302, Verdict::Undecided, Verdict::Allowed),
            (403, Verdict::Limited, Verdict::Undecided),
            (429, Verdict::Limited, Verdict::Limited),
            (503, Verdict::Undecided, Verdict::Undecided),
        ] {
            assert_eq!((check.verdict(status), get.verdict(status)), (of_check, of_get), "{status}");
        }
    }
}

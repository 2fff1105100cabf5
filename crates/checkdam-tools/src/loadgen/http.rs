//! HTTP/1.1 client of the load generator, one connection each: requests are prepared
//! except for the key, and only the counted parts of responses are parsed.

use std::sync::Arc;

use axum::http::HeaderName;
use axum::http::header::{CONTENT_TYPE, HOST};
use tokio::io::AsyncWriteExt;

use super::client::{Client, RequestFailure, RequestResult, ServerVerdict};
use super::endpoint::{Connection, Endpoint};
use super::http_response::{ParsedResponse, ResponseParser};
use super::key_template::KeyTemplate;

/// A header that is given, with its value.
pub type HeaderTemplate = (HeaderName, KeyTemplate);

#[derive(Debug)]
pub struct HttpRequest {
    /// The request line and the headers but the length, each with its line end.
    head: KeyTemplate,
    body: Option<KeyTemplate>,
}

impl HttpRequest {
    /// Asks to decide, by `POST`.
    pub fn check(path: &KeyTemplate, authority: &str, headers: &[HeaderTemplate], body: KeyTemplate) -> Self {
        let mut head = head("POST", path, authority, headers);
        if !has(headers, &CONTENT_TYPE) {
            head = head.push_text("content-type: application/json\r\n");
        }
        Self { head, body: Some(body) }
    }

    /// Asks for a page, by `GET`.
    pub fn get(path: &KeyTemplate, authority: &str, headers: &[HeaderTemplate]) -> Self {
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

    fn verdict(&self, status: u16) -> ServerVerdict {
        let is_check = self.body.is_some();
        match status {
            200..=299 => ServerVerdict::Allowed,
            300..=399 if !is_check => ServerVerdict::Allowed,
            429 => ServerVerdict::Limited,
            // A ban.
            403 if is_check => ServerVerdict::Limited,
            _ => ServerVerdict::Undecided,
        }
    }
}

fn head(method: &str, path: &KeyTemplate, authority: &str, headers: &[HeaderTemplate]) -> KeyTemplate {
    let mut head = KeyTemplate::literal(format!("{method} ")).push_template(path).push_text(" HTTP/1.1\r\n");
    if !has(headers, &HOST) {
        head = head.push_text(&format!("host: {authority}\r\n"));
    }
    for (name, value) in headers {
        head = head.push_text(&format!("{name}: ")).push_template(value).push_text("\r\n");
    }
    head
}

/// Whether it is given: then it replaces the default.
fn has(headers: &[HeaderTemplate], wanted: &HeaderName) -> bool {
    headers.iter().any(|(name, _)| name == wanted)
}

/// A connection, and a new one where it has ended.
#[derive(Debug)]
pub(super) struct HttpClient {
    endpoint: Endpoint,
    request: Arc<HttpRequest>,
    connection: Option<KeptConnection>,
    text: Vec<u8>,
}

#[derive(Debug)]
struct KeptConnection {
    stream: Connection,
    replies: ResponseParser,
}

impl HttpClient {
    pub(super) const fn new(endpoint: Endpoint, request: Arc<HttpRequest>) -> Self {
        Self { endpoint, request, connection: None, text: Vec::new() }
    }

    async fn open_connection(&self) -> Result<KeptConnection, RequestFailure> {
        let stream = self.endpoint.connect().await?;
        Ok(KeptConnection { stream, replies: ResponseParser::default() })
    }
}

impl Client for HttpClient {
    async fn connect(&mut self) {
        self.connection = self.open_connection().await.ok();
    }

    async fn send(&mut self, key: u64) -> Result<RequestResult, RequestFailure> {
        // Taken out: a connection whose response was not awaited is never reused.
        let kept = match self.connection.take() {
            Some(mut connection) => connection.is_alive().await.then_some(connection),
            None => None,
        };
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.open_connection().await?,
        };
        self.request.write(key, &mut self.text);
        connection.stream.write_all(&self.text).await?;
        connection.stream.flush().await?;
        let has_decision = self.request.body.is_some();
        let reply = connection.replies.read(&mut connection.stream, has_decision).await?;
        let ParsedResponse { status, is_kept, decided_by, bytes } = reply;
        if is_kept {
            self.connection = Some(connection);
        }
        Ok(RequestResult {
            verdict: self.request.verdict(status),
            status: Some(status),
            decided_by,
            has_limit: None,
            sent_bytes: self.text.len(),
            received_bytes: bytes,
        })
    }
}

impl KeptConnection {
    /// Whether nothing was read beyond the last response, and the connection is quiet.
    async fn is_alive(&mut self) -> bool {
        self.replies.is_empty() && self.stream.is_quiet().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_say_how_long_they_are() {
        let path = "/p/{key}".parse().unwrap();
        let headers = [(HeaderName::from_static("x-user"), "u{key}".parse().unwrap())];
        let body = KeyTemplate::literal("{\"a\":\"").push_template(&"{key}".parse().unwrap()).push_text("\"}");
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
    fn headers_that_are_given_replace_ours() {
        let headers = [
            (HOST, "u{key}.example".parse().unwrap()),
            (CONTENT_TYPE, KeyTemplate::literal("application/problem+json")),
        ];
        let path = KeyTemplate::literal("/");
        let mut text = Vec::new();
        HttpRequest::check(&path, "here:1", &headers, KeyTemplate::literal("{}")).write(7, &mut text);
        assert_eq!(
            String::from_utf8(text.clone()).unwrap(),
            "POST / HTTP/1.1\r\nhost: u7.example\r\ncontent-type: application/problem+json\r\n\
             content-length: 2\r\n\r\n{}"
        );
        HttpRequest::get(&path, "here:1", &headers[..1]).write(8, &mut text);
        assert_eq!(String::from_utf8(text).unwrap(), "GET / HTTP/1.1\r\nhost: u8.example\r\n\r\n");
    }

    #[tokio::test]
    async fn a_connection_that_said_too_much_is_not_used_again() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            let both = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nHTTP/1.1 429 No\r\ncontent-length: 0\r\n\r\n";
            // They stay open: only what was said ends their use.
            let mut open = Vec::new();
            while open.len() < 2 {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(both).await.unwrap();
                open.push(stream);
            }
            open
        });
        let request = HttpRequest::get(&KeyTemplate::literal("/"), "here", &[]);
        let mut client = HttpClient::new(Endpoint::plain(address), Arc::new(request));
        for _ in 0..2 {
            assert_eq!(client.send(0).await.unwrap().status, Some(200));
        }
        serving.await.unwrap();
    }

    #[test]
    fn verdicts_follow_the_status() {
        let path = KeyTemplate::literal("/");
        let check = HttpRequest::check(&path, "", &[], KeyTemplate::literal("{}"));
        let get = HttpRequest::get(&path, "", &[]);
        for (status, of_check, of_get) in [
            (200, ServerVerdict::Allowed, ServerVerdict::Allowed),
            (302, ServerVerdict::Undecided, ServerVerdict::Allowed),
            (403, ServerVerdict::Limited, ServerVerdict::Undecided),
            (429, ServerVerdict::Limited, ServerVerdict::Limited),
            (503, ServerVerdict::Undecided, ServerVerdict::Undecided),
        ] {
            assert_eq!((check.verdict(status), get.verdict(status)), (of_check, of_get), "{status}");
        }
    }
}

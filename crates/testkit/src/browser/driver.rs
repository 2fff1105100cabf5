//! A minimal WebDriver client: JSON over HTTP to a chromedriver.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::install::{chromedriver, chromium};

/// Longer than any command takes, even where Chromium starts on a machine that does much else.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Nothing is loaded, looked up or kept that the test does not ask for. Driven through a pipe, Chromium ends when its
/// driver does, however that happens.
const FLAGS: [&str; 12] = [
    "--remote-debugging-pipe",
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--lang=en",
];

/// A chromedriver and its one session.
pub(super) struct Driver {
    session: String,
    // Declared last: it must live until the session is ended.
    daemon: Daemon,
}

impl Driver {
    pub(super) fn start() -> Self {
        let chromium = chromium();
        let daemon = Daemon::start(&chromedriver(), |port, _| vec![format!("--port={port}").into()]);
        let profile = format!("--user-data-dir={}", daemon.folder().join("profile").display());
        let flags: Vec<&str> = FLAGS.into_iter().chain([profile.as_str()]).collect();
        let options = json!({"args": flags, "binary": chromium});
        let wanted = json!({"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}});
        let body = json!({"capabilities": {"alwaysMatch": wanted}});
        let answer = call(daemon.address(), "POST", "/session", Some(&body));
        let session = format!("/session/{}", answer["sessionId"].as_str().unwrap_or_default());
        Self { session, daemon }
    }

    pub(super) fn get(&self, path: &str) -> Value {
        call(self.daemon.address(), "GET", &format!("{}{path}", self.session), None)
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> Value {
        call(self.daemon.address(), "POST", &format!("{}{path}", self.session), Some(body))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Chromium goes with its session; a driver that is only killed would leave it behind.
        drop(try_call(self.daemon.address(), "DELETE", &self.session, None));
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Driver").field("session", &self.session).finish_non_exhaustive()
    }
}

/// What the driver answers; panics with its reason if it refuses.
fn call(driver: SocketAddr, method: &str, path: &str, body: Option<&Value>) -> Value {
    let mut answer = try_call(driver, method, path, body)
        .unwrap_or_else(|error| panic!("the browser does not answer {method} {path}: {error}"));
    let value = answer["value"].take();
    assert!(value["error"].is_null(), "the browser refuses {method} {path}: {}", value["message"]);
    value
}

fn try_call(driver: SocketAddr, method: &str, path: &str, body: Option<&Value>) -> std::io::Result<Value> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut stream = TcpStream::connect(driver)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {driver}\r\nconnection: close\r\n");
    stream.write_all(
        format!("{head}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}").as_bytes(),
    )?;
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line)? > 2 {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().map_err(std::io::Error::other)?;
        }
        line.clear();
    }
    let mut answer = vec![0; length];
    reader.read_exact(&mut answer)?;
    Ok(serde_json::from_slice(&answer)?)
}

/// The bytes that a text in base 64 stands for.
pub(super) fn base64(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for letter in text.bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => continue,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base_64_is_read_with_and_without_padding() {
        assert_eq!(base64("Y2hlY2tkYW0="), b"checkdam");
        assert_eq!(base64("iVBORw"), b"\x89PNG");
        assert_eq!(base64(""), b"");
    }
}

//! Requests that two programs could read in two ways: none of them passes, and
//! none carries another past the limits.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::proxy::proxy;
use crate::server_process::Server;
use crate::test_upstream::Upstream;

const RULES: &str = r#"rules: [{name: all, key: all, limits: ["1000/h"]}]"#;

/// Heads that must be refused: what they are, and what is sent.
const HEADS: &[(&str, &str)] = &[
    ("CL.TE", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("TE.CL", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"),
    (
        "CL.TE, odd case",
        "POST / HTTP/1.1\r\nhost: x\r\ncOnTeNt-LeNgTh: 0\r\ntRaNsFeR-eNcOdInG: ChUnKeD\r\n\r\n0\r\n\r\n",
    ),
    ("CL.CL", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 0\r\n\r\nhello"),
    ("the same CL twice", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello"),
    ("a list of CL", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 5\r\n\r\nhello"),
    ("CL with a sign", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nhello"),
    ("CL in hexadecimal", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x5\r\n\r\nhello"),
    ("CL without a number", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: \r\n\r\n"),
    ("negative CL", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n"),
    ("TE identity", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\n"),
    ("TE unknown", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    ("TE before chunked", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    ("TE after chunked", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
    ("TE twice", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n"),
    ("TE in HTTP/1.0", "POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("a space before the colon", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 5\r\n\r\nhello"),
    ("TE with a space before the colon", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
    ("a folded line", "GET / HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n"),
    ("a folded TE", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
    ("lines with a bare LF", "GET / HTTP/1.1\nHost: x\n\n"),
    ("one line with a bare LF", "POST / HTTP/1.1\r\nHost: x\r\nX: y\nContent-Length: 5\r\n\r\nhello"),
    ("a bare CR in a value", "GET / HTTP/1.1\r\nHost: x\r\nX: y\rContent-Length: 5\r\n\r\n"),
    ("a bare CR at a line's end", "GET / HTTP/1.1\rHost: x\r\n\r\n"),
    ("a null in a value", "GET / HTTP/1.1\r\nHost: x\r\nX: \0\r\n\r\n"),
    ("a line without a colon", "GET / HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n"),
    ("no name before the colon", "GET / HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n"),
    ("no host", "GET / HTTP/1.1\r\n\r\n"),
    ("two hosts", "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"),
    ("a host with a path", "GET / HTTP/1.1\r\nHost: x/y\r\n\r\n"),
    ("a host with a login", "GET / HTTP/1.1\r\nHost: u@x\r\n\r\n"),
    ("a target with a login", "GET http://u@x/ HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("a target without a slash", "GET login HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("a target that is a host", "GET x:80 HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("two spaces in the first line", "GET  / HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("no version", "GET /\r\nHost: x\r\n\r\n"),
    ("another version", "GET / HTTP/1.2\r\nHost: x\r\n\r\n"),
    ("a half preface", "PRI * HTTP/2.0\r\n\r\nPOST / HTTP/1.1\r\n\r\n"),
];

/// Chunked bodies that must not be taken for whole.
const BODIES: &[(&str, &str)] = &[
    ("a chunk line with a bare LF", "0\n\r\n"),
    ("an extension with a bare LF", "1;a\nx\r\nb\r\n0\r\n\r\n"),
    ("an extension with a bare CR", "0;a\rb\r\n\r\n"),
    ("a chunk longer than it says", "1\r\nab\r\n0\r\n\r\n"),
    ("a size with a sign", "+1\r\na\r\n0\r\n\r\n"),
    ("a size with 0x", "0x1\r\na\r\n0\r\n\r\n"),
    ("no size", "\r\na\r\n0\r\n\r\n"),
    ("a size that overflows", "10000000000000001\r\na\r\n0\r\n\r\n"),
    ("a trailer with a bare LF", "0\r\nX: y\n\r\n"),
];

/// What comes back for these bytes, until the connection is closed.
fn answer(server: &Server, bytes: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // It may be closed before all is written.
    let _ = stream.write_all(bytes.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn ambiguous_heads_are_refused_and_end_their_connection() {
    let upstream = Upstream::start();
    let server = proxy(RULES, &[&upstream.url()], &[]);
    for (name, head) in HEADS {
        let answer = answer(&server, &format!("{head}{SMUGGLED}"));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{name}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{name}: {answer}");
        assert_eq!(upstream.requests(), 0, "{name} was forwarded");
    }
    let reply = server.client().get("/");
    assert_eq!(reply.header("x-ratelimit-remaining"), Some("999"), "nothing was charged");
}

#[test]
fn an_ambiguous_head_is_found_behind_others() {
    let upstream = Upstream::start();
    let server = proxy(RULES, &[&upstream.url()], &[]);
    let good = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhelloPOST /b HTTP/1.1\r\nHost: x\r\n\
                Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let answer = answer(&server, &format!("{good}{}{SMUGGLED}", HEADS[1].1));
    assert_eq!(answer.matches("HTTP/1.1 200 ").count(), 2, "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 400 ").count(), 1, "{answer}");
    assert!(answer.contains("both Content-Length and Transfer-Encoding"), "{answer}");
    assert_eq!((upstream.requests(), upstream.smuggled()), (2, 0));
}

#[test]
fn malformed_bodies_carry_nothing_behind_them() {
    let upstream = Upstream::start();
    let server = proxy(RULES, &[&upstream.url()], &[]);
    for (name, body) in BODIES {
        let head = "POST /sink HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
        let answer = answer(&server, &format!("{head}{body}{SMUGGLED}"));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{name}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{name}: {answer}");
        assert_eq!(upstream.requests(), 0, "{name} was forwarded");
    }
    let reply = server.client().get("/");
    assert_eq!(reply.header("x-ratelimit-remaining"), Some("999"), "nothing was charged");
}

#[test]
fn a_malformed_chunk_behind_good_ones_breaks_the_request_off() {
    let upstream = Upstream::start();
    let server = proxy(RULES, &[&upstream.url()], &[]);
    for (name, body) in BODIES {
        let (before, mut client) = (upstream.requests(), server.client());
        client.write("POST /sink HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n").unwrap();
        while upstream.requests() == before {
            std::thread::yield_now();
        }
        let _ = client.write(format!("{body}{SMUGGLED}"));
        if let Ok(reply) = client.read() {
            assert_eq!(reply.status, 400, "{name}: {reply:?}");
        }
        assert_eq!(upstream.smuggled(), 0, "{name}");
    }
}

/// An upstream may merge trailers into the headers, which rules have read before.
#[test]
fn trailers_carry_no_header_that_decides() {
    let upstream = Upstream::start();
    let mapped = ["--header-attributes", "X-API-Key=api_key", "--cost-header", "X-Cost"];
    let sent = ["x-api-key", "x-cost", "cookie", "via", "authorization", "x-forwarded-for", "x_api_key", "x-checksum"];
    let trailers: String = sent.iter().map(|name| format!("{name}: 1\r\n")).collect();
    for arguments in [&[][..], &["--upstream-http2"]] {
        let server = proxy(RULES, &[&upstream.url()], &[&mapped[..], arguments].concat());
        let request = format!(
            "POST /received-trailers HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: {}\r\n\
             Connection: close\r\n\r\n2\r\nab\r\n0\r\n{trailers}\r\n",
            sent.join(", ")
        );
        let answer = answer(&server, &request);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nx-checksum"), "{answer}");
    }
}

#[test]
fn heads_are_bounded() {
    let upstream = Upstream::start();
    let server = proxy(RULES, &[&upstream.url()], &[]);
    let long = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    let many = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "X: y\r\n".repeat(1_000));
    for head in [long, many] {
        assert!(answer(&server, &head).starts_with("HTTP/1.1 431 "));
    }
    let mut half = TcpStream::connect(server.address()).unwrap();
    half.write_all(b"POST /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf").unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    half.read_to_string(&mut answer).unwrap();
    assert!(!answer.contains("200"), "half a body is none: {answer}");
}

//! Ambiguous responses of upstreams: they are not forwarded, and no connection is
//! reused that could carry the rest of another response.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use crate::proxy::proxy;
use crate::server_process::Server;

const RULES: &str = r#"rules: [{name: all, key: all, limits: ["1000/h"]}]"#;

/// An upstream that writes what `answer` says to the path and the number of its
/// connection, and reads heads only. It hangs up where nothing is said.
fn raw(answer: impl Fn(&str, usize) -> String + Send + Sync + 'static) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (url, answer) = (format!("http://{}", listener.local_addr().unwrap()), Arc::new(answer));
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || serve(stream, |path| answer(path, number)));
        }
    });
    proxy(RULES, &[&url], &["--response-timeout", "3s"])
}

fn serve(mut stream: TcpStream, answer: impl Fn(&str) -> String) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    loop {
        let head: Vec<_> = lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        let Some(path) = head.first().and_then(|line| line.split(' ').nth(1)) else { return };
        let answer = answer(path);
        // The proxy may have given up already.
        if answer.is_empty() || stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// An answer that says by which connection it came.
fn good(number: usize) -> String {
    let body = number.to_string();
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Heads that must not be passed on.
const HEADS: &[&str] = &[
    "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
    "HTTP/1.1 200 OK\r\ncontent-length: 5, 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nx: a\r\n b\r\ncontent-length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nx : a\r\ncontent-length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nx: a\0b\r\ncontent-length: 0\r\n\r\n",
    "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    "HTTP/1.1 99 Low\r\ncontent-length: 0\r\n\r\n",
    "HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n",
    "ICY 200 OK\r\n\r\n",
];

#[test]
fn answers_that_can_be_read_in_two_ways_are_a_502() {
    let server = raw(|path, number| match path.trim_start_matches('/').parse::<usize>() {
        Ok(place) if place < HEADS.len() => HEADS[place].to_owned(),
        Ok(place) if place == HEADS.len() => format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(100_000)),
        Ok(_) => "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(100),
        Err(_) => good(number),
    });
    let mut client = server.client();
    for place in 0..HEADS.len() + 2 {
        let reply = client.get(&format!("/{place}"));
        let answer = HEADS.get(place);
        assert_eq!((reply.status, reply.header("x")), (502, None), "{answer:?}: {reply:?}");
        assert_eq!(reply.json()["type"], "urn:checkdam:problem:upstream_failed", "{answer:?}");
    }
    assert_eq!(client.get("/good").body, (HEADS.len() + 2).to_string(), "no connection was used twice");
}

#[test]
fn a_connection_is_used_again_only_if_its_answer_ended_where_it_said() {
    let server = raw(|path, number| match path {
        "/good" => good(number),
        "/interim" => format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nx: y\r\n\r\n{}", good(number)),
        "/unmodified" => "HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n".to_owned(),
        "/empty" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
        "/chunks" => {
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\nx: y\r\n\r\n".to_owned()
        }
        "/more" => format!("{}HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nsmuggled", good(number)),
        "/filled" => "HTTP/1.1 204 No Content\r\ncontent-length: 8\r\n\r\n".to_owned(),
        "/last" => good(number).replace("200 OK\r\n", "200 OK\r\nconnection: close\r\n"),
        "/old" => good(number).replace("HTTP/1.1", "HTTP/1.0"),
        _ => String::new(),
    });
    let mut client = server.client();
    for path in ["/good", "/interim", "/unmodified", "/empty", "/good"] {
        let reply = client.get(path);
        assert!(reply.body.is_empty() || reply.body == "0", "{path} came by another connection: {reply:?}");
    }
    for (number, path) in ["/more", "/filled", "/last", "/old"].into_iter().enumerate() {
        assert!([200, 204].contains(&client.get(path).status), "{path}");
        assert_eq!(client.get("/good").body, (number + 1).to_string(), "after {path}");
    }
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream
        .write_all(
            b"GET /chunks HTTP/1.1\r\nhost: x\r\n\r\nHEAD /good HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        )
        .unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    assert!(answers.contains("\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n"), "{answers}");
    assert!(answers.ends_with("\r\n\r\n") && answers.contains("content-length: 1\r\n"), "{answers}");
}

/// Bodies that must not be passed on as whole ones.
const BODIES: &[(&str, &str)] = &[
    ("transfer-encoding: chunked", "5\nhello\r\n0\r\n\r\n"),
    ("transfer-encoding: chunked", "5\r\nhello!\r\n0\r\n\r\n"),
    ("transfer-encoding: chunked", "x\r\nhello\r\n0\r\n\r\n"),
    ("transfer-encoding: chunked", "+5\r\nhello\r\n0\r\n\r\n"),
    ("transfer-encoding: chunked", "10000000000000005\r\nhello\r\n0\r\n\r\n"),
    ("transfer-encoding: chunked", "5\r\nhello\r\n0\r\nbad trailer\r\n\r\n"),
    ("transfer-encoding: chunked\r\nx-hangs-up: y", "5\r\nhello\r\n"),
    ("content-length: 9\r\nx-hangs-up: y", "hello"),
];

#[test]
fn a_body_that_is_malformed_or_breaks_off_is_not_passed_on_as_whole() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for (stream, (head, body)) in listener.incoming().map_while(Result::ok).zip(BODIES) {
            let mut reader = BufReader::new(stream);
            let _ = reader.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty()).count();
            let _ = reader.get_mut().write_all(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}").as_bytes());
            if !head.contains("x-hangs-up") {
                // Until the proxy does.
                let _ = reader.read_to_end(&mut Vec::new());
            }
        }
    });
    let server = proxy(RULES, &[&url], &[]);
    for (head, body) in BODIES {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(b"GET /x HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        // It may be reset.
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(!answer.ends_with("0\r\n\r\n"), "{head} {body:?}: {answer}");
    }
}

/// More connections than a task may look at before it must let others run.
const MANY: usize = 200;

#[test]
fn what_comes_by_a_connection_that_rests_is_nobodys_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = proxy(RULES, &[&format!("http://{}", listener.local_addr().unwrap())], &[]);
    let clients: Vec<_> = (0..MANY)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream.write_all(b"GET /x HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
            stream
        })
        .collect();
    // All wait at the same time, so each has a connection of its own.
    let mut resting: Vec<_> = listener.incoming().take(MANY).map(Result::unwrap).collect();
    for stream in &mut resting {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let _ = lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).count();
        stream.write_all(good(0).as_bytes()).unwrap();
    }
    for stream in &clients {
        let mut lines = BufReader::new(stream).lines();
        let head = lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).count();
        assert!(head > 1, "every client has its answer, so every connection rests");
    }
    for stream in &mut resting {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nstray").unwrap();
    }
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            std::thread::spawn(move || serve(stream, |_| good(number + MANY)));
        }
    });
    let mut client = server.client();
    for _ in 0..3 {
        assert_eq!(client.get("/x").body, MANY.to_string());
    }
}

#[test]
fn an_answer_may_come_before_the_request_has_ended() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = proxy(RULES, &[&format!("http://{}", listener.local_addr().unwrap())], &[]);
    const LENGTH: usize = 3 << 20;
    // The first reads on after it has answered, the second hangs up.
    let upstream = std::thread::spawn(move || {
        let mut patient = BufReader::new(listener.accept().unwrap().0);
        let _ = patient.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty()).count();
        patient.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nearly").unwrap();
        patient.read_exact(&mut vec![0; LENGTH]).unwrap();
        let mut rude = BufReader::new(listener.accept().unwrap().0);
        let _ = rude.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty()).count();
        rude.get_mut().write_all(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 2\r\n\r\nno").unwrap();
    });
    for (answer, is_whole) in [((200, "early"), true), ((413, "no"), false)] {
        let mut client = server.client();
        client.write(format!("POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: {LENGTH}\r\n\r\n")).unwrap();
        client.write(vec![0; 64 << 10]).unwrap();
        let reply = client.read().unwrap();
        assert_eq!((reply.status, reply.body.as_str()), answer);
        let rest = client.write(vec![0; LENGTH - (64 << 10)]);
        assert!(rest.is_ok() || !is_whole, "{rest:?}");
    }
    upstream.join().unwrap();
}

#[test]
fn what_comes_right_behind_a_switch_of_protocols_is_passed_on() {
    let server = raw(|_, _| {
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\nfirst words".to_owned()
    });
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n").unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"first words") {
        let mut part = [0; 512];
        let length = stream.read(&mut part).unwrap();
        assert!(length > 0, "{}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&part[..length]);
    }
    assert!(seen.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&seen));
}

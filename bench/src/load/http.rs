//! HTTP/1.1 by hand: one request is written, one answer is read.

use std::io::Write;
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{KEYS, since_ns};
use crate::Walk;

/// A check of one user.
pub(super) fn check(out: &mut Vec<u8>, user: usize) {
    let body = br#"{"attributes":{"user":"user-0000000","endpoint":"/api/search"}}"#;
    let head = b"POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: ";
    out.extend_from_slice(head);
    let _ = write!(out, "{}\r\n\r\n", body.len());
    let start = out.len();
    out.extend_from_slice(body);
    write_digits(&mut out[start..], b"user-0000000", user);
}

/// A request through a proxy.
pub(super) fn get(out: &mut Vec<u8>, user: usize) {
    let start = out.len();
    out.extend_from_slice(b"GET /api/search HTTP/1.1\r\nhost: localhost\r\nx-user: user-0000000\r\n\r\n");
    write_digits(&mut out[start..], b"user-0000000", user);
}

/// Puts the user's number in place of the noughts.
pub(super) fn write_digits(text: &mut [u8], place: &[u8], mut user: usize) {
    let start = text.windows(place.len()).position(|window| window == place).unwrap_or(0);
    for digit in text[start..start + place.len()].iter_mut().rev() {
        if user == 0 {
            return;
        }
        *digit = b'0' + (user % 10) as u8;
        user /= 10;
    }
}

/// Asks again and again, and says how long each answer took.
pub(super) async fn drive(
    mut stream: TcpStream,
    write: fn(&mut Vec<u8>, usize),
    seed: usize,
    end: Instant,
) -> Vec<u32> {
    let mut walk = Walk::new((seed as u64 + 1) * 0x9E37_79B9_7F4A_7C15, KEYS);
    let (mut waits, mut out, mut seen) = (Vec::with_capacity(1 << 16), Vec::new(), vec![0; 8_192]);
    loop {
        let start = Instant::now();
        if start >= end {
            return waits;
        }
        out.clear();
        write(&mut out, walk.step());
        stream.write_all(&out).await.unwrap_or_else(|error| panic!("cannot write: {error}"));
        read_answer(&mut stream, &mut seen).await;
        waits.push(since_ns(start));
    }
}

async fn read_answer(stream: &mut TcpStream, seen: &mut [u8]) {
    let mut filled = 0;
    loop {
        let count = stream.read(&mut seen[filled..]).await.unwrap_or_else(|error| panic!("cannot read: {error}"));
        assert!(count > 0, "the server hung up, or answered more than {} bytes", seen.len());
        filled += count;
        let Some(head) = seen[..filled].windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        if filled >= head + 4 + body_length(&seen[..head]) {
            let text = String::from_utf8_lossy(&seen[..filled]);
            assert!(seen.starts_with(b"HTTP/1.1 200"), "not what was expected:\n{text}");
            return;
        }
    }
}

fn body_length(head: &[u8]) -> usize {
    const NAME: &[u8] = b"\ncontent-length:";
    let Some(start) = head.windows(NAME.len()).position(|window| window.eq_ignore_ascii_case(NAME)) else { return 0 };
    let digits = head[start + NAME.len()..].iter().skip_while(|byte| **byte == b' ');
    digits.take_while(|byte| byte.is_ascii_digit()).fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'))
}

//! gRPC by hand: the frames of HTTP/2 that a client of one method needs. Names
//! and values of headers go over once and are referred to afterwards, as real
//! clients do.

use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::http::write_digits;
use super::{KEYS, since_ns};
use crate::Walk;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const PATH: &[u8] = b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
/// What the server may send before it hears from us again: more than it will.
const WINDOW: u32 = 0x7FFF_0000;

/// Keeps `streams` calls under way, and says how long each took.
pub(super) async fn drive(stream: TcpStream, streams: usize, seed: usize, end: Instant) -> Vec<u32> {
    let mut client = Client {
        stream,
        out: Vec::new(),
        walk: Walk::new((seed as u64 + 1) * 0x9E37_79B9_7F4A_7C15, KEYS),
        next: 1,
        under_way: Vec::new(),
        waits: Vec::with_capacity(1 << 16),
    };
    client.out.extend_from_slice(PREFACE);
    // No pushes, and a wide window for streams; then for the connection.
    let settings = [&[0, 2, 0, 0, 0, 0, 0, 4][..], &WINDOW.to_be_bytes()].concat();
    frame(&mut client.out, SETTINGS, 0, 0, &settings);
    frame(&mut client.out, WINDOW_UPDATE, 0, 0, &WINDOW.to_be_bytes());
    for _ in 0..streams {
        client.ask();
    }
    client.run(end).await;
    client.waits
}

struct Client {
    stream: TcpStream,
    out: Vec<u8>,
    walk: Walk,
    next: u32,
    /// Stream, when it began, whether its answer has come.
    under_way: Vec<(u32, Instant, bool)>,
    waits: Vec<u32>,
}

impl Client {
    async fn run(&mut self, end: Instant) {
        let (mut seen, mut filled) = (vec![0_u8; 1 << 16], 0);
        while !self.under_way.is_empty() {
            if !self.out.is_empty() {
                self.stream.write_all(&self.out).await.unwrap_or_else(|error| panic!("cannot write: {error}"));
                self.out.clear();
            }
            let count = self.stream.read(&mut seen[filled..]).await;
            let count = count.unwrap_or_else(|error| panic!("cannot read: {error}"));
            assert!(count > 0, "the server hung up");
            filled += count;
            let mut start = 0;
            while let Some(length) = whole_frame(&seen[start..filled]) {
                self.hear(&seen[start..start + length], end);
                start += length;
            }
            seen.copy_within(start..filled, 0);
            filled -= start;
        }
    }

    fn hear(&mut self, whole: &[u8], end: Instant) {
        let (kind, flags, payload) = (whole[3], whole[4], &whole[9..]);
        let id = u32::from_be_bytes([whole[5], whole[6], whole[7], whole[8]]);
        match kind {
            SETTINGS if flags & ACK == 0 => frame(&mut self.out, SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => frame(&mut self.out, PING, ACK, 0, payload),
            RST_STREAM | GOAWAY => panic!("the server broke off: frame {kind}, {payload:?}"),
            DATA => {
                // Five bytes of length, then the first field: the overall code is OK.
                assert_eq!(payload.get(5..7), Some(&[8, 1][..]), "not what was expected: {payload:?}");
                if let Some(call) = self.under_way.iter_mut().find(|call| call.0 == id) {
                    call.2 = true;
                }
            }
            _ => {}
        }
        if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
            let Some(place) = self.under_way.iter().position(|call| call.0 == id) else { return };
            let (_, start, is_answered) = self.under_way.swap_remove(place);
            assert!(is_answered, "a call ended without an answer: {:?}", String::from_utf8_lossy(payload));
            self.waits.push(since_ns(start));
            if Instant::now() < end {
                self.ask();
            }
        }
    }

    fn ask(&mut self) {
        let id = self.next;
        self.next += 2;
        let block =
            if id == 1 { first_headers() } else { vec![0x83, 0x86, 0x80 | 65, 0x80 | 64, 0x80 | 63, 0x80 | 62] };
        frame(&mut self.out, HEADERS, END_HEADERS, id, &block);
        let mut message = message();
        write_digits(&mut message, b"user-0000000", self.walk.step());
        frame(&mut self.out, DATA, END_STREAM, id, &message);
        self.under_way.push((id, Instant::now(), false));
    }
}

/// Headers that the server shall remember, in the order of the indices 65 to 62.
fn first_headers() -> Vec<u8> {
    // POST and http stand in HPACK's static table, and so do the names 4, 1 and 31.
    let mut block = vec![0x83, 0x86];
    for (index, value) in [(4, PATH), (1, &b"localhost"[..]), (31, b"application/grpc")] {
        block.extend([0x40 | index, value.len() as u8]);
        block.extend_from_slice(value);
    }
    block.extend_from_slice(b"\x40\x02te\x08trailers");
    block
}

/// A request of domain `bench` with one descriptor, user and endpoint, as a gRPC message.
fn message() -> Vec<u8> {
    let field = |tag: u8, bytes: &[u8]| [&[tag, bytes.len() as u8][..], bytes].concat();
    let entry = |key: &[u8], value: &[u8]| field(0x0A, &[field(0x0A, key), field(0x12, value)].concat());
    let entries = [entry(b"user", b"user-0000000"), entry(b"endpoint", b"/api/search")].concat();
    let request = [field(0x0A, b"bench"), field(0x12, &entries)].concat();
    [&[0, 0, 0, 0, request.len() as u8][..], &request].concat()
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = (payload.len() as u32).to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend([kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// The length of the frame at the start, if all of it is there.
fn whole_frame(seen: &[u8]) -> Option<usize> {
    let [first, second, third, ..] = seen else { return None };
    let length = 9 + u32::from_be_bytes([0, *first, *second, *third]) as usize;
    (seen.len() >= length).then_some(length)
}

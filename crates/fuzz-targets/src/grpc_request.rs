//! Fuzz target: decoding of rate limit requests over gRPC; the fast path decodes as tonic does.

use std::cell::Cell;
use std::io::Write;
use std::rc::Rc;

use checkdam::{LIMIT_MAX, Request};
use checkdam_envoy_proto::{RateLimitDescriptor, RateLimitRequest};
use checkdam_service::fuzzing::grpc::{decode_both_ways, read_requests};

use crate::in_memory_http::serve;

/// The first byte of the input says how the body is sent: bits 0 and 1 for its number of frames,
/// bit 2 for the header `grpc-encoding`, bit 3 for a length prefix that fits; the body follows.
/// What the fast path decodes tonic decodes too, and its descriptors become requests or an error.
pub fn grpc_request(data: &[u8]) {
    let Some((flags, body)) = data.split_first() else { return };
    let mut message = Vec::new();
    if flags & 8 != 0 {
        message.push(0);
        message.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes());
    }
    message.extend_from_slice(body);
    let call = http_call(&message, usize::from(flags & 3) + 1, flags & 4 != 0);
    let decoded = Rc::new(Cell::new(None));
    serve(&call, |request| {
        let decoded = Rc::clone(&decoded);
        async move {
            let (fast, streamed) = decode_both_ways(request).await;
            if fast.is_some() {
                assert_eq!(fast, streamed, "tonic decodes another message");
            }
            decoded.set(streamed);
        }
    });
    if let Some(message) = decoded.take() {
        check_requests(&message);
    }
}

/// The call over HTTP/1, with a chunk for each frame.
fn http_call(message: &[u8], frames: usize, has_encoding: bool) -> Vec<u8> {
    let mut call = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\nconnection: close\r\n".to_vec();
    if has_encoding {
        call.extend_from_slice(b"grpc-encoding: gzip\r\n");
    }
    call.extend_from_slice(b"\r\n");
    for frame in message.chunks(message.len().div_ceil(frames).max(1)) {
        write!(call, "{:x}\r\n", frame.len()).expect("memory is written");
        call.extend_from_slice(frame);
        call.extend_from_slice(b"\r\n");
    }
    call.extend_from_slice(b"0\r\n\r\n");
    call
}

fn check_requests(message: &RateLimitRequest) {
    let Ok((checks, refunds)) = read_requests(message, false) else {
        // Nothing that a client of Envoy controls is an error, only what its configuration says.
        let is_odd = |descriptor: &RateLimitDescriptor| {
            descriptor.entries.len() > 62
                || descriptor.limit.is_some()
                || descriptor.entries.iter().any(|entry| entry.key.is_empty())
        };
        let count = message.descriptors.len();
        assert!(
            message.domain.is_empty()
                || count == 0
                || count > checkdam::TIERS_MAX
                || message.descriptors.iter().any(is_odd)
        );
        return;
    };
    assert_eq!(checks.len() + refunds.len(), message.descriptors.len());
    let (mut checks, mut refunds) = (checks.iter(), refunds.iter());
    for (index, descriptor) in message.descriptors.iter().enumerate() {
        let request = match descriptor.is_negative_hits {
            true => refunds.next().filter(|(place, _)| *place == index).map(|(_, request)| request),
            false => checks.next(),
        };
        check_request(request.expect("each descriptor is a request"), descriptor, message);
    }
}

fn check_request(request: &Request<'_>, descriptor: &RateLimitDescriptor, message: &RateLimitRequest) {
    let path: Vec<_> = request.path().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let entries = descriptor.entries.iter();
    let entries = entries.map(|entry| (entry.key.clone(), String::from_utf8_lossy(&entry.value).into_owned()));
    assert_eq!(path, entries.collect::<Vec<_>>());
    assert_eq!(request.domain(), message.domain);
    let hits = descriptor.hits_addend.unwrap_or(message.hits_addend.max(1).into());
    assert_eq!(request.cost(), hits.min(LIMIT_MAX));
    assert_eq!(
        request.request_limit().map(|limit| limit.amount),
        descriptor.limit.as_ref().map(|limit| limit.requests_per_unit)
    );
}

//! Fuzz target: parsing of upstreams' responses by the proxy.

use checkdam_net::BodyFraming;
use checkdam_proxy::fuzzing::{ReadResponse, read_response};
use http::Method;

use crate::split_line;
use crate::strict_http::{BodyRead, LineEnd, read_chunks};

/// The first line of the input has the request's method, and `upgrade` if it asked to switch
/// protocols; the response follows. What is read does not depend on how it is split, and a body
/// that has ended did so where it declared.
pub fn upstream_response(data: &[u8]) {
    let (line, response) = split_line(data);
    let (method, may_switch) = match line.strip_suffix(b" upgrade") {
        Some(method) => (method, true),
        None => (line, false),
    };
    let method = if method == b"HEAD" { Method::HEAD } else { Method::GET };
    let whole = read_response([response], &method, may_switch);
    for size in [1, 3, 64] {
        assert_eq!(read_response(response.chunks(size), &method, may_switch), whole, "in parts of {size}");
    }
    if whole.head.is_some() && whole.error.is_none() {
        check_body(&whole, &response[whole.head_bytes..]);
    }
}

fn check_body(read: &ReadResponse, bytes: &[u8]) {
    match read.framing.expect("a head says how its body ends") {
        BodyFraming::Length(length) => {
            let length = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len());
            assert_eq!((&read.body[..], &read.rest[..]), bytes.split_at(length));
        }
        BodyFraming::Closed => assert!(read.body == bytes && !read.is_ended && !read.is_lasting),
        BodyFraming::Chunked => match read_chunks(bytes, LineEnd::Lf) {
            BodyRead::Whole(body, rest) => {
                assert_eq!((&read.body, &read.rest[..], read.is_ended), (&body, rest, true));
            }
            BodyRead::Partial => assert!(!read.is_ended, "the body is incomplete"),
            BodyRead::Ambiguous => panic!("the body is ambiguous"),
        },
    }
}

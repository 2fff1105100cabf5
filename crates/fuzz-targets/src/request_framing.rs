//! Fuzz target: the framing check of HTTP/1 requests, compared with a strict parser and hyper.

use std::cell::RefCell;
use std::rc::Rc;

use checkdam_net::fuzzing::scan_framing;
use http_body_util::BodyExt;

use crate::in_memory_http::serve;
use crate::strict_http::{ReadRequest, read_requests};

/// Bytes without a fault are unambiguous by RFC 9112, and hyper reads the same requests in them;
/// the fault does not depend on how the bytes are split.
pub fn request_framing(data: &[u8]) {
    let fault = scan_framing([data]);
    for size in [1, 2, 7] {
        assert_eq!(scan_framing(data.chunks(size)), fault, "in parts of {size}");
    }
    if fault.is_some() || data.starts_with(b"PRI * HTTP/2.0\r\n") {
        return;
    }
    let (strict, is_unambiguous) = read_requests(data);
    assert!(is_unambiguous, "request {} is ambiguous", strict.len() + 1);
    let by_hyper = requests_by_hyper(data);
    // hyper may close the connection before the last.
    assert_eq!(by_hyper, strict[..by_hyper.len().min(strict.len())], "hyper reads other requests");
}

/// The requests that hyper reads to their end.
fn requests_by_hyper(data: &[u8]) -> Vec<ReadRequest> {
    let requests = Rc::new(RefCell::new(Vec::new()));
    serve(data, |request| {
        let requests = Rc::clone(&requests);
        async move {
            let (head, body) = request.into_parts();
            if let Ok(body) = body.collect().await {
                let (method, body) = (head.method.to_string(), body.to_bytes().to_vec());
                requests.borrow_mut().push(ReadRequest { method, body });
            }
        }
    });
    requests.take()
}

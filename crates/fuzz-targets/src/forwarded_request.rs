//! Fuzz target: the request head that the proxy writes to upstreams.

use std::net::IpAddr;

use checkdam::normalize::PathNormalization;
use checkdam_proxy::fuzzing::write_request;
use checkdam_service::client_identity::is_proxy_header;
use http::{HeaderMap, HeaderName, Method, Request, Uri, Version};

use crate::{header_lines, split_line};

/// Fields of one connection (RFC 9110, section 7.6.1), besides those that Connection names.
const HOP_BY_HOP: [&str; 7] =
    ["connection", "te", "transfer-encoding", "upgrade", "keep-alive", "proxy-connection", "http2-settings"];
/// Fields that the proxy writes itself.
const OWN: [&str; 5] = ["host", "content-length", "via", "x-forwarded-for", "expect"];
/// Fields that the proxy may add behind those of the client.
const ADDED: [&str; 8] = [
    "connection",
    "upgrade",
    "te",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "via",
    "content-length",
];

/// The first line of the input has the peer's address, and `trusted` and `h2` if it is; the second
/// one the method and the target; headers follow. The head that is written parses to the same
/// method, target and headers, without those of one connection, and to nothing else.
pub fn forwarded_request(data: &[u8]) {
    let (line, rest) = split_line(data);
    let (target, rest) = split_line(rest);
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let peer: IpAddr = words.next().and_then(|peer| peer.parse().ok()).unwrap_or([203, 0, 113, 9].into());
    let words: Vec<_> = words.collect();
    let (is_trusted, is_http2) = (words.contains(&"trusted"), words.contains(&"h2"));
    let Some((method, target)) = read_target(target) else { return };
    let headers = header_lines(rest.split(|byte| *byte == b'\n'));
    let mut request = Request::new(());
    (*request.method_mut(), *request.uri_mut()) = (method.clone(), target.clone());
    *request.headers_mut() = headers.clone();
    *request.version_mut() = if is_http2 { Version::HTTP_2 } else { Version::HTTP_11 };
    let paths = PathNormalization::default();
    // As the handler does, which rejects these before anything is forwarded.
    if paths.endpoint(target.path()).is_err() {
        return;
    }
    let Ok(written) = write_request(request, peer, is_trusted, &paths) else { return };
    let text = String::from_utf8_lossy(&written).into_owned();
    let mut parsed = [httparse::EMPTY_HEADER; 300];
    let mut head = httparse::Request::new(&mut parsed);
    assert_eq!(head.parse(&written), Ok(httparse::Status::Complete(written.len())), "{text:?}");
    assert_eq!((head.method, head.version), (Some(method.as_str()), Some(1)), "{text:?}");
    check_target(head.path.unwrap_or_default(), &target, &paths);
    let fields: Vec<_> = head.headers.iter().map(|field| (field.name, field.value.trim_ascii())).collect();
    let hosts = fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("host")).count();
    assert!(hosts == 1 && fields[0].0 == "host", "{text:?}");
    let expected: Vec<_> = headers
        .iter()
        .filter(|(name, _)| is_end_to_end(name, &headers) && (is_trusted || !is_proxy_header(name)))
        .map(|(name, value)| (name.as_str(), value.as_bytes().trim_ascii()))
        .collect();
    let (same, added) = fields[1..].split_at(expected.len().min(fields.len() - 1));
    assert_eq!(same, expected, "{text:?}");
    assert!(added.iter().all(|(name, _)| ADDED.contains(name)), "{text:?}");
}

fn read_target(line: &[u8]) -> Option<(Method, Uri)> {
    let space = line.iter().position(|byte| *byte == b' ')?;
    let target = Uri::try_from(&line[space + 1..]).ok()?;
    Some((Method::from_bytes(&line[..space]).ok()?, target))
}

/// The path and the query as they came; a path with dot segments as rules see it.
fn check_target(written: &str, asked: &Uri, paths: &PathNormalization) {
    let expected = asked.path_and_query().map_or("/", |target| target.as_str());
    if paths.has_dot_segments(asked.path()) {
        let path = paths.endpoint(asked.path()).expect("it was checked");
        assert_eq!(written.split('?').next(), Some(&*path), "of {asked}");
        assert_eq!(written.split_once('?').map(|(_, query)| query), asked.query(), "of {asked}");
    } else if expected.starts_with(['/', '*']) {
        assert_eq!(written, expected);
    } else {
        assert_eq!(written, format!("/{expected}"));
    }
}

fn is_end_to_end(name: &HeaderName, headers: &HeaderMap) -> bool {
    let lists = headers.get_all("connection").iter().flat_map(|list| list.as_bytes().split(|byte| *byte == b','));
    let is_listed = lists.map(<[u8]>::trim_ascii).any(|listed| listed.eq_ignore_ascii_case(name.as_str().as_bytes()));
    let name = name.as_str();
    !HOP_BY_HOP.contains(&name) && !OWN.contains(&name) && !name.contains('_') && !is_listed
}

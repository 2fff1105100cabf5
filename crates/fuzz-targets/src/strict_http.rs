//! A strict HTTP/1 parser (RFC 9112, with httparse for heads), the oracle of other targets:
//! it reports messages that two programs could frame differently.

/// A request of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReadRequest {
    pub(crate) method: String,
    pub(crate) body: Vec<u8>,
}

/// What follows a head.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyRead<'a> {
    /// The body, and the bytes behind it.
    Whole(Vec<u8>, &'a [u8]),
    /// More bytes are needed.
    Partial,
    /// Its end is ambiguous.
    Ambiguous,
}

/// The complete requests of a connection, up to one that is no request; and whether none of them
/// is ambiguous.
pub(crate) fn read_requests(mut bytes: &[u8]) -> (Vec<ReadRequest>, bool) {
    let mut requests = Vec::new();
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 100];
        let mut head = httparse::Request::new(&mut headers);
        let Ok(httparse::Status::Complete(length)) = head.parse(bytes) else { return (requests, true) };
        let method = head.method.unwrap_or_default().to_owned();
        match read_body(head.headers, &bytes[length..]) {
            BodyRead::Whole(body, rest) => {
                requests.push(ReadRequest { method, body });
                bytes = rest;
            }
            BodyRead::Partial => return (requests, true),
            BodyRead::Ambiguous => return (requests, false),
        }
    }
}

/// The body of a request with these headers (RFC 9112, section 6.3).
fn read_body<'a>(headers: &[httparse::Header<'_>], bytes: &'a [u8]) -> BodyRead<'a> {
    let named = |name: &str| -> Vec<&[u8]> {
        let values = headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
        values.map(|header| header.value.trim_ascii()).collect()
    };
    match (&named("content-length")[..], &named("transfer-encoding")[..]) {
        ([], []) => BodyRead::Whole(Vec::new(), bytes),
        ([length], []) => {
            let digits = std::str::from_utf8(length).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            match digits.and_then(|text| text.parse::<u64>().ok()) {
                Some(length) => match usize::try_from(length).ok().and_then(|length| bytes.split_at_checked(length)) {
                    Some((body, rest)) => BodyRead::Whole(body.to_vec(), rest),
                    None => BodyRead::Partial,
                },
                None => BodyRead::Ambiguous,
            }
        }
        ([], [coding]) if coding.eq_ignore_ascii_case(b"chunked") => read_chunks(bytes, LineEnd::CrLf),
        _ => BodyRead::Ambiguous,
    }
}

/// How the lines of trailers end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineEnd {
    CrLf,
    /// A bare line feed too, as a recipient may accept it (RFC 9112, section 2.2).
    Lf,
}

/// A chunked body (RFC 9112, section 7.1).
pub(crate) fn read_chunks(mut bytes: &[u8], trailer_end: LineEnd) -> BodyRead<'_> {
    let mut body = Vec::new();
    loop {
        let (line, rest) = match read_line(bytes, LineEnd::CrLf) {
            Ok(Some(read)) => read,
            Ok(None) => return BodyRead::Partial,
            Err(()) => return BodyRead::Ambiguous,
        };
        let end = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
        let (digits, extension) = line.split_at(end);
        let is_extension = matches!(extension.first(), None | Some(b';' | b' ' | b'\t'));
        let size = std::str::from_utf8(digits).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let Some(size) = size.filter(|_| is_extension) else { return BodyRead::Ambiguous };
        if size == 0 {
            return match read_trailers(rest, trailer_end) {
                Ok(Some(rest)) => BodyRead::Whole(body, rest),
                Ok(None) => BodyRead::Partial,
                Err(()) => BodyRead::Ambiguous,
            };
        }
        let Some((data, rest)) = usize::try_from(size).ok().and_then(|size| rest.split_at_checked(size)) else {
            return BodyRead::Partial;
        };
        body.extend_from_slice(data);
        bytes = match rest {
            [b'\r', b'\n', rest @ ..] => rest,
            [] | [_] => return BodyRead::Partial,
            _ => return BodyRead::Ambiguous,
        };
    }
}

/// What follows the trailers; `None` if they are incomplete.
fn read_trailers(mut bytes: &[u8], end: LineEnd) -> Result<Option<&[u8]>, ()> {
    while let Some((line, rest)) = read_line(bytes, end)? {
        if line.is_empty() {
            return Ok(Some(rest));
        }
        bytes = rest;
    }
    Ok(None)
}

/// A line and what follows it.
type Line<'a> = (&'a [u8], &'a [u8]);

/// A line, which has no CR but at its end; `None` if it is incomplete.
fn read_line(bytes: &[u8], line_end: LineEnd) -> Result<Option<Line<'_>>, ()> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let line = match bytes[..end].strip_suffix(b"\r") {
        Some(line) => line,
        None if line_end == LineEnd::Lf => &bytes[..end],
        None => return Err(()),
    };
    if line.contains(&b'\r') { Err(()) } else { Ok(Some((line, &bytes[end + 1..]))) }
}

//! Where an HTTP request comes from and what it asks for, each in one form.
//!
//! What a client can write differently and servers commonly read as the same
//! becomes the same, so that such spellings have no limits of their own. What only
//! some servers take as the same stays apart: an encoded slash, parameters behind
//! a semicolon, a backslash, upper case. Every door that limits HTTP requests
//! names its attributes by these.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};

/// The part of an IPv6 address that one client has: its /64.
const SUBJECT_MASK: u128 = !(u64::MAX as u128);

/// A path, without its query, in its normal form: characters that need no
/// percent stand bare, all others in upper case behind one, runs of slashes
/// are one, and dot segments are followed. An encoded slash stays encoded: it
/// separates nothing.
///
/// ```
/// use checkdam::origin::endpoint;
/// assert_eq!(endpoint("/api/search"), "/api/search");
/// assert_eq!(endpoint("//api/x/%2e%2e/%73earch%2f"), "/api/search%2F");
/// ```
#[must_use]
pub fn endpoint(path: &str) -> Cow<'_, str> {
    let is_normal = path.starts_with('/')
        && path.bytes().all(|byte| byte == b'/' || stands_bare(byte))
        && !path.contains("//")
        && !path.contains("/.");
    if is_normal || path == "*" {
        return Cow::Borrowed(path);
    }
    let mut out = String::with_capacity(path.len() + 1);
    let mut is_open = true;
    for segment in path.split('/') {
        let segment = decoded(segment);
        // An empty last segment, or a dot, leaves the slash before it.
        is_open = matches!(&*segment, "" | "." | "..");
        match &*segment {
            "" | "." => {}
            ".." => out.truncate(out.rfind('/').unwrap_or(0)),
            text => {
                out.push('/');
                out.push_str(text);
            }
        }
    }
    if is_open {
        out.push('/');
    }
    Cow::Owned(out)
}

/// Whether a path has dot segments, bare or encoded: some servers follow them,
/// others take them as they stand.
///
/// ```
/// use checkdam::origin::has_dot_segments;
/// assert!(has_dot_segments("/download/%2e%2e/file") && !has_dot_segments("/a/..b/c."));
/// ```
#[must_use]
pub fn has_dot_segments(path: &str) -> bool {
    path.split('/').any(|segment| matches!(&*decoded(segment), "." | ".."))
}

/// A host in its normal form: lower case, without port, brackets and last dot.
///
/// ```
/// use checkdam::origin::host;
/// assert_eq!(host("Example.COM.:8080").as_deref(), Some("example.com"));
/// ```
#[must_use]
pub fn host(authority: &str) -> Option<String> {
    let authority = authority.trim();
    let host = match authority.strip_prefix('[') {
        Some(six) => six.split(']').next().unwrap_or(six),
        // Only an address of IPv6 has more than one colon.
        None if authority.matches(':').count() > 1 => authority,
        None => authority.split(':').next().unwrap_or(authority),
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    (!host.is_empty()).then(|| host.to_ascii_lowercase())
}

/// The address that limits go by: IPv4, or the first of an IPv6 network of the
/// size that one client commonly has. IPv4 written as IPv6 is IPv4.
///
/// ```
/// use checkdam::origin::subject;
/// assert_eq!(subject("2001:db8:1:2:3:4:5:6".parse()?).to_string(), "2001:db8:1:2::");
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[must_use]
pub fn subject(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => Ipv6Addr::from_bits(six.to_bits() & SUBJECT_MASK).into(),
        four => four,
    }
}

/// A segment with each byte written in its one way. A percent that encodes
/// nothing counts as itself.
fn decoded(segment: &str) -> Cow<'_, str> {
    if segment.bytes().all(stands_bare) {
        return Cow::Borrowed(segment);
    }
    let mut out = String::with_capacity(segment.len() + 2);
    let mut rest = segment.as_bytes();
    while let [first, after @ ..] = rest {
        let encoded = match rest {
            [b'%', high, low, ..] => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        rest = if encoded.is_some() { &rest[3..] } else { after };
        let byte = encoded.unwrap_or(*first);
        if stands_bare(byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.extend([byte >> 4, byte & 15].map(digit));
        }
    }
    Cow::Owned(out)
}

/// What RFC 3986 allows in a segment. It calls only letters, digits and `-._~`
/// the same with and without a percent; servers decode the others too.
fn stands_bare(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

fn digit(value: u8) -> char {
    char::from_digit(value.into(), 16).unwrap_or('0').to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_form_which_is_its_own() {
        #[rustfmt::skip]
        let cases = [
            ("/", "/"), ("", "/"), ("*", "*"), ("a", "/a"), ("/a/b/", "/a/b/"), ("//a///b//", "/a/b/"),
            ("/./a/../b", "/b"), ("/a/..", "/"), ("/a/.", "/a/"), ("/../../a", "/a"), ("/a/b/../..", "/"),
            ("/%61/%2e%2E/b", "/b"), ("/a%2fb", "/a%2Fb"), ("/x%3ay", "/x:y"), ("/.well-known/x", "/.well-known/x"),
            ("/100%", "/100%25"), ("/%zz", "/%25zz"), ("/%2561", "/%2561"), ("/caf\u{e9}", "/caf%C3%A9"), ("/...", "/..."),
        ];
        for (written, normal) in cases {
            assert_eq!(endpoint(written), normal, "{written}");
            assert_eq!(endpoint(normal), normal, "{normal}: normal already");
        }
    }
}

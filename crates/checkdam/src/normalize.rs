//! Normalizes the paths, hosts, methods and client addresses of HTTP requests.
//!
//! Spellings that servers commonly treat as equal become equal, so that a client
//! cannot get separate limits by writing them differently. [`PathNormalization`]
//! configures what only some servers treat as equal. Every listener that limits HTTP
//! requests derives its attributes with these functions.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The part of an IPv6 address that one client has: its /64.
const CLIENT_NETWORK_MASK: u128 = !(u64::MAX as u128);

/// Treatment of path spellings that only some servers consider equal.
///
/// The default is safe for any server: encoded slashes and backslashes are
/// rejected, and parameters after a semicolon are ignored. Set
/// `is_trailing_slash_stripped` and `is_lower_case` before applications that
/// ignore a last slash or the letter case, as Express does, and write rules
/// accordingly.
///
/// ```
/// use checkdam::normalize::PathNormalization;
/// let forms = PathNormalization::default();
/// assert_eq!(forms.endpoint("//api/%73earch;v=1")?, "/api/search");
/// assert!(forms.endpoint("/api%2Fsearch").is_err());
/// # Ok::<(), checkdam::normalize::PathError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathNormalization {
    /// `%2F`, `%5C` and `\`. Default [`Slashes::Reject`].
    pub slashes: Slashes,
    /// Whether `;` and what follows it in a segment is removed, as servlet containers do.
    /// Default yes.
    pub are_parameters_stripped: bool,
    /// Whether a trailing slash is removed. Default no.
    pub is_trailing_slash_stripped: bool,
    /// Whether letters are written in lower case. Default no.
    pub is_lower_case: bool,
}

/// What becomes of `%2F`, `%5C` and `\` in a path: some servers read them as `/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Slashes {
    /// The path is rejected.
    #[default]
    Reject,
    /// They stay as they are and separate nothing.
    Keep,
    /// They become `/`.
    Decode,
}

/// Why a path has no single form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// It has `%2F`, `%5C` or `\`, and [`Slashes::Reject`] is set.
    #[error("the path has an encoded slash or a backslash (%2F, %5C or \\), which servers read in two ways")]
    Slash,
}

impl Default for PathNormalization {
    fn default() -> Self {
        Self { are_parameters_stripped: true, slashes: Slashes::Reject, ..Self::AS_WRITTEN }
    }
}

impl PathNormalization {
    /// Everything stays apart that only some servers read alike.
    pub const AS_WRITTEN: Self = Self {
        slashes: Slashes::Keep,
        are_parameters_stripped: false,
        is_trailing_slash_stripped: false,
        is_lower_case: false,
    };

    /// A path, without its query, in its normal form: characters are decoded where
    /// possible, the rest percent-encoded in upper case, runs of slashes merged, and
    /// dot segments resolved.
    ///
    /// # Errors
    /// Rejects encoded slashes and backslashes, if so configured.
    pub fn endpoint<'a>(&self, path: &'a str) -> Result<Cow<'a, str>, PathError> {
        if self.is_normal(path) || path == "*" {
            return Ok(Cow::Borrowed(path));
        }
        if self.slashes == Slashes::Reject && has_other_slashes(path) {
            return Err(PathError::Slash);
        }
        let mut out = String::with_capacity(path.len() + 1);
        let mut is_open = true;
        for segment in self.with_decoded_slashes(path).split('/') {
            let segment = self.segment(segment);
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
        if out.is_empty() || (is_open && !self.is_trailing_slash_stripped) {
            out.push('/');
        }
        Ok(Cow::Owned(out))
    }

    /// Whether a path has dot segments, plain or encoded: some servers resolve them,
    /// others do not.
    #[must_use]
    pub fn has_dot_segments(&self, path: &str) -> bool {
        // Without one of these there is none: most paths.
        path.contains(['.', '%'])
            && self.with_decoded_slashes(path).split('/').any(|segment| matches!(&*self.segment(segment), "." | ".."))
    }

    fn is_normal(&self, path: &str) -> bool {
        path.starts_with('/')
            && path.bytes().all(|byte| byte == b'/' || needs_no_escape(byte))
            && !path.contains("//")
            && !path.contains("/.")
            && !(self.are_parameters_stripped && path.contains(';'))
            && !(self.is_trailing_slash_stripped && path.len() > 1 && path.ends_with('/'))
            && !(self.is_lower_case && path.bytes().any(|byte| byte.is_ascii_uppercase()))
    }

    /// The path with a slash for all that counts as one.
    fn with_decoded_slashes<'a>(&self, path: &'a str) -> Cow<'a, str> {
        if self.slashes != Slashes::Decode || !has_other_slashes(path) {
            return Cow::Borrowed(path);
        }
        let mut out = path.replace('\\', "/");
        for encoded in OTHER_SLASHES {
            out = out.replace(encoded, "/");
        }
        Cow::Owned(out)
    }

    /// A segment that counts, with each byte written in its one way.
    fn segment<'a>(&self, segment: &'a str) -> Cow<'a, str> {
        let mut segment = decoded(segment, self.is_lower_case);
        let parameters = segment.find(';').filter(|_| self.are_parameters_stripped);
        match (parameters, &mut segment) {
            (Some(at), Cow::Borrowed(text)) => *text = &text[..at],
            (Some(at), Cow::Owned(text)) => text.truncate(at),
            (None, _) => {}
        }
        segment
    }
}

/// What some servers read as a slash, besides a backslash.
const OTHER_SLASHES: [&str; 4] = ["%2F", "%2f", "%5C", "%5c"];

fn has_other_slashes(path: &str) -> bool {
    path.contains('\\') || (path.contains('%') && OTHER_SLASHES.iter().any(|encoded| path.contains(encoded)))
}

/// A path, without its query, in its normal form, with everything kept apart that
/// only some servers read alike: see [`PathNormalization::endpoint`].
///
/// ```
/// use checkdam::normalize::endpoint;
/// assert_eq!(endpoint("/api/search"), "/api/search");
/// assert_eq!(endpoint("//api/x/%2e%2e/%73earch%2f"), "/api/search%2F");
/// ```
#[must_use]
pub fn endpoint(path: &str) -> Cow<'_, str> {
    // Nothing is rejected where slashes are kept.
    PathNormalization::AS_WRITTEN.endpoint(path).unwrap_or(Cow::Borrowed(path))
}

/// Whether a path has dot segments, bare or encoded: see
/// [`PathNormalization::has_dot_segments`].
///
/// ```
/// use checkdam::normalize::has_dot_segments;
/// assert!(has_dot_segments("/download/%2e%2e/file") && !has_dot_segments("/a/..b/c."));
/// ```
#[must_use]
pub fn has_dot_segments(path: &str) -> bool {
    PathNormalization::AS_WRITTEN.has_dot_segments(path)
}

/// A method as rules write it. Methods are case-sensitive, but some frameworks
/// take `get` for GET.
///
/// ```
/// use checkdam::normalize::method;
/// assert_eq!((method("GET"), method("post")), ("GET".into(), "POST".into()));
/// ```
#[must_use]
pub fn method(written: &str) -> Cow<'_, str> {
    match written.bytes().any(|byte| byte.is_ascii_lowercase()) {
        true => Cow::Owned(written.to_ascii_uppercase()),
        false => Cow::Borrowed(written),
    }
}

/// Whether a request's Connection headers name this header, so that proxies take
/// it out: what rules read, the upstream would not see.
///
/// ```
/// use checkdam::normalize::is_hop_by_hop;
/// assert!(is_hop_by_hop([&b"close, X-API-Key"[..]], "x-api-key"));
/// ```
#[must_use]
pub fn is_hop_by_hop<'a>(connection: impl IntoIterator<Item = &'a [u8]>, header: &str) -> bool {
    let mut names = connection.into_iter().flat_map(|list| list.split(|byte| *byte == b','));
    names.any(|name| name.trim_ascii().eq_ignore_ascii_case(header.as_bytes()))
}

/// A host in its normal form: lower case, without port, brackets and dots at its end.
///
/// ```
/// use checkdam::normalize::host;
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
    let host = host.trim_end_matches('.');
    (!host.is_empty()).then(|| host.to_ascii_lowercase())
}

/// The address that limits go by: IPv4, or the first of an IPv6 network of the
/// size that one client commonly has. IPv4 written as IPv6 is IPv4.
///
/// ```
/// use checkdam::normalize::client_address;
/// assert_eq!(client_address("2001:db8:1:2:3:4:5:6".parse()?).to_string(), "2001:db8:1:2::");
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[must_use]
pub fn client_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => Ipv6Addr::from_bits(six.to_bits() & CLIENT_NETWORK_MASK).into(),
        four => four,
    }
}

/// The client of a request by its `X-Forwarded-For`: from the right, the first address
/// that is not trusted, beginning with the connection's peer. Several such headers are
/// one list. Its form is that of [`client_address`].
///
/// ```
/// use checkdam::normalize::forwarded_client;
/// let (peer, proxies) = ("10.0.0.1".parse()?, |address: std::net::IpAddr| address.to_string().starts_with("10."));
/// let lines = ["1.1.1.1, 203.0.113.9, 10.2.3.4".as_bytes()];
/// assert_eq!(forwarded_client(peer, lines, proxies).to_string(), "203.0.113.9");
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[must_use]
pub fn forwarded_client<'a>(
    peer: IpAddr,
    lines: impl IntoIterator<Item = &'a [u8], IntoIter: DoubleEndedIterator>,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> IpAddr {
    let entries = lines.into_iter().rev().flat_map(|line| line.rsplit(|byte| *byte == b','));
    let mut client = peer.to_canonical();
    for entry in entries.map(<[u8]>::trim_ascii).filter(|entry| !entry.is_empty()) {
        if !is_trusted(client) {
            break;
        }
        // An entry that is not an address was not written by a trustworthy proxy: the
        // proxy's own address is used.
        let Some(named) = std::str::from_utf8(entry).ok().and_then(proxy_address) else { break };
        client = named;
    }
    client_address(client)
}

/// An address as proxies write it: by itself, in brackets, or with a port.
fn proxy_address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    bare.parse().ok().or_else(with_port).map(|address: IpAddr| address.to_canonical())
}

/// A segment with each byte written in its one way. A percent that encodes
/// nothing counts as itself.
fn decoded(segment: &str, is_lower_case: bool) -> Cow<'_, str> {
    let is_other_case = |byte: u8| is_lower_case && byte.is_ascii_uppercase();
    if segment.bytes().all(|byte| needs_no_escape(byte) && !is_other_case(byte)) {
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
        if is_other_case(byte) {
            out.push(char::from(byte.to_ascii_lowercase()));
        } else if needs_no_escape(byte) {
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
fn needs_no_escape(byte: u8) -> bool {
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

    #[test]
    fn a_host_has_one_form_which_is_its_own() {
        let cases = [
            ("Example.COM.:8080", "example.com"),
            ("example.com..", "example.com"),
            ("[2001:DB8::1]:80", "2001:db8::1"),
            (" a ", "a"),
        ];
        for (written, normal) in cases {
            assert_eq!(host(written).as_deref(), Some(normal), "{written}");
            assert_eq!(host(normal).as_deref(), Some(normal), "{normal}: normal already");
        }
        for none in ["", ".", "..", ":80", "[]"] {
            assert_eq!(host(none), None, "{none}");
        }
    }

    #[test]
    fn what_only_some_servers_read_alike_is_a_setting() {
        let default = PathNormalization::default();
        let decode = PathNormalization { slashes: Slashes::Decode, ..default };
        let express = PathNormalization { is_trailing_slash_stripped: true, is_lower_case: true, ..default };
        #[rustfmt::skip]
        let cases = [
            (default, "/a;x/b;y=1", "/a/b"), (default, "/;x/a", "/a"), (default, "/a%3bx", "/a"), (default, "/a/;x", "/a/"),
            (default, "/a/..;x/b", "/b"), (default, "/A/", "/A/"),
            (decode, "/a%2fb%5Cc\\d", "/a/b/c/d"), (decode, "/a%2F..%5cb", "/b"), (decode, "/a%252Fb", "/a%252Fb"),
            (express, "/A/b/", "/a/b"), (express, "/", "/"), (express, "//", "/"), (express, "/a/..", "/"),
            (express, "/%41%c3%89", "/a%C3%89"), (express, "/a/b", "/a/b"),
        ];
        for (forms, written, normal) in cases {
            assert_eq!(forms.endpoint(written).as_deref(), Ok(normal), "{written}");
            assert_eq!(forms.endpoint(normal).as_deref(), Ok(normal), "{normal}: normal already");
        }
        for path in ["/a%2Fb", "/a%2fb", "/a%5C", "/%5c", "/a\\b"] {
            assert_eq!(default.endpoint(path), Err(PathError::Slash), "{path}");
        }
        assert!(decode.has_dot_segments("/a%2F..%2fb") && default.has_dot_segments("/..;x/b"));
        assert!(!default.has_dot_segments("/a%2F..%2fb") && !PathNormalization::AS_WRITTEN.has_dot_segments("/..;x/b"));
    }
}

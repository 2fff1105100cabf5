//! What a request asks for: the path in its one normal form, and the host.
//!
//! Whatever a client can write differently and a server may read as the same
//! path becomes the same endpoint, so that no spelling has a limit of its own.

/// The target of a request, as its first line has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    /// Host and port, if the target names them.
    pub(crate) authority: Option<&'a str>,
    /// The path, without what follows it.
    path: &'a str,
}

impl<'a> Target<'a> {
    /// Reads `/path?query`, `http://host/path?query` or `*`.
    pub(crate) fn parse(text: &'a str) -> Self {
        let text = &text[..text.find(['?', '#']).unwrap_or(text.len())];
        let scheme = ["http://", "https://"]
            .into_iter()
            .find(|scheme| text.get(..scheme.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(scheme)));
        let Some(scheme) = scheme else { return Self { authority: None, path: text } };
        let rest = &text[scheme.len()..];
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // Before an @ stands a user, which is no part of the host.
        let host = authority.rsplit('@').next().unwrap_or(authority);
        Self { authority: Some(host), path }
    }

    /// The path in its normal form: characters that need no percent stand
    /// bare, all others in upper case behind one, runs of slashes are one, and
    /// dot segments are followed. An encoded slash stays encoded: it separates
    /// nothing.
    pub(crate) fn endpoint(&self) -> String {
        if self.path == "*" {
            return self.path.to_owned();
        }
        let mut segments = Vec::new();
        let mut is_open = true;
        for segment in self.path.split('/') {
            // An empty last segment, or a dot, leaves the slash before it.
            is_open = true;
            match decoded(segment).as_str() {
                "" | "." => {}
                ".." => drop(segments.pop()),
                text => {
                    segments.push(text.to_owned());
                    is_open = false;
                }
            }
        }
        let mut endpoint = String::with_capacity(self.path.len() + 1);
        for segment in &segments {
            endpoint.push('/');
            endpoint.push_str(segment);
        }
        if is_open {
            endpoint.push('/');
        }
        endpoint
    }
}

/// A host in its normal form: lower case, without port, brackets and last dot.
pub(crate) fn host(authority: &str) -> Option<String> {
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

/// A segment with each byte written in its one way. A percent that encodes
/// nothing counts as itself.
fn decoded(segment: &str) -> String {
    let mut out = String::with_capacity(segment.len());
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
    out
}

/// What RFC 3986 allows in a segment. It calls only letters, digits and `-._~`
/// the same with and without a percent; servers decode the others too.
const fn stands_bare(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'-' | b'.'
                | b'_'
                | b'~'
                | b'!'
                | b'$'
                | b'&'
                | b'\''
                | b'('
                | b')'
                | b'*'
                | b'+'
                | b','
                | b';'
                | b'='
                | b':'
                | b'@'
        )
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

fn digit(value: u8) -> char {
    char::from_digit(value.into(), 16).unwrap_or('0').to_ascii_uppercase()
}

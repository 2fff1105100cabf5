//! Binary encoding of sampled requests: requests that were decided together are one
//! entry, and decoded requests borrow from it.
//!
//! An entry has its length, the hash of the client, the time, the attribute that
//! identifies the client, and the requests. Lengths and costs are varints (LEB128);
//! attribute names that every listener uses take one byte.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher};

use checkdam::{Request, RequestLimit, Unit, shortened};

/// Attributes that identify a client: the first of these that a request has.
pub(crate) const IDENTITIES: [&str; 5] = ["user", "api_key", "tenant", "ip", "remote_address"];
/// In place of an index of [`IDENTITIES`]: the request has none of them, and is
/// identified by all of its attributes.
const NOBODY: u8 = IDENTITIES.len() as u8;

/// Names that take one byte. Those of [`IDENTITIES`] come first.
const NAMES: [&str; 12] = [
    "user",
    "api_key",
    "tenant",
    "ip",
    "remote_address",
    "endpoint",
    "method",
    "plan",
    "host",
    "path",
    "generic_key",
    "header_match",
];
/// Stands before a name that is spelled out.
const SPELLED: u8 = u8::MAX;

const IS_PATH: u8 = 1;
const HAS_LIMIT: u8 = 2;
const DENIES_TOGETHER: u8 = 4;

/// Length, hash and time.
const HEAD: usize = 4 + 8 + 8;

/// A client as a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HashedClient {
    pub(super) hash: u64,
    attribute: u8,
}

impl HashedClient {
    /// The client of these requests.
    pub(super) fn from_requests(requests: &[Request<'_>], hasher: &impl BuildHasher) -> Self {
        let mut state = hasher.build_hasher();
        for (attribute, name) in (0..).zip(IDENTITIES) {
            if let Some(value) = requests.iter().find_map(|request| request.get(name)) {
                state.write(value.as_bytes());
                return Self { hash: state.finish(), attribute };
            }
        }
        for (name, value) in requests.iter().flat_map(Request::attributes) {
            state.write(name.as_bytes());
            state.write_u8(0);
            state.write(value.as_bytes());
            state.write_u8(0);
        }
        Self { hash: state.finish(), attribute: NOBODY }
    }
}

/// Adds an entry behind what there is.
pub(super) fn encode(out: &mut Vec<u8>, client: HashedClient, at_us: u64, requests: &[Request<'_>]) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&client.hash.to_le_bytes());
    out.extend_from_slice(&at_us.to_le_bytes());
    out.push(client.attribute);
    write_number(out, requests.len() as u64);
    for request in requests {
        write_request(out, request);
    }
    let length = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

fn write_request(out: &mut Vec<u8>, request: &Request<'_>) {
    let path = request.path().len();
    let is_path = path < request.attributes().count();
    let given = request.request_limit();
    let flag = |is_so: bool, flag: u8| u8::from(is_so) * flag;
    let together = flag(request.is_quota_mode(), DENIES_TOGETHER);
    out.push(flag(is_path, IS_PATH) | flag(given.is_some(), HAS_LIMIT) | together);
    write_number(out, request.cost());
    if let Some(RequestLimit { amount, unit }) = given {
        write_number(out, amount.into());
        out.push(unit as u8);
    }
    write_text(out, request.domain());
    if is_path {
        write_number(out, path as u64);
    }
    // What names the path is made anew.
    let attributes = request.attributes().enumerate().filter(|(place, _)| !is_path || *place != path);
    write_number(out, request.attributes().count() as u64 - u64::from(is_path));
    for (_, (name, value)) in attributes {
        match NAMES.iter().position(|known| *known == name) {
            Some(place) => out.push(place as u8),
            None => {
                out.push(SPELLED);
                write_text(out, name);
            }
        }
        write_text(out, &shortened(value));
    }
}

fn write_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    write_number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// An entry, not yet read.
#[derive(Debug, Clone, Copy)]
pub struct EncodedEntry<'a> {
    whole: &'a [u8],
}

impl<'a> EncodedEntry<'a> {
    /// Every entry, in the order in which they were added.
    pub(super) fn decode_all(bytes: &'a [u8]) -> impl Iterator<Item = Self> {
        let mut rest = bytes;
        std::iter::from_fn(move || {
            let length = u32::from_le_bytes(*rest.first_chunk()?) as usize;
            let (whole, after) = rest.split_at_checked(length.max(HEAD))?;
            rest = after;
            Some(Self { whole })
        })
    }

    pub(super) const fn bytes(self) -> &'a [u8] {
        self.whole
    }

    pub(super) fn hash(self) -> u64 {
        self.number_at(4)
    }

    /// When it was decided, by the store's clock.
    pub fn at_us(self) -> u64 {
        self.number_at(12)
    }

    /// The attribute that identifies the client.
    pub fn identity(self) -> Option<&'static str> {
        IDENTITIES.get(usize::from(*self.whole.get(HEAD)?)).copied()
    }

    fn number_at(self, place: usize) -> u64 {
        self.whole.get(place..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// The requests that were decided together. What was written can be read:
    /// none means that the bytes are no entry.
    pub fn requests(self) -> Option<Vec<Request<'a>>> {
        let mut reader = Reader(self.whole.get(HEAD + 1..)?);
        let count = reader.number()?;
        (0..count).map(|_| reader.request()).collect()
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(number);
            }
            shift += 7;
        }
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }

    fn attribute(&mut self) -> Option<(Cow<'a, str>, Cow<'a, str>)> {
        let name = match self.byte()? {
            SPELLED => self.text()?,
            place => NAMES.get(usize::from(place))?,
        };
        Some((Cow::Borrowed(name), Cow::Borrowed(self.text()?)))
    }

    fn request(&mut self) -> Option<Request<'a>> {
        let flags = self.byte()?;
        let cost = self.number()?;
        let given = if flags & HAS_LIMIT == 0 {
            None
        } else {
            let amount = u32::try_from(self.number()?).ok()?;
            Some(RequestLimit { amount, unit: *Unit::ALL.get(usize::from(self.byte()?))? })
        };
        let domain = self.text()?;
        let path = if flags & IS_PATH == 0 { None } else { Some(self.number()?) };
        let count = self.number()?;
        let mut request = match path {
            Some(length) => {
                let entries: Vec<_> = (0..length).map(|_| self.attribute()).collect::<Option<_>>()?;
                Request::from_entries(domain, entries).ok()?
            }
            None => Request::new().in_domain(domain),
        };
        for _ in path.unwrap_or(0)..count {
            let (name, value) = self.attribute()?;
            request.insert_unbounded(name, value).ok()?;
        }
        let request = request.costing(cost);
        let request = if flags & DENIES_TOGETHER == 0 { request } else { request.in_quota_mode() };
        Some(match given {
            Some(limit) => request.with_limit(limit),
            None => request,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut bytes = Vec::new();
        let plain = Request::new().with("user", "42").unwrap().with("colour", "grün").unwrap().costing(300);
        let path = Request::from_entries("edge", [("ip", ""), ("ip", "203.0.113.9")]).unwrap();
        let mut more = path.clone().with_limit(RequestLimit { amount: 7, unit: Unit::Hour });
        more.insert("plan", "free").unwrap();
        let requests = [plain, path.in_quota_mode(), more, Request::new().costing(0)];
        let hasher = foldhash::quality::RandomState::default();
        let client = HashedClient::from_requests(&requests, &hasher);
        encode(&mut bytes, client, 1_000_000, &requests);
        encode(&mut bytes, HashedClient::from_requests(&requests[3..], &hasher), 2_000_000, &requests[3..]);
        let entries: Vec<_> = EncodedEntry::decode_all(&bytes).collect();
        assert_eq!(entries.len(), 2);
        assert_eq!((entries[0].hash(), entries[0].at_us()), (client.hash, 1_000_000));
        assert_eq!((entries[0].identity(), entries[1].identity()), (Some("user"), None));
        assert_eq!(entries[0].requests().unwrap(), requests);
        assert_eq!(entries[1].requests().unwrap(), requests[3..]);
        for end in 0..bytes.len() {
            // Never a panic, whatever the bytes.
            EncodedEntry::decode_all(&bytes[..end]).for_each(|entry| drop(entry.requests()));
        }
    }

    #[test]
    fn a_client_is_who_asks_whatever_it_asks_for() {
        let hasher = foldhash::quality::RandomState::default();
        let of = |pairs: &[(&'static str, &'static str)]| {
            let with = |request: Request<'static>, (name, value): &(&'static str, &'static str)| {
                request.with(*name, *value).unwrap()
            };
            HashedClient::from_requests(&[pairs.iter().fold(Request::new(), with)], &hasher)
        };
        assert_eq!(of(&[("user", "1"), ("ip", "a")]), of(&[("endpoint", "/"), ("user", "1"), ("ip", "b")]));
        assert_ne!(of(&[("user", "1")]), of(&[("user", "2")]));
        assert_ne!(of(&[("endpoint", "/a")]), of(&[("endpoint", "/b")]));
    }
}

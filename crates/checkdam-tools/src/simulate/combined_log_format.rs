//! Parses the access log formats of nginx and Apache: common, combined, and combined
//! with a virtual host in front.

use std::borrow::Cow;
use std::net::IpAddr;

use memchr::{memchr, memmem};

use super::field_mapping::FieldMapping;
use super::log_chunk::LineValues;
use super::timestamps;

/// What a line has, by name.
const FIELDS: [&str; 9] = ["ip", "user", "method", "endpoint", "status", "bytes", "referer", "user_agent", "host"];

#[derive(Debug)]
pub(super) struct CombinedLogFormat {
    mapping: FieldMapping,
    /// The index of each attribute in [`FIELDS`], if it has one.
    places: Vec<Option<usize>>,
    cost: Option<usize>,
}

impl CombinedLogFormat {
    pub(super) fn new(mapping: FieldMapping) -> Result<Self, String> {
        let place = |name: &str| FIELDS.iter().position(|known| *known == name);
        let places = mapping.attributes.iter().map(|attribute| attribute.fields().find_map(place)).collect();
        let cost = match &mapping.cost_field {
            Some(name) => Some(place(name).ok_or_else(|| {
                format!("a combined log has no field {name:?} for the cost: use one of {}", FIELDS.join(", "))
            })?),
            None => None,
        };
        Ok(Self { mapping, places, cost })
    }

    /// Reads one line: the time, the cost, and what it says.
    pub(super) fn read<'l>(&self, line: &'l str, values: &mut LineValues<'l>) -> Result<(u64, u64), String> {
        let found = LineParts::parse(line)?;
        let at_us = timestamps::clf(found.time.as_bytes()).ok_or_else(|| format!("{:?} is no time", found.time))?;
        let fields = found.fields();
        for (number, (attribute, place)) in (0..).zip(self.mapping.attributes.iter().zip(&self.places)) {
            let text = place.map(|place| Cow::Borrowed(fields[place]));
            values.extend(attribute.normalized_value(text).map(|value| (number, value)));
        }
        let cost = self.cost.map_or(Ok(1), |place| super::parse_cost(fields[place]))?;
        Ok((at_us, cost))
    }
}

/// Whether a line looks like this format.
pub(super) fn is_combined(line: &str) -> bool {
    LineParts::parse(line).is_ok_and(|parts| timestamps::clf(parts.time.as_bytes()).is_some())
}

struct LineParts<'l> {
    head: &'l str,
    time: &'l str,
    request: &'l str,
    /// Behind the request.
    tail: &'l str,
}

impl<'l> LineParts<'l> {
    fn parse(line: &'l str) -> Result<Self, String> {
        let open = memmem::find(line.as_bytes(), b" [").ok_or("there is no [time]")?;
        let rest = &line[open + 2..];
        let close = memchr(b']', rest.as_bytes()).ok_or("the time has no ]")?;
        let (head, time) = (&line[..open], &rest[..close]);
        let rest = rest[close + 1..].trim_start();
        let (request, tail) = split_quoted(rest).ok_or("there is no \"request\" behind the time")?;
        Ok(Self { head, time, request, tail })
    }

    /// In the order of [`FIELDS`]; what is not there is empty.
    fn fields(&self) -> [&'l str; 9] {
        let (host, ip, user) = self.client();
        let (method, endpoint) = self.target();
        let (status, rest) = split_word(self.tail);
        let (bytes, rest) = split_word(rest);
        let (referer, rest) = split_quoted(rest).unwrap_or_default();
        let (agent, _) = split_quoted(rest.trim_start()).unwrap_or_default();
        [ip, user, method, endpoint, status, bytes, referer, agent, host]
    }

    /// `ip ident user`, or `host:port ip ident user`. A user may have spaces.
    fn client(&self) -> (&'l str, &'l str, &'l str) {
        let (first, rest) = split_word(self.head);
        let (second, after) = split_word(rest);
        let is_ip = |text: &str| text.parse::<IpAddr>().is_ok();
        let is_short = first.bytes().next().is_some_and(|byte| byte.is_ascii_digit()) && !first.contains(':');
        if is_short || is_ip(first) || !is_ip(second) {
            return ("", first, after);
        }
        (first, second, split_word(after).1)
    }

    /// Nothing if the client sent no request line.
    fn target(&self) -> (&'l str, &'l str) {
        let Some((method, rest)) = self.request.split_once(' ') else { return ("", "") };
        let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-');
        match rest.rsplit_once(' ') {
            _ if !is_method => ("", ""),
            Some((target, protocol)) if protocol.starts_with("HTTP/") => (method, target),
            _ => (method, rest),
        }
    }
}

/// The first word and what follows it.
fn split_word(text: &str) -> (&str, &str) {
    let text = text.trim_start_matches(' ');
    let (word, rest) = text.split_at(memchr(b' ', text.as_bytes()).unwrap_or(text.len()));
    (word, rest.trim_start_matches(' '))
}

/// The quoted text at the beginning, and what follows it. A quote after a backslash
/// is part of it.
fn split_quoted(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('"')?;
    let mut from = 0;
    loop {
        let end = from + memchr(b'"', &inner.as_bytes()[from..])?;
        let escapes = inner.as_bytes()[..end].iter().rev().take_while(|byte| **byte == b'\\').count();
        if escapes % 2 == 0 {
            return Some((&inner[..end], inner[end + 1..].trim_start()));
        }
        from = end + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Vec<String>, String> {
        let names = FIELDS.map(ToOwned::to_owned);
        let combined = CombinedLogFormat::new(FieldMapping::new(names, &[], &[])).unwrap();
        let mut values = Vec::new();
        combined.read(line, &mut values)?;
        Ok(values.iter().map(|(number, value)| format!("{}={value}", combined.mapping.name(*number))).collect())
    }

    #[test]
    fn lines_of_servers_are_read() {
        let time = "[10/Oct/2026:13:55:36 +0000]";
        let table = [
            (
                format!(r#"203.0.113.9 - - {time} "GET /a//b?q=1 HTTP/1.1" 200 12"#),
                "bytes=12 endpoint=/a/b ip=203.0.113.9 method=GET status=200",
            ),
            (
                format!(r#"203.0.113.9 - ann lee {time} "GET / HTTP/1.1" 304 - "-" "curl \"x\" y""#),
                "endpoint=/ ip=203.0.113.9 method=GET status=304 user=ann lee user_agent=curl \\\"x\\\" y",
            ),
            (
                format!(r#"2001:db8:1:2:3::4 - - {time} "GET http://A.example/x HTTP/1.1" 200 1 "https://r/" "-""#),
                "bytes=1 endpoint=/x ip=2001:db8:1:2:: method=GET referer=https://r/ status=200",
            ),
            (
                format!(r#"Shop.example:443 203.0.113.9 - bob {time} "POST /x HTTP/2.0" 201 5 "-" "ua""#),
                "bytes=5 endpoint=/x host=shop.example ip=203.0.113.9 method=POST status=201 user=bob user_agent=ua",
            ),
            (
                format!(r#"203.0.113.9 - - {time} "\x16\x03\x01" 400 157 "-" "-""#),
                "bytes=157 ip=203.0.113.9 status=400",
            ),
            (format!(r#"203.0.113.9 - - {time} "" 408 0"#), "bytes=0 ip=203.0.113.9 status=408"),
        ];
        for (line, expected) in table {
            assert_eq!(read(&line).unwrap().join(" "), expected, "{line}");
        }
        for line in
            ["", "hello", "a - - [yesterday] \"GET / HTTP/1.1\" 200 1", "a - - [10/Oct/2026:13:55:36 +0000] GET"]
        {
            assert!(read(line).is_err() && !is_combined(line), "{line}");
        }
    }
}

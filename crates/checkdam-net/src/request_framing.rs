//! Checks HTTP/1 request framing (RFC 9112, section 6), against request smuggling.
//!
//! If two programs disagree on where a request ends, a client can smuggle a second request
//! past the first program. hyper accepts some ambiguous requests without reporting it, so
//! the bytes are checked before it parses them. Nothing is changed: an ambiguous request is
//! rejected; if it is already being answered, the connection ends.

/// How much of a line is kept: enough for every line that is checked.
const LINE_MAX: usize = 256;
/// The HTTP/2 connection preface (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0";

/// Why a request's end is ambiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FramingFault {
    /// Both Content-Length and Transfer-Encoding.
    #[error("both Content-Length and Transfer-Encoding are given: send one of them")]
    TwoLengths,
    /// More than one Content-Length.
    #[error("Content-Length is given twice: give it once")]
    RepeatedLength,
    /// A Content-Length that is not a number.
    #[error("Content-Length is no number: write digits only")]
    BadLength,
    /// A Transfer-Encoding other than `chunked`.
    #[error("Transfer-Encoding is something else than \"chunked\", once: send chunked, or Content-Length")]
    BadCoding,
    /// A line that ends without a carriage return.
    #[error("a line of the head ends without a carriage return: end lines with CR LF")]
    BareLineFeed,
    /// A chunked body that is malformed, and why.
    #[error("the chunked body is malformed: {0}")]
    BadChunk(&'static str),
}

/// Scans the bytes of one client connection.
#[derive(Debug)]
pub(crate) struct FramingScanner {
    place: ScanState,
    /// The beginning of the line that is being read, without its end.
    line: Vec<u8>,
    /// The last byte of that line, however long it is.
    last: u8,
    /// How many heads have begun.
    heads: u64,
    length: Option<u64>,
    is_chunked: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanState {
    /// Before a request's first line.
    Outside,
    /// In the lines of a head.
    Head,
    /// In a body with this many bytes left.
    Body(u64),
    /// In a chunk-size line.
    ChunkSize,
    /// In a chunk with this many bytes left, its line end included.
    Chunk(u64),
    /// In the trailers.
    Trailers,
    /// Scanning has ended.
    Blind,
}

impl FramingScanner {
    pub(crate) fn new() -> Self {
        Self { place: ScanState::Outside, line: Vec::new(), last: 0, heads: 0, length: None, is_chunked: false }
    }

    /// Scans the next bytes. A fault is returned with the number of its request, from 1;
    /// nothing is scanned afterwards.
    pub(crate) fn scan(&mut self, mut bytes: &[u8]) -> Option<(u64, FramingFault)> {
        while !bytes.is_empty() {
            bytes = match self.scan_some(bytes) {
                Ok(rest) => rest,
                Err(fault) => {
                    self.place = ScanState::Blind;
                    return Some((self.heads, fault));
                }
            };
        }
        None
    }

    /// Scans the next line or part of a body, and returns the bytes that follow it.
    fn scan_some<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], FramingFault> {
        match self.place {
            ScanState::Blind => Ok(&[]),
            ScanState::Body(left) => {
                let taken = bytes_within(left, bytes);
                let left = left - taken as u64;
                self.place = if left == 0 { ScanState::Outside } else { ScanState::Body(left) };
                Ok(&bytes[taken..])
            }
            ScanState::Chunk(left) => self.skip_chunk(left, bytes),
            ScanState::Outside | ScanState::Head | ScanState::ChunkSize | ScanState::Trailers => {
                let Some(rest) = self.collect_line(bytes) else { return Ok(&[]) };
                if self.is_line_of_head() {
                    self.scan_head_line()?;
                } else {
                    self.scan_body_line()?;
                }
                self.line.clear();
                self.last = 0;
                Ok(rest)
            }
        }
    }

    const fn is_line_of_head(&self) -> bool {
        matches!(self.place, ScanState::Outside | ScanState::Head)
    }

    /// Appends a line's bytes; returns what follows the line, if it ended.
    fn collect_line<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        if self.place == ScanState::Outside
            && self.line.is_empty()
            && self.last == 0
            && bytes[0] != b'\r'
            && bytes[0] != b'\n'
        {
            self.heads += 1;
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let part = &bytes[..end.unwrap_or(bytes.len())];
        let room = (LINE_MAX - self.line.len()).min(part.len());
        self.line.extend_from_slice(&part[..room]);
        self.last = part.last().copied().unwrap_or(self.last);
        end.map(|end| &bytes[end + 1..])
    }

    /// The line that has ended, without its carriage return.
    fn line(&self) -> Option<&[u8]> {
        if self.last != b'\r' {
            return None;
        }
        // A line that is longer than what is kept has lost its end.
        Some(self.line.strip_suffix(b"\r").unwrap_or(&self.line))
    }

    fn scan_head_line(&mut self) -> Result<(), FramingFault> {
        let line = self.line().ok_or(FramingFault::BareLineFeed)?;
        if self.place == ScanState::Outside {
            // Empty lines before a request are ignored (RFC 9112, section 2.2).
            let is_empty = line.is_empty();
            self.place = match line {
                PREFACE if self.heads == 1 => ScanState::Blind,
                _ if is_empty => ScanState::Outside,
                _ => ScanState::Head,
            };
            return Ok(());
        }
        if line.is_empty() {
            self.place = match (self.is_chunked, self.length.unwrap_or(0)) {
                (true, _) => ScanState::ChunkSize,
                (false, 0) => ScanState::Outside,
                (false, length) => ScanState::Body(length),
            };
            (self.length, self.is_chunked) = (None, false);
            return Ok(());
        }
        // hyper rejects a line without a colon, or with a space before it.
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return Ok(()) };
        let (name, value) = (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
        // If a line fills what is kept, its end may be missing.
        let is_whole = self.line.len() < LINE_MAX;
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = content_length(value).filter(|_| is_whole).ok_or(FramingFault::BadLength)?;
            if self.length.replace(length).is_some() {
                return Err(FramingFault::RepeatedLength);
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.is_chunked || !is_whole || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(FramingFault::BadCoding);
            }
            self.is_chunked = true;
        }
        if self.is_chunked && self.length.is_some() { Err(FramingFault::TwoLengths) } else { Ok(()) }
    }

    fn scan_body_line(&mut self) -> Result<(), FramingFault> {
        let line = self.line().ok_or(FramingFault::BadChunk("a line ends without a carriage return"))?;
        if line.contains(&b'\r') {
            return Err(FramingFault::BadChunk("a carriage return does not end its line"));
        }
        if self.place == ScanState::Trailers {
            if line.is_empty() {
                self.place = ScanState::Outside;
            }
            return Ok(());
        }
        if line.len() >= LINE_MAX {
            return Err(FramingFault::BadChunk("the extension of a chunk is too long"));
        }
        self.place = match chunk_size(line).map(|size| (size, size.checked_add(2))) {
            Some((0, _)) => ScanState::Trailers,
            Some((_, Some(with_end))) => ScanState::Chunk(with_end),
            _ => return Err(FramingFault::BadChunk("the size of a chunk is no hexadecimal number")),
        };
        Ok(())
    }

    /// Skips a chunk's bytes; its last two must be CRLF.
    fn skip_chunk<'a>(&mut self, left: u64, bytes: &'a [u8]) -> Result<&'a [u8], FramingFault> {
        if left > 2 {
            let taken = bytes_within(left - 2, bytes);
            self.place = ScanState::Chunk(left - taken as u64);
            return Ok(&bytes[taken..]);
        }
        let (expected, place) = if left == 2 { (b'\r', ScanState::Chunk(1)) } else { (b'\n', ScanState::ChunkSize) };
        if bytes[0] != expected {
            return Err(FramingFault::BadChunk("a chunk is longer than it said"));
        }
        self.place = place;
        Ok(&bytes[1..])
    }
}

/// How many of these bytes belong to a part with this many left.
fn bytes_within(left: u64, bytes: &[u8]) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len())
}

/// The chunk size of a line, if it is valid.
pub fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let is_well_ended = matches!(line.get(digits), None | Some(b';' | b' ' | b'\t'));
    u64::from_str_radix(std::str::from_utf8(&line[..digits]).ok()?, 16).ok().filter(|_| is_well_ended)
}

/// The value of a Content-Length, if it consists of digits.
pub fn content_length(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value).ok().filter(|_| is_number)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result for these bytes, which does not depend on how they are split.
    fn found(bytes: &str) -> Option<(u64, FramingFault)> {
        let whole = FramingScanner::new().scan(bytes.as_bytes());
        for size in [1, 2, 3, 7] {
            let mut framing = FramingScanner::new();
            let in_parts = bytes.as_bytes().chunks(size).find_map(|part| framing.scan(part));
            assert_eq!(in_parts, whole, "{bytes:?} in parts of {size}");
        }
        whole
    }

    const GOOD: &str = "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello\r\nPUT / HTTP/1.1\r\nTransfer-Encoding: \
                        Chunked\r\n\r\n5;a=b\r\nhello\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\nGET / HTTP/1.1\r\n\r\n";

    #[test]
    fn requests_that_end_in_one_way_only_pass() {
        assert_eq!(found(GOOD), None);
        assert_eq!(found(&GOOD.repeat(3)), None);
        let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "content-length: 5\t".repeat(100));
        assert_eq!(found(&long.repeat(2)), None);
    }

    #[test]
    fn a_head_that_ends_in_two_ways_is_found_wherever_it_stands() {
        for (lines, fault) in [
            ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", FramingFault::TwoLengths),
            ("transfer-encoding: chunked\r\nX: y\r\ncontent-length: 0\r\n", FramingFault::TwoLengths),
            ("Content-Length: 5\r\nContent-Length: 5\r\n", FramingFault::RepeatedLength),
            ("Content-Length: 5, 5\r\n", FramingFault::BadLength),
            ("Content-Length: +5\r\n", FramingFault::BadLength),
            ("Content-Length:\r\n", FramingFault::BadLength),
            ("Content-Length: 99999999999999999999\r\n", FramingFault::BadLength),
            ("Transfer-Encoding: gzip, chunked\r\n", FramingFault::BadCoding),
            ("Transfer-Encoding: identity\r\n", FramingFault::BadCoding),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", FramingFault::BadCoding),
            ("Content-Length: 5\nX: y\r\n", FramingFault::BareLineFeed),
            ("X: y\n\n", FramingFault::BareLineFeed),
        ] {
            let head = format!("POST / HTTP/1.1\r\n{lines}\r\n");
            assert_eq!(found(&head), Some((1, fault)), "{lines:?}");
            assert_eq!(found(&format!("{GOOD}{head}")), Some((4, fault)), "{lines:?}");
        }
        let long = format!("POST / HTTP/1.1\r\nContent-Length: {:0>300}\r\n\r\n", 5);
        assert_eq!(found(&long), Some((1, FramingFault::BadLength)));
    }

    #[test]
    fn a_body_that_is_malformed_is_found() {
        let head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        let is_bad_chunk = |body: &str| matches!(found(&format!("{head}{body}")), Some((1, FramingFault::BadChunk(_))));
        for body in
            ["5\nhello\r\n0\r\n\r\n", "x\r\n", "5x\r\n", "-1\r\n", "\r\n", "5\r\nhello!\r\n", "5\r\nhello\n0\r\n"]
        {
            assert!(is_bad_chunk(body), "{body:?}");
        }
        for body in ["0\r\nX: y\n\r\n", "fffffffffffffffff\r\n", "ffffffffffffffff\r\n", "0;a\rb\r\n"] {
            assert!(is_bad_chunk(body), "{body:?}");
        }
        assert!(is_bad_chunk(&format!("5;{}\r\n", "x".repeat(300))));
    }

    #[test]
    fn nothing_is_looked_for_in_http2() {
        assert_eq!(found("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\nContent-Length: x\n"), None);
    }
}

//! Entry point of the fuzz targets: the framing of HTTP/1 requests.

use crate::request_framing::{FramingFault, FramingScanner};

/// Scans the bytes of a connection, part by part. A fault has the number of its request, from 1.
pub fn scan_framing<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Option<(u64, FramingFault)> {
    let mut scanner = FramingScanner::new();
    parts.into_iter().find_map(|part| scanner.scan(part))
}

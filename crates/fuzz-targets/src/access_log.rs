//! Fuzz target: parsing of access logs by `checkdam simulate`.

use checkdam_tools::simulate::LogFormat;
use checkdam_tools::simulate::fuzzing::{NamedFields, ReadLog, ReadRequest, read_log};

use crate::split_line;

/// The attributes that are read of each line.
const ATTRIBUTES: [&str; 6] = ["endpoint", "host", "ip", "method", "status", "user"];

/// The first line of the input has the format; the log follows. Each line is a request, unreadable,
/// or empty, and what is read does not depend on how the lines are grouped.
pub fn access_log(data: &[u8]) {
    let (line, log) = split_line(data);
    let format = match line {
        b"combined" => LogFormat::Combined,
        b"json" => LogFormat::Json,
        b"csv" => LogFormat::Csv,
        _ => LogFormat::Auto,
    };
    let text = String::from_utf8_lossy(log);
    for fields in [NamedFields::default(), NamedFields { time: Some("time"), cost: Some("bytes") }] {
        let whole = read_log(format, &ATTRIBUTES, fields, &[&text]);
        let Ok(whole) = whole else { continue };
        check(&whole, &text);
        let lines: Vec<_> = text.split_inclusive('\n').collect();
        // The format is that of the first line that is not empty, so the header is in the first part.
        assert_eq!(read_log(format, &ATTRIBUTES, fields, &lines), Ok(whole), "line by line");
    }
}

fn check(log: &ReadLog, text: &str) {
    let lines = text.lines().count() as u64;
    let blank = text.lines().filter(|line| line.trim().is_empty()).count() as u64;
    assert_eq!(log.lines, lines);
    let read = log.requests.len() as u64 + log.unreadable;
    // A table has a header.
    assert!(read + blank == lines || read + blank + 1 == lines, "{read} of {lines} lines, {blank} empty");
    for ReadRequest { cost, attributes, .. } in &log.requests {
        assert!((1..=checkdam::LIMIT_MAX).contains(cost));
        assert!(attributes.iter().all(|(name, value)| ATTRIBUTES.contains(&name.as_str()) && !value.is_empty()));
    }
}

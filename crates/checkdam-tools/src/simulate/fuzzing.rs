//! Entry point of the fuzz targets: access logs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use super::field_mapping::FieldMapping;
use super::log_reader::{LineParser, LogFormat, ReaderContext};

/// What was read of a log.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReadLog {
    pub lines: u64,
    pub unreadable: u64,
    pub requests: Vec<ReadRequest>,
}

/// One request of a log.
#[derive(Debug, PartialEq, Eq)]
pub struct ReadRequest {
    pub at_us: u64,
    pub cost: u64,
    pub attributes: Vec<(String, String)>,
}

/// The fields that have the time and the cost, where they are not the usual ones.
#[derive(Debug, Clone, Copy, Default)]
pub struct NamedFields {
    pub time: Option<&'static str>,
    pub cost: Option<&'static str>,
}

/// Reads these attributes of a log whose lines arrive in these parts.
pub fn read_log(format: LogFormat, names: &[&str], fields: NamedFields, parts: &[&str]) -> Result<ReadLog, String> {
    let mapping = FieldMapping {
        time_field: fields.time.map(ToOwned::to_owned),
        cost_field: fields.cost.map(ToOwned::to_owned),
        ..FieldMapping::new(names.iter().map(|name| (*name).to_owned()), &[], &[])
    };
    let context = ReaderContext {
        format,
        mapping: mapping.clone(),
        read: Arc::new(AtomicU64::new(0)),
        is_stopped: Arc::new(AtomicBool::new(false)),
    };
    let (mut log, mut parser) = (ReadLog::default(), LineParser::detect(&context, &parts.concat())?);
    for part in parts {
        let chunk = parser.parse_chunk((*part).to_owned(), log.lines);
        log.lines += chunk.lines;
        log.unreadable += chunk.unreadable;
        for record in &chunk.records {
            let values =
                chunk.values(record).map(|(number, value)| (mapping.name(number).to_owned(), value.to_owned()));
            log.requests.push(ReadRequest { at_us: record.at_us, cost: record.cost, attributes: values.collect() });
        }
    }
    Ok(log)
}

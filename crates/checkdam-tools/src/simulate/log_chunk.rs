//! A chunk of some thousand parsed log lines; values are slices of the chunk's text.

use std::borrow::Cow;
use std::ops::Range;

/// Lines that were read together.
#[derive(Debug, Default)]
pub(super) struct LogChunk {
    pub(super) text: String,
    /// Values that the log writes otherwise.
    extra: String,
    fields: Vec<FieldSpan>,
    pub(super) records: Vec<LogRecord>,
    pub(super) lines: u64,
    pub(super) unreadable: u64,
    /// The first lines that could not be read, and why.
    pub(super) faults: Vec<UnreadableLine>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct LogRecord {
    /// Since 1970.
    pub(super) at_us: u64,
    pub(super) cost: u64,
    fields: (u32, u32),
}

#[derive(Debug, Clone, Copy)]
struct FieldSpan {
    attribute: u16,
    is_extra: bool,
    start: u32,
    length: u32,
}

#[derive(Debug, Clone)]
pub(super) struct UnreadableLine {
    /// From 1.
    pub(super) line: u64,
    pub(super) reason: String,
}

/// What one line says: attributes by their number.
pub(super) type LineValues<'l> = Vec<(u16, Cow<'l, str>)>;

impl LogChunk {
    /// Adds a request. `values` are of `text`, which is to become the block's, or
    /// their own.
    pub(super) fn add(&mut self, text: &str, at_us: u64, cost: u64, values: &LineValues<'_>) {
        let first = self.fields.len() as u32;
        for (attribute, value) in values {
            let (is_extra, start) = match value {
                Cow::Borrowed(value) => match offset(text, value) {
                    Some(start) => (false, start),
                    None => (true, self.push_text(value)),
                },
                Cow::Owned(value) => (true, self.push_text(value)),
            };
            self.fields.push(FieldSpan {
                attribute: *attribute,
                is_extra,
                start: start as u32,
                length: value.len() as u32,
            });
        }
        self.records.push(LogRecord { at_us, cost, fields: (first, self.fields.len() as u32) });
    }

    fn push_text(&mut self, value: &str) -> usize {
        let start = self.extra.len();
        self.extra.push_str(value);
        start
    }

    /// The attributes of a request, by their number.
    pub(super) fn values(&self, record: &LogRecord) -> impl Iterator<Item = (u16, &str)> {
        let (first, last) = record.fields;
        self.fields[first as usize..last as usize].iter().map(|field| {
            let text = if field.is_extra { &self.extra } else { &self.text };
            (field.attribute, &text[field.range()])
        })
    }
}

impl FieldSpan {
    fn range(self) -> Range<usize> {
        self.start as usize..(self.start + self.length) as usize
    }
}

/// The offset of a part in a text; none if it is not a slice of it.
fn offset(text: &str, part: &str) -> Option<usize> {
    let start = (part.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    (start + part.len() <= text.len()).then_some(start)
}

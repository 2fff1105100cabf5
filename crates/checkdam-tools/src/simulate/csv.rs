//! Parses CSV logs: a header line, then one line per request.

use std::borrow::Cow;

use super::field_mapping::{FieldMapping, TIMES};
use super::log_chunk::LineValues;
use super::timestamps;

#[derive(Debug)]
pub(super) struct Csv {
    mapping: FieldMapping,
    columns: usize,
    /// The column of each attribute, if there is one.
    places: Vec<Option<usize>>,
    time: usize,
    cost: Option<usize>,
    cells: Cells,
}

impl Csv {
    /// A table with this line of names.
    pub(super) fn new(mapping: FieldMapping, header: &str) -> Result<Self, String> {
        let mut cells = Cells::new(separator(header));
        let columns = cells.read(header)?;
        let names: Vec<&str> = (0..columns).map(|place| cells.get(place).trim()).collect();
        let place = |name: &str| names.iter().position(|known| *known == name);
        let need = |name: &str, what: &str| {
            place(name).ok_or_else(|| format!("there is no column {name:?} with the {what}: the first line names them"))
        };
        let time = match &mapping.time_field {
            Some(name) => need(name, "time")?,
            None => TIMES
                .iter()
                .find_map(|name| place(name))
                .ok_or("the first line names no column with the time: name it with --time-field")?,
        };
        let cost = mapping.cost_field.as_ref().map(|name| need(name, "cost")).transpose()?;
        let places = mapping.attributes.iter().map(|attribute| attribute.fields().find_map(place)).collect();
        Ok(Self { columns, places, time, cost, cells, mapping })
    }

    /// Reads one line: the time, the cost, and what it says.
    pub(super) fn read(&mut self, line: &str, values: &mut LineValues<'_>) -> Result<(u64, u64), String> {
        let columns = self.cells.read(line)?;
        if columns != self.columns {
            return Err(format!("it has {columns} columns and the first line {}", self.columns));
        }
        let time = self.cells.get(self.time);
        let at_us = timestamps::parse(time).ok_or_else(|| format!("{time:?} is no time"))?;
        let cost = self.cost.map_or(Ok(1), |place| super::parse_cost(self.cells.get(place)))?;
        for (number, (attribute, place)) in (0..).zip(self.mapping.attributes.iter().zip(&self.places)) {
            let found = place.map(|place| Cow::Owned(self.cells.get(place).to_owned()));
            values.extend(attribute.normalized_value(found).map(|value| (number, value)));
        }
        Ok((at_us, cost))
    }
}

/// The cells of one line at a time, by RFC 4180. A cell ends on its line.
#[derive(Debug)]
struct Cells {
    parser: csv_core::Reader,
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Cells {
    fn new(separator: u8) -> Self {
        let parser = csv_core::ReaderBuilder::new().delimiter(separator).build();
        Self { parser, text: Vec::new(), ends: Vec::new() }
    }

    /// Reads a line; returns the number of its cells.
    fn read(&mut self, line: &str) -> Result<usize, String> {
        if memchr::memchr_iter(b'"', line.as_bytes()).count() % 2 == 1 {
            return Err("the quotes of a cell are not closed on its line".to_owned());
        }
        // There is room for what a line can become, so that it is read at once; the end
        // of the input, which is the second call, ends its last cell.
        self.text.resize(line.len(), 0);
        self.ends.resize(line.len() + 1, 0);
        self.parser.reset();
        let (_, _, written, ended) = self.parser.read_record(line.as_bytes(), &mut self.text, &mut self.ends);
        let (_, _, _, last) = self.parser.read_record(&[], &mut self.text[written..], &mut self.ends[ended..]);
        Ok(ended + last)
    }

    fn get(&self, place: usize) -> &str {
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        str::from_utf8(&self.text[start..self.ends[place]]).unwrap_or_default()
    }
}

/// A comma, or a semicolon or a tab where there are more of them.
pub(super) fn separator(header: &str) -> u8 {
    let count = |separator: u8| header.bytes().filter(|byte| *byte == separator).count();
    [b',', b';', b'\t'].into_iter().rev().max_by_key(|separator| count(*separator)).unwrap_or(b',')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_may_be_quoted() {
        let read = |line: &str| {
            let mut cells = Cells::new(b',');
            cells.read(line).map(|count| (0..count).map(|place| cells.get(place)).collect::<Vec<_>>().join("|"))
        };
        assert_eq!(read("a,b,,c").unwrap(), "a|b||c");
        assert_eq!(read("é,").unwrap(), "é|");
        assert_eq!(read(r#""a,b","say ""x""",c"#).unwrap(), r#"a,b|say "x"|c"#);
        assert!(read(r#""open,b"#).is_err() && read(r#"a,"open"#).is_err());
        assert_eq!((separator("a;b;c"), separator("a\tb"), separator("a")), (b';', b'\t', b','));
    }
}

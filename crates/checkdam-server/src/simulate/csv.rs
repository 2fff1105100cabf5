//! Logs as tables: a line of names, then a line a request.

use std::borrow::Cow;

use super::field_mapping::{FieldMapping, TIMES};
use super::log_chunk::LineValues;
use super::timestamps;

/// Reads lines of a table.
#[derive(Debug)]
pub(super) struct Csv {
    wanted: FieldMapping,
    separator: u8,
    columns: usize,
    /// The column of each attribute, if there is one.
    places: Vec<Option<usize>>,
    time: usize,
    cost: Option<usize>,
}

impl Csv {
    /// A table with this line of names.
    pub(super) fn new(wanted: FieldMapping, header: &str) -> Result<Self, String> {
        let separator = separator(header);
        let names = cells(header, separator)?;
        let place = |name: &str| names.iter().position(|known| known.trim() == name);
        let need = |name: &str, what: &str| {
            place(name).ok_or_else(|| format!("there is no column {name:?} with the {what}: the first line names them"))
        };
        let time = match &wanted.time_field {
            Some(name) => need(name, "time")?,
            None => TIMES
                .iter()
                .find_map(|name| place(name))
                .ok_or("the first line names no column with the time: name it with --time-field")?,
        };
        let cost = wanted.cost_field.as_ref().map(|name| need(name, "cost")).transpose()?;
        let places = wanted.attributes.iter().map(|attribute| attribute.fields().find_map(place)).collect();
        Ok(Self { separator, columns: names.len(), places, time, cost, wanted })
    }

    /// Reads one line: the time, the cost, and what it says.
    pub(super) fn read<'l>(&self, line: &'l str, values: &mut LineValues<'l>) -> Result<(u64, u64), String> {
        let mut cells = cells(line, self.separator)?;
        if cells.len() != self.columns {
            return Err(format!("it has {} columns and the first line {}", cells.len(), self.columns));
        }
        let time = &cells[self.time];
        let at_us = timestamps::parse(time).ok_or_else(|| format!("{time:?} is no time"))?;
        let cost = self.cost.map_or(Ok(1), |place| super::parse_cost(&cells[place]))?;
        for (number, (attribute, place)) in (0..).zip(self.wanted.attributes.iter().zip(&self.places)) {
            let found = place.map(|place| std::mem::take(&mut cells[place]));
            values.extend(attribute.normalized_value(found).map(|value| (number, value)));
        }
        Ok((at_us, cost))
    }
}

/// A comma, or a semicolon or a tab where there are more of them.
pub(super) fn separator(header: &str) -> u8 {
    let count = |separator: u8| header.bytes().filter(|byte| *byte == separator).count();
    [b',', b';', b'\t'].into_iter().rev().max_by_key(|separator| count(*separator)).unwrap_or(b',')
}

/// The cells of a line. A quoted cell may hold separators and doubled quotes, and
/// ends on its line.
fn cells(line: &str, separator: u8) -> Result<Vec<Cow<'_, str>>, String> {
    let mut cells = Vec::with_capacity(16);
    let mut rest = line;
    loop {
        let (cell, after) = match rest.strip_prefix('"') {
            Some(inner) => split_quoted(inner)?,
            None => {
                let end = memchr::memchr(separator, rest.as_bytes()).unwrap_or(rest.len());
                (Cow::Borrowed(&rest[..end]), &rest[end..])
            }
        };
        cells.push(cell);
        match after.as_bytes().first() {
            None => return Ok(cells),
            Some(byte) if *byte == separator => rest = &after[1..],
            Some(_) => return Err("something stands behind the quotes of a cell".to_owned()),
        }
    }
}

fn split_quoted(inner: &str) -> Result<(Cow<'_, str>, &str), String> {
    let mut from = 0;
    loop {
        let Some(end) = memchr::memchr(b'"', &inner.as_bytes()[from..]).map(|end| from + end) else {
            return Err("the quotes of a cell are not closed on its line".to_owned());
        };
        if inner.as_bytes().get(end + 1) == Some(&b'"') {
            from = end + 2;
            continue;
        }
        let cell = &inner[..end];
        let cell = if from > 0 { Cow::Owned(cell.replace("\"\"", "\"")) } else { Cow::Borrowed(cell) };
        return Ok((cell, &inner[end + 1..]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_may_be_quoted() {
        let read = |line: &str| cells(line, b',').map(|cells| cells.join("|"));
        assert_eq!(read("a,b,,c").unwrap(), "a|b||c");
        assert_eq!(read(r#""a,b","say ""x""",c"#).unwrap(), r#"a,b|say "x"|c"#);
        assert!(read(r#""open,b"#).is_err() && read(r#""a"b,c"#).is_err());
        assert_eq!((separator("a;b;c"), separator("a\tb"), separator("a")), (b';', b'\t', b','));
    }
}

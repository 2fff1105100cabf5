//! Prints aligned columns, and durations in readable units.

/// Rows with headings; numbers are right-aligned.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(ToString::to_string).collect()] }
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| printable(&cell)).collect());
    }

    /// How many rows there are below the headings.
    pub(super) const fn row_count(&self) -> usize {
        self.rows.len().saturating_sub(1)
    }

    pub(super) fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column));
        let widths: Vec<usize> =
            (0..columns).map(|column| cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0)).collect();
        let is_number = |cell: &String| cell.bytes().all(|byte| byte.is_ascii_digit());
        let numeric: Vec<bool> = (0..columns).map(|column| cells(column).skip(1).all(is_number)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let padding = " ".repeat(widths[column] - cell.chars().count());
                let (before, after) = if numeric[column] { (padding.as_str(), "") } else { ("", padding.as_str()) };
                line.push_str(&format!("{before}{cell}{after}  "));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A cell; `-` if it is empty.
pub(super) fn or_none(text: Option<String>) -> String {
    text.filter(|text| !text.is_empty()).unwrap_or_else(|| "-".to_owned())
}

/// The text without anything that could steer a terminal, or make text read
/// otherwise than it is written.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|character| if is_terminal_control(character) { '\u{fffd}' } else { character }).collect()
}

pub(crate) fn printable_lines(text: &str) -> String {
    text.lines().map(printable).collect::<Vec<_>>().join("\n")
}

/// Control characters (C0 and C1), those that set the direction of text (Unicode
/// Standard Annex 9), and those that end lines or have no width.
fn is_terminal_control(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
        )
}

/// Milliseconds as people say them: `-` for none, `85ms`, `1.2s`, `3m 20s`.
pub(super) fn milliseconds_text(ms: u64) -> String {
    let (seconds, minutes, hours) = (ms / 1_000, ms / 60_000, ms / 3_600_000);
    match ms {
        0 => "-".to_owned(),
        1..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{:.1}s", ms.div_ceil(100) as f64 / 10.0),
        60_000..3_600_000 => format!("{minutes}m {}s", seconds % 60),
        3_600_000..86_400_000 => format!("{hours}h {}m", minutes % 60),
        _ => format!("{}d {}h", hours / 24, hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_a_terminal_or_turns_text_around() {
        let sent = "a\u{1b}[31mb\u{9b}31mc\u{202e}d\u{2066}e\u{200f}f\u{2028}g\u{7f}é";
        let shown = printable(sent);
        assert_eq!(
            shown,
            sent.replace(|character: char| !character.is_ascii_graphic() && character != 'é', "\u{fffd}")
        );
        assert_eq!(printable_lines("one\ntwo\u{9b}"), "one\ntwo\u{fffd}");
    }

    #[test]
    fn times_read_well() {
        let cases = [
            (0, "-"),
            (1, "1ms"),
            (999, "999ms"),
            (1_001, "1.1s"),
            (59_950, "60.0s"),
            (200_000, "3m 20s"),
            (7_260_000, "2h 1m"),
            (90_000_000, "1d 1h"),
        ];
        for (ms, text) in cases {
            assert_eq!(milliseconds_text(ms), text, "{ms} ms");
        }
    }

    #[test]
    fn columns_are_aligned_and_nothing_steers_the_terminal() {
        let mut table = Table::new(&["NAME", "LIMIT"]);
        table.row(["long-name".to_owned(), "5".to_owned()]);
        table.row(["a\x1b[2J".to_owned(), "5000".to_owned()]);
        assert_eq!(table.text(), "NAME       LIMIT\nlong-name      5\na\u{fffd}[2J       5000\n");
    }
}

//! What came of a simulation, as a table.

use std::fmt::Write as _;

/// What came of one scenario.
#[derive(Default)]
pub struct Report {
    pub name: &'static str,
    /// Admissions that an ideal bucket could not have made.
    pub over: u64,
    /// What an ideal bucket admits of the same requests.
    pub ideal: u64,
    /// Calls to the shared bucket.
    pub calls: u64,
    pub granted: u64,
    pub returned: u64,
    pub lost: u64,
    /// What each node was asked for, and what it admitted.
    pub nodes: Vec<(u64, u64)>,
}

impl Report {
    fn demanded(&self) -> u64 {
        self.nodes.iter().map(|(demanded, _)| demanded).sum()
    }

    fn admitted(&self) -> u64 {
        self.nodes.iter().map(|(_, admitted)| admitted).sum()
    }

    /// Of what each node was asked for, the share that it admitted, over the
    /// share that all admitted: 1 is fair. Nodes with next to no demand tell nothing.
    fn fairness(&self) -> Vec<f64> {
        let all = self.admitted() as f64 / self.demanded().max(1) as f64;
        let busy = self.nodes.iter().filter(|(demanded, _)| *demanded >= 100);
        busy.map(|(demanded, admitted)| *admitted as f64 / *demanded as f64 / all).collect()
    }

    /// The same for the node that was asked for most.
    fn busiest(&self) -> f64 {
        let all = self.admitted() as f64 / self.demanded().max(1) as f64;
        let busiest = self.nodes.iter().max_by_key(|(demanded, _)| *demanded);
        busiest.map_or(0.0, |(demanded, admitted)| *admitted as f64 / (*demanded).max(1) as f64 / all)
    }

    fn cells(&self, seconds: f64) -> Vec<String> {
        let fairness = self.fairness();
        let (sum, squares) = fairness.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
        let worst = fairness.iter().copied().fold(f64::INFINITY, f64::min);
        let best = fairness.iter().copied().fold(0.0, f64::max);
        let calls = self.calls as f64;
        let percent = |part: u64, whole: u64| format!("{:.2} %", 100.0 * part as f64 / whole.max(1) as f64);
        vec![
            self.name.to_owned(),
            self.demanded().to_string(),
            percent(self.admitted(), self.ideal),
            format!("{:.4}", sum * sum / (fairness.len().max(1) as f64 * squares)),
            format!("{worst:.2} to {best:.2}"),
            format!("{:.2}", self.busiest()),
            format!("{:.0}", calls / seconds),
            format!("{:.1}", calls / seconds / self.nodes.len() as f64),
            percent(self.calls, self.demanded()),
            percent(self.returned, self.granted),
            percent(self.lost, self.granted),
            self.over.to_string(),
        ]
    }
}

const HEAD: [&str; 12] = [
    "demand",
    "checks",
    "of the ideal",
    "Jain's index",
    "nodes, 1 is fair",
    "the busiest",
    "calls/s",
    "a node",
    "of checks",
    "returned",
    "lost",
    "over",
];

/// A row a scenario.
pub fn table(reports: &[Report], seconds: f64, is_markdown: bool) -> String {
    let rows: Vec<Vec<String>> = std::iter::once(HEAD.map(str::to_owned).to_vec())
        .chain(reports.iter().map(|report| report.cells(seconds)))
        .collect();
    let mut text = String::new();
    if is_markdown {
        for (number, row) in rows.iter().enumerate() {
            let _ = writeln!(text, "| {} |", row.join(" | "));
            if number == 0 {
                let _ = writeln!(text, "|{}", "---|".repeat(row.len()));
            }
        }
        return text;
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    for row in &rows {
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(text, "{cell:<0$}", width(column) + 2);
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

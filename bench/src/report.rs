//! Results as a document: the machine, how it was measured, what is promised
//! and whether it holds, and every number.

use std::fmt::Write;

use crate::figures::{Bound, Figures, Spread, Verdict, shown};
use crate::session::Session;

/// What stands above the numbers.
#[derive(Debug)]
pub struct Head {
    /// The day, as in 2026-11-16.
    pub date: String,
    /// The command that was given.
    pub command: String,
    /// Name and value of what the machine is.
    pub machine: Vec<(&'static str, String)>,
    /// What makes these results doubtful, if anything does.
    pub doubts: Vec<String>,
    /// The name of the chart beside the document.
    pub chart: String,
}

/// The whole document, in Markdown.
#[must_use]
pub fn markdown(head: &Head, session: &Session) -> String {
    let mut text = String::new();
    write(&mut text, head, session);
    text
}

macro_rules! line {
    ($text:expr) => { $text.push('\n') };
    ($text:expr, $($words:tt)*) => {{
        // Writing to a string cannot fail.
        let _ = writeln!($text, $($words)*);
    }};
}

fn write(text: &mut String, head: &Head, session: &Session) {
    let pace = session.pace();
    line!(text, "# Benchmarks of {}", head.date);
    line!(text);
    for doubt in &head.doubts {
        line!(text, "> **{doubt}**\n");
    }
    line!(text, "Compare within one run only: absolute figures move by tens of percent between runs.");
    line!(text);
    line!(text, "| | |\n|---|---|");
    line!(text, "| Command | `{}` |", head.command);
    for (name, value) in &head.machine {
        line!(text, "| {name} | {value} |");
    }
    let (long, short) = (shown(pace.long.as_secs_f64()), shown(pace.short.as_secs_f64()));
    line!(
        text,
        "| Rounds | {} by turns after one to warm up: {long} s each with servers, {short} s or a few times that within one process |",
        pace.rounds
    );
    line!(text, "| Time | {:.0} s |", session.elapsed().as_secs_f64());
    line!(text);
    if !session.verdicts().is_empty() {
        verdicts(text, session.verdicts(), &head.chart);
    }
    let mut suite = "";
    for (of, figures) in session.figures() {
        if suite != of {
            line!(text, "## {}", of.split_once("] ").map_or(of.as_str(), |(_, name)| name));
            suite = of;
        }
        table(text, figures);
    }
}

fn verdicts(text: &mut String, verdicts: &[Verdict], chart: &str) {
    let met = verdicts.iter().filter(|verdict| verdict.is_met()).count();
    line!(text, "## Promises: {met} of {} kept", verdicts.len());
    line!(text, "Ratios are medians of the ratios of each round; in brackets the least and the most.\n");
    line!(text, "![Ratios beside their targets, and what growth costs]({chart})\n");
    line!(text, "| What | Against | Ours | Theirs | Ratio | Target | |\n|---|---|---|---|---|---|---|");
    for verdict in verdicts {
        let Verdict { what, against, ours, theirs, .. } = verdict;
        let (ratio, target) = (spread(verdict.ratio), target(verdict.bound));
        let fault = verdict.fault.as_ref().map_or(String::new(), |fault| format!(": {fault}"));
        let judgement = if verdict.is_met() { "met" } else { "**not met**" };
        line!(text, "| {what} | {against} | {ours} | {theirs} | {ratio} | {target} | {judgement}{fault} |");
    }
    line!(text);
}

/// What is promised, in words.
#[must_use]
pub fn target(bound: Bound) -> String {
    match bound {
        Bound::AtLeast(mark) => format!("≥ {mark}"),
        Bound::AtMost(mark) => format!("≤ {mark}"),
    }
}

fn spread(spread: Spread) -> String {
    if spread.min == spread.max {
        return shown(spread.median);
    }
    format!("{} ({}–{})", shown(spread.median), shown(spread.min), shown(spread.max))
}

fn table(text: &mut String, figures: &Figures) {
    line!(text, "### {}\n", figures.title);
    line!(text, "| | {} |", figures.metrics.join(" | "));
    line!(text, "|---|{}", "---|".repeat(figures.metrics.len()));
    for row in &figures.rows {
        let cells: Vec<String> = row.values.iter().map(|values| spread(Spread::of(values))).collect();
        line!(text, "| {} | {} |", row.name, cells.join(" | "));
    }
    line!(text);
    for note in &figures.notes {
        line!(text, "- {note}");
    }
    raw(text, figures);
}

/// Every round's number, folded away.
fn raw(text: &mut String, figures: &Figures) {
    line!(text, "\n<details><summary>every round</summary>\n");
    line!(text, "```");
    for row in &figures.rows {
        for (metric, values) in figures.metrics.iter().zip(&row.values) {
            let numbers: Vec<String> = values.iter().map(|value| shown(*value)).collect();
            line!(text, "{}, {metric}: {}", row.name, numbers.join("  "));
        }
    }
    line!(text, "```\n</details>\n");
}

//! The results as a picture: how far each promise is kept, and what growth
//! costs. Plain SVG, readable on light and on dark.

use std::fmt::Write;

use crate::figures::{Bound, Figures, Spread, Verdict, shown};
use crate::report::target;

const WIDTH: f64 = 880.0;
const MARGIN: f64 = 16.0;
/// Where bars begin: left of it are their names.
const BARS: f64 = 330.0;
/// Where bars end at the latest: right of it are their numbers.
const BARS_END: f64 = 700.0;
const ROW: f64 = 26.0;
/// Bars show how many times the target is reached, from a quarter to sixteen times, by powers.
const LEAST: f64 = 0.25;
const MOST: f64 = 16.0;
/// Small pictures of curves: two beside each other.
const CURVE: (f64, f64) = (416.0, 180.0);

const STYLE: &str = "\
    text { font: 12px system-ui, sans-serif; fill: #1f2328; } .title { font-weight: 600; font-size: 14px; }\n\
    .quiet { fill: #59636e; } .met { fill: #1a7f37; } .missed { fill: #bc4c00; }\n\
    .mark { stroke: #59636e; stroke-dasharray: 4 3; } .line { fill: none; stroke: #0969da; stroke-width: 2; }\n\
    .dot { fill: #0969da; } .axis { stroke: #d1d9e0; } .back { fill: #ffffff; }\n\
    @media (prefers-color-scheme: dark) { text { fill: #f0f6fc; } .quiet { fill: #9198a1; } .met { fill: #3fb950; }\n\
    .missed { fill: #f0883e; } .mark { stroke: #9198a1; } .line { stroke: #58a6ff; } .dot { fill: #58a6ff; }\n\
    .axis { stroke: #3d444d; } .back { fill: #0d1117; } }";

/// The whole picture.
#[must_use]
pub fn svg(date: &str, verdicts: &[Verdict], curves: &[&Figures]) -> String {
    let mut body = String::new();
    let mut top = MARGIN;
    if !verdicts.is_empty() {
        top = bars(&mut body, top, verdicts);
    }
    for pair in curves.chunks(2) {
        for (place, figures) in pair.iter().enumerate() {
            curve(&mut body, (MARGIN + place as f64 * (CURVE.0 + MARGIN), top), figures);
        }
        top += CURVE.1 + MARGIN;
    }
    let title = escaped(&format!("checkdam's benchmarks of {date}"));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {top}\" role=\"img\" aria-label=\"{title}\">\n\
         <title>{title}</title>\n<style>\n{STYLE}\n</style>\n<rect class=\"back\" width=\"{WIDTH}\" height=\"{top}\"/>\n{body}</svg>\n"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('`', "")
}

fn put(body: &mut String, (x, y): (f64, f64), class: &str, anchor: &str, text: &str) {
    let text = escaped(text);
    // Writing to a string cannot fail.
    let _ = writeln!(body, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" text-anchor=\"{anchor}\">{text}</text>");
}

/// How many times a promise is kept: one is just so.
fn reached(verdict: &Verdict) -> f64 {
    match verdict.bound {
        Bound::AtLeast(mark) => verdict.ratio.median / mark,
        Bound::AtMost(mark) => mark / verdict.ratio.median,
    }
}

fn across(times: f64) -> f64 {
    let share = (times.clamp(LEAST, MOST) / LEAST).ln() / (MOST / LEAST).ln();
    BARS + share * (BARS_END - BARS)
}

fn bars(body: &mut String, top: f64, verdicts: &[Verdict]) -> f64 {
    put(body, (MARGIN, top + 14.0), "title", "start", "Ratios beside their targets (the dashed line)");
    let first = top + 30.0;
    let bottom = first + ROW * verdicts.len() as f64;
    for (place, verdict) in verdicts.iter().enumerate() {
        let y = first + ROW * place as f64;
        let class = if verdict.is_met() { "met" } else { "missed" };
        let end = if verdict.ratio.median.is_finite() { across(reached(verdict)) } else { BARS };
        let _ = writeln!(
            body,
            "<rect class=\"{class}\" x=\"{BARS}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" rx=\"2\"/>",
            y + 3.0,
            (end - BARS).max(1.0)
        );
        put(body, (BARS - 10.0, y + 14.0), "", "end", &shortened(&verdict.what, 48));
        let ratio = format!("{} ({})", shown(verdict.ratio.median), target(verdict.bound));
        put(body, (BARS_END + 12.0, y + 14.0), class, "start", &ratio);
    }
    let x = across(1.0);
    let _ = writeln!(body, "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{first:.1}\" y2=\"{bottom:.1}\"/>");
    for times in [0.5, 2.0, 4.0, 8.0] {
        put(body, (across(times), bottom + 14.0), "quiet", "middle", &format!("{times}×"));
    }
    put(body, (x, bottom + 14.0), "quiet", "middle", "target");
    bottom + 34.0
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// One curve by its first metric: equal steps across, from nothing upwards.
fn curve(body: &mut String, (left, top): (f64, f64), figures: &Figures) {
    let medians: Vec<f64> = figures.rows.iter().map(|row| Spread::of(&row.values[0]).median).collect();
    let most = medians.iter().fold(0.0, |most: f64, value| most.max(*value)).max(f64::MIN_POSITIVE);
    let (low, high) = (top + CURVE.1 - 22.0, top + 56.0);
    put(body, (left, top + 14.0), "title", "start", &shortened(&figures.title, 48));
    put(body, (left, top + 30.0), "quiet", "start", figures.metrics[0]);
    let right = left + CURVE.0 - 20.0;
    let _ = writeln!(body, "<line class=\"axis\" x1=\"{left:.1}\" x2=\"{right:.1}\" y1=\"{low:.1}\" y2=\"{low:.1}\"/>");
    let step = (CURVE.0 - 80.0) / (medians.len().max(2) - 1) as f64;
    let place = |index: usize, value: f64| (left + 30.0 + step * index as f64, low - value / most * (low - high));
    let points: Vec<String> = medians
        .iter()
        .enumerate()
        .map(|(index, value)| {
            let (x, y) = place(index, *value);
            format!("{x:.1},{y:.1}")
        })
        .collect();
    let _ = writeln!(body, "<polyline class=\"line\" points=\"{}\"/>", points.join(" "));
    for (index, (row, value)) in figures.rows.iter().zip(&medians).enumerate() {
        let (x, y) = place(index, *value);
        let _ = writeln!(body, "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
        put(body, (x, y - 8.0), "", "middle", &shown(*value));
        put(body, (x, low + 15.0), "quiet", "middle", &grouped(&row.name));
    }
}

/// 10000000 as 10M.
fn grouped(name: &str) -> String {
    match name.parse::<u64>() {
        Ok(number) if number >= 1_000_000 => format!("{}M", number / 1_000_000),
        Ok(number) if number >= 1_000 => format!("{}k", number / 1_000),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Row;

    #[test]
    fn a_chart_is_well_formed_and_escapes_what_it_shows() {
        let verdict = Verdict {
            what: "a <b> & c".to_owned(),
            against: String::new(),
            ours: String::new(),
            theirs: String::new(),
            ratio: Spread::of(&[3.0]),
            bound: Bound::AtLeast(2.0),
            fault: None,
        };
        let row = |name: &str, value: f64| Row { name: name.to_owned(), values: vec![vec![value]] };
        let figures = Figures {
            title: "growth".to_owned(),
            metrics: &["ns"],
            rows: vec![row("1", 10.0), row("10000000", 100.0)],
            notes: Vec::new(),
            is_curve: true,
        };
        let svg = svg("2026-11-16", &[verdict], &[&figures]);
        assert!(svg.contains("a &lt;b&gt; &amp; c") && svg.contains(">10M<") && svg.contains("class=\"met\""));
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }
}

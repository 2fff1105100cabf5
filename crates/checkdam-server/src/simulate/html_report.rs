//! A simulation as a page and as a picture: no script, nothing from elsewhere,
//! light and dark.

use std::fmt::Write;

use checkdam::time::rfc3339;

use super::summary::{CandidateSummary, Summary};

/// The size of a picture.
const SIZE: (usize, usize) = (960, 240);
/// Room for the numbers and the times.
const LEFT: usize = 64;
const BELOW: usize = 24;
/// The most bars of a picture.
const BARS_MAX: usize = 300;
/// The rules that are drawn.
const RULES_MAX: usize = 6;

const STYLE: &str = ":root{color-scheme:light dark;--back:#fff;--ink:#1c2430;--faint:#5b6675;--line:#d7dde5;\
--pass:#3b7dd8;--stop:#c8442e}@media(prefers-color-scheme:dark){:root{--back:#12161c;--ink:#e6ebf2;--faint:#9aa6b5;\
--line:#2c3440;--pass:#6aa5f2;--stop:#f0806c}}";
const PAGE_STYLE: &str = "body{background:var(--back);color:var(--ink);font:16px/1.5 system-ui,sans-serif;\
max-width:60rem;margin:2rem auto;padding:0 1rem}h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}\
table{border-collapse:collapse;width:100%;margin:1rem 0;display:block;overflow-x:auto}th,td{text-align:left;padding:.3rem .75rem .3rem 0;\
border-bottom:1px solid var(--line);overflow-wrap:anywhere}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;\
white-space:nowrap}svg{width:100%;height:auto}p{color:var(--faint)}figure{margin:1rem 0}figcaption{color:var(--faint)}";
const PICTURE_STYLE: &str = ".pass{fill:var(--pass)}.stop{fill:var(--stop)}.axis{stroke:var(--line)}\
text{fill:var(--faint);font:12px system-ui,sans-serif}";

/// What passed and what did not over time, as SVG by itself.
pub(crate) fn svg(summary: &Summary) -> String {
    let drawn = summary.results.first().map(|side| chart(side, true)).unwrap_or_default();
    drawn.replacen("<svg ", "<svg xmlns=\"http://www.w3.org/2000/svg\" style=\"background:var(--back)\" ", 1)
}

/// The whole simulation as a page.
pub(crate) fn html(summary: &Summary) -> String {
    let mut out = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    out.push_str(
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>checkdam simulate</title>",
    );
    let _ = write!(out, "<style>{STYLE}{PAGE_STYLE}{PICTURE_STYLE}</style></head><body><main>");
    let logs = escaped(&summary.logs.join(", "));
    let _ = write!(
        out,
        "<h1>What the limits would have done</h1><p>{logs}: {} requests from {} to {}; {} lines could not be read.</p>",
        with_thousands_separators(summary.requests),
        rfc3339(summary.first),
        rfc3339(summary.last),
        with_thousands_separators(summary.unreadable)
    );
    if let Some(comparison) = &summary.comparison {
        let _ = write!(
            out,
            "<h2>Compared</h2><p>The second rule file limits {} requests that the first lets pass, and lets {} pass \
             that the first limits.</p>",
            with_thousands_separators(comparison.newly_limited),
            with_thousands_separators(comparison.newly_allowed)
        );
        let rows = comparison.subjects.iter().map(|row| {
            vec![
                row.subject.clone(),
                with_thousands_separators(row.newly_limited),
                with_thousands_separators(row.newly_allowed),
            ]
        });
        table(&mut out, &["Whose fate differs", "Newly limited", "Newly allowed"], 1, rows);
    }
    for side in &summary.results {
        write_candidate(&mut out, side);
    }
    if !summary.suggestions.is_empty() {
        out.push_str("<h2>Suggested limits</h2><pre>rules:\n");
        summary.suggestions.iter().for_each(|suggestion| out.push_str(&escaped(&suggestion.yaml())));
        out.push_str("</pre>");
    }
    out.push_str("</main></body></html>\n");
    out
}

fn write_candidate(out: &mut String, side: &CandidateSummary) {
    let all = side.allowed + side.limited;
    let _ = write!(
        out,
        "<section><h2>{}</h2><p>{} of {} requests limited ({}).</p><figure>{}<figcaption>Requests over time: \
         allowed below, limited above.</figcaption></figure>",
        escaped(&side.rules_file),
        with_thousands_separators(side.limited),
        with_thousands_separators(all),
        percent(side.limited, all),
        chart(side, false)
    );
    for rule in side.rules.iter().filter(|rule| !rule.over_time.is_empty()).take(RULES_MAX) {
        let name = escaped(&rule.rule);
        let drawn =
            bars(&[("stop", &rule.over_time)], side, (SIZE.0, SIZE.1 / 2), &format!("Limited by {name}"), false);
        let _ = write!(out, "<figure>{drawn}<figcaption>Limited by {name}</figcaption></figure>");
    }
    let rows = side.rules.iter().take(100).map(|rule| {
        let worst = rule
            .worst_minute
            .map(|minute| format!("{} ({})", rfc3339(minute.at), with_thousands_separators(minute.requests)));
        let shares = percent(rule.limited, rule.concerned);
        let (concerned, limited) = (with_thousands_separators(rule.concerned), with_thousands_separators(rule.limited));
        vec![rule.rule.clone(), rule.mode.to_owned(), concerned, limited, shares, worst.unwrap_or_default()]
    });
    table(out, &["Rule", "Mode", "Concerned", "Limited", "Share", "Worst minute"], 2, rows);
    let rows = side.subjects.iter().map(|row| {
        vec![
            row.subject.clone(),
            row.rule.clone(),
            with_thousands_separators(row.limited),
            rfc3339(row.first),
            rfc3339(row.last),
        ]
    });
    table(out, &["Who is limited most", "Rule", "Limited", "First", "Last"], 2, rows);
    out.push_str("</section>");
}

/// A table; columns from `numbers` on stand to the right.
fn table(out: &mut String, headings: &[&str], numbers: usize, rows: impl Iterator<Item = Vec<String>>) {
    let class = |column: usize| if column >= numbers { " class=\"n\"" } else { "" };
    out.push_str("<table><thead><tr>");
    for (column, heading) in headings.iter().enumerate() {
        let _ = write!(out, "<th scope=\"col\"{}>{heading}</th>", class(column));
    }
    out.push_str("</tr></thead><tbody>");
    for row in rows {
        out.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(out, "<td{}>{}</td>", class(column), escaped(cell));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table>");
}

fn chart(side: &CandidateSummary, is_alone: bool) -> String {
    let timeline = &side.timeline;
    let title = format!(
        "{} allowed and {} limited over time",
        with_thousands_separators(side.allowed),
        with_thousands_separators(side.limited)
    );
    bars(&[("pass", &timeline.allowed), ("stop", &timeline.limited)], side, SIZE, &title, is_alone)
}

/// Bars, one series on the other.
fn bars(
    series: &[(&str, &[u64])],
    side: &CandidateSummary,
    (width, height): (usize, usize),
    title: &str,
    is_alone: bool,
) -> String {
    let timeline = &side.timeline;
    let points = series.first().map_or(0, |(_, points)| points.len()).max(1);
    let each = points.div_ceil(BARS_MAX);
    let sums = |points: &[u64]| points.chunks(each).map(|chunk| chunk.iter().sum()).collect::<Vec<u64>>();
    let summed: Vec<(&str, Vec<u64>)> = series.iter().map(|(class, points)| (*class, sums(points))).collect();
    let count = points.div_ceil(each);
    let total = |bar: usize| summed.iter().map(|(_, values)| values.get(bar).copied().unwrap_or(0)).sum::<u64>();
    let most = (0..count).map(total).max().unwrap_or(0).max(1);
    let (inner, floor) = ((width - LEFT) as f64, (height - BELOW) as f64);
    let step = inner / count as f64;
    let mut out = format!("<svg role=\"img\" aria-label=\"{title}\" viewBox=\"0 0 {width} {height}\">");
    if is_alone {
        let _ = write!(
            out,
            "<style>{STYLE}{PICTURE_STYLE}</style><rect width=\"100%\" height=\"100%\" fill=\"var(--back)\"/>"
        );
    }
    let _ = write!(out, "<line class=\"axis\" x1=\"{LEFT}\" y1=\"{floor}\" x2=\"{width}\" y2=\"{floor}\"/>");
    let step_s = timeline.step_s * each as u64;
    let rate = format!("{}/{}", with_thousands_separators(most), duration_text(step_s));
    let _ = write!(out, "<text x=\"{}\" y=\"12\" text-anchor=\"end\">{rate}</text>", LEFT - 6);
    let _ = write!(out, "<text x=\"{}\" y=\"{floor}\" text-anchor=\"end\">0</text>", LEFT - 6);
    for bar in 0..count {
        let mut top = floor;
        for (class, values) in &summed {
            let value = values.get(bar).copied().unwrap_or(0);
            if value == 0 {
                continue;
            }
            let tall = value as f64 / most as f64 * (floor - 2.0);
            top -= tall;
            let (x, wide) = (LEFT as f64 + bar as f64 * step, (step * 0.9).max(0.5));
            let at = rfc3339(timeline.start + bar as u64 * step_s);
            let word = if *class == "pass" { "allowed" } else { "limited" };
            let _ = write!(
                out,
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{tall:.1}\">\
                 <title>{at}: {} {word}</title></rect>",
                with_thousands_separators(value)
            );
        }
    }
    let end = timeline.start + count as u64 * step_s;
    for (x, anchor, at) in [(LEFT, "start", timeline.start), (width, "end", end)] {
        let _ = write!(out, "<text x=\"{x}\" y=\"{height}\" dy=\"-6\" text-anchor=\"{anchor}\">{}</text>", rfc3339(at));
    }
    out.push_str("</svg>");
    out
}

/// A number of seconds as people say it.
fn duration_text(seconds: u64) -> String {
    match seconds {
        1 => "s".to_owned(),
        2..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3_600),
    }
}

/// A part in percent.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    format!("{:.1}%", part as f64 * 100.0 / whole.max(1) as f64)
}

/// A number with its thousands apart.
pub(crate) fn with_thousands_separators(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Text that cannot be taken for markup.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            control if control.is_control() && control != '\n' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

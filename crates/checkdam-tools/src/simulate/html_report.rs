//! Simulation report as HTML and as SVG: no scripts, no external resources, light and
//! dark.

use checkdam::time::rfc3339;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::summary::{CandidateSummary, Comparison, Summary};

const SIZE: (usize, usize) = (960, 240);
/// Room for the numbers and the times.
const LEFT: usize = 64;
const BELOW: usize = 24;
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
pub fn svg(summary: &Summary) -> String {
    summary.results.first().map(|side| chart(side, true).into_string()).unwrap_or_default()
}

pub fn html(summary: &Summary) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                title { "checkdam simulate" }
                style { (PreEscaped(STYLE)) (PreEscaped(PAGE_STYLE)) (PreEscaped(PICTURE_STYLE)) }
            }
            body { main {
                h1 { "What the limits would have done" }
                p {
                    (summary.logs.join(", ")) ": " (with_thousands_separators(summary.requests)) " requests from "
                    (rfc3339(summary.first)) " to " (rfc3339(summary.last)) "; " (with_thousands_separators(summary.unreadable))
                    " lines could not be read."
                }
                @if let Some(comparison) = &summary.comparison { (compared(comparison)) }
                @for side in &summary.results { (section(side)) }
                @if !summary.suggestions.is_empty() {
                    h2 { "Suggested limits" }
                    pre { "rules:\n" @for suggestion in &summary.suggestions { (suggestion.yaml()) } }
                }
            } }
        }
    };
    page.into_string()
}

fn compared(comparison: &Comparison) -> Markup {
    let rows = comparison.subjects.iter().map(|row| {
        vec![
            row.subject.clone(),
            with_thousands_separators(row.counts.newly_limited),
            with_thousands_separators(row.counts.newly_allowed),
        ]
    });
    html! {
        h2 { "Compared" }
        p {
            "The second rule file denies " (with_thousands_separators(comparison.counts.newly_limited)) " requests that the first allows, \
             and allows " (with_thousands_separators(comparison.counts.newly_allowed)) " that the first denies."
        }
        (table(&["Changed subject", "Newly denied", "Newly allowed"], 1, rows))
    }
}

fn section(side: &CandidateSummary) -> Markup {
    let all = side.allowed + side.limited;
    let rules = side.rules.iter().take(100).map(|rule| {
        let worst = rule
            .worst_minute
            .map(|minute| format!("{} ({})", rfc3339(minute.at), with_thousands_separators(minute.requests)));
        let shares = percent(rule.limited, rule.concerned);
        let (concerned, limited) = (with_thousands_separators(rule.concerned), with_thousands_separators(rule.limited));
        vec![rule.rule.clone(), rule.mode.to_owned(), concerned, limited, shares, worst.unwrap_or_default()]
    });
    let subjects = side.subjects.iter().map(|row| {
        vec![
            row.subject.clone(),
            row.rule.clone(),
            with_thousands_separators(row.limited),
            rfc3339(row.first),
            rfc3339(row.last),
        ]
    });
    html! {
        section {
            h2 { (side.rules_file) }
            p { (with_thousands_separators(side.limited)) " of " (with_thousands_separators(all)) " requests denied (" (percent(side.limited, all)) ")." }
            figure {
                (chart(side, false))
                figcaption { "Requests over time: allowed below, denied above." }
            }
            @for rule in side.rules.iter().filter(|rule| !rule.over_time.is_empty()).take(RULES_MAX) {
                @let title = format!("Denied by {}", rule.rule);
                figure {
                    (bars(&[("stop", &rule.over_time)], side, (SIZE.0, SIZE.1 / 2), &title, false))
                    figcaption { (title) }
                }
            }
            (table(&["Rule", "Mode", "Matched", "Denied", "Share", "Worst minute"], 2, rules))
            (table(&["Most denied", "Rule", "Denied", "First", "Last"], 2, subjects))
        }
    }
}

/// A table; columns from `numbers` on stand to the right.
fn table(headings: &[&str], numbers: usize, rows: impl Iterator<Item = Vec<String>>) -> Markup {
    let class = |column: usize| (column >= numbers).then_some("n");
    html! {
        table {
            thead { tr {
                @for (column, heading) in headings.iter().enumerate() { th scope="col" class=[class(column)] { (heading) } }
            } }
            tbody {
                @for row in rows {
                    tr { @for (column, cell) in row.iter().enumerate() { td class=[class(column)] { (cell) } } }
                }
            }
        }
    }
}

fn chart(side: &CandidateSummary, is_alone: bool) -> Markup {
    let timeline = &side.timeline;
    let title = format!(
        "{} allowed and {} denied over time",
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
) -> Markup {
    let start = side.timeline.start;
    let points = series.first().map_or(0, |(_, points)| points.len()).max(1);
    let each = points.div_ceil(BARS_MAX);
    let sums = |points: &[u64]| points.chunks(each).map(|chunk| chunk.iter().sum()).collect::<Vec<u64>>();
    let summed: Vec<(&str, Vec<u64>)> = series.iter().map(|(class, points)| (*class, sums(points))).collect();
    let count = points.div_ceil(each);
    let value = |values: &[u64], bar: usize| values.get(bar).copied().unwrap_or(0);
    let total = |bar: usize| summed.iter().map(|(_, values)| value(values, bar)).sum::<u64>();
    let most = (0..count).map(total).max().unwrap_or(0).max(1);
    let floor = (height - BELOW) as f64;
    let step = (width - LEFT) as f64 / count as f64;
    let step_s = side.timeline.step_s * each as u64;
    let tall = |value: u64| value as f64 / most as f64 * (floor - 2.0);
    html! {
        svg xmlns=[is_alone.then_some("http://www.w3.org/2000/svg")] style=[is_alone.then_some("background:var(--back)")]
            role="img" aria-label=(title) viewBox=(format!("0 0 {width} {height}")) {
            @if is_alone {
                style { (PreEscaped(STYLE)) (PreEscaped(PICTURE_STYLE)) }
                rect width="100%" height="100%" fill="var(--back)" {}
            }
            line class="axis" x1=(LEFT) y1=(floor) x2=(width) y2=(floor) {}
            text x=(LEFT - 6) y="12" text-anchor="end" { (with_thousands_separators(most)) "/" (duration_text(step_s)) }
            text x=(LEFT - 6) y=(floor) text-anchor="end" { "0" }
            @for bar in 0..count {
                @for (at, (class, values)) in summed.iter().enumerate().filter(|(_, (_, values))| value(values, bar) > 0) {
                    @let below: u64 = summed[..at].iter().map(|(_, values)| value(values, bar)).sum();
                    @let own = value(values, bar);
                    rect class=(class) x=(tenths(LEFT as f64 + bar as f64 * step)) y=(tenths(floor - tall(below + own)))
                        width=(tenths((step * 0.9).max(0.5))) height=(tenths(tall(own))) {
                        title {
                            (rfc3339(start + bar as u64 * step_s)) ": " (with_thousands_separators(own))
                            (if *class == "pass" { " allowed" } else { " denied" })
                        }
                    }
                }
            }
            @for (x, anchor, at) in [(LEFT, "start", start), (width, "end", start + count as u64 * step_s)] {
                text x=(x) y=(height) dy="-6" text-anchor=(anchor) { (rfc3339(at)) }
            }
        }
    }
}

fn tenths(length: f64) -> String {
    format!("{length:.1}")
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

pub fn percent(part: u64, whole: u64) -> String {
    format!("{:.1}%", part as f64 * 100.0 / whole.max(1) as f64)
}

pub fn with_thousands_separators(number: u64) -> String {
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

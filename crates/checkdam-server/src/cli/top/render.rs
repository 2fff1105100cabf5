//! Renders a server's state in the terminal.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Row, Sparkline, Table};

use super::server_snapshot::ServerSnapshot;
use super::view_state::{Prompt, ViewState};
use crate::cli::table::{milliseconds_text, printable};

/// The nodes that are shown at most; the list says how many there are.
const NODES_SHOWN: usize = 6;
const KEYS: &str = "q quit · tab denied/allowed · m minute · h hour · r rule · / search · p pause · ? help";
const HELP: [&str; 11] = [
    "tab     denied or allowed",
    "m h     the last minute or hour",
    "r       only one rule; empty for all",
    "/       search subjects; empty for all",
    "↑↓ j k  move through the list",
    "p       pause or resume",
    "q esc   quit",
    "",
    "Counts are requests. They may be overestimated",
    "by at most the number after −.",
    "Any key closes this.",
];

/// What is on the screen besides the choices.
pub(super) struct RenderState {
    pub(super) snapshot: ServerSnapshot,
    /// Why the last fetch failed.
    pub(super) trouble: Option<String>,
    pub(super) has_colour: bool,
}

impl RenderState {
    /// A colour, if colours are enabled.
    fn style(&self, colour: Color) -> Style {
        if self.has_colour { Style::new().fg(colour) } else { Style::new() }
    }
}

/// Draws everything, as far as there is room.
pub(super) fn draw(frame: &mut Frame<'_>, view: &ViewState, shown: &RenderState) {
    let nodes = shown.snapshot.nodes.nodes.len().min(NODES_SHOWN) as u16;
    let [head, traffic, list, health, nodes, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(6),
        Constraint::Min(3),
        Constraint::Length(1),
        Constraint::Length(nodes + 3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_header(frame, head, view, shown);
    draw_traffic(frame, traffic, shown);
    draw_list(frame, list, view, shown);
    draw_health(frame, health, shown);
    draw_nodes(frame, nodes, shown);
    draw_footer(frame, foot, view);
    if view.is_help {
        draw_help(frame);
    }
}

fn draw_header(frame: &mut Frame<'_>, area: Rect, view: &ViewState, shown: &RenderState) {
    let status = &shown.snapshot.status;
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut line = Line::from(vec![
        Span::styled("checkdam top", bold),
        Span::raw(format!("  {} {}", printable(&status.node), printable(&status.version))),
    ]);
    if view.is_paused {
        line.push_span(Span::styled("  PAUSED", bold));
    }
    if let Some(trouble) = &shown.trouble {
        line.push_span(Span::styled(format!("  {}", printable(trouble)), shown.style(Color::Red).patch(bold)));
    }
    frame.render_widget(line, area);
}

fn draw_traffic(frame: &mut Frame<'_>, area: Rect, shown: &RenderState) {
    let total = &shown.snapshot.traffic.total;
    let block = Block::bordered().title(" requests per second, last minute, this node ");
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let [allowed, limited] = Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]).areas(inside);
    let shadow = last_value(&total.shadow);
    for (area, name, series, colour) in
        [(allowed, "allowed", &total.allowed, Color::Green), (limited, "denied", &total.limited, Color::Red)]
    {
        let [label, chart] = Layout::horizontal([Constraint::Length(22), Constraint::Fill(1)]).areas(area);
        let mut lines = vec![Line::styled(format!("{:>8} {name}", last_value(series)), shown.style(colour))];
        if name == "denied" && shadow > 0 {
            lines.push(Line::raw(format!("{shadow:>8} in shadow")));
        }
        frame.render_widget(Paragraph::new(lines), label);
        // The newest is at the right, however wide the screen is.
        let bars = &series[series.len().saturating_sub(usize::from(chart.width))..];
        frame.render_widget(Sparkline::default().data(bars.iter().copied()).style(shown.style(colour)), chart);
    }
}

fn last_value(series: &[u64]) -> u64 {
    series.last().copied().unwrap_or(0)
}

fn draw_list(frame: &mut Frame<'_>, area: Rect, view: &ViewState, shown: &RenderState) {
    let found = view.matching(&shown.snapshot);
    let mut block = Block::bordered().title(format!(" {} ", shown.snapshot.summary()));
    if let Some(rule) = &view.query.rule {
        block = block.title_bottom(format!(" rule {} ", printable(rule)));
    }
    if !view.search.is_empty() {
        block = block.title_bottom(format!(" search {:?} ", view.search));
    }
    if found.is_empty() {
        let text = if view.search.is_empty() { "no subjects" } else { "no matching subjects" };
        frame.render_widget(Paragraph::new(text).block(block), area);
        return;
    }
    let above = view.above.min(found.len() - 1);
    let rows = found.into_iter().skip(above).map(|(place, subject)| {
        let too_high_by = if subject.too_high_by == 0 { String::new() } else { format!("−{}", subject.too_high_by) };
        let count = format!("{:>10}", subject.count);
        Row::new([format!("{place:>3}"), count, too_high_by, printable(&subject.rule), printable(&subject.subject)])
    });
    let widths = [
        Constraint::Length(3),
        Constraint::Length(10),
        Constraint::Length(8),
        Constraint::Max(32),
        Constraint::Fill(1),
    ];
    let header = Row::new(["  #", "     COUNT", "−", "RULE", "SUBJECT"]).style(Modifier::BOLD);
    frame.render_widget(Table::new(rows, widths).header(header).block(block), area);
}

fn draw_health(frame: &mut Frame<'_>, area: Rect, shown: &RenderState) {
    let (text, is_well) = shown.snapshot.health();
    let (mark, colour) = if is_well { ("ok", Color::Green) } else { ("warn", Color::Red) };
    let line = Line::from(vec![Span::styled(format!(" {mark}  "), shown.style(colour)), Span::raw(text)]);
    frame.render_widget(line, area);
}

fn draw_nodes(frame: &mut Frame<'_>, area: Rect, shown: &RenderState) {
    let nodes = &shown.snapshot.nodes;
    let title = match (nodes.nodes.len(), &nodes.hint) {
        (1, Some(hint)) => format!(" 1 node · {} ", printable(hint)),
        (count, _) => format!(" {count} node{} ", if count == 1 { "" } else { "s" }),
    };
    let rows = nodes.nodes.iter().take(NODES_SHOWN).map(|node| {
        let mark = if node.is_self { "*" } else { " " };
        Row::new([
            format!("{mark}{}", printable(&node.node)),
            if node.ready { "ready" } else { "unready" }.to_owned(),
            format!("{:.1}", node.requests_per_s),
            format!("{:.1}", node.limited_per_s),
            node.rules_version.to_string(),
            milliseconds_text(node.uptime_s * 1_000),
            printable(&node.version),
        ])
    });
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(8),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Length(6),
        Constraint::Length(9),
        Constraint::Length(8),
    ];
    let header = Row::new([" NODE", "STATE", "REQUESTS/S", "DENIED/S", "RULES", "UP", "VERSION"]);
    let table = Table::new(rows, widths).header(header.style(Modifier::BOLD));
    frame.render_widget(table.block(Block::bordered().title(title)), area);
}

fn draw_footer(frame: &mut Frame<'_>, area: Rect, view: &ViewState) {
    let text = match &view.prompt {
        Some((Prompt::Rule, text)) => format!("rule (enter to show, esc to cancel): {text}▏"),
        Some((Prompt::Search, text)) => format!("search (enter to show, esc to cancel): {text}▏"),
        None => KEYS.to_owned(),
    };
    frame.render_widget(Line::raw(text), area);
}

fn draw_help(frame: &mut Frame<'_>) {
    let width = HELP.iter().map(|line| line.chars().count()).max().unwrap_or(0) as u16 + 4;
    let area = frame.area().centered(Constraint::Length(width), Constraint::Length(HELP.len() as u16 + 2));
    frame.render_widget(Clear, area);
    let lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::raw(format!(" {line}"))).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" keys ")), area);
}

#[cfg(test)]
mod tests;

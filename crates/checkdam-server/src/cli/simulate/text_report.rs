//! Prints the results of a simulation as text.

use checkdam::time::rfc3339;
use checkdam_tools::simulate::{
    CandidateSummary, Comparison, MinuteCount, Suggestion, Summary, percent, with_thousands_separators,
};

use crate::cli::table::{Table, milliseconds_text};

/// The whole result. With a suggestion it is a rule file: everything except the rules
/// is commented out.
pub(super) fn render(summary: &Summary) -> String {
    let (mut text, rules) = (totals(summary), suggested_rules(summary));
    if !rules.is_empty() {
        let comment = |line: &str| if line.is_empty() { "\n".to_owned() } else { format!("# {line}\n") };
        text = text.lines().map(comment).collect();
    }
    text + &rules
}

fn totals(summary: &Summary) -> String {
    let mut text = format!(
        "{} requests of {} lines, from {} to {} ({})\n",
        with_thousands_separators(summary.requests),
        with_thousands_separators(summary.lines),
        rfc3339(summary.first),
        rfc3339(summary.last),
        milliseconds_text((summary.last - summary.first) * 1_000)
    );
    if let Some(minute) = summary.busiest_minute {
        text.push_str(&format!("busiest minute: {}\n", minute_text(minute, "requests")));
    }
    if let Some(comparison) = &summary.comparison {
        text.push_str(&comparison_text(comparison, &summary.results));
    }
    for side in &summary.results {
        text.push_str(&candidate_text(side));
    }
    text.push_str(&peaks(summary));
    text
}

fn candidate_text(side: &CandidateSummary) -> String {
    let all = side.allowed + side.limited;
    let mut text = format!(
        "\n{}: {} of {} requests denied ({})\n",
        side.rules_file,
        with_thousands_separators(side.limited),
        with_thousands_separators(all),
        percent(side.limited, all)
    );
    if side.banned > 0 {
        text.push_str(&format!("of those banned: {}\n", with_thousands_separators(side.banned)));
    }
    if let Some(minute) = side.worst_minute {
        text.push_str(&format!("worst minute: {}\n", minute_text(minute, "denied")));
    }
    let mut rules = Table::new(&["RULE", "MODE", "MATCHED", "DENIED", "SHARE", "FIRST", "WORST MINUTE"]);
    for rule in &side.rules {
        rules.row([
            rule.rule.clone(),
            rule.mode.to_owned(),
            rule.concerned.to_string(),
            rule.limited.to_string(),
            percent(rule.limited, rule.concerned),
            rule.first_limited.map_or_else(|| "-".to_owned(), rfc3339),
            rule.worst_minute.map_or_else(|| "-".to_owned(), |minute| minute_text(minute, "denied")),
        ]);
    }
    text.push_str(&format!("\n{}", rules.text()));
    if !side.subjects.is_empty() {
        let mut subjects = Table::new(&["MOST DENIED", "RULE", "DENIED", "FIRST", "LAST"]);
        for row in &side.subjects {
            let is_shadow = side.rules.iter().any(|rule| rule.rule == row.rule && rule.mode == "shadow");
            let rule = format!("{}{}", row.rule, if is_shadow { " (shadow)" } else { "" });
            subjects.row([row.subject.clone(), rule, row.limited.to_string(), rfc3339(row.first), rfc3339(row.last)]);
        }
        text.push_str(&format!("\n{}", subjects.text()));
    }
    text
}

fn comparison_text(comparison: &Comparison, sides: &[CandidateSummary]) -> String {
    let mut table = Table::new(&["RULES", "ALLOWED", "DENIED", "SHARE"]);
    for side in sides {
        let shares = percent(side.limited, side.allowed + side.limited);
        table.row([side.rules_file.clone(), side.allowed.to_string(), side.limited.to_string(), shares]);
    }
    let mut text = format!(
        "\n{}\nthe second denies {} requests that the first allows, and allows {} that the first denies\n",
        table.text(),
        with_thousands_separators(comparison.counts.newly_limited),
        with_thousands_separators(comparison.counts.newly_allowed)
    );
    if !comparison.subjects.is_empty() {
        let mut subjects = Table::new(&["CHANGED SUBJECT", "NEWLY DENIED", "NEWLY ALLOWED"]);
        for row in &comparison.subjects {
            subjects.row([
                row.subject.clone(),
                row.counts.newly_limited.to_string(),
                row.counts.newly_allowed.to_string(),
            ]);
        }
        text.push_str(&format!("\n{}", subjects.text()));
    }
    text
}

fn peaks(summary: &Summary) -> String {
    let mut text = String::new();
    for suggestion in &summary.suggestions {
        let sampled = match suggestion.sampled_one_in {
            1 => String::new(),
            one_in => format!(", one in {one_in} of all"),
        };
        text.push_str(&format!(
            "\npeaks of {} subjects of {}{sampled}, in clock-aligned windows\n\n",
            with_thousands_separators(suggestion.subjects),
            suggestion.key
        ));
        let mut table = Table::new(&["PER", "P50", "P90", "P99", "P99.9", "MAX"]);
        for peak in &suggestion.peaks {
            let numbers = [peak.p50, peak.p90, peak.p99, peak.p999, peak.max];
            table.row(std::iter::once(peak.per.to_owned()).chain(numbers.map(|number| number.to_string())));
        }
        text.push_str(&table.text());
    }
    text
}

fn suggested_rules(summary: &Summary) -> String {
    let mut text = String::new();
    if !summary.suggestions.is_empty() {
        text.push_str("\n# 25 % above the 99.9th percentile; in shadow mode until you have verified them.\nrules:\n");
        for suggestion in &summary.suggestions {
            let Suggestion { exceeding, subjects, outliers, .. } = suggestion;
            let left_out = match outliers {
                0 => String::new(),
                outliers => format!("; outliers ignored: {outliers}"),
            };
            let exceeding = format!("  # {exceeding} of {subjects} subjects exceed it{left_out}\n");
            text.push_str(&exceeding);
            text.push_str(&suggestion.yaml());
        }
    }
    text
}

fn minute_text(minute: MinuteCount, what: &str) -> String {
    format!("{} ({} {what})", rfc3339(minute.at), with_thousands_separators(minute.requests))
}

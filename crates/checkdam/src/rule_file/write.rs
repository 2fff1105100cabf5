//! Writes definitions as YAML.

use super::serialize::{BanText, Fields, OverrideText, RuleText};
use crate::definitions::Definitions;

/// The definitions as a rule file: what [`parse_definitions`](super::parse_definitions)
/// reads from it are the same again. (A rule whose limits are of several
/// algorithms has no text: the first one's is written.)
///
/// ```
/// use checkdam::rule_file;
/// let text = "rules:\n  - name: a\n    key: \"user:{user}\"\n    limits: [\"10/s burst 50\"]\n";
/// assert_eq!(rule_file::write(&rule_file::parse_definitions(text)?), text);
/// # Ok::<(), checkdam::rule_file::RuleFileError>(())
/// ```
#[must_use]
pub fn write(definitions: &Definitions) -> String {
    let Definitions { rules, overrides, bans, trees: _ } = definitions;
    let mut out = String::new();
    if rules.is_empty() {
        out.push_str("rules: []\n");
    } else {
        block("rules", rules.iter().map(|rule| RuleText::from(rule).fields()), &mut out);
    }
    if !overrides.is_empty() {
        lines("overrides", overrides.iter().map(|one| OverrideText::from(one).fields()), &mut out);
    }
    if !bans.is_empty() {
        lines("bans", bans.iter().map(|ban| BanText::from(ban).fields()), &mut out);
    }
    out
}

/// A list with a line for every field.
fn block(name: &str, items: impl Iterator<Item = Fields>, out: &mut String) {
    out.push_str(name);
    out.push_str(":\n");
    for fields in items {
        for (place, (name, value)) in fields.iter().enumerate() {
            out.push_str(if place == 0 { "  - " } else { "    " });
            out.push_str(name);
            out.push_str(": ");
            value.write(out);
            out.push('\n');
        }
    }
}

/// A list with a line for every item.
fn lines(name: &str, items: impl Iterator<Item = Fields>, out: &mut String) {
    out.push_str(name);
    out.push_str(":\n");
    for fields in items {
        out.push_str("  - {");
        for (place, (name, value)) in fields.iter().enumerate() {
            out.push_str(if place == 0 { " " } else { ", " });
            out.push_str(name);
            out.push_str(": ");
            value.write(out);
        }
        out.push_str(" }\n");
    }
}

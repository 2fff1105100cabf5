//! Rules, overrides and bans from YAML, and back.
//!
//! A file is accepted whole or refused whole, and a refusal says where and
//! why. It never runs anything: at most 1 MiB, at most 32 levels deep, no
//! aliases. JSON is YAML, so the same functions read it.

mod conditions;
mod node;
mod read;
mod text;
mod wire;
mod words;
mod write;

pub use text::{BanText, ConditionsText, OverrideText, RuleText};
pub use write::write;

use std::borrow::Cow;

use serde_saphyr::{Location, Options, Spanned};

use self::wire::FileWire;
use crate::ban::Ban;
use crate::definitions::Definitions;
use crate::overrides::Override;
use crate::rule::Rule;
use crate::ruleset::{Item, RuleSet};

/// The largest rule file in bytes.
pub const FILE_MAX: usize = 1 << 20;
const DEPTH_MAX: usize = 32;
/// What the parser allows a small file by itself.
const NODES_MIN: usize = 250_000;

/// Why a rule file was refused, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {reason}")]
pub struct RuleFileError {
    /// The line, from 1.
    pub line: u64,
    /// The column, from 1.
    pub column: u64,
    /// What is wrong and what to do.
    pub reason: String,
}

impl RuleFileError {
    fn at(location: Location, reason: impl Into<String>) -> Self {
        Self { line: location.line(), column: location.column(), reason: reason.into() }
    }

    fn at_start(reason: impl Into<String>) -> Self {
        Self { line: 1, column: 1, reason: reason.into() }
    }

    /// The same, with what it is about in front.
    fn about(mut self, what: &str) -> Self {
        self.reason = format!("{what}: {}", self.reason);
        self
    }
}

/// Reads the rules in `text`, in their order.
///
/// # Errors
/// Says where the first thing stands that is not understood, and why.
pub fn parse(text: &str) -> Result<Vec<Rule>, RuleFileError> {
    parse_definitions(text).map(|definitions| definitions.rules)
}

/// Reads the rules, overrides and bans in `text`.
///
/// ```
/// let definitions = checkdam::rule_file::parse_definitions(r#"
/// rules:
///   - { name: per-user, key: "user:{user}", limits: [10/s burst 50] }
/// overrides:
///   - { rule: per-user, subject: "user:42", scale: 10 }
/// bans:
///   - { subject: "ip:198.51.100.0/24", until: "2026-12-01T00:00:00Z", reason: scraping }
/// "#)?;
/// assert_eq!(definitions.bans[0].subject(), "ip:198.51.100.0/24");
/// # Ok::<(), checkdam::rule_file::RuleFileError>(())
/// ```
///
/// # Errors
/// As [`parse`].
pub fn parse_definitions(text: &str) -> Result<Definitions, RuleFileError> {
    parse_definitions_within(text, FILE_MAX)
}

/// Reads definitions of up to `bytes_max` bytes, from whoever is trusted with
/// that many.
///
/// # Errors
/// As [`parse`].
pub fn parse_definitions_within(text: &str, bytes_max: usize) -> Result<Definitions, RuleFileError> {
    read_file(text, bytes_max).map(Placed::into_definitions)
}

/// Reads one rule.
///
/// # Errors
/// As [`parse`].
pub fn parse_rule(text: &str) -> Result<Rule, RuleFileError> {
    let wire: Spanned<_> = from_yaml(text, FILE_MAX, "a rule")?;
    read::rule(wire.referenced, wire.value)
}

/// Reads one override.
///
/// # Errors
/// As [`parse`].
pub fn parse_override(text: &str) -> Result<Override, RuleFileError> {
    let wire: Spanned<_> = from_yaml(text, FILE_MAX, "an override")?;
    read::one_override(wire.referenced, wire.value)
}

/// Reads one ban.
///
/// # Errors
/// As [`parse`].
pub fn parse_ban(text: &str) -> Result<Ban, RuleFileError> {
    let wire: Spanned<_> = from_yaml(text, FILE_MAX, "a ban")?;
    read::ban(wire.referenced, wire.value)
}

/// Reads and compiles the rules, overrides and bans in `text`.
///
/// # Errors
/// As [`parse`], and for what does not go together.
pub fn compile(text: &str) -> Result<RuleSet, RuleFileError> {
    let Placed { rules, overrides, bans } = read_file(text, FILE_MAX)?;
    let (rule_places, rules): (Vec<_>, Vec<_>) = rules.into_iter().unzip();
    let (override_places, overrides): (Vec<_>, Vec<_>) = overrides.into_iter().unzip();
    let (ban_places, bans): (Vec<_>, Vec<_>) = bans.into_iter().unzip();
    RuleSet::compile(Definitions { rules, overrides, bans, trees: Vec::new() }).map_err(|error| {
        let places = match error.item {
            Item::Rule { .. } => rule_places,
            Item::Override { .. } => override_places,
            Item::Ban { .. } => ban_places,
            Item::Domain { .. } => Vec::new(),
        };
        let place = places.get(error.index).copied().unwrap_or(Location::UNKNOWN);
        RuleFileError::at(place, error.to_string())
    })
}

/// Definitions with their places in the text.
struct Placed {
    rules: Vec<(Location, Rule)>,
    overrides: Vec<(Location, Override)>,
    bans: Vec<(Location, Ban)>,
}

impl Placed {
    fn into_definitions(self) -> Definitions {
        fn bare<T>(placed: Vec<(Location, T)>) -> Vec<T> {
            placed.into_iter().map(|(_, item)| item).collect()
        }
        Definitions {
            rules: bare(self.rules),
            overrides: bare(self.overrides),
            bans: bare(self.bans),
            trees: Vec::new(),
        }
    }
}

fn read_file(text: &str, bytes_max: usize) -> Result<Placed, RuleFileError> {
    if text.trim().is_empty() {
        return Err(RuleFileError::at_start("the file is empty: begin it with \"rules:\""));
    }
    let file: FileWire = from_yaml(text, bytes_max, "the file")?;
    let Some(rules) = file.rules else {
        let reason = "the file has no rules: list them under \"rules:\", or write \"rules: []\" to limit nothing";
        return Err(RuleFileError::at_start(reason));
    };
    Ok(Placed {
        rules: placed(rules, read::rule)?,
        overrides: placed(file.overrides.unwrap_or_default(), read::one_override)?,
        bans: placed(file.bans.unwrap_or_default(), read::ban)?,
    })
}

fn placed<W, T>(
    list: Vec<Spanned<W>>,
    read: impl Fn(Location, W) -> Result<T, RuleFileError>,
) -> Result<Vec<(Location, T)>, RuleFileError> {
    list.into_iter().map(|spanned| Ok((spanned.referenced, read(spanned.referenced, spanned.value)?))).collect()
}

fn from_yaml<T: serde::de::DeserializeOwned>(text: &str, bytes_max: usize, what: &str) -> Result<T, RuleFileError> {
    if text.len() > bytes_max {
        let reason = format!("{what} is longer than {bytes_max} bytes, which is the most that is read");
        return Err(RuleFileError::at_start(reason));
    }
    serde_saphyr::from_str_with_options(&as_yaml(text), options(bytes_max)).map_err(|error| {
        let location = error.location().unwrap_or(Location::UNKNOWN);
        RuleFileError::at(location, without_location(&error))
    })
}

/// JSON is YAML but for a few characters that do not print: JSON's strings may
/// hold them as they are, YAML's only escaped.
fn as_yaml(text: &str) -> Cow<'_, str> {
    let is_refused = |c: char| matches!(c, '\u{7f}'..='\u{84}' | '\u{86}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}');
    if !text.trim_start().starts_with('{') || !text.contains(is_refused) {
        return Cow::Borrowed(text);
    }
    let (mut escaped, mut is_string, mut is_escape) = (String::with_capacity(text.len() + 16), false, false);
    for character in text.chars() {
        if is_string && is_refused(character) {
            escaped.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            escaped.push(character);
        }
        is_string ^= character == '"' && !is_escape;
        is_escape = character == '\\' && !is_escape;
    }
    Cow::Owned(escaped)
}

/// A node takes a byte at least, and has two events at most.
fn options(bytes_max: usize) -> Options {
    let nodes_max = bytes_max.max(NODES_MIN);
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            max_aliases: 0,
            max_anchors: 0,
            max_nodes: nodes_max,
            max_events: nodes_max * 2 + 16,
            max_total_scalar_bytes: nodes_max,
        },
        strict_booleans: true,
    }
}

/// The parser's message without its own way of telling the place.
fn without_location(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let first = text.lines().next().unwrap_or_default();
    let first = first.split(" at line ").next().unwrap_or(first);
    if first.contains("budget breached") {
        return "the file is nested too deeply, or uses anchors or aliases: neither is allowed".to_owned();
    }
    // What follows is advice to programmers.
    first.split(", set ").next().and_then(|text| text.split("; use ").next()).unwrap_or(first).to_owned()
}

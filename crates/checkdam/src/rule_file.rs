//! Rule files: parses rules, overrides and bans from YAML or JSON, and writes them.
//!
//! A file is accepted or rejected as a whole; errors have the line and the reason.
//! Input is limited to 1 MiB and 32 levels, without aliases. JSON is YAML, so the
//! same functions parse it. A file with a domain and descriptors is parsed as
//! envoyproxy/ratelimit does.

mod conditions;
mod descriptors;
mod enum_names;
mod located;
mod read;
mod schema;
mod serialize;
mod write;
mod yaml_value;

pub use serialize::{BanText, ConditionsText, OverrideText, RuleText};
pub use write::write;

use std::borrow::Cow;

use serde_saphyr::{Location, Options, Spanned};

use self::located::{FileLocation, LocatedDefinitions};
use self::schema::FileWire;
use crate::ban::Ban;
use crate::definitions::Definitions;
use crate::overrides::Override;
use crate::quota::Algorithm;
use crate::rule::Rule;
use crate::ruleset::RuleSet;

/// The largest rule file in bytes.
pub const FILE_MAX: usize = 1 << 20;
const DEPTH_MAX: usize = 32;
/// What the parser allows a small file by itself.
const NODES_MIN: usize = 250_000;
/// How many anchors a descriptor file may have, and how often it may use them.
const ANCHORS_MAX: usize = 1_000;

/// Why a rule file is invalid, and where.
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

/// Parses the rules in `text`, in their order.
///
/// # Errors
/// Has the location of the first error, and the reason.
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

/// Parses definitions of up to `bytes_max` bytes, for trusted input that may be
/// larger than usual.
///
/// # Errors
/// As [`parse`].
pub fn parse_definitions_within(text: &str, bytes_max: usize) -> Result<Definitions, RuleFileError> {
    parse_with(text, &FileOptions { bytes_max, ..FileOptions::default() })
}

/// Reads definitions as `options` say.
///
/// # Errors
/// As [`parse`].
pub fn parse_with(text: &str, options: &FileOptions) -> Result<Definitions, RuleFileError> {
    let mut located = LocatedDefinitions::default();
    read_file(text, options, 0, &mut located)?;
    Ok(located.split().0)
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

/// How rule files are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileOptions {
    /// The most bytes that are read of one.
    pub bytes_max: usize,
    /// Default algorithm for descriptor limits.
    pub descriptor_algorithm: Algorithm,
    /// Whether several files may have descriptors of the same domain.
    pub merge_domains: bool,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self { bytes_max: FILE_MAX, descriptor_algorithm: Algorithm::FixedWindow, merge_domains: false }
    }
}

/// Reads and compiles the rules, overrides and bans in `text`.
///
/// # Errors
/// As [`parse`], and for what does not go together.
pub fn compile(text: &str) -> Result<RuleSet, RuleFileError> {
    compile_all(&[text], &FileOptions::default()).map(|(rules, _)| rules).map_err(|(_, error)| error)
}

/// Parses several files, and compiles them together.
///
/// # Errors
/// As [`compile`], with the number of the file.
pub fn compile_all(files: &[&str], options: &FileOptions) -> Result<(RuleSet, Definitions), (usize, RuleFileError)> {
    let mut located = LocatedDefinitions::default();
    for (number, text) in files.iter().enumerate() {
        read_file(text, options, number, &mut located).map_err(|error| (number, error))?;
    }
    if options.merge_domains {
        located.merge_domains();
    }
    let (definitions, places) = located.split();
    let rules = RuleSet::compile(definitions.clone()).map_err(|error| {
        let (file, location) = places.of(&error);
        (file, RuleFileError::at(location, error.to_string()))
    })?;
    Ok((rules, definitions))
}

fn read_file(
    text: &str,
    options: &FileOptions,
    file: usize,
    located: &mut LocatedDefinitions,
) -> Result<(), RuleFileError> {
    if text.trim().is_empty() {
        return Err(RuleFileError::at_start("the file is empty: begin it with \"rules:\""));
    }
    if descriptors::is_tree(text) {
        let (location, tree) = descriptors::read(text, options)?;
        located.trees.push(((file, location), tree));
        return Ok(());
    }
    let wire: FileWire = from_yaml(text, options.bytes_max, "the file")?;
    let Some(rules) = wire.rules else {
        let reason = "the file has no rules: list them under \"rules:\", or write \"rules: []\" to limit nothing";
        return Err(RuleFileError::at_start(reason));
    };
    located.rules.extend(each(rules, file, read::rule)?);
    located.overrides.extend(each(wire.overrides.unwrap_or_default(), file, read::one_override)?);
    located.bans.extend(each(wire.bans.unwrap_or_default(), file, read::ban)?);
    Ok(())
}

fn each<W, T>(
    list: Vec<Spanned<W>>,
    file: usize,
    read: impl Fn(Location, W) -> Result<T, RuleFileError>,
) -> Result<Vec<(FileLocation, T)>, RuleFileError> {
    list.into_iter().map(|spanned| Ok(((file, spanned.referenced), read(spanned.referenced, spanned.value)?))).collect()
}

fn from_yaml<T: serde::de::DeserializeOwned>(text: &str, bytes_max: usize, what: &str) -> Result<T, RuleFileError> {
    from_yaml_with(text, bytes_max, what, options(bytes_max, 0))
}

fn from_yaml_with<T: serde::de::DeserializeOwned>(
    text: &str,
    bytes_max: usize,
    what: &str,
    options: Options,
) -> Result<T, RuleFileError> {
    if text.len() > bytes_max {
        let reason = format!("{what} is longer than {bytes_max} bytes, which is the most that is read");
        return Err(RuleFileError::at_start(reason));
    }
    serde_saphyr::from_str_with_options(&as_yaml(text), options).map_err(|error| {
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

/// Descriptor files may use anchors, as they always could: within the same bounds.
fn options_with_anchors(options: &FileOptions) -> Options {
    self::options(options.bytes_max, ANCHORS_MAX)
}

/// A node takes a byte at least, and has two events at most.
fn options(bytes_max: usize, anchors_max: usize) -> Options {
    let nodes_max = bytes_max.max(NODES_MIN);
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            max_aliases: anchors_max,
            max_anchors: anchors_max,
            max_nodes: nodes_max,
            max_events: nodes_max * 2 + 16,
            max_total_scalar_bytes: nodes_max,
        },
        strict_booleans: true,
    }
}

/// The parser's message without its own form of location.
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

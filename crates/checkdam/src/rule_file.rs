//! Rule files: parses rules, overrides and bans from YAML or JSON, and writes them.
//!
//! A file is accepted or rejected as a whole; errors have the line and the reason.
//! Input is limited to 1 MiB and 32 levels, without aliases. JSON is YAML, so the
//! same functions parse it. A file with a domain and descriptors is parsed as
//! envoyproxy/ratelimit does.

mod descriptors;
mod located;
mod write;

pub use write::write;

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde_saphyr::{Location, Options};

use self::located::{ItemPlace, LocatedDefinitions, item_path, locate};
use crate::ban::{Ban, BanSpec};
use crate::definitions::Definitions;
use crate::overrides::{Override, OverrideSpec};
use crate::quota::Algorithm;
use crate::rule::spec_parts::{PathStep, SpecError};
use crate::rule::{Rule, RuleSpec};
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
    read_file(text, options, &mut located)?;
    Ok(located.definitions)
}

/// Reads one rule.
///
/// # Errors
/// As [`parse`].
pub fn parse_rule(text: &str) -> Result<Rule, RuleFileError> {
    parse_item::<RuleSpec, _>(text, TryInto::try_into)
}

/// Reads one override.
///
/// # Errors
/// As [`parse`].
pub fn parse_override(text: &str) -> Result<Override, RuleFileError> {
    parse_item::<OverrideSpec, _>(text, TryInto::try_into)
}

/// Reads one ban.
///
/// # Errors
/// As [`parse`].
pub fn parse_ban(text: &str) -> Result<Ban, RuleFileError> {
    parse_item::<BanSpec, _>(text, TryInto::try_into)
}

/// Reads one item in any form that has its fields, and lets `build` make it from that.
///
/// # Errors
/// As [`parse`].
pub fn parse_item<S: DeserializeOwned, T>(
    text: &str,
    build: impl FnOnce(S) -> Result<T, SpecError>,
) -> Result<T, RuleFileError> {
    let spec = from_yaml(text, FILE_MAX, "the text")?;
    build(spec).map_err(|error| refusal(text, FILE_MAX, &[], &error))
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
        read_file(text, options, &mut located).map_err(|error| (number, error))?;
    }
    if options.merge_domains {
        located.merge_domains();
    }
    let rules = RuleSet::compile(located.definitions.clone()).map_err(|error| {
        let (file, place) = located.place(&error);
        let location = match (place, files.get(file)) {
            (ItemPlace::Path(path), Some(text)) => locate(&as_yaml(text), self::options(options.bytes_max, 0), &path),
            (ItemPlace::Location(location), _) => location,
            (ItemPlace::Path(_), None) => Location::UNKNOWN,
        };
        (file, RuleFileError::at(location, error.to_string()))
    })?;
    Ok((rules, located.definitions))
}

/// A rule file as it is written.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct FileSpec {
    rules: Option<Vec<RuleSpec>>,
    overrides: Option<Vec<OverrideSpec>>,
    bans: Option<Vec<BanSpec>>,
}

fn read_file(text: &str, options: &FileOptions, located: &mut LocatedDefinitions) -> Result<(), RuleFileError> {
    located.begin_file();
    if text.trim().is_empty() {
        return Err(RuleFileError::at_start("the file is empty: begin it with \"rules:\""));
    }
    if descriptors::is_tree(text) {
        let (location, tree) = descriptors::read(text, options)?;
        located.add_tree(location, tree);
        return Ok(());
    }
    let bytes_max = options.bytes_max;
    let file: FileSpec = from_yaml(text, bytes_max, "the file")?;
    let Some(rules) = file.rules else {
        let reason = "the file has no rules: list them under \"rules:\", or write \"rules: []\" to limit nothing";
        return Err(RuleFileError::at_start(reason));
    };
    let fail =
        |list: &str, (index, error): (usize, SpecError)| refusal(text, bytes_max, &item_path(list, index), &error);
    let definitions = &mut located.definitions;
    build_all(rules, &mut definitions.rules).map_err(|error| fail("rules", error))?;
    build_all(file.overrides.unwrap_or_default(), &mut definitions.overrides)
        .map_err(|error| fail("overrides", error))?;
    build_all(file.bans.unwrap_or_default(), &mut definitions.bans).map_err(|error| fail("bans", error))
}

/// Adds what the specs say; the number of the first that says nothing valid, and why.
fn build_all<S, T: TryFrom<S, Error = SpecError>>(specs: Vec<S>, items: &mut Vec<T>) -> Result<(), (usize, SpecError)> {
    items.reserve(specs.len());
    for (index, spec) in specs.into_iter().enumerate() {
        items.push(T::try_from(spec).map_err(|error| (index, error))?);
    }
    Ok(())
}

/// The refusal of a value, with the place in `text` where it stands.
fn refusal(text: &str, bytes_max: usize, item: &[PathStep], error: &SpecError) -> RuleFileError {
    let location = locate(&as_yaml(text), options(bytes_max, 0), &[item, &error.path].concat());
    RuleFileError::at(location, error.to_string())
}

fn from_yaml<T: DeserializeOwned>(text: &str, bytes_max: usize, what: &str) -> Result<T, RuleFileError> {
    from_yaml_with(text, bytes_max, what, options(bytes_max, 0))
}

fn from_yaml_with<T: DeserializeOwned>(
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

//! Rules from YAML.
//!
//! A file is accepted whole or refused whole, and a refusal says where and
//! why. It never runs anything: at most 1 MiB, at most 32 levels deep, no
//! aliases.

mod wire;

use serde_saphyr::{Location, Options};

use self::wire::{FileWire, RuleWire};
use crate::quota::{Algorithm, Quota};
use crate::rule::{Condition, FailurePolicy, Lease, Mode, Rule, is_attribute_name};
use crate::ruleset::RuleSet;

/// The largest rule file in bytes.
pub const FILE_MAX: usize = 1 << 20;
const DEPTH_MAX: usize = 32;

/// Why a rule file was refused, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {reason}")]
pub struct RuleFileError {
    /// The line, from 1; 0 if it is the file as a whole.
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
}

/// Reads the rules in `text`, in their order.
///
/// # Errors
/// Says where the first thing stands that is not understood, and why.
pub fn parse(text: &str) -> Result<Vec<Rule>, RuleFileError> {
    read(text).map(|rules| rules.into_iter().map(|(_, rule)| rule).collect())
}

/// Reads and compiles the rules in `text`.
///
/// # Errors
/// As [`parse`], and for rules that do not go together.
pub fn compile(text: &str) -> Result<RuleSet, RuleFileError> {
    let (locations, rules): (Vec<_>, Vec<_>) = read(text)?.into_iter().unzip();
    RuleSet::new(rules).map_err(|error| RuleFileError::at(locations[error.index], error.to_string()))
}

fn read(text: &str) -> Result<Vec<(Location, Rule)>, RuleFileError> {
    if text.len() > FILE_MAX {
        let reason = format!("the file is {} bytes long: at most {FILE_MAX} fit", text.len());
        return Err(RuleFileError { line: 0, column: 0, reason });
    }
    let file: FileWire = serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        let location = error.location().unwrap_or(Location::UNKNOWN);
        RuleFileError::at(location, without_location(&error))
    })?;
    file.rules.into_iter().map(|spanned| Ok((spanned.referenced, rule(spanned.value)?))).collect()
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            max_aliases: 0,
            max_anchors: 0,
        },
        strict_booleans: true,
    }
}

/// The parser's message without its own way of telling the place.
fn without_location(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let first = text.lines().next().unwrap_or_default();
    first.split(" at line ").next().unwrap_or(first).to_owned()
}

fn rule(wire: RuleWire) -> Result<Rule, RuleFileError> {
    let name = wire.name.value;
    let fail = |location, reason: String| RuleFileError::at(location, format!("rule {name:?}: {reason}"));
    let key = wire.key.value.parse().map_err(|error| fail(wire.key.referenced, format!("{error}")))?;
    let mut algorithm = Algorithm::TokenBucket;
    if let Some(given) = wire.algorithm {
        algorithm = Algorithm::by_name(&given.value).ok_or_else(|| {
            let reason = format!(
                "algorithm {:?} is unknown: use token_bucket, leaky_bucket, fixed_window, sliding_window or sliding_log",
                given.value
            );
            fail(given.referenced, reason)
        })?;
    }
    if let Some(strict) = wire.strict {
        let Algorithm::SlidingWindow { strict: chosen } = &mut algorithm else {
            let reason = format!("strict does not apply to {}: it is for sliding_window", algorithm.name());
            return Err(fail(strict.referenced, reason));
        };
        *chosen = strict.value;
    }
    let mut quotas = Vec::with_capacity(wire.limits.value.len());
    for limit in &wire.limits.value {
        let quota = limit.value.spec().and_then(|spec| Quota::new(spec, algorithm));
        quotas.push(quota.map_err(|error| fail(limit.referenced, error.to_string()))?);
    }
    if quotas.is_empty() {
        return Err(fail(
            wire.limits.referenced,
            "limits is empty: give at least one, such as \"10/s burst 50\"".to_owned(),
        ));
    }
    let mut when = Vec::new();
    for (attribute, conditions) in wire.when {
        if !is_attribute_name(&attribute) {
            let reason = format!("when names the attribute {attribute:?}: use letters, digits, '_', '-' and '.'");
            return Err(fail(conditions.referenced, reason));
        }
        let compiled = conditions.value.compile().map_err(|error| fail(conditions.referenced, error))?;
        when.extend(compiled.into_iter().map(|condition: Condition| (attribute.clone(), condition)));
    }
    let choice = |given: Option<wire::SpannedText>, choices: &[&str]| match given {
        None => Ok(None),
        Some(given) => match choices.iter().position(|choice| *choice == given.value) {
            Some(found) => Ok(Some(found)),
            None => Err(fail(given.referenced, format!("{:?} is not one of {}", given.value, choices.join(", ")))),
        },
    };
    let mode = match choice(wire.mode, &["enforce", "shadow", "off"])? {
        Some(1) => Mode::Shadow,
        Some(2) => Mode::Off,
        _ => Mode::Enforce,
    };
    let on_store_failure = match choice(wire.on_store_failure, &["open", "closed", "local"])? {
        Some(0) => FailurePolicy::Open,
        Some(1) => FailurePolicy::Closed,
        Some(_) => FailurePolicy::Local,
        None => FailurePolicy::default(),
    };
    let lease = match wire.lease {
        None => Lease::Off,
        Some(given) if given.value == "auto" => Lease::Auto,
        Some(given) => match crate::quota::parse_period(&given.value) {
            Some(length_us) if length_us > 0 => Lease::For(length_us),
            _ => {
                let reason = format!("lease {:?} is not a time: write \"100ms\", \"1s\" or \"auto\"", given.value);
                return Err(fail(given.referenced, reason));
            }
        },
    };
    let mut rule = Rule::new(name.clone(), key, quotas);
    rule.scope = wire.scope.unwrap_or(rule.scope);
    Ok(Rule {
        domain: wire.domain.unwrap_or_default(),
        when,
        mode,
        on_store_failure,
        lease,
        description: wire.description.unwrap_or_default(),
        ..rule
    })
}

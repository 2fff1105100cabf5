//! Rules from YAML.
//!
//! A file is accepted whole or refused whole, and a refusal says where and
//! why. It never runs anything: at most 1 MiB, at most 32 levels deep, no
//! aliases.

mod wire;

use serde_saphyr::{Location, Options, Spanned};

use self::wire::{Conditions, FileWire, LimitWire, RuleWire, SpannedText};
use crate::quota::{Algorithm, Quota, parse_period};
use crate::rule::{Condition, Lease, Mode, Rule, is_attribute_name};
use crate::ruleset::RuleSet;
use crate::store::FailurePolicy;

/// The largest rule file in bytes.
pub const FILE_MAX: usize = 1 << 20;
const DEPTH_MAX: usize = 32;

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
        let reason = format!("the file is longer than {FILE_MAX} bytes, which is the most that is read");
        return Err(RuleFileError { line: 1, column: 1, reason });
    }
    if text.trim().is_empty() {
        let reason = "the file is empty: begin it with \"rules:\"".to_owned();
        return Err(RuleFileError { line: 1, column: 1, reason });
    }
    let file: FileWire = serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        let location = error.location().unwrap_or(Location::UNKNOWN);
        RuleFileError::at(location, without_location(&error))
    })?;
    let Some(rules) = file.rules else {
        let reason =
            "the file has no rules: list them under \"rules:\", or write \"rules: []\" to limit nothing".to_owned();
        return Err(RuleFileError { line: 1, column: 1, reason });
    };
    rules.into_iter().map(|spanned| Ok((spanned.referenced, rule(spanned.referenced, spanned.value)?))).collect()
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
    let first = first.split(" at line ").next().unwrap_or(first);
    if first.contains("budget breached") {
        return "the file is nested too deeply, or uses anchors or aliases: neither is allowed".to_owned();
    }
    // What follows is advice to programmers.
    first.split(", set ").next().and_then(|text| text.split("; use ").next()).unwrap_or(first).to_owned()
}

fn rule(location: Location, wire: RuleWire) -> Result<Rule, RuleFileError> {
    let Some(name) = wire.name.map(|name| name.value) else {
        return Err(RuleFileError::at(location, "the rule has no name: give it one of its own"));
    };
    let named = |mut error: RuleFileError| {
        error.reason = format!("rule {name:?}: {}", error.reason);
        error
    };
    let missing = |what| named(RuleFileError::at(location, format!("it has no {what}")));
    let key = wire.key.ok_or_else(|| missing("key: write for example key: \"user:{user}\""))?;
    let limits = wire.limits.ok_or_else(|| missing("limits: write for example limits: [\"10/s burst 50\"]"))?;
    let key = key.value.parse().map_err(|error| named(RuleFileError::at(key.referenced, format!("{error}"))))?;
    let algorithm = algorithm(wire.algorithm, wire.strict).map_err(named)?;
    let mut rule = Rule::new(name.clone(), key, quotas(&limits, algorithm).map_err(named)?);
    rule.scope = wire.scope.unwrap_or(rule.scope);
    rule.domain = wire.domain.unwrap_or_default();
    rule.description = wire.description.unwrap_or_default();
    rule.when = conditions(wire.when).map_err(named)?;
    let modes = [("enforce", Mode::Enforce), ("shadow", Mode::Shadow), ("off", Mode::Off)];
    rule.mode = choice(wire.mode, &modes).map_err(named)?;
    let policies = [("open", FailurePolicy::Open), ("closed", FailurePolicy::Closed), ("local", FailurePolicy::Local)];
    rule.on_store_failure = choice(wire.on_store_failure, &policies).map_err(named)?;
    rule.lease = lease(wire.lease).map_err(named)?;
    Ok(rule)
}

fn algorithm(name: Option<SpannedText>, strict: Option<Spanned<bool>>) -> Result<Algorithm, RuleFileError> {
    let known = Algorithm::ALL.map(|algorithm| (algorithm.name(), algorithm));
    let mut algorithm = choice(name, &known)?;
    if let Some(given) = strict {
        let Algorithm::SlidingWindow { strict } = &mut algorithm else {
            let reason = format!("strict does not apply to {}: it is for sliding_window", algorithm.name());
            return Err(RuleFileError::at(given.referenced, reason));
        };
        *strict = given.value;
    }
    Ok(algorithm)
}

fn quotas(limits: &Spanned<Vec<Spanned<LimitWire>>>, algorithm: Algorithm) -> Result<Vec<Quota>, RuleFileError> {
    if limits.value.is_empty() {
        let reason = "limits is empty: give at least one, such as \"10/s burst 50\"";
        return Err(RuleFileError::at(limits.referenced, reason));
    }
    let quota = |limit: &Spanned<LimitWire>| {
        let quota = limit.value.spec().and_then(|spec| Quota::new(spec, algorithm));
        quota.map_err(|error| RuleFileError::at(limit.referenced, error.to_string()))
    };
    limits.value.iter().map(quota).collect()
}

fn conditions(wire: Conditions) -> Result<Vec<(String, Condition)>, RuleFileError> {
    let mut when = Vec::new();
    for (attribute, given) in wire {
        let fail = |reason| RuleFileError::at(given.referenced, reason);
        if !is_attribute_name(&attribute) {
            return Err(fail(format!("when names the attribute {attribute:?}: use letters, digits, '_', '-' and '.'")));
        }
        let compiled = given.value.compile().map_err(fail)?;
        when.extend(compiled.into_iter().map(|condition| (attribute.clone(), condition)));
    }
    Ok(when)
}

/// One of a few words; the default if none is given.
fn choice<T: Copy + Default>(given: Option<SpannedText>, choices: &[(&str, T)]) -> Result<T, RuleFileError> {
    let Some(given) = given else { return Ok(T::default()) };
    match choices.iter().find(|(word, _)| *word == given.value) {
        Some((_, chosen)) => Ok(*chosen),
        None => {
            let mut words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            words.dedup();
            let reason = format!("{:?} is not one of {}", given.value, words.join(", "));
            Err(RuleFileError::at(given.referenced, reason))
        }
    }
}

fn lease(given: Option<SpannedText>) -> Result<Lease, RuleFileError> {
    let Some(given) = given else { return Ok(Lease::Off) };
    if given.value == "auto" {
        return Ok(Lease::Auto);
    }
    parse_period(&given.value).filter(|length_us| *length_us > 0).map(Lease::For).ok_or_else(|| {
        let reason = format!("lease {:?} is not a time: write \"100ms\", \"1s\" or \"auto\"", given.value);
        RuleFileError::at(given.referenced, reason)
    })
}

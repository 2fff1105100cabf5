//! Converts a parsed rule file to rules, overrides and bans.

use serde_saphyr::{Location, Spanned};

use super::RuleFileError;
use super::enum_names::{MODES, POLICIES};
use super::schema::{BanWire, Conditions, LimitWire, Limits, OverrideWire, RuleWire, SpannedText};
use crate::ban::Ban;
use crate::overrides::{Allowance, Override, ScaleError};
use crate::quota::{Algorithm, Quota, QuotaSpec, parse_period};
use crate::rule::{Condition, Lease, Rule, is_attribute_name};
use crate::time::parse_rfc3339;

pub(super) fn rule(location: Location, wire: RuleWire) -> Result<Rule, RuleFileError> {
    let Some(name) = wire.name.map(|name| name.value) else {
        return Err(RuleFileError::at(location, "the rule has no name: give it one of its own"));
    };
    let named = |error: RuleFileError| error.about(&format!("rule {name:?}"));
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
    rule.mode = choice(wire.mode, &MODES).map_err(named)?;
    rule.on_store_failure = choice(wire.on_store_failure, &POLICIES).map_err(named)?;
    rule.priority = wire.priority.unwrap_or_default();
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

fn quotas(limits: &Limits, algorithm: Algorithm) -> Result<Vec<Quota>, RuleFileError> {
    let quota =
        |(place, spec)| Quota::new(spec, algorithm).map_err(|error| RuleFileError::at(place, error.to_string()));
    specs(limits)?.into_iter().map(quota).collect()
}

fn specs(limits: &Limits) -> Result<Vec<(Location, QuotaSpec)>, RuleFileError> {
    if limits.value.is_empty() {
        let reason = "limits is empty: give at least one, such as \"10/s burst 50\"";
        return Err(RuleFileError::at(limits.referenced, reason));
    }
    let spec = |limit: &Spanned<LimitWire>| match limit.value.spec() {
        Ok(spec) => Ok((limit.referenced, spec)),
        Err(error) => Err(RuleFileError::at(limit.referenced, error.to_string())),
    };
    limits.value.iter().map(spec).collect()
}

pub(super) fn one_override(location: Location, wire: OverrideWire) -> Result<Override, RuleFileError> {
    let missing = |what: &str| RuleFileError::at(location, format!("the override has no {what}"));
    let rule = wire.rule.ok_or_else(|| missing("rule: write the name of one"))?;
    let subject = wire.subject.ok_or_else(|| missing("subject: write for example subject: \"user:42\""))?;
    let named = |error: RuleFileError| error.about(&format!("override of {subject:?} for rule {rule:?}"));
    let is_unlimited = wire.unlimited.unwrap_or_default();
    let allowance = match (wire.limits, wire.scale, is_unlimited) {
        (Some(limits), None, false) => {
            Allowance::Limits(specs(&limits).map_err(named)?.into_iter().map(|(_, spec)| spec).collect())
        }
        (None, Some(scale), false) => {
            let fail = |error: ScaleError| named(RuleFileError::at(scale.referenced, error.to_string()));
            Allowance::Scale(scale.value.parse().map_err(fail)?)
        }
        (None, None, true) => Allowance::Unlimited,
        _ => {
            let reason = "give it one of limits: [\"100/s burst 500\"], scale: 10 and unlimited: true";
            return Err(named(RuleFileError::at(location, reason)));
        }
    };
    let mut one = Override::new(rule, &subject, allowance);
    one.description = wire.description.unwrap_or_default();
    Ok(one)
}

pub(super) fn ban(location: Location, wire: BanWire) -> Result<Ban, RuleFileError> {
    let Some(subject) = wire.subject else {
        return Err(RuleFileError::at(location, "the ban has no subject: write for example subject: \"user:42\""));
    };
    let named = |error: RuleFileError| error.about(&format!("ban {:?}", subject.value));
    let mut ban =
        Ban::new(&subject.value).map_err(|error| named(RuleFileError::at(subject.referenced, error.to_string())))?;
    ban.reason = wire.reason.unwrap_or_default();
    if let Some(until) = wire.until {
        let unix_s = parse_rfc3339(&until.value).ok_or_else(|| {
            let reason = format!("until {:?} is not a time: write for example \"2026-12-01T00:00:00Z\"", until.value);
            named(RuleFileError::at(until.referenced, reason))
        })?;
        ban.until_unix_s = Some(unix_s);
    }
    Ok(ban)
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
pub(super) fn choice<T: Copy + Default>(given: Option<SpannedText>, choices: &[(&str, T)]) -> Result<T, RuleFileError> {
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

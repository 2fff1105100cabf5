//! The configuration format of envoyproxy/ratelimit: one domain per file, limits as a
//! tree of descriptors, extended by a few keys of checkdam.

mod known_keys;

use std::collections::HashSet;

use serde_json::Value;
use serde_saphyr::{Location, Spanned};

use super::{FileOptions, RuleFileError, from_yaml_with};
use crate::descriptor::{Descriptor, DescriptorAllowance, DescriptorLimit, DescriptorTree};
use crate::quota::{Algorithm, Quota, QuotaSpec};
use crate::request::Unit;
use crate::rule::{Mode, POLICIES, spec_parts};

type SpannedText = Spanned<String>;

#[derive(serde::Deserialize)]
struct TreeSchema {
    domain: Option<SpannedText>,
    default_algorithm: Option<SpannedText>,
    descriptors: Option<Vec<Spanned<DescriptorSchema>>>,
}

#[derive(serde::Deserialize)]
struct DescriptorSchema {
    key: Option<SpannedText>,
    value: Option<String>,
    rate_limit: Option<Spanned<RateLimitSchema>>,
    descriptors: Option<Vec<Spanned<Self>>>,
    shadow_mode: Option<bool>,
    quota_mode: Option<bool>,
    detailed_metric: Option<bool>,
    value_to_metric: Option<bool>,
    share_threshold: Option<Spanned<bool>>,
    metadata: Option<Value>,
}

#[derive(serde::Deserialize)]
struct RateLimitSchema {
    unit: Option<SpannedText>,
    requests_per_unit: Option<u32>,
    unlimited: Option<bool>,
    name: Option<String>,
    replaces: Option<Vec<Spanned<ReplacesSchema>>>,
    metadata: Option<Value>,
    algorithm: Option<SpannedText>,
    burst: Option<u64>,
    unit_multiplier: Option<Spanned<u64>>,
    on_store_failure: Option<SpannedText>,
}

#[derive(serde::Deserialize)]
struct ReplacesSchema {
    name: Option<String>,
}

pub(super) fn is_tree(text: &str) -> bool {
    let begins = |names: &[&str]| {
        text.lines().any(|line| {
            let name = line.trim_start_matches(['"', '\'']).split([':', '"', '\'']).next().unwrap_or_default();
            names.contains(&name)
        })
    };
    if begins(&["rules", "overrides", "bans"]) {
        return false;
    }
    begins(&["domain", "descriptors"])
        || known_keys::top_level(text).keys().any(|key| key == "domain" || key == "descriptors")
}

/// Parses a tree, with its location.
pub(super) fn read(text: &str, options: &FileOptions) -> Result<(Location, DescriptorTree), RuleFileError> {
    let warnings = known_keys::check(text, options)?;
    let schema: TreeSchema = from_yaml_with(text, options.bytes_max, "the file", super::options_with_anchors(options))?;
    let Some(domain) = schema.domain.filter(|domain| !domain.value.is_empty()) else {
        return Err(RuleFileError::at_start("the file has no domain: begin it with \"domain: \" and its name"));
    };
    let algorithm = algorithm(schema.default_algorithm, options.descriptor_algorithm)?;
    let mut reader = Reader { algorithm, path: domain.value.clone() };
    let descriptors = reader.level(schema.descriptors.unwrap_or_default())?;
    Ok((domain.referenced, DescriptorTree { domain: domain.value, algorithm, descriptors, warnings }))
}

struct Reader {
    algorithm: Algorithm,
    /// Where we are, for messages.
    path: String,
}

impl Reader {
    fn level(&mut self, schemas: Vec<Spanned<DescriptorSchema>>) -> Result<Vec<Descriptor>, RuleFileError> {
        let mut ids = HashSet::new();
        let mut level = Vec::with_capacity(schemas.len());
        for schema in schemas {
            let (place, mut schema) = (schema.referenced, schema.value);
            let Some(key) = schema.key.take().filter(|key| !key.value.is_empty()) else {
                let reason = format!("a descriptor of {:?} has no key: give it one", self.path);
                return Err(RuleFileError::at(place, reason));
            };
            let value = schema.value.take().unwrap_or_default();
            let mut one = Descriptor { key: key.value, value, ..Descriptor::default() };
            let length = self.path.len();
            self.path.push('.');
            self.path.push_str(&one.id());
            if !ids.insert(one.id()) {
                let reason = format!("there are two descriptors {:?}: keep one of them", self.path);
                return Err(RuleFileError::at(place, reason));
            }
            self.fill(&mut one, place, schema)?;
            self.path.truncate(length);
            level.push(one);
        }
        Ok(level)
    }

    fn fill(&mut self, one: &mut Descriptor, place: Location, schema: DescriptorSchema) -> Result<(), RuleFileError> {
        if schema.shadow_mode == Some(true) {
            one.mode = Mode::Shadow;
        }
        one.is_quota_mode = schema.quota_mode.unwrap_or_default();
        one.detailed_metric = schema.detailed_metric.unwrap_or_default();
        one.value_to_metric = schema.value_to_metric.unwrap_or_default();
        if let Some(shared) = schema.share_threshold.filter(|shared| shared.value) {
            if !one.has_wildcard() {
                let reason = format!(
                    "{:?} has share_threshold, and its value {:?} has no *: values are counted together by a pattern",
                    self.path, one.value
                );
                return Err(RuleFileError::at(shared.referenced, reason));
            }
            one.is_shared = true;
        }
        let mut metadata = schema.metadata;
        if let Some(mut limit) = schema.rate_limit {
            metadata = metadata.or_else(|| limit.value.metadata.take());
            let named = |error: RuleFileError| error.about(&format!("the limit of {:?}", self.path));
            one.limit = Some(self.limit(limit.referenced, limit.value).map_err(named)?);
        }
        if let Some(metadata) = metadata {
            if !metadata.is_object() {
                let reason = format!("the metadata of {:?} is no map: write names and values", self.path);
                return Err(RuleFileError::at(place, reason));
            }
            one.metadata = metadata.to_string();
        }
        one.descriptors = self.level(schema.descriptors.unwrap_or_default())?;
        Ok(())
    }

    fn limit(&self, place: Location, schema: RateLimitSchema) -> Result<DescriptorLimit, RuleFileError> {
        let name = schema.name.clone().unwrap_or_default();
        let mut replaces = Vec::new();
        for replaced in schema.replaces.iter().flatten() {
            let fail = |reason: &str| RuleFileError::at(replaced.referenced, reason);
            match replaced.value.name.as_deref() {
                None | Some("") => return Err(fail("replaces has an entry without a name: name a limit")),
                Some(own) if own == name => return Err(fail("replaces names the limit itself: name another")),
                Some(other) => replaces.push(other.to_owned()),
            }
        }
        let on_store_failure = choice(schema.on_store_failure.clone(), &POLICIES)?;
        Ok(DescriptorLimit { name, allowance: self.allowance(place, schema)?, replaces, on_store_failure })
    }

    fn allowance(&self, place: Location, schema: RateLimitSchema) -> Result<DescriptorAllowance, RuleFileError> {
        let unit = schema.unit.as_ref().map(|unit| (unit.referenced, &unit.value, Unit::by_name(&unit.value)));
        let unit = match (schema.unlimited.unwrap_or_default(), unit) {
            (true, Some((place, name, Some(_)))) => {
                let reason = format!("it is unlimited, and has the unit {name:?}: keep one of them");
                return Err(RuleFileError::at(place, reason));
            }
            (true, _) => return Ok(DescriptorAllowance::Unlimited),
            (false, Some((_, _, Some(unit)))) => unit,
            (false, Some((place, name, None))) => {
                let names = Unit::ALL.map(Unit::name).join(", ");
                return Err(RuleFileError::at(place, format!("the unit {name:?} is not one of {names}")));
            }
            (false, None) => return Err(RuleFileError::at(place, "it has no unit: write for example unit: second")),
        };
        let multiplier = schema.unit_multiplier.as_ref().map_or(1, |multiplier| multiplier.value);
        let period_us = unit.period_us().saturating_mul(multiplier);
        if multiplier == 0 {
            let reason = "unit_multiplier is 0: use 1 or more, such as 30 for half a minute of seconds";
            return Err(RuleFileError::at(schema.unit_multiplier.map_or(place, |given| given.referenced), reason));
        }
        let amount = u64::from(schema.requests_per_unit.unwrap_or_default());
        if amount == 0 {
            return Ok(DescriptorAllowance::Nothing { period_us });
        }
        let spec = QuotaSpec { burst: schema.burst, ..QuotaSpec::new(amount, period_us) };
        let algorithm = algorithm(schema.algorithm, self.algorithm)?;
        let quota = Quota::new(spec, algorithm).map_err(|error| RuleFileError::at(place, error.to_string()))?;
        Ok(DescriptorAllowance::Quota(quota))
    }
}

fn algorithm(name: Option<SpannedText>, usual: Algorithm) -> Result<Algorithm, RuleFileError> {
    if name.is_none() {
        return Ok(usual);
    }
    choice(name, &Algorithm::ALL.map(|algorithm| (algorithm.name(), algorithm)))
}

/// One of a few names; the default if none is given.
fn choice<T: Copy + Default>(given: Option<SpannedText>, choices: &[(&str, T)]) -> Result<T, RuleFileError> {
    let Some(given) = given else { return Ok(T::default()) };
    spec_parts::named(&given.value, choices).map_err(|reason| RuleFileError::at(given.referenced, reason))
}

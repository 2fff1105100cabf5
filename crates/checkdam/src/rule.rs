//! A rule: conditions, a key and limits. [`Rule`] is plain data on the decision path;
//! `RuleSpec` is its written form, and the only type that has its serde field names.

mod condition;
#[cfg(feature = "yaml")]
mod conditions_spec;
mod key;
mod pattern;
#[cfg(feature = "yaml")]
pub(crate) mod spec_parts;

pub use condition::{Condition, Matcher};
pub(crate) use condition::{IndexKey, canonical_network, parse_network};
#[cfg(feature = "yaml")]
pub use conditions_spec::ConditionsSpec;
pub(crate) use key::is_attribute_name;
pub use key::{KeyPattern, KeyPatternError};
pub use pattern::{Pattern, PatternError};
#[cfg(feature = "yaml")]
pub use spec_parts::{LimitParts, LimitSpec, PathStep, SpecError};

use crate::decision::FailurePolicy;
use crate::quota::{Algorithm, CalendarOptions, Quota};
#[cfg(feature = "yaml")]
use crate::quota::{parse_period, period_text};

/// The most quotas one rule may have.
pub const QUOTAS_MAX: usize = 16;
/// Names that no rule may have: bans are recorded under the first, and rules without
/// metrics of their own are counted under the second.
pub(crate) const RESERVED_NAMES: [&str; 2] = ["ban", "other"];
/// The longest rule name in bytes.
pub const RULE_NAME_MAX: usize = 128;

/// What a rule does with a request that it would deny.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// It is denied.
    #[default]
    Enforce,
    /// It is counted and reported, and passes.
    Shadow,
    /// The rule is ignored.
    Off,
}

/// Whether tokens of a shared bucket are prepaid and spent on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Lease {
    /// Never.
    #[default]
    Off,
    /// For so many microseconds at a time.
    For(u64),
    /// When a subject's demand on this node deserves it.
    Auto,
}

/// A rule as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its name, unique in its rule set: printable ASCII.
    pub name: String,
    /// Requests of this domain only; empty: those without one.
    pub domain: String,
    /// The subject that a request is counted for.
    pub key: KeyPattern,
    /// What kind of subject that is, for people: `user`, `ip`, `global`.
    pub scope: String,
    /// All of these must hold, one or more an attribute.
    pub when: Vec<(String, Condition)>,
    /// All of these must pass.
    pub quotas: Vec<Quota>,
    /// The algorithm of limits, of the rule and of its overrides, that neither name one nor
    /// follow the calendar.
    pub algorithm: Algorithm,
    /// Zone, billing day and first day of the week of calendar limits, of the rule and of its
    /// overrides, that do not have their own.
    pub calendar: CalendarOptions,
    /// Whether it denies.
    pub mode: Mode,
    /// How it decides when the store does not reply.
    pub on_store_failure: FailurePolicy,
    /// Whether its tokens may be prepaid. It changes how fast a limit is that is
    /// shared through Redis, never what it allows; see [`lease`](crate::lease).
    pub lease: Lease,
    /// Rules of higher priority come first: where several deny or govern alike, the first
    /// of them governs.
    pub priority: i32,
    /// What it is for.
    pub description: String,
}

impl Rule {
    /// An enforced rule without conditions. Its algorithm is that of its first quota that
    /// neither names one nor follows the calendar.
    #[must_use]
    pub fn new(name: impl Into<String>, key: KeyPattern, quotas: Vec<Quota>) -> Self {
        Self {
            algorithm: Quota::usual_algorithm(&quotas),
            calendar: CalendarOptions::default(),
            name: name.into(),
            domain: String::new(),
            scope: key.scope().to_owned(),
            key,
            when: Vec::new(),
            quotas,
            mode: Mode::default(),
            on_store_failure: FailurePolicy::default(),
            lease: Lease::default(),
            priority: 0,
            description: String::new(),
        }
    }

    /// The same rule with one condition more.
    #[must_use]
    pub fn when(mut self, attribute: impl Into<String>, condition: Condition) -> Self {
        self.when.push((attribute.into(), condition));
        self
    }
}

#[cfg(feature = "yaml")]
const MODES: [(&str, Mode); 3] = [("enforce", Mode::Enforce), ("shadow", Mode::Shadow), ("off", Mode::Off)];

#[cfg(feature = "yaml")]
pub(crate) const POLICIES: [(&str, FailurePolicy); 3] =
    [("open", FailurePolicy::Open), ("closed", FailurePolicy::Closed), ("local", FailurePolicy::Local)];

/// A rule as it is written: in rule files, in the admin API and in databases.
/// [`Rule`] is what becomes of it; a field that has its default value is left out.
///
/// ```
/// use checkdam::{Rule, RuleSpec};
/// let text = r#"{"name":"per-user","key":"user:{user}","limits":["10/s burst 50"]}"#;
/// let spec: RuleSpec = serde_json::from_str(text).unwrap();
/// let rule = Rule::try_from(spec).unwrap();
/// assert_eq!(serde_json::to_string(&RuleSpec::from(&rule)).unwrap(), text);
/// ```
#[cfg(feature = "yaml")]
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(
    as = RuleBody,
    description = "A rule as it is written: the same names as in a rule file.",
    example = json!({"name": "user-free", "key": "user:{user}", "when": {"plan": "free"}, "limits": ["10/s burst 50"]})
))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RuleSpec {
    /// Its name, unique.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: Option<String>,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub description: Option<String>,
    /// Requests of this domain only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub domain: Option<String>,
    /// Higher comes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = i32))]
    pub priority: Option<i32>,
    /// Whose bucket a request is charged to, such as `user:{user}`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub key: Option<String>,
    /// What kind of subject that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub scope: Option<String>,
    /// What attributes must be: a value, a list, or tests.
    #[serde(default, skip_serializing_if = "ConditionsSpec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub when: ConditionsSpec,
    /// All of these must pass, such as `10/s burst 50` or `100/m sliding_window`.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub limits: Option<Vec<LimitSpec>>,
    /// `token_bucket`, `leaky_bucket`, `fixed_window`, `sliding_window` or `sliding_log`, for
    /// limits that do not name one; limits of the calendar are fixed windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub algorithm: Option<String>,
    /// For `sliding_window`: never over, at the price of being under.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = bool))]
    pub strict: Option<bool>,
    /// The time zone of calendar limits that name none, such as `Europe/Berlin`; UTC if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub zone: Option<String>,
    /// The day from 1 to 31 on which calendar months begin, of limits that name none; in a shorter
    /// month, its last day. The first if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub anchor: Option<u64>,
    /// The day on which calendar weeks begin, of limits that name none, such as `sunday`; `monday`
    /// if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub week_starts: Option<String>,
    /// `enforce`, `shadow` or `off`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub mode: Option<String>,
    /// `open`, `closed` or `local`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub on_store_failure: Option<String>,
    /// A time such as `100ms`, or `auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub lease: Option<String>,
}

#[cfg(feature = "yaml")]
impl TryFrom<RuleSpec> for Rule {
    type Error = SpecError;

    fn try_from(spec: RuleSpec) -> Result<Self, SpecError> {
        let Some(name) = spec.name.clone() else {
            return Err(SpecError::new("the rule has no name: give it one of its own"));
        };
        spec.build(&name).map_err(|error| error.about(format!("rule {name:?}")))
    }
}

#[cfg(feature = "yaml")]
impl RuleSpec {
    fn build(self, name: &str) -> Result<Rule, SpecError> {
        let missing = |what| SpecError::new(format!("it has no {what}"));
        let key = self.key.ok_or_else(|| missing("key: write for example key: \"user:{user}\""))?;
        let limits = self.limits.ok_or_else(|| missing("limits: write for example limits: [\"10/s burst 50\"]"))?;
        let key: KeyPattern = key.parse().map_err(|error| SpecError::at("key", format!("{error}")))?;
        let algorithm = spec_parts::algorithm(self.algorithm.as_deref(), self.strict)?;
        let calendar = spec_parts::calendar(self.zone.as_deref(), self.anchor, self.week_starts.as_deref())?;
        let quota = |(index, spec): (usize, _)| {
            Quota::with_calendar(spec, algorithm, calendar)
                .map_err(|error| SpecError::at("limits", error.to_string()).item(index))
        };
        let quotas: Vec<Quota> =
            LimitSpec::all(&limits)?.into_iter().enumerate().map(quota).collect::<Result<_, _>>()?;
        spec_parts::check_calendar_is_used(calendar, &quotas)?;
        Ok(Rule {
            name: name.to_owned(),
            domain: self.domain.unwrap_or_default(),
            scope: self.scope.unwrap_or_else(|| key.scope().to_owned()),
            key,
            when: self.when.compile()?,
            quotas,
            algorithm,
            calendar,
            mode: spec_parts::choice("mode", self.mode.as_deref(), &MODES)?,
            on_store_failure: spec_parts::choice("on_store_failure", self.on_store_failure.as_deref(), &POLICIES)?,
            lease: self.lease.as_deref().map_or(Ok(Lease::Off), lease)?,
            priority: self.priority.unwrap_or_default(),
            description: self.description.unwrap_or_default(),
        })
    }
}

#[cfg(feature = "yaml")]
impl From<&Rule> for RuleSpec {
    fn from(rule: &Rule) -> Self {
        let (algorithm, calendar) = (rule.algorithm, rule.calendar);
        Self {
            name: Some(rule.name.clone()),
            description: spec_parts::filled(&rule.description),
            domain: spec_parts::filled(&rule.domain),
            priority: Some(rule.priority).filter(|priority| *priority != 0),
            key: Some(rule.key.text().to_owned()),
            scope: Some(rule.scope.clone()).filter(|scope| scope != rule.key.scope()),
            when: ConditionsSpec::of(&rule.when),
            limits: Some(rule.quotas.iter().map(|quota| LimitSpec::Text(quota.text_in(algorithm, calendar))).collect()),
            algorithm: Some(algorithm.name()).filter(|name| *name != Algorithm::default().name()).map(str::to_owned),
            strict: Some(true).filter(|_| algorithm == Algorithm::SlidingWindow { strict: true }),
            zone: calendar.zone.map(|zone| zone.name().to_owned()),
            anchor: calendar.anchor.map(u64::from),
            week_starts: calendar.week_starts.map(|day| day.name().to_owned()),
            mode: spec_parts::unless_default(rule.mode, &MODES),
            on_store_failure: spec_parts::unless_default(rule.on_store_failure, &POLICIES),
            lease: match rule.lease {
                Lease::Off => None,
                Lease::For(length_us) => Some(period_text(length_us)),
                Lease::Auto => Some("auto".to_owned()),
            },
        }
    }
}

#[cfg(feature = "yaml")]
fn lease(text: &str) -> Result<Lease, SpecError> {
    if text == "auto" {
        return Ok(Lease::Auto);
    }
    parse_period(text).filter(|length_us| *length_us > 0).map(Lease::For).ok_or_else(|| {
        SpecError::at("lease", format!("lease {text:?} is not a time: write \"100ms\", \"1s\" or \"auto\""))
    })
}

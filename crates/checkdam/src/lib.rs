#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

pub mod algorithm;
mod ban;
#[cfg(feature = "conformance")]
pub mod conformance;
mod decision;
mod definitions;
mod descriptor;
pub mod hash;
pub mod headers;
mod keyed_limiter;
#[cfg(feature = "tower")]
pub mod layer;
pub mod lease;
mod limiter;
pub mod normalize;
mod outcome;
mod overrides;
mod quota;
pub mod render;
mod request;
mod rule;
#[cfg(feature = "yaml")]
pub mod rule_file;
mod ruleset;
mod small_buffer;
pub mod store;
mod subject;
mod sync;
pub mod time;

#[cfg(feature = "yaml")]
pub use ban::BanSpec;
pub use ban::{Ban, BanError, BannedValue, REASON_MAX};
pub use decision::{DecidedBy, Decision, FailurePolicy, Verdict};
pub use definitions::Definitions;
pub use descriptor::{Descriptor, DescriptorAllowance, DescriptorLimit, DescriptorTree, TreeRules};
pub use keyed_limiter::{CostExceedsBurst, KeyedLimiter};
pub use limiter::{Batch, Limiter};
pub use outcome::{Outcome, TierView};
#[cfg(feature = "yaml")]
pub use overrides::OverrideSpec;
pub use overrides::{Allowance, Override, Scale, ScaleError};
pub use quota::{
    Algorithm, Align, CalendarOptions, LIMIT_MAX, LOG_LIMIT_MAX, Quota, QuotaError, QuotaSpec, STRICT_PARTS, Weekday,
};
pub use request::{
    ATTRIBUTES_MAX, NAME_MAX, Request, RequestError, RequestLimit, Unit, VALUE_MAX, hashed, shortened, shortened_to,
};
pub use rule::{
    Condition, KeyPattern, KeyPatternError, Lease, Matcher, Mode, Pattern, PatternError, QUOTAS_MAX, RULE_NAME_MAX,
    Rule,
};
#[cfg(feature = "yaml")]
pub use rule::{ConditionsSpec, LimitParts, LimitSpec, PathStep, RuleSpec, SpecError};
pub use ruleset::{Explanation, RuleSet, RuleSetError, RuleSetItem};
pub use store::TIERS_MAX;
pub use subject::SubjectPattern;

//! checkdam: exact rate limiting, in memory or distributed over Redis.
//!
//! A [`Limiter`] has a compiled [`RuleSet`] and a [`store`]. It matches a
//! [`Request`] once and decides it once, at one instant of the store's clock; all
//! its tiers are charged together or not at all. The [`Outcome`] has the tier that
//! governs and, when denied, the exact time at which the request would pass.
//!
//! ```
//! use checkdam::{Limiter, Request, RuleSet};
//! use checkdam::store::{MemoryOptions, MemoryStore};
//! # pollster::block_on(async {
//! let rules = checkdam::rule_file::parse(r#"
//! rules:
//!   - name: free-users
//!     key: "user:{user}"
//!     when: { plan: free }
//!     limits: ["10/s burst 50", "5000/h"]
//! "#)?;
//! let limiter = Limiter::new(RuleSet::new(rules)?, MemoryStore::new(MemoryOptions::default()));
//! let request = Request::new().with("user", "42")?.with("plan", "free")?;
//! let outcome = limiter.check(&request).await;
//! assert!(outcome.is_allowed());
//! assert_eq!(outcome.governing().unwrap().decision.remaining, 49);
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
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
#[cfg(feature = "tower")]
pub mod layer;
pub mod lease;
mod limiter;
pub mod normalize;
mod outcome;
mod overrides;
mod quota;
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
pub use limiter::{Batch, Limiter};
pub use outcome::{Outcome, TierView};
#[cfg(feature = "yaml")]
pub use overrides::OverrideSpec;
pub use overrides::{Allowance, Override, Scale, ScaleError};
pub use quota::{Algorithm, Align, LIMIT_MAX, LOG_LIMIT_MAX, Quota, QuotaError, QuotaSpec, STRICT_PARTS};
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

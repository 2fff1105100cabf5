//! Responses of a checkdam server to checks.

use std::time::Duration;

use serde::Deserialize;

/// Whether a request passes, and the state of its limits.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Answer {
    /// Whether it passes.
    pub allowed: bool,
    /// The limit of the tier that governs, if a rule applies.
    #[serde(default)]
    pub limit: Option<u64>,
    /// What is left of that limit.
    #[serde(default)]
    pub remaining: Option<u64>,
    /// How long until the same request would pass, in milliseconds: 0 if it passes, `None`
    /// if it never will.
    #[serde(default)]
    pub retry_after_ms: Option<u64>,
    /// How long until that tier's bucket is full again, in milliseconds.
    #[serde(default)]
    pub reset_after_ms: u64,
    /// How long to delay the request (leaky bucket), in milliseconds.
    #[serde(default)]
    pub delay_ms: u64,
    /// Of a record, what was not charged because of a limit's `max_debt`.
    #[serde(default)]
    pub cut_off: u64,
    /// The rule with the longest wait, if the request is denied.
    #[serde(default)]
    pub violated: Option<String>,
    /// Why it is denied, for people.
    #[serde(default)]
    pub detail: Option<String>,
    /// The ban on the request, if it is banned.
    #[serde(default)]
    pub ban: Option<Ban>,
    /// Where it was decided: `memory`, `redis`, `lease`, `local` or `policy`; `client` if
    /// the server could not be reached.
    pub decided_by: String,
    /// Every tier that applies to the request, in the order of the rules.
    #[serde(default)]
    pub tiers: Vec<Tier>,
}

/// One tier's decision.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Tier {
    /// The rule it belongs to.
    pub rule: String,
    /// The kind of subject that it counts.
    #[serde(default)]
    pub scope: String,
    /// The subject.
    pub subject: String,
    /// The limit as it is written, such as `10/s burst 50`.
    #[serde(default)]
    pub limit_name: String,
    /// Whether it lets the request pass.
    pub allowed: bool,
    /// The most that can pass at once.
    pub limit: u64,
    /// What is left.
    pub remaining: u64,
    /// What was used beyond the limit and is not paid back yet: until then nothing passes.
    #[serde(default)]
    pub debt: u64,
    /// How long until it would let the request pass, in milliseconds: 0 if it does, `None`
    /// if it never will.
    #[serde(default)]
    pub retry_after_ms: Option<u64>,
    /// How long until its bucket is full again, in milliseconds.
    pub reset_after_ms: u64,
    /// Whether the rule is in shadow mode.
    #[serde(default)]
    pub shadow: bool,
}

/// A ban on a request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Ban {
    /// The banned subject.
    pub subject: String,
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// When it ends, in RFC 3339; `None` if never.
    #[serde(default)]
    pub until: Option<String>,
}

impl Answer {
    /// How long until the same request would pass: zero if it passes, `None` if it never
    /// will.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after_ms.map(Duration::from_millis)
    }

    /// How long to delay the request.
    #[must_use]
    pub const fn delay(&self) -> Duration {
        Duration::from_millis(self.delay_ms)
    }

    /// Whether the server was not reached: the failure policy decided.
    #[must_use]
    pub fn is_by_client(&self) -> bool {
        self.decided_by == BY_CLIENT
    }

    /// The answer if the server cannot be reached.
    pub(crate) fn by_client(allowed: bool, detail: String) -> Self {
        Self {
            allowed,
            limit: None,
            remaining: None,
            // As a server does whose store fails.
            retry_after_ms: Some(if allowed { 0 } else { 1_000 }),
            reset_after_ms: 0,
            delay_ms: 0,
            cut_off: 0,
            violated: None,
            detail: Some(detail),
            ban: None,
            decided_by: BY_CLIENT.to_owned(),
            tiers: Vec::new(),
        }
    }
}

const BY_CLIENT: &str = "client";

#[derive(Debug, Deserialize)]
pub(crate) struct Batch {
    pub(crate) results: Vec<Answer>,
}

/// Problem details of an invalid request.
#[derive(Debug, Deserialize)]
pub(crate) struct Problem {
    #[serde(default)]
    pub(crate) detail: String,
    #[serde(default)]
    pub(crate) field: Option<String>,
}

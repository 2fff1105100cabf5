//! A decision: the result of one tier.

use std::time::Duration;

use crate::time::SECOND_US;

/// Whether one tier lets a request pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It passes.
    Allowed,
    /// It must wait.
    Denied,
    /// The cost exceeds what the bucket can ever hold, so it will never pass.
    CostExceedsBurst,
    /// The store did not reply, and the rule denies what it cannot decide.
    Unavailable,
    /// The request is banned: no bucket was read, and nothing was charged.
    Banned,
}

/// How a rule decides when its store does not reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FailurePolicy {
    /// Let everything pass.
    Open,
    /// Deny everything.
    Closed,
    /// Apply the same quota, divided by the number of nodes, in memory.
    #[default]
    Local,
}

/// One tier's decision on one request.
#[must_use = "a decision that is ignored limits nothing"]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decision {
    /// Whether it passes.
    pub verdict: Verdict,
    /// The most that can pass at once.
    pub limit: u64,
    /// What is left now.
    pub remaining: u64,
    /// What was used beyond the limit and is not paid back yet: while it is not 0, nothing
    /// passes.
    pub debt: u64,
    /// How long until the same request would pass, if no other takes the tokens first; 0
    /// when it passed, or when it never will.
    pub retry_after_us: u64,
    /// How long until nothing is owed any more.
    pub reset_after_us: u64,
    /// How long the request should be delayed (leaky bucket); otherwise 0.
    pub delay_us: u64,
}

impl Decision {
    /// A decision that was made without a bucket. A denied request may retry after one
    /// second.
    pub(crate) const fn undecided(limit: u64, verdict: Verdict) -> Self {
        let (remaining, retry_after_us) = match verdict {
            Verdict::Allowed => (limit, 0),
            _ => (0, SECOND_US),
        };
        Self { verdict, limit, remaining, debt: 0, retry_after_us, reset_after_us: 0, delay_us: 0 }
    }

    /// Whether the request passes this tier.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self.verdict, Verdict::Allowed)
    }

    /// What has been used of the limit, with debt.
    #[cfg(feature = "redis")]
    pub(crate) const fn used(&self) -> u64 {
        self.limit.saturating_sub(self.remaining) + self.debt
    }

    /// How long until the same request would pass, if no other takes the tokens first:
    /// zero if it passed, `None` if it never will.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self.verdict {
            Verdict::Allowed => Some(Duration::ZERO),
            Verdict::Denied | Verdict::Unavailable => Some(Duration::from_micros(self.retry_after_us)),
            Verdict::CostExceedsBurst | Verdict::Banned => None,
        }
    }

    /// How long the request should be delayed (leaky bucket); otherwise zero.
    #[must_use]
    pub const fn delay(&self) -> Duration {
        Duration::from_micros(self.delay_us)
    }
}

/// Where a decision was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecidedBy {
    /// Buckets in this process.
    Memory,
    /// Buckets in Redis.
    Redis,
    /// Tokens of buckets in Redis that were prepaid, in this process.
    Lease,
    /// Buckets in this process, because the shared store did not reply.
    Local,
    /// No bucket: a ban, or the rules' failure policies because the store did not reply.
    Policy,
}

impl DecidedBy {
    /// All variants, in the order of [`DecidedBy::number`].
    pub const ALL: [Self; 5] = [Self::Memory, Self::Redis, Self::Lease, Self::Local, Self::Policy];

    /// Its place in [`DecidedBy::ALL`].
    #[must_use]
    pub const fn number(self) -> usize {
        match self {
            Self::Memory => 0,
            Self::Redis => 1,
            Self::Lease => 2,
            Self::Local => 3,
            Self::Policy => 4,
        }
    }

    /// Whether the buckets themselves decided: what was charged elsewhere cannot be
    /// refunded to them.
    pub(crate) const fn is_refundable(self) -> bool {
        matches!(self, Self::Memory | Self::Redis | Self::Lease)
    }

    /// The name used in responses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redis => "redis",
            Self::Lease => "lease",
            Self::Local => "local",
            Self::Policy => "policy",
        }
    }
}

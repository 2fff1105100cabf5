//! Readiness: whether the node should get requests.

use checkdam::store::FailurePolicy;
use checkdam::{Mode, RuleSet};

/// Whether the node should get requests. Liveness is separate: no store or database
/// affects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// It is starting: no rules are active yet.
    Starting,
    /// It should.
    Ready,
    /// The store does not reply, and every decision would be a denial.
    StoreAway,
    /// It is shutting down.
    Draining,
}

impl Readiness {
    pub(crate) const fn is_ready(self) -> bool {
        matches!(self, Self::Ready)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::StoreAway => "store_away",
            Self::Draining => "draining",
        }
    }
}

/// Whether these rules can decide nothing without their store: there are rules that
/// deny, and each of them fails closed. If only some do, the others still decide, and
/// no other node could do better.
pub(crate) fn all_rules_need_store(rules: &RuleSet) -> bool {
    let mut enforced = rules.rules().filter(|rule| rule.mode == Mode::Enforce).peekable();
    enforced.peek().is_some() && enforced.all(|rule| rule.on_store_failure == FailurePolicy::Closed)
}

#[cfg(test)]
mod tests {
    use checkdam::rule_file;

    use super::*;

    #[test]
    fn a_set_is_lost_only_if_every_rule_that_denies_is_closed() {
        let needs_store = |rules: &str| all_rules_need_store(&rule_file::compile(rules).unwrap());
        let rule =
            |name: &str, more: &str| format!("  - {{ name: {name}, key: \"{name}:{{x}}\", limits: [1/s]{more} }}\n");
        let closed = rule("a", ", on_store_failure: closed");
        assert!(needs_store(&format!("rules:\n{closed}")));
        assert!(needs_store(&format!("rules:\n{closed}{}", rule("b", ", mode: shadow"))), "a shadow denies nobody");
        assert!(!needs_store(&format!("rules:\n{closed}{}", rule("b", ""))), "the default is local");
        assert!(!needs_store(&format!("rules:\n{}", rule("b", ", on_store_failure: open"))));
        assert!(!needs_store("rules: []"), "nothing is asked of the store");
    }
}

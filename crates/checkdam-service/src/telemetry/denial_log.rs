//! Logs a sample of denials: up to `log_denials` per rule per second, and how many were
//! omitted.
//!
//! These are the only log lines with subjects, and they are written only if
//! `log_denials` is set.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use checkdam::{Outcome, Request, TierView};

use super::Observation;
use crate::audit::{BAN, Redaction};
use crate::lock;

/// Logs some of the denials.
#[derive(Debug)]
pub(super) struct DenialLog {
    per_second: u32,
    /// Counts up with every tick.
    second: AtomicU64,
    /// Those that have denied something lately.
    rules: Mutex<HashMap<String, RuleLogCount>>,
    redaction: Redaction,
}

#[derive(Debug, Default, Clone, Copy)]
struct RuleLogCount {
    second: u64,
    in_second: u32,
    /// Since the last line.
    left_out: u64,
}

impl DenialLog {
    pub(super) fn new(log_denials: u32, redaction: Redaction) -> Self {
        Self { per_second: log_denials, second: AtomicU64::new(0), rules: Mutex::default(), redaction }
    }

    pub(super) fn record(&self, seen: &Observation<'_, '_>) {
        if self.per_second == 0 || seen.is_allowed {
            return;
        }
        for (request, outcome) in seen.iter().filter(|(_, outcome)| !outcome.is_allowed()) {
            let violated = outcome.violated();
            let rule = violated.as_ref().map_or(BAN, |tier| tier.rule.name.as_str());
            if let Some(left_out) = self.count_and_sample(rule) {
                self.log(request, outcome, violated.as_ref(), left_out);
            }
        }
    }

    /// Call once a second. For a rule that has stopped denying, the omitted denials are
    /// reported.
    pub(super) fn tick(&self) {
        if self.per_second == 0 {
            return;
        }
        let second = self.second.fetch_add(1, Ordering::Relaxed) + 1;
        let mut untold = Vec::new();
        let mut rules = lock(&self.rules);
        rules.retain(|rule, logged| {
            let is_recent = logged.second + 1 >= second;
            if !is_recent && logged.left_out > 0 {
                untold.push((rule.clone(), logged.left_out));
            }
            is_recent
        });
        drop(rules);
        for (rule, left_out) in untold {
            tracing::info!(rule, left_out, "denials not logged individually");
        }
    }

    /// Whether a denial is to be logged: then how many were not since the last.
    fn count_and_sample(&self, rule: &str) -> Option<u64> {
        let second = self.second.load(Ordering::Relaxed);
        let mut rules = lock(&self.rules);
        let logged = match rules.get_mut(rule) {
            Some(logged) => logged,
            None => rules.entry(rule.to_owned()).or_default(),
        };
        if logged.second != second {
            (logged.second, logged.in_second) = (second, 0);
        }
        if logged.in_second >= self.per_second {
            logged.left_out += 1;
            return None;
        }
        logged.in_second += 1;
        Some(std::mem::take(&mut logged.left_out))
    }

    fn log(&self, request: &Request<'_>, outcome: &Outcome, violated: Option<&TierView<'_>>, left_out: u64) {
        let (rule, subject) = match (violated, outcome.ban()) {
            (Some(tier), _) => (tier.rule.name.as_str(), self.redaction.subject(&tier.rule.key, request)),
            (None, ban) => (BAN, ban.map(|ban| self.redaction.ban_subject(ban)).unwrap_or_default()),
        };
        tracing::info!(
            rule,
            // As text, not displayed: both formats of the log escape it then.
            subject = subject.as_str(),
            limit = violated.map(|tier| tracing::field::display(tier.quota)),
            retry_after_ms = outcome.retry_after().map(|wait| wait.as_micros().div_ceil(1_000) as u64),
            decided_by = outcome.decided_by().name(),
            left_out,
            "denied"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_logs_so_much_a_second_and_tells_of_the_rest() {
        let denials = DenialLog::new(2, Redaction::default());
        let due = |rule: &str| denials.count_and_sample(rule);
        assert_eq!([due("a"), due("a"), due("a"), due("a")], [Some(0), Some(0), None, None]);
        assert_eq!(due("b"), Some(0), "each rule by itself");
        denials.tick();
        assert_eq!([due("a"), due("a"), due("a")], [Some(2), Some(0), None]);
        denials.tick();
        denials.tick();
        assert!(denials.rules.lock().unwrap().is_empty(), "what is over is forgotten");
    }
}

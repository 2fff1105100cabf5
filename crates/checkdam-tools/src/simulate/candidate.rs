//! One rule file of a simulation, and its decisions.

use checkdam::{Outcome, Request, RuleSet};
use checkdam_service::replay::Replay;

use super::tally::DecisionTally;

/// The requests of one log line, which are decided together.
#[derive(Debug)]
pub(super) struct LogRequest<'b> {
    /// In our time.
    pub(super) at_us: u64,
    /// As the log says.
    pub(super) unix_s: u64,
    pub(super) requests: LogRequests<'b>,
}

/// Nearly always one, which is not worth a box.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a box for each of millions would cost more than the room")]
pub(super) enum LogRequests<'b> {
    One(Request<'b>),
    /// Descriptors that are decided together.
    Together(Vec<Request<'b>>),
}

pub(super) struct Candidate {
    pub(super) name: String,
    pub(super) replay: Replay,
    pub(super) tally: DecisionTally,
}

impl Candidate {
    pub(super) fn new(name: String, rules: RuleSet, buckets_max: usize) -> Self {
        let tally = DecisionTally::new(&rules);
        Self { name, replay: Replay::new(rules, buckets_max), tally }
    }

    /// For each, the rule that denies it; none if it passes.
    pub(super) fn decide_all(&mut self, asked: &[LogRequest<'_>]) -> Vec<Option<String>> {
        asked.iter().map(|asked| self.decide(asked)).collect()
    }

    fn decide(&mut self, asked: &LogRequest<'_>) -> Option<String> {
        let LogRequest { at_us, unix_s, .. } = *asked;
        match &asked.requests {
            LogRequests::One(request) => {
                let outcome = self.replay.check(at_us, request);
                let (requests, outcomes) = (std::slice::from_ref(request), std::slice::from_ref(&outcome));
                self.tally.note(unix_s, outcome.is_allowed(), requests, outcomes);
                (!outcome.is_allowed()).then(|| denying_rule(requests, outcomes))
            }
            LogRequests::Together(requests) => {
                let together = self.replay.check_together(at_us, requests);
                self.tally.note(unix_s, together.is_allowed(), requests, together.outcomes());
                (!together.is_allowed()).then(|| denying_rule(requests, together.outcomes()))
            }
        }
    }
}

/// What two rule files decide, each on a thread of its own.
pub(super) fn decide_both(
    one: &mut Candidate,
    other: &mut Candidate,
    asked: &[LogRequest<'_>],
) -> (Vec<Option<String>>, Vec<Option<String>>) {
    std::thread::scope(|scope| {
        let second = scope.spawn(|| other.decide_all(asked));
        let first = one.decide_all(asked);
        (first, second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// The rule that denies the requests.
fn denying_rule(requests: &[Request<'_>], outcomes: &[Outcome]) -> String {
    let denying = requests.iter().zip(outcomes).find(|(_, outcome)| !outcome.is_allowed());
    let subject = denying.and_then(|(request, outcome)| match outcome.ban() {
        Some(ban) => Some(ban.subject()),
        None => outcome.violated().map(|tier| tier.rule.key.render(request)),
    });
    subject.unwrap_or_default()
}

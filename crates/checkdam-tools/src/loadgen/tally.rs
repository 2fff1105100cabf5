//! Totals of the results of requests.

use std::collections::BTreeMap;
use std::time::Duration;

use checkdam::DecidedBy;
use hdrhistogram::{CreationError, Histogram};
use tokio::time::Instant;

use super::client::{RequestFailure, RequestResult, ServerVerdict};
use super::schedule::DueRequest;

/// Latencies are kept from a microsecond to an hour, in nanoseconds, to three digits.
const LATENCY_NS: (u64, u64) = (1_000, 3_600_000_000_000);
const DIGITS: u8 = 3;
/// A request that begins this much later than possible is late because of the
/// generator.
const LATE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub struct LoadTally {
    /// Of responses, of requests that timed out, and of those that were never sent, until
    /// the end.
    pub latencies: Histogram<u64>,
    pub allowed: u64,
    pub limited: u64,
    pub undecided: u64,
    pub refused: u64,
    pub reset: u64,
    pub timeouts: u64,
    pub others: u64,
    /// The first of the others in words.
    pub other: Option<String>,
    pub statuses: BTreeMap<u16, u64>,
    /// Those of them without a decision.
    pub undecided_statuses: BTreeMap<u16, u64>,
    /// By [`DecidedBy::number`].
    pub decided_by: [u64; DecidedBy::ALL.len()],
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Requests that were due before a client was free.
    pub queued: u64,
    /// Requests that began late although a client was free.
    pub late: u64,
    /// Requests that were due and never began.
    pub unsent: u64,
    /// Requests of the warm-up, which count nowhere else.
    pub warmup: u64,
    pub ended: Option<Instant>,
}

impl LoadTally {
    pub fn new() -> Result<Self, CreationError> {
        let (low, high) = LATENCY_NS;
        Ok(Self {
            latencies: Histogram::new_with_bounds(low, high, DIGITS)?,
            allowed: 0,
            limited: 0,
            undecided: 0,
            refused: 0,
            reset: 0,
            timeouts: 0,
            others: 0,
            other: None,
            statuses: BTreeMap::new(),
            undecided_statuses: BTreeMap::new(),
            decided_by: [0; DecidedBy::ALL.len()],
            sent_bytes: 0,
            received_bytes: 0,
            queued: 0,
            late: 0,
            unsent: 0,
            warmup: 0,
            ended: None,
        })
    }

    /// Counts a request that has just ended.
    pub fn count(&mut self, turn: &DueRequest, answered: Result<RequestResult, RequestFailure>) {
        if !turn.is_counted {
            self.warmup += 1;
            return;
        }
        let now = Instant::now();
        self.ended = Some(now);
        self.queued += u64::from(turn.free > turn.due);
        self.late += u64::from(turn.begun > turn.free.max(turn.due) + LATE);
        let latency = now.duration_since(turn.due);
        match answered {
            Ok(answer) => {
                self.add_latency(latency);
                self.count_response(&answer);
            }
            Err(RequestFailure::Timeout) => {
                self.add_latency(latency);
                self.timeouts += 1;
            }
            Err(RequestFailure::Refused) => self.refused += 1,
            Err(RequestFailure::Reset) => self.reset += 1,
            Err(RequestFailure::Other(reason)) => {
                self.others += 1;
                self.other.get_or_insert(reason);
            }
        }
    }

    /// Counts a request that never began, with the time that it waited.
    pub fn count_unsent(&mut self, waited: Duration) {
        self.unsent += 1;
        self.add_latency(waited);
    }

    /// Requests that count and were sent.
    pub fn requests(&self) -> u64 {
        self.responses() + self.refused + self.reset + self.timeouts + self.others
    }

    /// Those of them that got a response.
    pub fn responses(&self) -> u64 {
        self.allowed + self.limited + self.undecided
    }

    /// Those that were not decided.
    pub fn errors(&self) -> u64 {
        self.requests() - self.allowed - self.limited
    }

    pub fn percentile(&self, percent: f64) -> Duration {
        Duration::from_nanos(self.latencies.value_at_quantile(percent / 100.0).min(self.latencies.max()))
    }

    pub fn add(&mut self, other: &Self) {
        // Both have the same bounds, and recorded values are clamped to them.
        let _ = self.latencies.add(&other.latencies);
        let pairs = [
            (&mut self.allowed, other.allowed),
            (&mut self.limited, other.limited),
            (&mut self.undecided, other.undecided),
            (&mut self.refused, other.refused),
            (&mut self.reset, other.reset),
            (&mut self.timeouts, other.timeouts),
            (&mut self.others, other.others),
            (&mut self.sent_bytes, other.sent_bytes),
            (&mut self.received_bytes, other.received_bytes),
            (&mut self.queued, other.queued),
            (&mut self.late, other.late),
            (&mut self.unsent, other.unsent),
            (&mut self.warmup, other.warmup),
        ];
        for (sum, more) in pairs.into_iter().chain(self.decided_by.iter_mut().zip(other.decided_by)) {
            *sum += more;
        }
        for (sums, more) in
            [(&mut self.statuses, &other.statuses), (&mut self.undecided_statuses, &other.undecided_statuses)]
        {
            for (status, count) in more {
                *sums.entry(*status).or_default() += count;
            }
        }
        self.other = self.other.take().or_else(|| other.other.clone());
        self.ended = self.ended.max(other.ended);
    }

    fn count_response(&mut self, answer: &RequestResult) {
        match answer.verdict {
            ServerVerdict::Allowed => self.allowed += 1,
            ServerVerdict::Limited => self.limited += 1,
            ServerVerdict::Undecided => self.undecided += 1,
        }
        if let Some(status) = answer.status {
            *self.statuses.entry(status).or_default() += 1;
            if answer.verdict == ServerVerdict::Undecided {
                *self.undecided_statuses.entry(status).or_default() += 1;
            }
        }
        if let Some(decided_by) = answer.decided_by {
            self.decided_by[decided_by.number()] += 1;
        }
        self.sent_bytes += answer.sent_bytes as u64;
        self.received_bytes += answer.received_bytes as u64;
    }

    fn add_latency(&mut self, latency: Duration) {
        let latency_ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.latencies.saturating_record(latency_ns.clamp(LATENCY_NS.0, LATENCY_NS.1));
    }
}

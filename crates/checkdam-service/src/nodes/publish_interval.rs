//! How often a node publishes its status, and how large the message may be.
//!
//! Every node receives every message, so the traffic through Redis would grow with the
//! square of the nodes. With more than ten nodes each publishes less often and less: each
//! receives at most five messages a second, and Redis forwards at most 1.6 MB a second to
//! 150 nodes together. Beyond 150 nodes, rate and size hardly decrease further: a thousand
//! nodes make 35 MB a second.

use std::time::Duration;

/// Up to this many nodes publish every two seconds, in full.
const NODES_FEW: usize = 10;
const EVERY_MIN: Duration = Duration::from_secs(2);
const EVERY_MAX: Duration = Duration::from_secs(30);
/// The longest message in bytes.
pub(super) const MESSAGE_MAX: usize = 32 << 10;
/// Room for the summary, and hardly more.
const MESSAGE_MIN: usize = 1 << 10;
/// A node that missed this many messages is gone.
const TURNS_MISSED: u32 = 5;

/// The interval and the maximum size of status messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PublishInterval {
    pub(super) every: Duration,
    pub(super) bytes_max: usize,
}

impl PublishInterval {
    pub(super) fn for_nodes(nodes: usize) -> Self {
        let nodes = nodes.max(NODES_FEW);
        let every = EVERY_MIN.mul_f64(nodes as f64 / NODES_FEW as f64).min(EVERY_MAX);
        Self { every, bytes_max: (MESSAGE_MAX * NODES_FEW / nodes).max(MESSAGE_MIN) }
    }

    /// How long a node counts as alive that publishes every so many seconds, whatever it
    /// claims.
    pub(super) fn liveness_timeout(every_s: u64) -> Duration {
        Duration::from_secs(every_s).clamp(EVERY_MIN, EVERY_MAX) * TURNS_MISSED
    }

    /// The pace in whole seconds, not too few.
    pub(super) fn every_s(self) -> u64 {
        self.every.as_secs() + u64::from(self.every.subsec_nanos() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_nodes_speak_less_often_and_say_less() {
        assert_eq!(PublishInterval::for_nodes(1), PublishInterval { every: EVERY_MIN, bytes_max: MESSAGE_MAX });
        assert_eq!(PublishInterval::for_nodes(10), PublishInterval::for_nodes(1));
        for nodes in [10, 11, 40, 149, 150] {
            let PublishInterval { every, bytes_max } = PublishInterval::for_nodes(nodes);
            let passed_on = (nodes * nodes * bytes_max) as f64 / every.as_secs_f64();
            assert!(passed_on <= 1.64e6, "{nodes} nodes: {passed_on} B/s");
            assert!(nodes as f64 / every.as_secs_f64() <= 5.001, "{nodes} nodes");
        }
        assert_eq!(PublishInterval::for_nodes(1_000), PublishInterval { every: EVERY_MAX, bytes_max: MESSAGE_MIN });
    }

    #[test]
    fn nobody_is_believed_to_be_there_for_long() {
        assert_eq!(PublishInterval::liveness_timeout(0), Duration::from_secs(10));
        assert_eq!(PublishInterval::liveness_timeout(u64::MAX), Duration::from_secs(150));
    }
}

//! Charges responses by their size.
//!
//! The request's own cost is charged before it is forwarded, the remainder when the
//! response has ended. Nothing can be denied by then: if fewer tokens are left than
//! the remainder, those are charged.

use std::sync::Arc;

use checkdam::{LIMIT_MAX, Request, TierView};

use crate::app::App;

/// How often is tried to charge what is left while others charge too.
const ATTEMPTS: usize = 3;

/// The charge for a response's bytes.
pub(super) struct ByteCharge {
    app: Arc<App>,
    request: Request<'static>,
    bytes_per_unit: u64,
}

impl ByteCharge {
    /// The request has been charged its own cost.
    pub(super) const fn new(app: Arc<App>, request: Request<'static>, bytes_per_unit: u64) -> Self {
        Self { app, request, bytes_per_unit }
    }

    /// Charges this many bytes, less what was charged before.
    pub(super) async fn charge(self, bytes: u64) {
        let owed = bytes.div_ceil(self.bytes_per_unit.max(1)).saturating_sub(self.request.cost()).min(LIMIT_MAX);
        if owed == 0 {
            return;
        }
        for _ in 0..ATTEMPTS {
            // Looked at first: a check that is denied would count as a violation.
            let standing = self.app.peek(&self.request.clone().costing(owed)).await;
            let left = standing.tiers().filter(TierView::is_enforced).map(|tier| tier.decision.remaining).min();
            let cost = left.map_or(owed, |left| left.min(owed));
            drop(standing);
            if cost == 0 || self.app.check(&self.request.clone().costing(cost)).await.is_allowed() {
                return;
            }
        }
    }
}

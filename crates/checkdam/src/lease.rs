//! Leases: tokens of a shared bucket, prepaid in one call and spent on this node.
//!
//! A node spends granted tokens within a time T, measured on its own monotonic
//! clock from before the call. A limit that many nodes share then costs one call
//! in hundreds of requests, and is never exceeded:
//!
//! - A grant first raises the bucket's debt to at least rate·T
//!   ([`token_bucket::lease`](crate::algorithm::token_bucket::lease)), then adds
//!   the granted tokens to it. So for each held lease, granted an age ago, the
//!   bucket owes at least rate·(T − age) plus all tokens that were granted since
//!   and are held: the grant left at least rate·T, the refill has reduced it by
//!   rate·age, and later grants have increased it by their tokens. It owes at least
//!   as much as all nodes hold.
//! - A later grant may have found rate·T owed only because of an older lease. So
//!   returning tokens of a live lease never lowers the debt below rate·T plus all
//!   that was granted since, which a ledger beside the bucket counts
//!   ([`token_bucket::give_back`](crate::algorithm::token_bucket::give_back)).
//!   Older leases lose nothing: this lease's debt was added to what they found.
//! - Let Φ be the debt of the bucket minus the tokens held, never negative.
//!   Spending, from a lease or by an ordinary take, adds its cost to Φ; a grant
//!   adds nothing; expiry and return subtract nothing; time subtracts rate·w in a
//!   window of w. So the spending in that window is at most Φ at its end +
//!   rate·w ≤ **burst + rate·w**.
//!
//! Nodes need not know of each other, may lease on different terms, may lease and
//! take directly from the same bucket, and may crash: what they held was paid.
//! Ordinary takes may use the whole burst; only grants leave rate·T of it.
//!
//! A node's monotonic clock must advance while the machine is suspended: otherwise
//! it could spend expired tokens after it resumes. Accounts must be maintained,
//! because lease expiries are stored modulo 76 hours.
//!
//! Everything here is arithmetic on explicit times; the store makes the calls.

mod account;
mod account_table;
mod demand;
mod terms;
mod token_cell;

pub use account::{Account, BeginRefill, Payment, Receipt, RefillRequest, Spend};
pub use account_table::{AccountTable, LeaseStats};
pub use terms::LeaseTerms;

#[cfg(all(test, checkdam_loom))]
mod loom_models;
#[cfg(all(test, feature = "conformance"))]
mod simulation_tests;

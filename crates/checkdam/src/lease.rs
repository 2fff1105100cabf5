//! Tokens of a shared bucket, prepaid and spent on this node.
//!
//! A node is granted tokens in one call and spends them within a time T, which
//! it counts on its own monotonic clock from before it asked. A limit that many
//! nodes share then costs one call in hundreds, and is never exceeded:
//!
//! - A grant treats the bucket as if it owed at least what returns within T
//!   ([`token_bucket::lease`](crate::algorithm::token_bucket::lease)), and adds
//!   itself. So for each lease that is held, granted an age ago, the bucket owes
//!   at least rate·(T − age), and on top of it all that was granted since and is
//!   held: that lease found rate·T owed, time has taken rate·age, and the others
//!   added themselves. It owes at least as much as is held anywhere.
//! - A lease that was granted later may owe it to an older one that it found
//!   rate·T owed. So what is given back of a lease while it lives leaves owed
//!   rate·T and all that was granted since, which is counted in a ledger beside
//!   the bucket ([`token_bucket::give_back`](crate::algorithm::token_bucket::give_back)).
//!   Leases before it lose nothing: what it owed stood on top of what they found.
//! - Let Φ be what the bucket owes less what is held, never negative. Whatever is
//!   spent, here or by an ordinary take, adds to Φ as much as it costs; a grant
//!   adds nothing; what expires or is given back takes nothing away; time takes
//!   rate·w in a window of w. What is spent in that window is thus at most Φ at
//!   its end + rate·w ≤ **burst + rate·w**.
//!
//! Nodes need not know of each other, may ask on different terms, may lease and
//! take directly from the same bucket, and may vanish: what they held was paid.
//! Ordinary takes keep the whole burst; only grants leave rate·T of it.
//!
//! A node's clock must run while it is stopped: what a suspended machine held it
//! may spend when it goes on, if its counter stood still with it. Accounts must be
//! maintained, since the ends of leases are kept modulo 76 hours.
//!
//! Everything here is arithmetic on explicit times; calls are made by the store.

mod account;
mod accounts;
mod demand;
mod terms;
mod token_cell;

pub use account::{Account, Ask, Begin, Paid, Receipt, Spend};
pub use accounts::{Accounts, LeaseStats};
pub use terms::LeaseTerms;

#[cfg(all(test, checkdam_loom))]
mod models;
#[cfg(all(test, feature = "conformance"))]
mod tests;

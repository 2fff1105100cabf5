//! Tokens of a shared bucket, prepaid and spent on this node.
//!
//! A node is granted tokens in one call and spends them within a time T, which
//! it counts on its own monotonic clock from before it asked. A limit that many
//! nodes share then costs one call in hundreds, and is never exceeded:
//!
//! - A grant treats the bucket as if it owed at least what returns within T
//!   ([`token_bucket::lease`](crate::algorithm::token_bucket::lease)). So while
//!   tokens are held anywhere, the bucket owes at least as much as is held: the
//!   first grant among those still held found rate·T owed, which takes all of T
//!   to return, and each grant since added itself.
//! - Whatever is given back is taken off only as far as it leaves that much owed
//!   ([`token_bucket::give_back`](crate::algorithm::token_bucket::give_back)): the
//!   debt of a lease that is given back may have returned already, and what is
//!   owed by then is owed for others.
//! - Let Φ be what the bucket owes less what is held, never negative. Whatever is
//!   spent, here or by an ordinary take, adds to Φ as much as it costs; a grant
//!   adds nothing that is spent; what expires or is given back takes nothing away;
//!   time takes rate·w in a window of w. What is spent in that window is thus at
//!   most Φ at its end + rate·w ≤ **burst + rate·w**.
//!
//! Nodes need not know of each other, may ask on different terms, may lease and
//! take directly from the same bucket, and may vanish: what they held was paid.
//! Ordinary takes keep the whole burst; only grants leave rate·T of it.
//!
//! Everything here is arithmetic on explicit times; calls are made by the store.

mod account;
mod accounts;
mod demand;
mod purse;
mod terms;

pub use account::{Account, Ask, Begin, Paid, Receipt, Spend};
pub use accounts::{Accounts, LeaseStats};
pub use terms::Terms;

#[cfg(all(test, checkdam_loom))]
mod models;
#[cfg(all(test, feature = "conformance"))]
mod tests;

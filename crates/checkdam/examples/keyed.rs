//! One limit for each key, without rules: `cargo run -p checkdam --example keyed`.
#![allow(clippy::print_stdout)]

use checkdam::KeyedLimiter;

fn main() -> Result<(), checkdam::QuotaError> {
    let limiter = KeyedLimiter::new("1/s burst 3")?;
    for name in ["alice", "bob", "alice", "alice", "alice"] {
        let decision = limiter.check(name);
        match decision.retry_after() {
            _ if decision.is_allowed() => println!("{name} passes, {} left", decision.remaining),
            Some(wait) => println!("{name} must wait {wait:?}"),
            None => println!("{name} asks for more than a full bucket holds"),
        }
    }
    Ok(())
}

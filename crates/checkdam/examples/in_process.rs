//! A limiter inside a program: rules from YAML, buckets in memory.
//! Run it with `cargo run -p checkdam --example in_process`.
#![allow(clippy::print_stdout)]

use checkdam::store::MemoryStore;
use checkdam::{Limiter, Request, rule_file};

const RULES: &str = r#"
rules:
  - name: per-user
    key: "user:{user}"
    limits: ["1/s burst 3"]
  - name: everyone
    key: all
    limits: ["100/s"]
"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::new(rule_file::compile(RULES)?, MemoryStore::default());
    let request = Request::new().with("user", "42")?;
    for number in 1..=5 {
        let outcome = limiter.check_now(&request);
        match outcome.violated() {
            None => println!("request {number}: passes"),
            Some(tier) => println!("request {number}: {} says wait {:?}", tier.rule.name, outcome.retry_after()),
        }
    }
    Ok(())
}

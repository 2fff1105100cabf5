//! Bytes of memory per bucket at a million keys: the growth of this process.
//! Each limiter runs in a process of its own:
//! `cargo bench -p bench --bench bytes`.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

use std::num::NonZeroU32;
use std::process::Command;

use bench::{Checkdam, write_key};
use governor::{Quota, RateLimiter};

const KEYS: usize = 1_000_000;

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn each(take: &mut dyn FnMut(&String) -> bool) {
    let mut key = String::new();
    for number in 0..KEYS {
        write_key(&mut key, number);
        assert!(take(&key));
    }
}

fn main() {
    let which = std::env::args().find(|argument| matches!(argument.as_str(), "checkdam" | "governor"));
    if let Some(which) = which {
        let before = resident_bytes();
        match which.as_str() {
            "checkdam" => {
                let checkdam = Checkdam::new(KEYS, "1/h burst 100");
                each(&mut |key| checkdam.take(key));
                println!("{:.1}", (resident_bytes() - before) as f64 / KEYS as f64);
            }
            _ => {
                let quota = Quota::per_hour(NonZeroU32::new(1).unwrap()).allow_burst(NonZeroU32::new(100).unwrap());
                let governor = RateLimiter::keyed(quota);
                each(&mut |key| governor.check_key(key).is_ok());
                println!("{:.1}", (resident_bytes() - before) as f64 / KEYS as f64);
            }
        }
        return;
    }
    let measure = |which: &str| -> f64 {
        let output = Command::new(std::env::current_exe().unwrap()).arg(which).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    };
    let (ours, theirs) = (measure("checkdam"), measure("governor"));
    println!("bytes per bucket at {KEYS} keys of 20 bytes (checkdam with max_buckets = 2 x keys):");
    println!("  checkdam        {ours:>6.1}");
    println!("  governor keyed  {theirs:>6.1}   {:.1} x checkdam", theirs / ours);
}

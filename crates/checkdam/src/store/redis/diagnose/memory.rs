//! Checks the eviction policy: what the server does when its memory is full.

use super::finding::Finding;
use super::server_info::{ServerInfo, not_visible};

/// From this share of `maxmemory` on, there is little left.
const FULL_PERCENT: u64 = 90;

/// Eviction policy and the room that is left.
pub(super) fn memory(info: &ServerInfo) -> Vec<Finding> {
    let Some(policy) = info.info("maxmemory_policy") else {
        let check = "maxmemory is set, and maxmemory-policy is volatile-ttl or noeviction";
        return vec![not_visible("memory", "+info", check)];
    };
    vec![eviction(policy), room(info, policy)]
}

fn eviction(policy: &str) -> Finding {
    match policy {
        "noeviction" => {
            Finding::ok("eviction", "noeviction: a full server refuses, and each rule's on_store_failure answers")
        }
        "volatile-ttl" => Finding::ok("eviction", "volatile-ttl: a full server forgets those who owe least"),
        _ => Finding::warning(
            "eviction",
            format!("{policy}: a full server forgets buckets at random, which resets limits unnoticed"),
            "set maxmemory-policy to volatile-ttl or noeviction",
        ),
    }
}

fn room(info: &ServerInfo, policy: &str) -> Finding {
    let number = |name| info.info(name).and_then(|text| text.parse::<u64>().ok());
    let (used, bound) = (number("used_memory").unwrap_or(0), number("maxmemory").unwrap_or(0));
    if bound == 0 {
        let remedy = "set maxmemory, so that the operating system does not end the server when memory is short; \
                      a bucket takes about 130 bytes";
        return Finding::advice("memory", format!("{} used, without a bound", size(used)), remedy);
    }
    let percent = used.saturating_mul(100) / bound;
    let seen = format!("{} of {} used, {percent} %", size(used), size(bound));
    let remedy = "raise maxmemory, or move other data elsewhere";
    if percent >= 100 && policy == "noeviction" {
        return Finding::problem("memory", format!("{seen}: the server refuses to write"), remedy);
    }
    if percent >= FULL_PERCENT {
        return Finding::warning("memory", seen, remedy);
    }
    Finding::ok("memory", seen)
}

fn size(bytes: u64) -> String {
    if bytes < 10 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::diagnose::finding::Level;

    #[test]
    fn what_a_full_server_does_is_judged() {
        use Level::{Advice, Ok, Problem, Warning};
        for (policy, used, bound, eviction, room) in [
            ("noeviction", 1, 0, Ok, Advice),
            ("volatile-ttl", 50, 100, Ok, Ok),
            ("volatile-ttl", 100, 100, Ok, Warning),
            ("noeviction", 100, 100, Ok, Problem),
            ("allkeys-lru", 89, 100, Warning, Ok),
            ("volatile-lru", 90, 100, Warning, Warning),
        ] {
            let lines = [("maxmemory_policy", policy.to_owned()), ("used_memory", used.to_string())];
            let lines = lines.into_iter().chain([("maxmemory", bound.to_string())]);
            let info = lines.map(|(name, value)| (name.to_owned(), value)).collect();
            let found = memory(&ServerInfo { info: Some(info), ..ServerInfo::default() });
            assert_eq!((found[0].level, found[1].level), (eviction, room), "{policy}, {used} of {bound}");
        }
    }
}

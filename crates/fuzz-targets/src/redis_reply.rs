//! Fuzz target: parsing of Redis replies to the script; every decision is within its quota.

use checkdam::store::redis::fuzzing::{decide_by_reply, lease_by_reply};
use checkdam::{Algorithm, Decision, LIMIT_MAX, Quota};

use crate::split_line;

/// The first line of the input has the cost and the quotas, separated by commas; a reply in RESP
/// follows. It is a decision of every tier within its quota, or no reply of the script.
pub fn redis_reply(data: &[u8]) {
    let (line, resp) = split_line(data);
    let line = String::from_utf8_lossy(line);
    let (cost, quotas) = line.split_once(',').unwrap_or((&line, ""));
    let cost = cost.parse().unwrap_or(1).min(LIMIT_MAX);
    for algorithm in Algorithm::ALL {
        let quotas = quotas.split(',').filter_map(|text| Quota::new(text.trim().parse().ok()?, algorithm).ok());
        let quotas: Vec<_> = quotas.take(16).collect();
        let decided = decide_by_reply(resp, &quotas, cost);
        for (quota, decisions) in quotas.iter().zip(decided.iter().flatten()) {
            decisions.iter().for_each(|decision| check(quota, decision));
        }
        if let Some(quota) = quotas.first().filter(|_| algorithm == Algorithm::TokenBucket)
            && let Some((granted, left, _)) = lease_by_reply(resp, quota, cost)
        {
            assert!(
                granted <= cost && granted.saturating_add(left) <= quota.limit(),
                "{granted} and {left} of {quota}"
            );
        }
    }
}

fn check(quota: &Quota, decision: &Decision) {
    assert_eq!(decision.limit, quota.limit(), "{quota}");
    assert!(decision.remaining <= quota.limit(), "{decision:?} of {quota}");
}

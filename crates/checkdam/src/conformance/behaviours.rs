//! Conformance tests of the store contract, behaviour by behaviour, for every
//! algorithm.

use super::oracle::{self, Take};
use super::{Harness, TestBucket, apply};
use crate::decision::Verdict;
use crate::quota::{Algorithm, Quota, QuotaSpec};
use crate::store::{Operation, Tier};
use crate::time::SECOND_US;

const HOUR_US: u64 = 3_600 * SECOND_US;
/// A moment that no window of a minute begins at.
const NOON_US: u64 = 43_230 * SECOND_US;

pub(super) async fn run<H: Harness>(harness: &H) -> Result<usize, String> {
    let mut checks = 0;
    for algorithm in Algorithm::ALL {
        checks += all_tiers_or_none(harness, algorithm).await?;
        checks += shadows_never_deny(harness, algorithm).await?;
        checks += peek_changes_nothing(harness, algorithm).await?;
        checks += refund_and_reset(harness, algorithm).await?;
        checks += buckets_are_separate(harness, algorithm).await?;
        for other in [(100, HOUR_US), (10, SECOND_US), (1_000, SECOND_US), (7, 3 * SECOND_US)] {
            checks += quotas_alternate(harness, algorithm, other).await?;
        }
        checks += algorithms_alternate(harness, algorithm).await?;
    }
    Ok(checks)
}

fn quota(algorithm: Algorithm, amount: u64) -> Result<Quota, String> {
    quota_per(algorithm, amount, 60 * SECOND_US)
}

fn quota_per(algorithm: Algorithm, amount: u64, period_us: u64) -> Result<Quota, String> {
    let spec = QuotaSpec::new(amount, period_us);
    Quota::new(spec, algorithm).map_err(|error| error.to_string())
}

fn bucket(story: &str, algorithm: Algorithm, subject: &str) -> TestBucket {
    TestBucket::new(&format!("{story} {algorithm:?}"), subject)
}

/// One check; both sides are given away so that callers read as tables.
#[allow(clippy::needless_pass_by_value)]
fn expect<T: PartialEq + std::fmt::Debug>(
    what: &str,
    algorithm: Algorithm,
    got: T,
    wanted: T,
) -> Result<usize, String> {
    if got == wanted { Ok(1) } else { Err(format!("{what} ({algorithm:?}): expected {wanted:?}, got {got:?}")) }
}

/// Remaining of each tier after an operation.
async fn remaining<H: Harness>(harness: &H, operation: Operation, tiers: &[Tier<'_>]) -> Vec<u64> {
    apply(harness, operation, tiers).await.decisions.iter().map(|decision| decision.remaining).collect()
}

async fn all_tiers_or_none<H: Harness>(harness: &H, algorithm: Algorithm) -> Result<usize, String> {
    harness.set_now_us(NOON_US);
    let (wide, narrow) = (quota(algorithm, 100)?, quota(algorithm, 3)?);
    let words = quota(Algorithm::TokenBucket, 50)?;
    let story = |subject| bucket("all tiers or none", algorithm, subject);
    let (first, second, third) = (story("first"), story("second"), bucket("all, mixed", algorithm, "third"));
    let tiers = |cost| [first.tier(&wide, cost), second.tier(&narrow, cost), third.tier(&words, cost)];
    let mut checks =
        expect("all pass", algorithm, remaining(harness, Operation::Take, &tiers(2)).await, vec![98, 1, 48])?;
    let answer = apply(harness, Operation::Take, &tiers(2)).await;
    let verdicts: Vec<_> = answer.decisions.iter().map(|decision| decision.verdict).collect();
    let wanted = vec![Verdict::Allowed, Verdict::Denied, Verdict::Allowed];
    checks += expect("every failing tier is reported", algorithm, verdicts, wanted)?;
    let left: Vec<_> = answer.decisions.iter().map(|decision| decision.remaining).collect();
    checks += expect("a denied take charges nothing", algorithm, left, vec![98, 1, 48])?;
    let answer = apply(harness, Operation::Take, &tiers(4)).await;
    checks += expect("can never pass", algorithm, answer.decisions[1].verdict, Verdict::CostExceedsBurst)?;
    checks += expect("and charges nothing", algorithm, answer.decisions[0].remaining, 98)?;
    checks +=
        expect("the rest passes", algorithm, remaining(harness, Operation::Take, &tiers(1)).await, vec![97, 0, 47])?;
    Ok(checks)
}

async fn shadows_never_deny<H: Harness>(harness: &H, algorithm: Algorithm) -> Result<usize, String> {
    harness.set_now_us(NOON_US);
    let (wide, narrow) = (quota(algorithm, 5)?, quota(algorithm, 2)?);
    let story = |subject| bucket("shadows never deny", algorithm, subject);
    let (enforced, candidate, other) = (story("enforced"), story("candidate"), story("other"));
    // The candidate rule has two limits; the second of them fails from the third take on.
    let tiers = [
        enforced.tier(&wide, 1),
        Tier { group: 1, ..candidate.tier(&wide, 1) },
        Tier { group: 1, ..other.tier(&narrow, 1) },
    ];
    let mut checks = 0;
    for wanted in [[4, 4, 1], [3, 3, 0], [2, 3, 0], [1, 3, 0], [0, 3, 0]] {
        let got = remaining(harness, Operation::Take, &tiers).await;
        checks += expect("a shadow is charged as a whole, or not", algorithm, got, wanted.to_vec())?;
    }
    let answer = apply(harness, Operation::Take, &tiers).await;
    checks += expect("enforced tiers do deny", algorithm, answer.decisions[0].verdict, Verdict::Denied)?;
    checks += expect("and then charge no shadow", algorithm, answer.decisions[1].remaining, 3)?;
    Ok(checks)
}

async fn peek_changes_nothing<H: Harness>(harness: &H, algorithm: Algorithm) -> Result<usize, String> {
    harness.set_now_us(NOON_US);
    let quota = quota(algorithm, 4)?;
    let bucket = bucket("peek changes nothing", algorithm, "one");
    let mut checks = 0;
    for cost in [1, 4, 5, 0, 1] {
        let got = remaining(harness, Operation::Peek, &[bucket.tier(&quota, cost)]).await;
        checks += expect("peek", algorithm, got, vec![4])?;
    }
    checks += expect("take", algorithm, remaining(harness, Operation::Take, &[bucket.tier(&quota, 3)]).await, vec![1])?;
    let answer = apply(harness, Operation::Peek, &[bucket.tier(&quota, 2)]).await;
    checks += expect("peek sees a denial", algorithm, answer.decisions[0].verdict, Verdict::Denied)?;
    checks += expect("take", algorithm, remaining(harness, Operation::Take, &[bucket.tier(&quota, 1)]).await, vec![0])?;
    Ok(checks)
}

async fn refund_and_reset<H: Harness>(harness: &H, algorithm: Algorithm) -> Result<usize, String> {
    harness.set_now_us(NOON_US);
    let quota = quota(algorithm, 10)?;
    let bucket = bucket("refund and reset", algorithm, "one");
    let mut checks = 0;
    let script = [
        (Operation::Refund, 3, 10),
        (Operation::Take, 8, 2),
        (Operation::Refund, 3, 5),
        (Operation::Take, 5, 0),
        (Operation::Refund, 100, 10),
        (Operation::Take, 10, 0),
        (Operation::Reset, 0, 10),
        (Operation::Take, 10, 0),
        (Operation::Charge, 1, 0),
        (Operation::Refund, 8, 8),
        (Operation::Charge, 3, 5),
        (Operation::Charge, 100, 0),
        (Operation::Refund, 2, 2),
        (Operation::Charge, 0, 2),
    ];
    for (operation, cost, wanted) in script {
        let got = remaining(harness, operation, &[bucket.tier(&quota, cost)]).await;
        checks += expect("refund and reset", algorithm, got, vec![wanted])?;
    }
    Ok(checks)
}

async fn buckets_are_separate<H: Harness>(harness: &H, algorithm: Algorithm) -> Result<usize, String> {
    harness.set_now_us(NOON_US);
    let quota = quota(algorithm, 2)?;
    let subjects = ["", "a", "b", "ab", "a\0b", "a:b", "ü", &"x".repeat(512)];
    let mut checks = 0;
    for rule in ["separate one", "separate two"] {
        for subject in subjects {
            let bucket = bucket(rule, algorithm, subject);
            let got = remaining(harness, Operation::Take, &[bucket.tier(&quota, 2)]).await;
            checks += expect("a bucket of its own", algorithm, got, vec![0])?;
        }
    }
    Ok(checks)
}

/// Two versions of a rule in use at one time, as in a rolling deploy: what each
/// admits stays within its own quota, whatever the other takes or is denied.
async fn quotas_alternate<H: Harness>(
    harness: &H,
    algorithm: Algorithm,
    (amount, period_us): (u64, u64),
) -> Result<usize, String> {
    let versions = [quota_per(algorithm, 100, SECOND_US)?, quota_per(algorithm, amount, period_us)?];
    let bucket = bucket("quotas alternate", algorithm, &format!("{amount}/{period_us}"));
    let mut taken = [Vec::new(), Vec::new()];
    for step in 0..600_u64 {
        // Not in strict turn, so that each also follows itself.
        let version = usize::from(step * step % 7 < 3);
        harness.set_now_us(NOON_US + step * 5_000);
        let answer = apply(harness, Operation::Take, &[bucket.tier(&versions[version], 1)]).await;
        let admitted = answer.decisions[0].is_allowed();
        taken[version].push(Take { at_us: answer.at_us, cost: 1, admitted });
    }
    for (quota, taken) in versions.iter().zip(&mut taken) {
        oracle::verify(quota, taken).map_err(|error| format!("quotas alternate ({algorithm:?}): {error}"))?;
    }
    Ok(1)
}

/// The same where the versions count by different algorithms.
async fn algorithms_alternate<H: Harness>(harness: &H, algorithm: Algorithm) -> Result<usize, String> {
    harness.set_now_us(NOON_US);
    let bucket = bucket("algorithms alternate", algorithm, "one");
    let mut admitted = [0_u64; Algorithm::ALL.len()];
    for _ in 0..20 {
        for (version, admitted) in Algorithm::ALL.into_iter().zip(&mut admitted) {
            for version in [algorithm, version] {
                let quota = quota(version, 10)?;
                let answer = apply(harness, Operation::Take, &[bucket.tier(&quota, 1)]).await;
                *admitted += u64::from(answer.decisions[0].is_allowed());
            }
        }
    }
    let all: u64 = admitted.iter().sum();
    expect("each algorithm admits ten", algorithm, all, 10 * Algorithm::ALL.len() as u64)
}

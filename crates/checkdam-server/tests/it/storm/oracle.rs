//! Upper bounds of what may be admitted, and whether they were exceeded.
//!
//! The time of a decision is known only to lie between the request and its response.
//! So an admission counts in the windows that contain its whole request: what is
//! counted was decided in the window, and no bound is too tight for it.
//!
//! - What Redis and leases admit is within the limit's own bound: burst and rate for
//!   a bucket, the limit for a window. Each loss of Redis' data (FLUSHALL, a failover
//!   that lags) adds at most one burst, or what is leased if more.
//! - Everything admitted, local decisions included, is within the same bound, plus
//!   each node's share of the rate for the time that it decided alone, and for the
//!   time before that in which it had no reply from Redis for the bucket: at most its
//!   share of the burst, as for a node that has just started. While a rule is edited,
//!   each change of its quota adds at most one burst.

use super::NODES;
use super::clients::{CheckAnswer, DecidedBy, FailedRequest, Observations};
use super::rules::{EDITED, HOT, OracleCheck, OracleLimit};

const SECOND_US: u64 = 1_000_000;

/// What happened during the storm, in microseconds since it began.
#[derive(Debug, Clone, Default)]
pub(super) struct StormEvents {
    /// When Redis lost what it knew: from, to.
    pub(super) losses: Vec<(u64, u64)>,
    /// When a rule was changed: from, to.
    pub(super) edits: Vec<(u64, u64)>,
    /// Which node was killed, when, and when it was up again.
    pub(super) restarts: Vec<(usize, u64, u64)>,
    /// How far into a second of its own clock Redis was when the storm began.
    pub(super) phase_us: u64,
}

/// Panics with everything that was found.
pub(super) fn check(observed: &Observations, events: &StormEvents) {
    let mut found = observed.faults.clone();
    for failure in &observed.failures {
        let explains = |(node, from_us, to_us): &(usize, u64, u64)| {
            *node == failure.node && *from_us <= failure.end_us && failure.start_us <= *to_us
        };
        if !events.restarts.iter().any(explains) {
            let FailedRequest { node, start_us, end_us, what } = failure;
            found.push(format!("node {node} was up and did not answer, {start_us} to {end_us} µs: {what}"));
        }
    }
    let limits: Vec<OracleLimit> = HOT.into_iter().chain(EDITED).collect();
    for ((place, subject), answers) in &observed.answers {
        let limit = &limits[*place];
        let name = format!("{} {} of subject {subject}", limit.rule, limit.text);
        let admitted = answers.iter().filter(|answer| answer.is_admitted).count();
        let local = answers.iter().filter(|answer| answer.is_admitted && answer.by == DecidedBy::Local).count();
        println!("{name}: {admitted} of {} admitted, {local} locally", answers.len());
        let result = match limit.kind {
            OracleCheck::Bucket => check_bucket(limit, answers, events),
            OracleCheck::AlignedSecond => check_windows(limit, answers, events, true),
            OracleCheck::AnySecond => check_windows(limit, answers, events, false),
        };
        if let Err(error) = result {
            found.push(format!("{name}: {error}"));
        }
    }
    let count = found.len();
    found.truncate(20);
    assert!(found.is_empty(), "{count} findings:\n{}", found.join("\n"));
}

/// A bucket admits at most its burst and its rate in every window.
fn check_bucket(limit: &OracleLimit, answers: &[CheckAnswer], events: &StormEvents) -> Result<(), String> {
    let (burst, per_us) = (limit.limit as f64, limit.per_second as f64 / SECOND_US as f64);
    let lost = if limit.lease.is_some() { 2.0 * burst } else { burst };
    let mut steps: Vec<ExtraAllowance> =
        events.losses.iter().map(|&(from_us, to_us)| ExtraAllowance { from_us, to_us, amount: lost }).collect();
    let shared = admissions(answers, |by| by == DecidedBy::Shared);
    let over = worst_excess(&shared, &steps, |at_us| per_us * at_us as f64) - burst;
    if over > TOLERANCE {
        return Err(format!("Redis and leases admitted {over:.1} too many in some window"));
    }
    if limit.is_edited() {
        // What a node heard of a bucket before a change of quota says little after the next.
        steps.extend(events.edits.iter().map(|&(from_us, to_us)| ExtraAllowance { from_us, to_us, amount: burst }));
    }
    let share_per_us = per_us / NODES as f64;
    let alone: Vec<Vec<LocalPeriod>> = (0..NODES).map(|node| alone(answers, node, events)).collect();
    for LocalPeriod { from_us, to_us, heard_us } in alone.iter().flatten().copied() {
        let unheard = heard_us.map_or(f64::MAX, |heard_us| share_per_us * to_us.saturating_sub(heard_us) as f64);
        steps.push(ExtraAllowance { from_us, to_us, amount: unheard.min(burst / NODES as f64) });
    }
    let allowed = |at_us: u64| {
        let alone_us: u64 = alone.iter().map(|intervals| measure_until(intervals, at_us)).sum();
        per_us * at_us as f64 + share_per_us * alone_us as f64
    };
    let over = worst_excess(&admissions(answers, |_| true), &steps, allowed) - burst;
    if over > TOLERANCE {
        return Err(format!("all together admitted {over:.1} too many in some window"));
    }
    Ok(())
}

/// Rounding of what is computed in floating point here.
const TOLERANCE: f64 = 0.01;
/// How far the clock of Redis and ours may be apart as they were compared.
const CLOCKS_APART_US: u64 = 2_000;

/// A window admits at most its limit.
fn check_windows(
    limit: &OracleLimit,
    answers: &[CheckAnswer],
    events: &StormEvents,
    is_aligned: bool,
) -> Result<(), String> {
    let mut admitted: Vec<&CheckAnswer> = answers.iter().filter(|answer| answer.is_admitted).collect();
    admitted.sort_by_key(|answer| answer.start_us);
    for (number, first) in admitted.iter().enumerate() {
        let (from_us, to_us) = if is_aligned {
            let second_us = (first.start_us + events.phase_us) / SECOND_US * SECOND_US;
            let ours_us = |redis_us: u64| redis_us.saturating_sub(events.phase_us);
            (ours_us(second_us + CLOCKS_APART_US), ours_us(second_us + SECOND_US - CLOCKS_APART_US))
        } else {
            (first.start_us, first.start_us + SECOND_US - 1)
        };
        let behind = admitted[number..].iter().take_while(|answer| answer.start_us <= to_us);
        let inside: Vec<_> = behind.filter(|it| it.start_us >= from_us && it.end_us <= to_us).collect();
        let losses = events.losses.iter().filter(|(from, to)| *from <= to_us && from_us <= *to).count() as u64;
        let most = limit.limit * (1 + losses);
        let shared = inside.iter().filter(|answer| answer.by == DecidedBy::Shared).count() as u64;
        if shared > most {
            return Err(format!("Redis admitted {shared} from {from_us} to {to_us}, at most {most} may pass"));
        }
        let is_alone = |node: usize| inside.iter().any(|answer| answer.by == DecidedBy::Local && answer.node == node);
        let shares = (0..NODES).filter(|node| is_alone(*node)).count() as u64 * limit.limit / NODES as u64;
        if inside.len() as u64 > most + shares {
            let (all, most) = (inside.len(), most + shares);
            return Err(format!("all together admitted {all} from {from_us} to {to_us}, at most {most} may pass"));
        }
    }
    Ok(())
}

fn admissions(answers: &[CheckAnswer], counts: impl Fn(DecidedBy) -> bool) -> Vec<(u64, u64)> {
    let admitted = answers.iter().filter(|answer| answer.is_admitted && counts(answer.by));
    admitted.map(|answer| (answer.start_us, answer.end_us)).collect()
}

/// A time in which a node decided by itself.
#[derive(Debug, Clone, Copy)]
struct LocalPeriod {
    from_us: u64,
    to_us: u64,
    /// When it had last heard of the bucket; none: never since it started.
    heard_us: Option<u64>,
}

/// When a node decided by itself, from the first such answer to the last before
/// it heard of the bucket again.
fn alone(answers: &[CheckAnswer], node: usize, events: &StormEvents) -> Vec<LocalPeriod> {
    let mut own: Vec<&CheckAnswer> = answers.iter().filter(|answer| answer.node == node).collect();
    own.sort_by_key(|answer| answer.end_us);
    let (mut heard_us, mut is_alone, mut intervals) = (None::<u64>, false, Vec::<LocalPeriod>::new());
    for answer in own {
        if answer.by == DecidedBy::Shared {
            heard_us = heard_us.max(Some(answer.start_us));
            is_alone = false;
            continue;
        }
        let CheckAnswer { start_us, end_us, .. } = *answer;
        let has_restarted = |since_us: u64| {
            let overlaps =
                |(it, from_us, to_us): &(usize, u64, u64)| *it == node && *from_us <= end_us && since_us <= *to_us;
            events.restarts.iter().any(overlaps)
        };
        match intervals.last_mut() {
            Some(last) if (is_alone || last.to_us >= start_us) && !has_restarted(last.to_us) => last.to_us = end_us,
            _ => {
                let heard_us = heard_us.filter(|heard_us| !has_restarted(*heard_us));
                intervals.push(LocalPeriod { from_us: start_us, to_us: end_us, heard_us });
            }
        }
        is_alone = true;
    }
    intervals
}

/// How much of the intervals lies before a time.
fn measure_until(intervals: &[LocalPeriod], at_us: u64) -> u64 {
    intervals.iter().map(|alone| alone.to_us.min(at_us).saturating_sub(alone.from_us)).sum()
}

/// So much more may be admitted in a window that overlaps this time.
struct ExtraAllowance {
    from_us: u64,
    to_us: u64,
    amount: f64,
}

/// The most by which the admissions of a window exceed what its length and the
/// steps in it allow; `allowed` grows with time, and a window allows the
/// difference between its ends. O(n log n) for all windows.
fn worst_excess(admitted: &[(u64, u64)], steps: &[ExtraAllowance], allowed: impl Fn(u64) -> f64) -> f64 {
    let mut starts: Vec<u64> = admitted.iter().map(|(start_us, _)| *start_us).collect();
    starts.sort_unstable();
    let mut by_end: Vec<(u64, u64)> = admitted.to_vec();
    by_end.sort_unstable_by_key(|(_, end_us)| *end_us);
    let mut steps: Vec<&ExtraAllowance> = steps.iter().collect();
    steps.sort_by_key(|step| step.from_us);
    let mut steps = steps.into_iter().peekable();
    // For each window's start: admissions so far, less what the time before it allows.
    let values: Vec<f64> = starts.iter().map(|start_us| allowed(*start_us) - INACTIVE).collect();
    let mut windows = PrefixAdds::new(&values);
    let before = |time_us: u64| starts.partition_point(|start_us| *start_us <= time_us);
    let mut worst = f64::MIN;
    for (start_us, end_us) in by_end {
        while let Some(step) = steps.next_if(|step| step.from_us <= end_us) {
            windows.add(before(step.to_us), -step.amount);
        }
        // Windows begin at the start of a request that they contain.
        let last = before(start_us);
        windows.activate(last - 1);
        windows.add(last, 1.0);
        worst = worst.max(windows.max() - allowed(end_us));
    }
    worst
}

/// Far below everything that is compared.
const INACTIVE: f64 = 1e9;

/// Values to whose first so many something is added, and their maximum.
struct PrefixAdds {
    size: usize,
    /// A segment tree: the maximum below a node without what is added at it or above.
    most: Vec<f64>,
    added: Vec<f64>,
    is_active: Vec<bool>,
}

impl PrefixAdds {
    fn new(values: &[f64]) -> Self {
        let size = values.len().next_power_of_two();
        let mut most = vec![f64::MIN; 2 * size];
        most[size..size + values.len()].copy_from_slice(values);
        for node in (1..size).rev() {
            most[node] = most[2 * node].max(most[2 * node + 1]);
        }
        Self { size, most, added: vec![0.0; 2 * size], is_active: vec![false; values.len()] }
    }

    /// Adds to the first `count` values.
    fn add(&mut self, count: usize, amount: f64) {
        self.add_between(0, count, amount);
    }

    /// Makes a value count.
    fn activate(&mut self, place: usize) {
        if !std::mem::replace(&mut self.is_active[place], true) {
            self.add_between(place, place + 1, INACTIVE);
        }
    }

    fn max(&self) -> f64 {
        self.most[1]
    }

    fn add_between(&mut self, from: usize, to: usize, amount: f64) {
        let (mut left, mut right) = (from + self.size, to + self.size);
        let (first, last) = (left, right - 1);
        while left < right {
            if left % 2 == 1 {
                self.apply(left, amount);
                left += 1;
            }
            if right % 2 == 1 {
                right -= 1;
                self.apply(right, amount);
            }
            (left, right) = (left / 2, right / 2);
        }
        for place in [first, last] {
            let mut node = place / 2;
            while node >= 1 {
                self.most[node] = self.most[2 * node].max(self.most[2 * node + 1]) + self.added[node];
                node /= 2;
            }
        }
    }

    fn apply(&mut self, node: usize, amount: f64) {
        self.most[node] += amount;
        self.added[node] += amount;
    }
}

/// The oracle itself, on admissions whose answer is known.
#[test]
fn the_oracle_counts_requests_only_in_windows_that_contain_them() {
    let per_us = |at_us: u64| at_us as f64 / SECOND_US as f64;
    // Three at once, then one a second: 1/s burst 3 allows it.
    let fine = [(0, 10), (0, 10), (0, 10), (SECOND_US, SECOND_US + 10), (2 * SECOND_US, 2 * SECOND_US + 10)];
    assert!(worst_excess(&fine, &[], per_us) <= 3.0);
    let mut over = fine.to_vec();
    over.push((2 * SECOND_US, 2 * SECOND_US + 10));
    assert!(worst_excess(&over, &[], per_us) > 3.5, "{}", worst_excess(&over, &[], per_us));
    // A request that took a second may have been decided at either end of it.
    over[5] = (2 * SECOND_US, 3 * SECOND_US + 10);
    assert!(worst_excess(&over, &[], per_us) <= 3.001);
    let loss = ExtraAllowance { from_us: 5, to_us: 6, amount: 1.0 };
    over[5] = (2 * SECOND_US, 2 * SECOND_US + 10);
    assert!(worst_excess(&over, &[loss], per_us) <= 3.001);
    // By comparison with every pair of ends, on many small cases.
    let mut random = super::Random::new(7, 7);
    for _ in 0..200 {
        let admitted: Vec<(u64, u64)> = (0..random.below(30) + 1)
            .map(|_| {
                let start_us = random.below(5_000_000);
                (start_us, start_us + random.below(900_000))
            })
            .collect();
        let from_us = random.below(5_000_000);
        let steps = [ExtraAllowance { from_us, to_us: from_us + random.below(100_000), amount: 2.0 }];
        let mut expected = f64::MIN;
        for (from, _) in &admitted {
            for (_, to) in &admitted {
                let inside = admitted.iter().filter(|(start, end)| start >= from && end <= to).count() as f64;
                let step: f64 = steps
                    .iter()
                    .filter(|step| step.from_us <= *to && *from <= step.to_us)
                    .map(|step| step.amount)
                    .sum();
                if inside > 0.0 {
                    expected = expected.max(inside - step - (per_us(*to) - per_us(*from)));
                }
            }
        }
        let found = worst_excess(&admitted, &steps, per_us);
        assert!((found - expected).abs() < 1e-3, "{found} is not {expected}: {admitted:?}");
    }
}

//! Tests of the heavy-hitters sketch: counts, error bounds and merging.

use std::collections::HashMap;
use std::hash::BuildHasher;

use super::*;

/// Numbers that follow from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Small numbers more often than large ones, below `names`.
    fn skewed(&mut self, names: u64, steepness: u32) -> u64 {
        let share = (self.roll() >> 11) as f64 / (1_u64 << 53) as f64;
        ((share.powi(steepness as i32)) * names as f64) as u64
    }
}

type Exact = HashMap<String, u64>;

fn hash(subject: &str) -> u64 {
    foldhash::quality::FixedState::with_seed(7).hash_one(("rule", subject))
}

fn note(sketch: &mut HeavyHitters, exact: &mut Exact, subject: String) {
    sketch.record(hash(&subject), "rule", &subject);
    *exact.entry(subject).or_default() += 1;
}

/// Everything that the module promises.
fn hold(names: &[(RuleSubject, HitterCount)], floor: u64, exact: &Exact, total: u64, max: u64, context: &str) {
    assert_eq!(total, exact.values().sum::<u64>(), "{context}");
    assert!(floor <= total / max, "{context}: {floor} of {total} are missing");
    let mut listed = HashMap::new();
    for (name, count) in names {
        let truth = exact.get(&name.subject).copied().unwrap_or(0);
        assert!(count.count >= truth, "{context}: {name:?} came {truth} times: {count:?}");
        assert!(count.count - count.too_high_by <= truth, "{context}: {name:?} came {truth} times: {count:?}");
        assert!(count.too_high_by <= floor, "{context}: {count:?} beyond {floor}");
        assert!(listed.insert(name.subject.clone(), ()).is_none(), "{context}: {name:?} is listed twice");
    }
    for (subject, truth) in exact.iter().filter(|(subject, _)| !listed.contains_key(*subject)) {
        assert!(*truth <= floor, "{context}: {subject} came {truth} times and is missing");
    }
}

fn all(sketch: &HeavyHitters) -> Vec<(RuleSubject, HitterCount)> {
    sketch.iter().map(|(name, count)| (name.clone(), count)).collect()
}

#[test]
fn counts_and_bounds_hold_on_skewed_streams() {
    for seed in 1..=40 {
        let mut dice = Dice(seed * 0x9E37_79B9);
        let (max, names, steepness) = (1 + dice.roll() % 64, 1 + dice.roll() % 2_000, 1 + (dice.roll() % 6) as u32);
        let (mut sketch, mut exact) = (HeavyHitters::new(max as usize), Exact::new());
        for _ in 0..dice.roll() % 5_000 {
            note(&mut sketch, &mut exact, format!("user:{}", dice.skewed(names, steepness)));
        }
        let context = format!("seed {seed}: {max} places, {names} names");
        hold(&all(&sketch), sketch.missing_at_most(), &exact, sketch.total(), max, &context);
    }
}

#[test]
fn merging_keeps_the_bounds_however_often_it_is_done() {
    for seed in 1..=20 {
        let mut dice = Dice(seed * 0x51_7CC1);
        let (max, names) = (2 + dice.roll() % 32, 1 + dice.roll() % 500);
        let (mut merged, mut ranking, mut exact) = (HeavyHitters::new(max as usize), Ranking::default(), Exact::new());
        for _ in 0..60 {
            let mut part = HeavyHitters::new(max as usize);
            let (shift, steepness) = (dice.roll() % names, 1 + (dice.roll() % 6) as u32);
            for _ in 0..dice.roll() % 300 {
                note(&mut part, &mut exact, format!("user:{}", shift + dice.skewed(names, steepness)));
            }
            merged.merge(&part);
            ranking.add(&part);
        }
        let context = format!("seed {seed}: {max} places");
        hold(&all(&merged), merged.missing_at_most(), &exact, merged.total(), max, &context);
        let ranked = ranking.ranked();
        hold(&ranked.names, ranked.missing_at_most, &exact, ranked.total, max, &context);
        assert!(ranked.names.windows(2).all(|pair| pair[0].1.count >= pair[1].1.count), "{context}");
    }
}

#[test]
fn few_names_are_counted_exactly() {
    let (mut sketch, mut exact) = (HeavyHitters::new(16), Exact::new());
    for number in 0..1_000_u32 {
        note(&mut sketch, &mut exact, format!("user:{}", number % 16));
    }
    assert!(sketch.iter().all(|(name, count)| {
        count == HitterCount { count: exact[&name.subject], too_high_by: 0 } && sketch.missing_at_most() == 0
    }));
}

#[test]
fn what_is_cut_off_a_ranking_is_told() {
    let mut ranking = Ranking::default();
    let name = |number: u64| RuleSubject { rule: String::new(), subject: number.to_string() };
    ranking.add_list((1..=5).map(|number| (name(number), HitterCount { count: number, too_high_by: 0 })), 0, 15);
    let mut ranked = ranking.ranked();
    ranked.truncate(2);
    assert_eq!(ranked.names.iter().map(|(_, count)| count.count).collect::<Vec<_>>(), [5, 4]);
    assert_eq!(ranked.missing_at_most, 3);
}

//! Takes and checks within this process, timed.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::machine::{cores, pin_thread};
use crate::{Walk, write_key};

/// Keys are made so many at a time, outside of the measured time: they come from
/// requests that were just read, and are in the cache of every limiter.
const BATCH: usize = 256;

/// Which keys are asked for.
#[derive(Debug, Clone, Copy)]
pub enum Keys {
    /// Each of so many as often as any other.
    Even(usize),
    /// Each of so many, the first far more often than the last (Zipf, exponent 1).
    Skewed(usize),
}

impl Keys {
    /// How many there are.
    #[must_use]
    pub const fn count(self) -> usize {
        match self {
            Self::Even(count) | Self::Skewed(count) => count,
        }
    }

    fn step(self, walk: &mut Walk) -> usize {
        match self {
            Self::Even(_) => walk.step(),
            Self::Skewed(count) => {
                let share = walk.step() as f64 / count as f64;
                ((count as f64).powf(share) as usize - 1).min(count - 1)
            }
        }
    }
}

/// Nanoseconds a take, when `threads` threads take for that long, each on a core of its own.
///
/// # Panics
/// If a take is refused: no limit here is that low.
pub fn takes_ns(threads: usize, length: Duration, keys: Keys, take: &(impl Fn(usize, &String) -> bool + Sync)) -> f64 {
    let each = std::thread::scope(|scope| {
        let spawn = |seed: usize| {
            scope.spawn(move || {
                pin_thread(&[cores()[seed % cores().len()]]);
                one_thread_ns(seed, length, keys, take)
            })
        };
        let running: Vec<_> = (0..threads).map(spawn).collect();
        running.into_iter().map(|thread| thread.join().unwrap_or(f64::NAN)).sum::<f64>()
    });
    each / threads as f64
}

fn one_thread_ns(seed: usize, length: Duration, keys: Keys, take: &impl Fn(usize, &String) -> bool) -> f64 {
    let mut walk = Walk::new((seed as u64 + 1) * 0x9E37_79B9_7F4A_7C15, keys.count());
    let mut batch: Vec<(usize, String)> = (0..BATCH).map(|_| (0, String::with_capacity(20))).collect();
    let (start, mut spent, mut taken) = (Instant::now(), Duration::ZERO, 0_u64);
    while start.elapsed() < length || taken == 0 {
        for (number, key) in &mut batch {
            *number = keys.step(&mut walk);
            write_key(key, *number);
        }
        let begun = Instant::now();
        for (number, key) in &batch {
            assert!(black_box(take(*number, key)), "a take of {key} was refused");
        }
        spent += begun.elapsed();
        taken += BATCH as u64;
    }
    spent.as_nanos() as f64 / taken as f64
}

/// Takes once from every key, so that all buckets live; gives up after a while
/// and says whether it did not.
pub fn fill(count: usize, limit: Duration, take: &dyn Fn(&String) -> bool) -> bool {
    let (mut key, start) = (String::new(), Instant::now());
    for number in 0..count {
        write_key(&mut key, number);
        assert!(take(&key), "the first take of {key} was refused");
        if number % 64 == 0 && start.elapsed() > limit {
            return false;
        }
    }
    true
}

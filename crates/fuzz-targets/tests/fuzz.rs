//! Runs the fuzz targets on stable: every seed once, or mutations of them for some seconds.
//!
//! The test of mutations is ignored by default; `./test --fuzz-smoke` runs it. `FUZZ_SECONDS` (10) is
//! the time for each target, `FUZZ_TARGETS` a list of targets with commas (all), and `FUZZ_SEED`
//! repeats a run. An input that fails is written to `target/fuzz-smoke`; among the seeds it becomes a
//! test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail loudly")]
#![allow(clippy::print_stdout, reason = "the figures of a run are its output")]
#![allow(clippy::disallowed_methods, reason = "a run has a time and a seed of its own")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fuzz_targets::{TARGETS, Target};

/// The longest input in bytes.
const INPUT_MAX: usize = 4_096;
/// What parsers look for, inserted into inputs.
#[rustfmt::skip]
const TOKENS: [&[u8]; 40] = [
    b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b",", b";", b":", b"\"", b"\\", b"{", b"}", b"[", b"]", b"%2f", b"..",
    b"-", b"+", b"0", b"1", b"-1", b"255", b"4294967295", b"4294967296", b"9007199254740993", b"18446744073709551615",
    b"18446744073709551616", b"1e999", b"0x10", b"null", b"true", b"chunked", b"Content-Length: 5",
    b"Transfer-Encoding: chunked", b"Connection: close", b"\xff\xfe", b"\xc3\xa9", b"\x7f", b"\xe2\x80\xa8",
];

#[test]
fn every_seed_keeps_the_promises_of_its_target() {
    let targets: BTreeSet<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(file_stems("seeds"), targets, "a folder of seeds for each target");
    assert_eq!(file_stems("fuzz_targets"), targets, "a binary of libFuzzer for each target");
    let mut failed = Vec::new();
    for (name, run) in TARGETS {
        run(b"");
        let seeds = read_seeds(name);
        assert!(seeds.len() >= 5, "{name} has {} seeds", seeds.len());
        failed.extend(seeds.into_iter().filter(|(_, seed)| std::panic::catch_unwind(|| run(seed)).is_err()));
    }
    let failed: Vec<_> = failed.iter().map(|(file, _)| file).collect();
    assert!(failed.is_empty(), "these seeds break a promise: {failed:?}");
}

#[test]
#[ignore = "./test --fuzz-smoke"]
fn mutated_seeds_keep_the_promises_of_their_targets() {
    let time = Duration::from_secs(variable("FUZZ_SECONDS").unwrap_or(10));
    let seed = variable("FUZZ_SEED").unwrap_or_else(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros() as u64
    });
    let names: Vec<String> = variable("FUZZ_TARGETS")
        .map_or_else(Vec::new, |names: String| names.split(',').map(|name| name.trim().to_owned()).collect());
    let unknown: Vec<_> = names.iter().filter(|name| !TARGETS.iter().any(|(known, _)| known == name)).collect();
    assert!(unknown.is_empty(), "there are no targets {unknown:?}");
    let chosen = TARGETS.into_iter().filter(|(name, _)| names.is_empty() || names.iter().any(|known| known == name));
    let failed: Vec<_> = chosen.filter(|target| !fuzz(*target, seed, time)).map(|(name, _)| name).collect();
    assert!(failed.is_empty(), "{failed:?} failed; FUZZ_SEED={seed} repeats it");
}

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

fn fuzz_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// The names in a folder, without their extensions.
fn file_stems(folder: &str) -> BTreeSet<String> {
    let files = fs::read_dir(fuzz_folder().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    files.map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

/// The seeds of a target with their files, in the same order on every machine.
fn read_seeds(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = fuzz_folder().join("seeds").join(name);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort_unstable();
    files.into_iter().map(|file| (file.clone(), fs::read(file).unwrap())).collect()
}

/// Runs a target until the time is over; whether it never failed.
fn fuzz((name, run): Target, seed: u64, time: Duration) -> bool {
    let seeds: Vec<_> = read_seeds(name).into_iter().map(|(_, seed)| seed).collect();
    let mut random = Random(seed);
    let (begun, mut executions, mut slowest) = (Instant::now(), 0_u64, Duration::ZERO);
    while begun.elapsed() < time {
        let input = next_input(&seeds, &mut random);
        let started = Instant::now();
        if std::panic::catch_unwind(|| run(&input)).is_err() {
            let file = write_input(name, &input);
            println!("{name}: failed after {executions} executions, seed {seed}: {}", file.display());
            return false;
        }
        slowest = slowest.max(started.elapsed());
        executions += 1;
    }
    println!("{name}: {executions} executions, slowest {slowest:.1?}, {} seeds, seed {seed}", seeds.len());
    true
}

fn write_input(name: &str, input: &[u8]) -> PathBuf {
    let hash = input
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../fuzz-smoke");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.canonicalize().unwrap().join(format!("{name}-{hash:016x}"));
    fs::write(&file, input).unwrap();
    file
}

/// A mutated seed, or random bytes.
fn next_input(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    if seeds.is_empty() || random.below(16) == 0 {
        return (0..random.below(64)).map(|_| random.next() as u8).collect();
    }
    let mut input = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(6) {
        mutate(&mut input, seeds, random);
    }
    input.truncate(INPUT_MAX);
    input
}

fn mutate(input: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    let place = random.below(input.len() + 1);
    let end = (place + random.below(16)).min(input.len());
    match random.below(9) {
        0 if place < input.len() => input[place] ^= 1 << random.below(8),
        1 if place < input.len() => input[place] = random.next() as u8,
        2 => input.insert(place, random.next() as u8),
        3 => drop(input.drain(place..end)),
        4 => {
            let copied = input[place..end].to_vec();
            let to = random.below(input.len() + 1);
            input.splice(to..to, copied);
        }
        5 => input.truncate(place),
        6 => {
            let other = &seeds[random.below(seeds.len())];
            let from = random.below(other.len() + 1);
            let to = (from + random.below(64)).min(other.len());
            input.splice(place..end, other[from..to].iter().copied());
        }
        7 => {
            let token = TOKENS[random.below(TOKENS.len())];
            input.splice(place..end, token.iter().copied());
        }
        // A digit of a number, or its length.
        _ => {
            if let Some(at) = input[place..].iter().position(u8::is_ascii_digit) {
                let digit = b'0' + random.below(10) as u8;
                match random.below(3) {
                    0 => input.insert(place + at, digit),
                    1 => drop(input.remove(place + at)),
                    _ => input[place + at] = digit,
                }
            }
        }
    }
}

/// Random numbers: SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

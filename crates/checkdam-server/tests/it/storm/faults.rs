//! The faults of the storm: nodes that die and stop, and everything that a
//! Redis server can do wrong short of lying.

use std::time::Duration;

use testkit::{Mode, Redis};
use tokio::time::Instant;

use super::{NODES, Random, StormSetup};

/// Between two faults.
const PAUSE_MS: (u64, u64) = (50, 400);
/// How far the replica lags when it takes over.
const LAG: Duration = Duration::from_millis(300);

/// Breaks things, one after another, for that long.
pub(super) fn run(world: &StormSetup, length: Duration) {
    let mut random = Random::new(world.seed, 1 << 33);
    let began = Instant::now();
    let mut redis = &world.primary;
    let (mut is_flushed, mut has_failed_over) = (false, false);
    while began.elapsed() < length {
        std::thread::sleep(random.between(PAUSE_MS.0, PAUSE_MS.1));
        if !is_flushed && began.elapsed() > length.mul_f64(0.4) {
            is_flushed = true;
            lose(world, || drop(redis.command(&["FLUSHALL"])));
            continue;
        }
        if !has_failed_over && began.elapsed() > length.mul_f64(0.7) {
            has_failed_over = true;
            fail_over(world);
            redis = &world.replica;
            continue;
        }
        match random.below(12) {
            0..=3 => {
                world.proxy.set(Mode::Hold);
                std::thread::sleep(random.between(20, 500));
                world.proxy.set(Mode::Pass);
            }
            4 => drop(redis.command(&["CLIENT", "KILL", "TYPE", "normal"])),
            5 => drop(redis.command(&["SCRIPT", "FLUSH"])),
            6 => out_of_memory(redis, &mut random),
            7 => world.proxy.reset_all(),
            8 => {
                redis.pause();
                std::thread::sleep(random.between(20, 300));
                redis.resume();
            }
            9 | 10 => stop_a_node(world, &mut random),
            _ => kill_a_node(world, &mut random),
        }
    }
}

/// Does something that loses what Redis knew.
fn lose(world: &StormSetup, event: impl FnOnce()) {
    let from_us = world.now_us();
    event();
    world.events().losses.push((from_us, world.now_us()));
}

/// The replica stops following; later it takes over, without the last writes.
fn fail_over(world: &StormSetup) {
    lose(world, || {
        drop(world.replica.command(&["REPLICAOF", "NO", "ONE"]));
        std::thread::sleep(LAG);
        world.proxy.set_upstream(world.replica.addr());
        world.proxy.reset_all();
    });
}

fn out_of_memory(redis: &Redis, random: &mut Random) {
    drop(redis.command(&["CONFIG", "SET", "maxmemory", "1"]));
    std::thread::sleep(random.between(20, 200));
    drop(redis.command(&["CONFIG", "SET", "maxmemory", "0"]));
}

fn stop_a_node(world: &StormSetup, random: &mut Random) {
    let node = &world.nodes[random.below(NODES as u64) as usize];
    node.signal("STOP");
    std::thread::sleep(random.between(20, 800));
    node.signal("CONT");
}

fn kill_a_node(world: &StormSetup, random: &mut Random) {
    let number = random.below(NODES as u64) as usize;
    let node = &world.nodes[number];
    let from_us = world.now_us();
    node.kill();
    std::thread::sleep(random.between(0, 300));
    node.start(world);
    world.events().restarts.push((number, from_us, world.now_us()));
}

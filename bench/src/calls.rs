//! Checks that wait for Redis: so many tasks on one core, Redis on another.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use testkit::Redis;
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

use crate::machine::{load_core, pin_thread};

/// What [`run`] measures.
pub const METRICS: &[&str] = &["checks/s", "Redis CPU µs/check", "command µs/check"];

/// A runtime on this thread, which stays on the core of clients.
///
/// # Panics
/// If there is none to be had.
#[must_use]
pub fn runtime() -> Runtime {
    pin_thread(&[load_core()]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap_or_else(|error| panic!("no runtime: {error}"))
}

/// How checks are asked for.
#[derive(Debug, Clone, Copy)]
pub struct Drive {
    /// Tasks that ask.
    pub waiting: usize,
    /// Keys that they ask for.
    pub keys: usize,
    /// Checks that each makes before it looks at the clock and lets others run.
    pub at_once: usize,
}

/// Keeps asking for a while: how many checks were made, and in how many seconds.
pub fn drive<F>(runtime: &Runtime, drive: Drive, length: Duration, check: F) -> (f64, f64)
where
    F: AsyncFn(usize) + 'static,
{
    let (check, done) = (Rc::new(check), Rc::new(Cell::new(0_u64)));
    let start = Instant::now();
    let end = start + length;
    let local = LocalSet::new();
    for task in 0..drive.waiting {
        let (check, done) = (Rc::clone(&check), Rc::clone(&done));
        local.spawn_local(async move {
            let mut key = task * 7_919;
            while Instant::now() < end {
                for _ in 0..drive.at_once {
                    // No division where it would be most of what is measured.
                    check(if drive.keys == 1 { 0 } else { key % drive.keys }).await;
                    key += 104_729;
                }
                done.set(done.get() + drive.at_once as u64);
                if drive.at_once > 1 {
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    runtime.block_on(local);
    (done.get() as f64, start.elapsed().as_secs_f64())
}

/// As [`drive`], with what it cost the server.
pub fn run<F>(
    runtime: &Runtime,
    server: &Redis,
    (waiting, keys): (usize, usize),
    length: Duration,
    check: F,
) -> Vec<f64>
where
    F: AsyncFn(usize) + 'static,
{
    server.command(&["CONFIG", "RESETSTAT"]).expect_ok();
    let cpu = server.cpu_seconds();
    let (checks, seconds) = drive(runtime, Drive { waiting, keys, at_once: 1 }, length, check);
    let cpu = server.cpu_seconds() - cpu;
    let (_, command_us) = commands(server, "evalsha");
    vec![checks / seconds, cpu * 1e6 / checks, command_us / checks]
}

/// How many of these commands the server has executed, and for how many microseconds.
///
/// # Panics
/// If the server's statistics are not understood.
#[must_use]
pub fn commands(server: &Redis, name: &str) -> (f64, f64) {
    let (stats, prefix) = (server.info("commandstats"), format!("cmdstat_{name}:"));
    let Some(line) = stats.lines().find_map(|line| line.strip_prefix(&prefix)) else { return (0.0, 0.0) };
    let number = |name: &str| {
        let found = line.split(',').find_map(|part| part.strip_prefix(name)?.parse::<f64>().ok());
        found.unwrap_or_else(|| panic!("no {name} in {line}"))
    };
    (number("calls="), number("usec="))
}

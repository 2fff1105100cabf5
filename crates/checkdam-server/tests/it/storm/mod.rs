//! A storm of faults over four nodes that share one Redis and one PostgreSQL,
//! checked by an oracle of its own.
//!
//! Clients check hot subjects of every algorithm while rules are edited, keys
//! flood one rule, nodes are killed and stopped, and Redis hangs, drops its
//! clients, runs out of memory, loses its data and fails over to a replica that
//! lags. The run is reproducible as far as its faults go: `STORM_SEED` sets them.

mod clients;
mod faults;
mod oracle;
mod rules;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use testkit::{FaultProxy, Postgres, Redis, free_port};
use tokio::time::Instant;

use self::clients::Observations;
use self::oracle::StormEvents;
use crate::server_process::{Server, checkdam};

/// How many nodes share the limits (`--nodes`).
const NODES: usize = 4;
const HOT_CLIENTS: usize = 54;
const FLOOD_CLIENTS: usize = 2;
const HONEST_CLIENTS: usize = 4;

/// A small generator with a seed (xorshift64).
struct Random(u64);

impl Random {
    fn new(seed: u64, stream: u64) -> Self {
        Self((seed ^ stream.wrapping_mul(0x9E37_79B9_7F4A_7C15)) | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(bound)) >> 64) as u64
    }

    fn between(&mut self, least_ms: u64, most_ms: u64) -> Duration {
        Duration::from_millis(least_ms + self.below(most_ms - least_ms + 1))
    }
}

/// A node that may be killed and started again at the same addresses.
struct Node {
    ports: [u16; 2],
    server: Mutex<Option<Server>>,
}

impl Node {
    fn new() -> Self {
        Self { ports: [free_port(), free_port()], server: Mutex::new(None) }
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.ports[0])
    }

    fn admin_address(&self) -> String {
        format!("127.0.0.1:{}", self.ports[1])
    }

    fn start(&self, world: &StormSetup) {
        let mut command = checkdam();
        command.env("CHECKDAM_ADMIN_LISTEN", self.admin_address()).env("CHECKDAM_GRPC_LISTEN", "off");
        command.args(["serve", "--http-listen", &self.address(), "--nodes", &NODES.to_string()]);
        command.args(["--store", &world.proxy.url(), "--database", &world.database]);
        // Longer than a busy machine needs, shorter than most of the hangs.
        command.args(["--store-deadline", "60ms"]);
        command.args(["--key-secret", "the secret of the storm", "--max-buckets", "4000", "--log-denials", "0"]);
        *self.lock() = Some(Server::of(command));
    }

    fn kill(&self) {
        drop(self.lock().take());
    }

    fn signal(&self, name: &str) {
        if let Some(server) = &*self.lock() {
            server.signal(name);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Server>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everything that runs during a storm.
struct StormSetup {
    seed: u64,
    began: Instant,
    is_over: AtomicBool,
    primary: Redis,
    /// Takes over from the primary, without its last writes.
    replica: Redis,
    proxy: FaultProxy,
    database: String,
    nodes: Vec<Node>,
    events: Mutex<StormEvents>,
    /// Keeps the database alive.
    _postgres: Postgres,
}

impl StormSetup {
    fn start(seed: u64) -> Self {
        let postgres = Postgres::start();
        let primary = Redis::start();
        let port = primary.addr().port().to_string();
        let replica = Redis::builder().args(["--replicaof", "127.0.0.1", &port]).start();
        let world = Self {
            seed,
            began: Instant::now(),
            is_over: AtomicBool::new(false),
            proxy: FaultProxy::start(primary.addr()),
            primary,
            replica,
            database: postgres.create_database(),
            nodes: (0..NODES).map(|_| Node::new()).collect(),
            events: Mutex::default(),
            _postgres: postgres,
        };
        for node in &world.nodes {
            node.start(&world);
        }
        rules::import(&world);
        let phase_us = (world.primary.time_us() - world.now_us() as i64).rem_euclid(1_000_000);
        world.events().phase_us = phase_us as u64;
        world
    }

    /// Microseconds since the world began.
    fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn events(&self) -> std::sync::MutexGuard<'_, StormEvents> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a storm of that length and checks everything that was observed.
fn storm(length: Duration) {
    let seed = std::env::var("STORM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        use std::hash::BuildHasher;
        std::hash::RandomState::new().hash_one(0)
    });
    println!("STORM_SEED={seed}");
    let world = StormSetup::start(seed);
    let mut observed = Observations::default();
    std::thread::scope(|scope| {
        let world = &world;
        let mut clients = Vec::new();
        clients.extend((0..HOT_CLIENTS).map(|number| scope.spawn(move || clients::hot(world, number))));
        clients.extend((0..FLOOD_CLIENTS).map(|number| scope.spawn(move || clients::flood(world, number))));
        clients.extend((0..HONEST_CLIENTS).map(|number| scope.spawn(move || clients::honest(world, number))));
        let editor = scope.spawn(move || rules::edit_until_over(world));
        let faults = scope.spawn(move || faults::run(world, length));
        faults.join().expect("the faults run to their end");
        world.is_over.store(true, Ordering::Relaxed);
        let edits = editor.join().expect("the editor runs to its end");
        for client in clients {
            observed.add(client.join().expect("a client runs to its end"));
        }
        println!("{edits} edits were active");
        assert!(edits >= length.as_millis() as u64 / 1_000, "only {edits} edits: the test must edit");
    });
    let events = world.events().clone();
    println!("{}", observed.summary());
    oracle::check(&observed, &events);
}

#[test]
fn nothing_is_exceeded_and_nobody_is_locked_out_in_twenty_seconds() {
    storm(Duration::from_secs(20));
}

#[test]
#[ignore = "it takes five minutes: ./test --storm"]
fn nothing_is_exceeded_and_nobody_is_locked_out_in_five_minutes() {
    storm(Duration::from_secs(300));
}

//! Reserves ports, so that a killed server can restart on the same address.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Ports are taken from below the kernel's ephemeral range (32768 on Linux). A port inside it can be lost while its
/// server is down: another socket may be given it, and a client that keeps dialling a dead loopback port in that
/// range eventually connects to itself.
const FIRST: u32 = 10_000;
const COUNT: u32 = 22_000;

/// A loopback port that nothing listened on a moment ago. Each call of one process gives a different port until all
/// have been tried; binding it can still lose the race against another process.
pub fn free_port() -> u16 {
    static START: OnceLock<u32> = OnceLock::new();
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // A random start keeps parallel test processes apart.
    let start = *START.get_or_init(|| RandomState::new().build_hasher().finish() as u32 % COUNT);
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = (FIRST + (start + step) % COUNT) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free loopback port between {FIRST} and {}", FIRST + COUNT);
}

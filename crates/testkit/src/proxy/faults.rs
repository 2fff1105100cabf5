//! The faults that the proxy currently injects, and how many bytes it has forwarded.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What happens to the bytes of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They pass at once.
    #[default]
    Pass,
    /// Each chunk is held for so long. Chunks do not overlap: what arrives meanwhile waits its turn and then travels
    /// as one, so a byte is late by at least this and by at most twice this.
    Delay(Duration),
    /// They vanish, and so does the news that the other side has closed: a half-open connection.
    Drop,
    /// They wait, in order, until the mode changes; so does the news that the other side has closed.
    Hold,
    /// So many more bytes of each connection pass, and then it is closed. With 0 it is closed, with nothing passed,
    /// when the next bytes arrive: on replies, after the server has executed and before the client can know.
    CutAfter(usize),
    /// As [`Mode::CutAfter`], and with the first connection so cut the direction passes again.
    CutOnce(usize),
    /// They pass at so many bytes a second on each connection.
    Throttle(u64),
}

/// The way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Requests,
    Replies,
}

/// A mode, and the number of its setting: setting the same mode again is a new order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) mode: Mode,
    pub(super) number: u64,
}

/// The orders of both directions, shared by all connections.
#[derive(Default)]
pub(super) struct Faults {
    orders: Mutex<[Order; 2]>,
    changed: Condvar,
    passed: [AtomicU64; 2],
    cuts: AtomicU64,
}

impl Faults {
    pub(super) fn set(&self, direction: Direction, mode: Mode) {
        let order = &mut self.lock()[direction as usize];
        *order = Order { mode, number: order.number + 1 };
        self.changed.notify_all();
    }

    pub(super) fn order(&self, direction: Direction) -> Order {
        self.lock()[direction as usize]
    }

    /// Sleeps until the order is no longer `order`, `is_over` holds or `limit` has passed. The code that makes `is_over`
    /// true must call [`Faults::wake`].
    pub(super) fn wait(&self, direction: Direction, order: Order, limit: Option<Duration>, is_over: impl Fn() -> bool) {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let mut orders = self.lock();
        while orders[direction as usize] == order && !is_over() {
            orders = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => self.changed.wait(orders).unwrap(),
                Some(Duration::ZERO) => return,
                Some(left) => self.changed.wait_timeout(orders, left).unwrap().0,
            };
        }
    }

    /// Wakes all waiting threads, to check `is_over`.
    pub(super) fn wake(&self) {
        // Under the lock: otherwise it could fall between a waiter's look and its sleep.
        let _orders = self.lock();
        self.changed.notify_all();
    }

    /// Whether a connection may be cut on `order`. Of several connections on a [`Mode::CutOnce`], one is cut.
    pub(super) fn claim_cut(&self, direction: Direction, order: Order) -> bool {
        let current = &mut self.lock()[direction as usize];
        if *current != order {
            return false;
        }
        if let Mode::CutOnce(_) = order.mode {
            *current = Order { mode: Mode::Pass, number: order.number + 1 };
            self.changed.notify_all();
        }
        self.cuts.fetch_add(1, Ordering::Relaxed);
        true
    }

    pub(super) fn add_passed(&self, direction: Direction, bytes: usize) {
        self.passed[direction as usize].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn take_back_passed(&self, direction: Direction, bytes: usize) {
        self.passed[direction as usize].fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn passed(&self, direction: Direction) -> u64 {
        self.passed[direction as usize].load(Ordering::Relaxed)
    }

    pub(super) fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, [Order; 2]> {
        self.orders.lock().unwrap()
    }
}

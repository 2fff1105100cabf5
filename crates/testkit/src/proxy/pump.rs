//! One direction of one connection: reads chunks and applies the current fault to
//! them.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use super::faults::{Direction, Faults, Mode, Order};
use super::link::Link;

const CHUNK_BYTES: usize = 16 * 1024;
/// Throttled bytes leave in so many pieces a second.
const PIECES_A_SECOND: u64 = 50;

/// One direction of one link.
pub(super) struct Pump<'a> {
    link: &'a Link,
    faults: &'a Faults,
    direction: Direction,
    /// The cut in progress and how many bytes may still pass before it.
    cut: Option<(Order, usize)>,
}

impl<'a> Pump<'a> {
    pub(super) fn new(link: &'a Link, faults: &'a Faults, direction: Direction) -> Self {
        Self { link, faults, direction, cut: None }
    }

    /// Carries bytes until either side closes or the link is over.
    pub(super) fn run(mut self) {
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            match self.source().read(&mut buffer) {
                Ok(0) => return self.end(),
                Ok(length) => {
                    if !self.deliver(&buffer[..length]) {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.end(),
            }
        }
    }

    /// The source has closed. The other side learns it when this direction carries news at all.
    fn end(&self) {
        if self.direction == Direction::Requests {
            self.link.client_left();
        }
        loop {
            let order = self.faults.order(self.direction);
            if self.link.is_over() {
                return;
            }
            if !matches!(order.mode, Mode::Drop | Mode::Hold) {
                drop(self.target().shutdown(Shutdown::Write));
                return;
            }
            self.wait(order, None);
        }
    }

    /// Does to `bytes` what the order says; false when the link is at its end.
    fn deliver(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            if self.link.is_over() {
                return false;
            }
            let order = self.faults.order(self.direction);
            match order.mode {
                Mode::Pass => return self.write(bytes),
                Mode::Drop => return true,
                Mode::Hold => self.wait(order, None),
                Mode::Delay(delay) => {
                    self.wait(order, Some(delay));
                    if self.faults.order(self.direction) == order {
                        return self.write(bytes);
                    }
                }
                Mode::Throttle(rate) => {
                    let piece = usize::try_from(rate / PIECES_A_SECOND).unwrap_or(usize::MAX).clamp(1, bytes.len());
                    if !self.write(&bytes[..piece]) {
                        return false;
                    }
                    bytes = &bytes[piece..];
                    self.wait(order, Some(Duration::from_secs_f64(piece as f64 / rate.max(1) as f64)));
                }
                Mode::CutAfter(limit) | Mode::CutOnce(limit) => {
                    let left = self.cut.filter(|(known, _)| *known == order).map_or(limit, |(_, left)| left);
                    let piece = left.min(bytes.len());
                    if !self.write(&bytes[..piece]) {
                        return false;
                    }
                    bytes = &bytes[piece..];
                    self.cut = Some((order, left - piece));
                    if left == piece && self.faults.claim_cut(self.direction, order) {
                        self.close();
                        return false;
                    }
                }
            }
        }
        true
    }

    /// False when the target does not take the bytes; the link is then closed, as by a network that noticed.
    fn write(&self, mut bytes: &[u8]) -> bool {
        // Counted first: a byte that was received must have been counted.
        self.faults.add_passed(self.direction, bytes.len());
        while !bytes.is_empty() {
            match self.target().write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if is_transient(error.kind()) && !self.link.is_over() => {}
                Err(_) => {
                    self.faults.take_back_passed(self.direction, bytes.len());
                    self.close();
                    return false;
                }
            }
        }
        true
    }

    fn close(&self) {
        if !self.link.is_over() {
            self.link.close();
            self.faults.wake();
        }
    }

    fn wait(&self, order: Order, limit: Option<Duration>) {
        self.faults.wait(self.direction, order, limit, || self.link.is_over());
    }

    fn source(&self) -> &TcpStream {
        match self.direction {
            Direction::Requests => &self.link.client,
            Direction::Replies => &self.link.server,
        }
    }

    fn target(&self) -> &TcpStream {
        match self.direction {
            Direction::Requests => &self.link.server,
            Direction::Replies => &self.link.client,
        }
    }
}

fn is_transient(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

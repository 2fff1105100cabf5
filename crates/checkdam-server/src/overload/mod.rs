//! Too much to do: who comes is turned away early, before anything is read or
//! charged, so that those who are let in are answered in time.
//!
//! Two signs tell. Work begins late: a byte that the program sends to itself
//! comes as late as requests do, since it waits in the same queues. And too many
//! requests are being decided at a time, as when a store hangs. Health, metrics
//! and operators are never turned away.

mod pressure;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::Instant;

use self::pressure::{Pressure, WHOLE};
use crate::app::App;
use crate::config::OverloadOptions;

/// How long is waited between looks at how late work begins.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// So long nobody must be turned away for it to be over.
const OVER_AFTER: Duration = Duration::from_secs(1);

/// The doors that turn requests away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// JSON over HTTP.
    Http,
    /// Envoy's rate limit service.
    Grpc,
    /// The proxy.
    Proxy,
}

impl Entrance {
    /// In the order in which they are counted.
    const ALL: [Self; 3] = [Self::Http, Self::Grpc, Self::Proxy];

    /// As metrics call it.
    const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::Proxy => "proxy",
        }
    }
}

/// How much there is to do, and who was turned away for it.
#[derive(Debug)]
pub(crate) struct Overload {
    options: OverloadOptions,
    /// How many requests are being decided.
    in_flight: AtomicUsize,
    /// How many of [`WHOLE`] are turned away because work begins late.
    share: AtomicU32,
    /// Spreads that share evenly over those who come.
    turn: AtomicU32,
    shed: [AtomicU64; Entrance::ALL.len()],
    /// How late work began when last looked.
    late_ms: AtomicU64,
}

/// A request that is being decided, until this is dropped.
#[derive(Debug)]
pub(crate) struct Deciding<'a>(&'a AtomicUsize);

impl Drop for Deciding<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Overload {
    /// Nothing to do yet.
    pub(crate) fn new(options: OverloadOptions) -> Self {
        Self {
            options,
            in_flight: AtomicUsize::new(0),
            share: AtomicU32::new(0),
            turn: AtomicU32::new(0),
            shed: std::array::from_fn(|_| AtomicU64::new(0)),
            late_ms: AtomicU64::new(0),
        }
    }

    /// A request begins to be decided.
    pub(crate) fn decide(&self) -> Deciding<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Deciding(&self.in_flight)
    }

    /// Whether one that comes now must go; if so, it is counted.
    pub(crate) fn turns_away(&self, entrance: Entrance) -> bool {
        let must_go = self.in_flight() >= self.options.in_flight_max || self.is_its_turn();
        if must_go {
            self.shed[entrance as usize].fetch_add(1, Ordering::Relaxed);
        }
        must_go
    }

    /// How many were turned away, by door.
    pub(crate) fn shed(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Entrance::ALL
            .into_iter()
            .map(|entrance| (entrance.name(), self.shed[entrance as usize].load(Ordering::Relaxed)))
    }

    /// How many requests are being decided.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// How late work began when last looked; 0 if nobody looks.
    pub(crate) fn late_ms(&self) -> u64 {
        self.late_ms.load(Ordering::Relaxed)
    }

    fn is_its_turn(&self) -> bool {
        let share = self.share.load(Ordering::Relaxed);
        if share == 0 {
            return false;
        }
        // Of so many in a row, exactly the share goes.
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % WHOLE;
        (turn + 1) * share / WHOLE != turn * share / WHOLE
    }

    /// How many were turned away.
    pub(crate) fn shed_total(&self) -> u64 {
        self.shed().map(|(_, count)| count).sum()
    }
}

/// Looks how late work begins, for as long as the program runs.
pub(crate) async fn watch(app: Arc<App>) {
    let overload = app.overload();
    let mut pressure = overload.options.late_max.map(Pressure::new);
    let mut probe = match UnixStream::pair() {
        Ok(pair) => Some(pair),
        Err(error) => {
            tracing::warn!(%error, "how late work begins cannot be seen: no request is turned away for it");
            None
        }
    };
    let mut episode = Episode::default();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let (Some(pressure), Some(probe)) = (&mut pressure, &mut probe) {
            let sent = Instant::now();
            let lateness = if echo(probe).await.is_ok() { sent.elapsed() } else { Duration::ZERO };
            overload.share.store(pressure.note(lateness), Ordering::Relaxed);
            overload.late_ms.store(u64::try_from(lateness.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        episode.look(overload);
    }
}

/// A byte to ourselves.
async fn echo((near, far): &mut (UnixStream, UnixStream)) -> std::io::Result<()> {
    near.write_all(&[0]).await?;
    // Larger than what comes, so that the runtime knows that there is no more,
    // and that the next byte must be waited for.
    let mut space = [0; 8];
    far.read(&mut space).await.map(drop)
}

/// A time in which requests are turned away, for the log.
#[derive(Debug, Default)]
struct Episode {
    /// How many had been turned away when last looked.
    seen: u64,
    /// How many had been when it began, and when the last one was.
    current: Option<(u64, Instant)>,
}

impl Episode {
    fn look(&mut self, overload: &Overload) {
        let (before, now) = (self.seen, overload.shed_total());
        self.seen = now;
        let is_shedding = now > before;
        match &mut self.current {
            None if is_shedding => {
                self.current = Some((before, Instant::now()));
                let (late_ms, in_flight) = (overload.late_ms(), overload.in_flight());
                tracing::warn!(late_ms, in_flight, "overloaded: requests are turned away with 503");
            }
            Some((_, last)) if is_shedding => *last = Instant::now(),
            Some((since, last)) if last.elapsed() >= OVER_AFTER => {
                let shed = now - *since;
                tracing::info!(shed, "no longer overloaded");
                self.current = None;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overload(in_flight_max: usize) -> Overload {
        Overload::new(OverloadOptions { late_max: None, in_flight_max })
    }

    #[test]
    fn what_is_decided_counts_until_it_is() {
        let overload = overload(2);
        let first = overload.decide();
        assert!(!overload.turns_away(Entrance::Http));
        let second = overload.decide();
        assert!(overload.turns_away(Entrance::Http) && overload.turns_away(Entrance::Grpc));
        drop((first, second));
        assert!(!overload.turns_away(Entrance::Proxy));
        assert_eq!(overload.shed().collect::<Vec<_>>(), [("http", 1), ("grpc", 1), ("proxy", 0)]);
    }

    #[test]
    fn of_those_who_come_the_share_goes() {
        let overload = overload(1);
        for share in [0, 1, 50, 333, 900, WHOLE] {
            overload.share.store(share, Ordering::Relaxed);
            let gone = (0..WHOLE).filter(|_| overload.turns_away(Entrance::Http)).count();
            assert_eq!(gone, share as usize);
        }
    }
}

//! Merges several logs in order of time.
//!
//! Servers log a request when it ends, so lines are out of order by up to the
//! duration of requests. Lines are held back until nothing earlier can follow, within
//! a bound of time and number. A line that is still late gets the current time.
//!
//! A line from a wrong clock may be far ahead of its neighbours. So a jump in time is
//! accepted only after several consecutive lines confirm it. Until then the line is held
//! until its time is reached or the logs end, and the others stay in order.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::log_chunk::{LineValues, LogChunk, LogRecord, UnreadableLine};
use super::log_reader::ChunkResult;

/// The most requests that are held back.
const HELD_MAX: usize = 2_000_000;
/// After this many chunks, held lines are copied, so that a few requests do not keep
/// whole chunks in memory.
const BLOCKS_MAX: usize = 256;
/// A leap in time is accepted once this many lines in a row have made it.
const BELIEVED_FROM: usize = 16;
/// How often cancellation is checked.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Faults that are shown.
const FAULTS_MAX: usize = 5;

/// Several logs as one.
pub(super) struct LogMerge {
    sources: Vec<LogSource>,
    reorder_us: u64,
    held: BinaryHeap<Reverse<HeldRequest>>,
    chunks: VecDeque<PendingChunk>,
    /// The number of the first of them.
    first: u64,
    sequence: u64,
    /// The time of what was given out last.
    now_us: u64,
    pub(super) counts: LineCounts,
}

#[derive(Debug, Default)]
pub(super) struct LineCounts {
    pub(super) lines: u64,
    pub(super) unreadable: u64,
    /// Requests that were too late to be ordered.
    pub(super) late: u64,
    /// The first lines that could not be read: where, and why.
    pub(super) faults: Vec<(PathBuf, UnreadableLine)>,
}

struct LogSource {
    path: PathBuf,
    heard: Receiver<ChunkResult>,
    /// The latest accepted time of it; the end of time once it has ended.
    seen_us: u64,
    /// Lines in a row that lie ahead of it by more than the order allows for, and
    /// the earliest of them.
    leaping: usize,
    leap_us: u64,
}

impl LogSource {
    fn advance(&mut self, at_us: u64, reorder_us: u64) {
        if at_us <= self.seen_us.saturating_add(reorder_us) {
            self.leaping = 0;
            self.seen_us = self.seen_us.max(at_us);
            return;
        }
        self.leap_us = if self.leaping == 0 { at_us } else { self.leap_us.min(at_us) };
        self.leaping += 1;
        if self.leaping == BELIEVED_FROM {
            self.leaping = 0;
            self.seen_us = self.leap_us;
        }
    }
}

struct PendingChunk {
    chunk: Arc<LogChunk>,
    left: usize,
}

/// A request that is held back: ordered by time, then by arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct HeldRequest {
    at_us: u64,
    sequence: u64,
    chunk: u64,
    record: u32,
}

impl LogMerge {
    pub(super) fn new(sources: Vec<(PathBuf, Receiver<ChunkResult>)>, reorder_us: u64) -> Self {
        let source = |(path, heard)| LogSource { path, heard, seen_us: 0, leaping: 0, leap_us: 0 };
        Self {
            sources: sources.into_iter().map(source).collect(),
            reorder_us,
            held: BinaryHeap::new(),
            chunks: VecDeque::new(),
            first: 0,
            sequence: 0,
            now_us: 0,
            counts: LineCounts::default(),
        }
    }

    /// Passes on every request in order; false if `is_stopped` was set before the end.
    ///
    /// # Errors
    /// Has the log that cannot be read, and why.
    pub(super) fn run(
        &mut self,
        is_stopped: &AtomicBool,
        mut each: impl FnMut(u64, &Arc<LogChunk>, &LogRecord),
        mut after_block: impl FnMut(&LineCounts) -> Result<(), String>,
    ) -> Result<bool, String> {
        // The log that is behind is read on.
        while let Some(place) = self.least_advanced() {
            if is_stopped.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let source = &mut self.sources[place];
            match source.heard.recv_timeout(LOOK_EVERY) {
                Ok(Ok(chunk)) => self.push_chunk(place, chunk),
                Ok(Err(reason)) => return Err(format!("{}: {reason}", source.path.display())),
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => source.seen_us = u64::MAX,
            }
            after_block(&self.counts)?;
            let certain = self.sources.iter().map(|source| source.seen_us).min().unwrap_or(u64::MAX);
            let until = if certain == u64::MAX { u64::MAX } else { certain.saturating_sub(self.reorder_us) };
            self.emit_until(until, &mut each);
            if self.chunks.len() > BLOCKS_MAX {
                self.compact();
            }
        }
        Ok(true)
    }

    /// The log of which least is known; none if all have ended.
    fn least_advanced(&self) -> Option<usize> {
        let open = self.sources.iter().enumerate().filter(|(_, source)| source.seen_us < u64::MAX);
        open.min_by_key(|(_, source)| source.seen_us).map(|(place, _)| place)
    }

    fn push_chunk(&mut self, place: usize, chunk: LogChunk) {
        let source = &mut self.sources[place];
        self.counts.lines += chunk.lines;
        self.counts.unreadable += chunk.unreadable;
        let room = FAULTS_MAX.saturating_sub(self.counts.faults.len());
        self.counts.faults.extend(chunk.faults.iter().take(room).map(|fault| (source.path.clone(), fault.clone())));
        let number = self.first + self.chunks.len() as u64;
        for (index, record) in (0..).zip(&chunk.records) {
            source.advance(record.at_us, self.reorder_us);
            let held = HeldRequest { at_us: record.at_us, sequence: self.sequence, chunk: number, record: index };
            self.held.push(Reverse(held));
            self.sequence += 1;
        }
        let left = chunk.records.len();
        if left > 0 {
            self.chunks.push_back(PendingChunk { chunk: Arc::new(chunk), left });
        }
    }

    fn emit_until(&mut self, until_us: u64, each: &mut impl FnMut(u64, &Arc<LogChunk>, &LogRecord)) {
        while let Some(Reverse(held)) = self.held.peek().copied() {
            if held.at_us > until_us && self.held.len() <= HELD_MAX {
                return;
            }
            self.held.pop();
            self.counts.late += u64::from(held.at_us < self.now_us);
            self.now_us = self.now_us.max(held.at_us);
            let place = (held.chunk - self.first) as usize;
            let Some(waiting) = self.chunks.get_mut(place) else { continue };
            each(self.now_us, &waiting.chunk, &waiting.chunk.records[held.record as usize]);
            waiting.left -= 1;
            if waiting.left == 0 {
                waiting.chunk = Arc::default();
            }
            while self.chunks.front().is_some_and(|waiting| waiting.left == 0) {
                self.chunks.pop_front();
                self.first += 1;
            }
        }
    }

    /// Copies what is held back into one block.
    fn compact(&mut self) {
        let mut chunk = LogChunk::default();
        let mut held = std::mem::take(&mut self.held).into_vec();
        for Reverse(held) in &mut held {
            let from = &self.chunks[(held.chunk - self.first) as usize].chunk;
            let record = &from.records[held.record as usize];
            let values: LineValues<'_> =
                from.values(record).map(|(number, value)| (number, Cow::Borrowed(value))).collect();
            (held.chunk, held.record) = (0, chunk.records.len() as u32);
            chunk.add("", record.at_us, record.cost, &values);
        }
        self.first = 0;
        self.chunks.clear();
        if !held.is_empty() {
            self.chunks.push_back(PendingChunk { left: held.len(), chunk: Arc::new(chunk) });
        }
        self.held = held.into();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    /// A log whose blocks have requests at these seconds.
    fn source(name: &str, chunks: &[&[u64]]) -> (PathBuf, Receiver<ChunkResult>) {
        let (sender, receiver) = sync_channel(chunks.len() + 1);
        for times in chunks {
            let mut chunk = LogChunk::default();
            times.iter().for_each(|at_s| chunk.add("", at_s * 1_000_000, 1, &Vec::new()));
            chunk.lines = times.len() as u64;
            sender.send(Ok(chunk)).unwrap();
        }
        (PathBuf::from(name), receiver)
    }

    fn merged(sources: Vec<(PathBuf, Receiver<ChunkResult>)>) -> (Vec<u64>, LineCounts) {
        let mut merge = LogMerge::new(sources, 5_000_000);
        let mut times = Vec::new();
        let whole = merge.run(&AtomicBool::new(false), |at_us, _, _| times.push(at_us / 1_000_000), |_| Ok(()));
        assert_eq!(whole, Ok(true));
        assert!(merge.chunks.is_empty() && merge.held.is_empty());
        (times, merge.counts)
    }

    #[test]
    fn several_logs_become_one_in_the_order_of_time() {
        let one = source("one", &[&[1, 4, 2], &[9, 30, 28], &[31]]);
        let other = source("other", &[&[3, 5], &[], &[29, 40]]);
        let (times, counts) = merged(vec![other, one]);
        assert_eq!((times, counts.late, counts.lines), (vec![1, 2, 3, 4, 5, 9, 28, 29, 30, 31, 40], 0, 11));
    }

    #[test]
    fn what_comes_too_late_is_taken_as_of_then() {
        let (times, counts) = merged(vec![source("log", &[&[10, 30], &[24, 26, 31], &[50]])]);
        assert_eq!((times, counts.late), (vec![10, 24, 26, 30, 31, 50], 0));
        let (ten, twenty, thirty) = ([10; BELIEVED_FROM], [20; BELIEVED_FROM], [30; BELIEVED_FROM]);
        let (times, counts) = merged(vec![source("log", &[&ten, &twenty, &thirty, &[12, 31], &[50]])]);
        let expected = [&ten[..], &twenty, &[20], &thirty, &[31, 50]].concat();
        assert_eq!((times, counts.late), (expected, 1));
    }

    #[test]
    fn a_line_far_ahead_neither_spoils_the_order_nor_keeps_the_text() {
        let mut with_leap: Vec<Vec<u64>> =
            (0..3 * BLOCKS_MAX as u64).map(|chunk| (0..20).map(|second| 20 * chunk + (second ^ 1)).collect()).collect();
        with_leap[1].insert(7, 9_000_000);
        let slices: Vec<&[u64]> = with_leap.iter().map(Vec::as_slice).collect();
        let (times, counts) = merged(vec![source("log", &slices)]);
        let mut expected = with_leap.concat();
        expected.sort_unstable();
        assert_eq!((times, counts.late), (expected, 0));

        let mut merge = LogMerge::new(Vec::new(), 5_000_000);
        merge.sources.push(LogSource {
            leaping: 0,
            leap_us: 0,
            seen_us: 0,
            path: PathBuf::new(),
            heard: sync_channel(0).1,
        });
        for times in &with_leap {
            let mut chunk = LogChunk::default();
            chunk.text = "x".repeat(1_000);
            times.iter().for_each(|at_s| chunk.add("", at_s * 1_000_000, 1, &Vec::new()));
            merge.push_chunk(0, chunk);
            merge.emit_until(merge.sources[0].seen_us.saturating_sub(5_000_000), &mut |_, _, _| {});
            let texts: usize = merge.chunks.iter().map(|waiting| waiting.chunk.text.len()).sum();
            assert!(texts <= 4_000, "{texts}");
        }
        merge.compact();
        assert_eq!((merge.chunks.len(), merge.held.len()), (1, 6));
        let mut last = Vec::new();
        merge.emit_until(u64::MAX, &mut |at_us, _, _| last.push(at_us / 1_000_000));
        assert_eq!(last.last(), Some(&9_000_000));
    }
}

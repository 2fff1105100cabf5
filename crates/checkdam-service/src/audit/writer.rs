//! Writes violations in batches, and deletes those past their retention.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout_at};

use super::{Audit, unix_us};
use crate::config::AuditOptions;
use crate::rulebook::{Retention, Rulebook, Violation};

/// The most violations of one statement.
const BATCH_MAX: usize = 500;
/// How long the first of a batch waits for others.
const GATHER: Duration = Duration::from_millis(100);
/// The pause after the database did not take a batch; it doubles.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How often old violations are pruned.
const PRUNE_EVERY: Duration = Duration::from_secs(60);

/// The task that writes.
#[derive(Debug)]
pub struct ViolationWriter {
    audit: Arc<Audit>,
    finish: oneshot::Sender<Instant>,
    task: JoinHandle<()>,
}

impl ViolationWriter {
    pub fn start(
        audit: &Arc<Audit>,
        queue: mpsc::Receiver<Violation>,
        rulebook: Rulebook,
        options: AuditOptions,
    ) -> Self {
        let (finish, finishing) = oneshot::channel();
        let work = WriterTask { audit: Arc::clone(audit), queue, rulebook, options };
        Self { audit: Arc::clone(audit), finish, task: tokio::spawn(work.run(finishing)) }
    }

    /// Writes what is left, until the deadline; the rest is counted as dropped.
    pub async fn finish(self, deadline: Instant) {
        // If it ended before, there is nothing left to end.
        let _ = self.finish.send(deadline);
        let _ = self.task.await;
        let counts = self.audit.counts();
        if counts.dropped > 0 {
            tracing::warn!(dropped = counts.dropped, written = counts.written, "violations were dropped");
        }
    }
}

struct WriterTask {
    audit: Arc<Audit>,
    queue: mpsc::Receiver<Violation>,
    rulebook: Rulebook,
    options: AuditOptions,
}

impl WriterTask {
    async fn run(mut self, mut finishing: oneshot::Receiver<Instant>) {
        let mut prune = interval(PRUNE_EVERY);
        prune.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut batch = Vec::new();
        let deadline = loop {
            tokio::select! {
                deadline = &mut finishing => break deadline,
                _ = prune.tick() => self.prune().await,
                count = self.queue.recv_many(&mut batch, BATCH_MAX) => {
                    if count == 0 {
                        return;
                    }
                    // More may arrive at once: one statement writes all of them.
                    let until = Instant::now() + GATHER;
                    while batch.len() < BATCH_MAX {
                        let wanted = BATCH_MAX - batch.len();
                        match timeout_at(until, self.queue.recv_many(&mut batch, wanted)).await {
                            Ok(count) if count > 0 => {}
                            _ => break,
                        }
                    }
                    if let Some(deadline) = self.write(&mut batch, &mut finishing).await {
                        break Ok(deadline);
                    }
                }
            }
        };
        self.finish(batch, deadline.unwrap_or_else(|_| Instant::now())).await;
    }

    /// Writes the batch, however long the database is away; the deadline, if
    /// the program is to end meanwhile.
    async fn write(&self, batch: &mut Vec<Violation>, finishing: &mut oneshot::Receiver<Instant>) -> Option<Instant> {
        let mut pause = PAUSE_FIRST;
        loop {
            match self.rulebook.write_violations(batch).await {
                Ok(()) => {
                    self.audit.count_written(batch.len());
                    batch.clear();
                    return None;
                }
                Err(error) => {
                    if pause == PAUSE_FIRST {
                        tracing::warn!(%error, waiting = batch.len(), "cannot write violations: waiting for the database");
                    }
                    tokio::select! {
                        deadline = &mut *finishing => return Some(deadline.unwrap_or_else(|_| Instant::now())),
                        () = sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
                    }
                }
            }
        }
    }

    /// Writes what is left while there is time.
    async fn finish(mut self, mut batch: Vec<Violation>, deadline: Instant) {
        self.queue.close();
        loop {
            while batch.len() < BATCH_MAX
                && let Ok(violation) = self.queue.try_recv()
            {
                batch.push(violation);
            }
            if batch.is_empty() {
                return;
            }
            match timeout_at(deadline, self.rulebook.write_violations(&batch)).await {
                Ok(Ok(())) => self.audit.count_written(batch.len()),
                Ok(Err(_)) if Instant::now() + PAUSE_FIRST < deadline => {
                    sleep(PAUSE_FIRST).await;
                    continue;
                }
                _ => {
                    let mut lost = batch.len();
                    while self.queue.try_recv().is_ok() {
                        lost += 1;
                    }
                    self.audit.count_dropped(lost);
                    return;
                }
            }
            batch.clear();
        }
    }

    async fn prune(&self) {
        let oldest_us = unix_us().saturating_sub(self.options.keep.as_micros() as u64);
        let keep = Retention {
            since_unix_ms: Some((oldest_us / 1_000) as i64),
            rows_max: Some(self.options.rows_max),
            rule_rows_max: Some(self.options.rule_rows_max),
            bytes_max: Some(self.options.bytes_max),
        };
        match self.rulebook.prune_violations(keep).await {
            Ok(0) => {}
            Ok(pruned) => tracing::info!(pruned, "deleted old violations"),
            Err(error) => tracing::debug!(%error, "cannot delete old violations yet"),
        }
    }
}

//! A timeout that is extended with every request but rarely re-arms its timer.

use std::pin::Pin;
use std::task::Context;

use tokio::time::{Instant, Sleep};

/// Rings when something is overdue. Its timer is moved when it rings too early,
/// which is rare, instead of at every request.
#[derive(Debug, Default)]
pub struct LazyTimer {
    timer: Option<Pin<Box<Sleep>>>,
}

impl LazyTimer {
    /// Called while waiting for what is due then; whether it is overdue. If not,
    /// the task is woken in time.
    pub fn poll_overdue(&mut self, due: Instant, context: &mut Context<'_>) -> bool {
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        if timer.deadline() > due {
            timer.as_mut().reset(due);
        }
        while timer.as_mut().poll(context).is_ready() {
            if due <= Instant::now() {
                return true;
            }
            timer.as_mut().reset(due);
        }
        false
    }
}

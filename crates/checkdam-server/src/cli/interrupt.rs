//! Ctrl-C for long commands that stop early and print partial results.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

/// Sets the flag at the first interrupt; at the second the program ends at once.
pub(super) fn stop_on_interrupt(is_stopped: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let is_stopped = Arc::clone(is_stopped);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start threads")?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            while tokio::signal::ctrl_c().await.is_ok() {
                if is_stopped.swap(true, Ordering::Relaxed) {
                    std::process::exit(130);
                }
            }
        });
    })?;
    Ok(())
}

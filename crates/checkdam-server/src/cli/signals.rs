//! Unix signals: those that a node handles, and Ctrl-C for long commands that print
//! partial results.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::systemd::{self, ReloadNotice};

/// Receivers of the signals that a node handles.
pub(super) struct Signals {
    /// Go away; a second time: at once.
    pub(super) stop: mpsc::Receiver<()>,
    /// Read the rules anew.
    pub(super) reload: mpsc::Receiver<ReloadNotice>,
    /// Read the TLS files anew.
    pub(super) reload_tls: mpsc::Receiver<()>,
}

impl Signals {
    pub(super) fn listen(runtime: &Handle) -> std::io::Result<Self> {
        let _entered = runtime.enter();
        let stop = signals(&[SignalKind::terminate(), SignalKind::interrupt()], systemd::notify_stopping)?;
        let hangup = [SignalKind::hangup()];
        let (reload, reload_tls) = (signals(&hangup, ReloadNotice::begin)?, signals(&hangup, || ())?);
        Ok(Self { stop, reload, reload_tls })
    }
}

/// A message for each signal of these kinds, made on arrival.
fn signals<T: Send + 'static>(kinds: &[SignalKind], message: fn() -> T) -> std::io::Result<mpsc::Receiver<T>> {
    let (sender, receiver) = mpsc::channel(1);
    for kind in kinds {
        let mut arriving = signal(*kind)?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while arriving.recv().await.is_some() {
                // Full means that one is already waiting to be seen.
                let _ = sender.try_send(message());
            }
        });
    }
    Ok(receiver)
}

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

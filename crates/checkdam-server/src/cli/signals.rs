//! Unix signals that a node handles.

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
}

impl Signals {
    /// Listens to them from now on, on that runtime.
    pub(super) fn listen(runtime: &Handle) -> std::io::Result<Self> {
        let _entered = runtime.enter();
        let stop = signals(&[SignalKind::terminate(), SignalKind::interrupt()], systemd::notify_stopping)?;
        Ok(Self { stop, reload: signals(&[SignalKind::hangup()], ReloadNotice::begin)? })
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

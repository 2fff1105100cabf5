//! The signals that a node obeys.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// What a node is told from outside.
pub(super) struct Signals {
    /// Go away; a second time: at once.
    pub(super) stop: mpsc::Receiver<()>,
    /// Read the rules anew.
    pub(super) reload: mpsc::Receiver<()>,
}

impl Signals {
    /// Listens to them from now on.
    pub(super) fn new() -> std::io::Result<Self> {
        let stop = signals(&[SignalKind::terminate(), SignalKind::interrupt()])?;
        Ok(Self { stop, reload: signals(&[SignalKind::hangup()])? })
    }
}

/// A message for each signal of these kinds.
fn signals(kinds: &[SignalKind]) -> std::io::Result<mpsc::Receiver<()>> {
    let (sender, receiver) = mpsc::channel(1);
    for kind in kinds {
        let mut arriving = signal(*kind)?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while arriving.recv().await.is_some() {
                // Full means that one is already waiting to be seen.
                let _ = sender.try_send(());
            }
        });
    }
    Ok(receiver)
}

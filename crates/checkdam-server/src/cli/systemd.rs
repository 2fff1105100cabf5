//! Service notifications of systemd (`Type=notify`, `sd_notify`). Without
//! `NOTIFY_SOCKET` nothing is sent.

use std::ffi::OsStr;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sd_notify::NotifyState;

/// Listeners are open and rules active. From now on the watchdog is pinged, if it is
/// enabled.
pub(super) fn notify_ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
    if let Some(limit) = sd_notify::watchdog_enabled() {
        tokio::spawn(ping_watchdog(limit / 2));
    }
}

/// The program is shutting down.
pub(super) fn notify_stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("shutdown: still serving new requests")]);
}

/// The rules are being read anew, until this is dropped.
#[derive(Debug)]
pub(super) struct ReloadNotice(());

impl ReloadNotice {
    pub(super) fn begin() -> Self {
        // systemd needs the time, to tell one reload from another.
        let when = NotifyState::monotonic_usec_now();
        notify(&[Some(NotifyState::Reloading), when.ok()].into_iter().flatten().collect::<Vec<_>>());
        Self(())
    }
}

impl Drop for ReloadNotice {
    fn drop(&mut self) {
        notify(&[NotifyState::Ready]);
    }
}

/// Pings the watchdog periodically: a task is spawned on the runtime, and the ping is
/// sent only once it has run.
async fn ping_watchdog(every: Duration) {
    let mut ticks = tokio::time::interval(every.max(Duration::from_millis(1)));
    loop {
        ticks.tick().await;
        if tokio::spawn(async {}).await.is_ok() {
            notify(&[NotifyState::Watchdog]);
        }
    }
}

fn notify(state: &[NotifyState<'_>]) {
    static HAS_WARNED: AtomicBool = AtomicBool::new(false);
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let message: String = state.iter().map(|state| format!("{state}\n")).collect();
    let sent = address(&name).and_then(|address| UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address));
    if let Err(error) = sent
        && !HAS_WARNED.swap(true, Ordering::Relaxed)
    {
        tracing::warn!(%error, "cannot notify the supervisor at NOTIFY_SOCKET");
    }
}

/// Where the supervisor listens. A name that begins with `@` is none of a file,
/// which the crate does not know.
fn address(name: &OsStr) -> std::io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = name.as_encoded_bytes().strip_prefix(b"@") {
        return <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name);
    }
    SocketAddr::from_pathname(name)
}

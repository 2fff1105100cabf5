//! Tunnels after a protocol upgrade, such as WebSocket: copies bytes both ways until
//! both sides have ended or the tunnel is idle for too long.

use std::io::Error;
use std::sync::Mutex;
use std::time::Duration;

use checkdam_net::InFlightRequest;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

use super::http1::Connection;
use super::lock;

/// How many bytes are carried at a time.
const PART_MAX: usize = 16 << 10;

pub(super) async fn run(client: OnUpgrade, upstream: Box<Connection>, patience: Duration, under_way: InFlightRequest) {
    match client.await {
        Ok(client) => copy_bidirectional(client, *upstream, patience).await,
        Err(error) => tracing::debug!(%error, "cannot upgrade a connection"),
    }
    drop(under_way);
}

async fn copy_bidirectional(client: Upgraded, upstream: Connection, patience: Duration) {
    let (stream, early, _permit) = upstream.into_parts();
    let (from_client, to_client) = tokio::io::split(TokioIo::new(client));
    let (from_upstream, to_upstream) = tokio::io::split(stream);
    let heard = Mutex::new(Instant::now());
    // Bytes that arrived with the upstream's response come first.
    let from_upstream = (&early[..]).chain(from_upstream);
    tokio::select! {
        done = async { tokio::try_join!(copy(from_client, to_upstream, &heard), copy(from_upstream, to_client, &heard)) } => {
            if let Err(error) = done {
                tracing::debug!(%error, "a tunnel failed");
            }
        }
        () = idle_timeout(&heard, patience) => tracing::debug!("closing an idle tunnel"),
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    heard: &Mutex<Instant>,
) -> Result<(), Error> {
    let mut part = vec![0; PART_MAX];
    loop {
        let length = from.read(&mut part).await?;
        if length == 0 {
            // The other direction may have more to say.
            return to.shutdown().await;
        }
        *lock(heard) = Instant::now();
        to.write_all(&part[..length]).await?;
        to.flush().await?;
    }
}

/// Waits until nothing has arrived for so long.
async fn idle_timeout(heard: &Mutex<Instant>, patience: Duration) {
    loop {
        let due = *lock(heard) + patience;
        if due <= Instant::now() {
            return;
        }
        tokio::time::sleep_until(due).await;
    }
}

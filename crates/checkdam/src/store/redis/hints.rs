//! A word between nodes that share a Redis: something has changed, look now.
//!
//! It is a hint and no more: nobody may rely on it, so whatever it speeds up
//! must also happen without it.

use std::time::Duration;

use futures_util::StreamExt;
use redis::RedisError;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::RedisStore;
use super::server::{ask, find_master, open};
use super::target::{Endpoint, Target};

/// Under this name nodes hear of each other's changes.
const CHANNEL: &str = "cd:rules";
/// The pause before a lost connection is made again.
const PAUSE: Duration = Duration::from_secs(1);
const CONNECT_LIMIT: Duration = Duration::from_millis(500);

impl RedisStore {
    /// Tells the other nodes that something has changed.
    ///
    /// # Errors
    /// If Redis cannot be reached or does not permit it.
    pub async fn announce(&self) -> Result<(), RedisError> {
        let mut command = redis::cmd("PUBLISH");
        command.arg(CHANNEL).arg("");
        let mut last = None;
        for endpoint in endpoints(&self.target).await? {
            let told = async { ask(&mut open(&endpoint).await?, &command).await };
            match told.await {
                Ok(_) => return Ok(()),
                Err(error) => last = Some(error),
            }
        }
        last.map_or(Ok(()), Err)
    }

    /// One message whenever another node tells, and one whenever telling may
    /// have been missed; until the receiver is dropped.
    #[must_use]
    pub fn hints(&self) -> mpsc::Receiver<()> {
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(listen(self.target.clone(), sender));
        receiver
    }
}

async fn listen(target: Target, hints: mpsc::Sender<()>) {
    while !hints.is_closed() {
        for endpoint in endpoints(&target).await.unwrap_or_default() {
            // However it ends, the next one is tried.
            let _ = listen_at(&endpoint, &hints).await;
        }
        tokio::select! {
            () = sleep(PAUSE) => {}
            () = hints.closed() => return,
        }
    }
}

async fn listen_at(endpoint: &Endpoint, hints: &mpsc::Sender<()>) -> Result<(), RedisError> {
    let client = endpoint.client()?;
    let connecting = async {
        let mut link = client.get_async_pubsub().await?;
        link.subscribe(CHANNEL).await?;
        Ok::<_, RedisError>(link)
    };
    let Ok(link) = timeout(CONNECT_LIMIT, connecting).await else { return Ok(()) };
    let mut messages = link?.into_on_message();
    loop {
        // A hint that waits stands for all that follow.
        let _ = hints.try_send(());
        tokio::select! {
            message = messages.next() => if message.is_none() { return Ok(()) },
            () = hints.closed() => return Ok(()),
        }
    }
}

/// Servers of which any one will do.
async fn endpoints(target: &Target) -> Result<Vec<Endpoint>, RedisError> {
    match target {
        Target::Single(endpoint) => Ok(vec![endpoint.clone()]),
        Target::Cluster { seeds } => Ok(seeds.clone()),
        Target::Sentinel { sentinels, endpoint, master } => Ok(vec![find_master(sentinels, endpoint, master).await?.0]),
    }
}

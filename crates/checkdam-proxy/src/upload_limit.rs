//! Limits concurrent request bodies per client, because each occupies an upstream
//! connection.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use super::lock;

/// The bodies that are being sent, by client.
#[derive(Debug)]
pub(super) struct UploadLimit {
    per_client_max: usize,
    counts: Mutex<HashMap<IpAddr, usize>>,
}

/// A body that is being sent, until this is dropped.
#[derive(Debug)]
pub(super) struct UploadPermit {
    uploads: Arc<UploadLimit>,
    client: IpAddr,
}

impl UploadLimit {
    pub(super) fn new(per_client_max: usize) -> Self {
        Self { per_client_max, counts: Mutex::default() }
    }

    /// The most that one client may send at a time.
    pub(super) const fn per_client_max(&self) -> usize {
        self.per_client_max
    }

    /// Counts one more; none if the client is sending as many as it may.
    pub(super) fn begin(self: &Arc<Self>, client: IpAddr) -> Option<UploadPermit> {
        let mut counts = lock(&self.counts);
        let count = counts.entry(client).or_default();
        if *count >= self.per_client_max {
            return None;
        }
        *count += 1;
        Some(UploadPermit { uploads: Arc::clone(self), client })
    }
}

impl Drop for UploadPermit {
    fn drop(&mut self) {
        let mut counts = lock(&self.uploads.counts);
        if let Some(count) = counts.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_a_share_of_its_own_and_none_is_remembered() {
        let uploads = Arc::new(UploadLimit::new(2));
        let [one, two] = ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse().unwrap());
        let held = [uploads.begin(one), uploads.begin(one), uploads.begin(two)];
        assert!(held.iter().all(Option::is_some) && uploads.begin(one).is_none());
        drop(held);
        assert!(lock(&uploads.counts).is_empty());
    }
}

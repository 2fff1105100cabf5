//! The client CAs of a listener, and the end of connections that a removed CA has admitted.

use tokio::sync::watch;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// The CAs that verify client certificates.
#[derive(Debug)]
pub(super) struct ClientCas {
    roots: Vec<CertificateDer<'static>>,
    /// True once one of them was removed. It is shared with later sets that only add some.
    is_removed: watch::Sender<bool>,
}

/// Whether the client CA that a connection was admitted by is still trusted; without mutual
/// TLS it always is.
#[derive(Debug, Clone, Default)]
pub struct ClientCaTrust(Option<watch::Receiver<bool>>);

impl ClientCas {
    pub(super) fn new(roots: Vec<CertificateDer<'static>>) -> Self {
        Self { roots, is_removed: watch::Sender::new(false) }
    }

    /// For a connection whose client these CAs verify.
    pub(super) fn trust(&self) -> ClientCaTrust {
        ClientCaTrust(Some(self.is_removed.subscribe()))
    }

    /// Makes these the successors of other CAs; returns whether one of those is missing here.
    /// Then [`Self::remove`] is to be called for them.
    pub(super) fn succeed(&mut self, old: &Self) -> bool {
        let is_removed = old.roots.iter().any(|root| !self.roots.contains(root));
        if !is_removed {
            self.is_removed = old.is_removed.clone();
        }
        is_removed
    }

    /// Tells all connections that these CAs have admitted.
    pub(super) fn remove(&self) {
        self.is_removed.send_replace(true);
    }
}

impl ClientCaTrust {
    /// Waits until the CA is removed, for ever if it is not.
    pub(crate) async fn removed(&mut self) {
        // An error means that the listener is gone, whose connections end for that.
        if let Some(removed) = &mut self.0
            && removed.wait_for(|is_removed| *is_removed).await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }

    /// Whether the client has presented a certificate.
    pub(crate) const fn is_verified(&self) -> bool {
        self.0.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cas(names: &[&'static str]) -> ClientCas {
        ClientCas::new(names.iter().map(|name| CertificateDer::from_slice(name.as_bytes())).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn connections_end_once_a_ca_is_removed_and_not_if_one_is_added() {
        let is_removed = async |trust: &ClientCaTrust| {
            let second = std::time::Duration::from_secs(1);
            tokio::time::timeout(second, trust.clone().removed()).await.is_ok()
        };
        let (first, mut second, mut third) = (cas(&["a"]), cas(&["b", "a"]), cas(&["b"]));
        let (of_first, of_second) = (first.trust(), second.trust());
        assert!(!second.succeed(&first), "one is added");
        assert!(!is_removed(&of_first).await);
        assert!(third.succeed(&second), "one is removed");
        let (of_successor, of_third) = (second.trust(), third.trust());
        second.remove();
        assert!(is_removed(&of_first).await && is_removed(&of_successor).await);
        assert!(!is_removed(&of_third).await && !is_removed(&ClientCaTrust::default()).await);
        drop((first, second, of_second));
    }
}

//! Reloads certificates when their files change, and warns before they expire.
//!
//! The files are read every second. Their contents are compared, not their times: a
//! secret that Kubernetes updates is a symbolic link that points elsewhere. Certificate,
//! key and client CA change together or not at all. If key and certificate do not match,
//! as between the writes of two files, the active certificate stays and the files are
//! read again a second later.
//! Connections outlive a change of the certificate, but not the removal of a client CA.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use checkdam::time::unix_us;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::certificate_files::{FileContents, TlsError};
use super::{ActiveCertificate, ListenerTls};

/// How often the files are read.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// So long before a certificate expires it is logged, once a day.
const EXPIRES_SOON_S: u64 = 14 * DAY_S;
const DAY_S: u64 = 86_400;
/// A problem is reported if this many polls in a row have found it: the first may have
/// come between the writes of two files.
const POLLS_TO_REPORT: u32 = 2;

/// What the last polls have found.
#[derive(Debug, Default)]
pub(super) struct ReloadState {
    /// Why the files cannot be used, and how many polls have found that.
    problem: Option<(TlsError, u32)>,
    /// The same as text, once it is reported.
    reported: Option<String>,
}

impl ReloadState {
    pub(super) fn reported_error(&self) -> Option<&str> {
        self.reported.as_deref()
    }

    /// Whether the problem has to be logged now.
    fn record(&mut self, problem: TlsError) -> bool {
        let polls = match &self.problem {
            Some((known, polls)) if *known == problem => polls.saturating_add(1),
            _ => 1,
        };
        let is_due = polls >= POLLS_TO_REPORT && self.reported.as_deref() != Some(&*problem.to_string());
        if is_due {
            self.reported = Some(problem.to_string());
        }
        self.problem = Some((problem, polls));
        is_due
    }
}

impl ListenerTls {
    /// Reads the files, and activates what they contain if that is new and valid.
    pub(super) fn poll_files(&self) {
        let loaded = FileContents::read(&self.files).and_then(|contents| {
            let is_active = contents.digest() == self.active.load().digest;
            let new = (!is_active).then(|| ActiveCertificate::new(&self.files, &contents, self.protocol));
            new.transpose()
        });
        let mut state = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
        let (listener, file) = (self.listener, self.files.certificate.display());
        match loaded {
            Ok(new) => {
                *state = ReloadState::default();
                if let Some(mut new) = new {
                    let days_left = new.expires_unix_s.map(days_left);
                    let old = self.active.load_full();
                    let is_ca_removed = new.succeed(&old);
                    self.active.store(Arc::new(new));
                    tracing::info!(listener, %file, days_left, "a new TLS certificate is active");
                    if let Some(cas) = old.client_cas.as_ref().filter(|_| is_ca_removed) {
                        // After the swap: no handshake uses the old CAs from here on.
                        cas.remove();
                        tracing::info!(listener, "a client CA was removed: closing the connections admitted until now");
                    }
                }
            }
            Err(error) => {
                if state.record(error.clone()) {
                    tracing::error!(listener, %error, "the new TLS files cannot be used: the old certificate stays active");
                }
            }
        }
    }

    /// In how many days the active certificate expires; negative if it has.
    pub fn days_left(&self) -> Option<i64> {
        self.expires_unix_s().map(days_left)
    }

    /// What an operator should know of the certificate's end, if it is near.
    pub fn expiry_warning(&self) -> Option<String> {
        let (listener, file) = (self.listener, self.files.certificate.display());
        let expires = self.expires_unix_s()?;
        let now = unix_us() / 1_000_000;
        match expires.checked_sub(now) {
            None => {
                Some(format!("the TLS certificate {file} of the {listener} listener has expired: replace the file"))
            }
            Some(left) if left <= EXPIRES_SOON_S => Some(format!(
                "the TLS certificate {file} of the {listener} listener expires in {} days: replace the file",
                left / DAY_S
            )),
            Some(_) => None,
        }
    }
}

/// Whole days until then, rounded down; negative after it.
fn days_left(expires_unix_s: u64) -> i64 {
    let left = i128::from(expires_unix_s) - i128::from(unix_us() / 1_000_000);
    i64::try_from(left.div_euclid(i128::from(DAY_S))).unwrap_or(i64::MAX)
}

/// Reloads the certificates of these listeners while the process runs: when their files
/// change, and at every message of `reload`. Logs those that expire soon, once a day.
pub async fn follow_certificate_files(listeners: Vec<Arc<ListenerTls>>, mut reload: mpsc::Receiver<()>) {
    let mut warned: Vec<Option<Instant>> = vec![None; listeners.len()];
    loop {
        for (listener, warned) in listeners.iter().zip(&mut warned) {
            let is_due = warned.is_none_or(|at| at.elapsed() >= Duration::from_secs(DAY_S));
            if let Some(warning) = listener.expiry_warning().filter(|_| is_due) {
                *warned = Some(Instant::now());
                tracing::warn!(listener = listener.listener, "{warning}");
            }
        }
        tokio::select! {
            () = tokio::time::sleep(POLL_EVERY) => {}
            // Without a sender only the time counts.
            Some(()) = reload.recv() => {}
        }
        for listener in &listeners {
            let listener = Arc::clone(listener);
            // A file system that hangs must not block a thread of the runtime.
            let _ = tokio::task::spawn_blocking(move || listener.poll_files()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rcgen::{CertificateParams, KeyPair};

    use super::super::TlsFiles;
    use super::*;
    use crate::options::Protocol;

    fn pair(expires: (i32, u8, u8)) -> (String, String) {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(expires.0, expires.1, expires.2);
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    fn write(folder: &Path, certificate: &str, key: &str) {
        std::fs::write(folder.join("tls.crt"), certificate).unwrap();
        std::fs::write(folder.join("tls.key"), key).unwrap();
    }

    fn listener(folder: &Path) -> ListenerTls {
        let files = TlsFiles { certificate: folder.join("tls.crt"), key: folder.join("tls.key"), client_ca: None };
        ListenerTls::load("http", files, Protocol::Http).unwrap()
    }

    #[test]
    fn files_that_do_not_fit_leave_the_active_certificate_and_are_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let ((first, first_key), (second, second_key)) = (pair((2100, 1, 1)), pair((2200, 1, 1)));
        write(folder.path(), &first, &first_key);
        let listener = listener(folder.path());
        let before = listener.expires_unix_s();
        write(folder.path(), &second, &first_key);
        listener.poll_files();
        assert_eq!((listener.expires_unix_s(), listener.reload_error()), (before, None), "the key may follow");
        listener.poll_files();
        assert_eq!(listener.expires_unix_s(), before);
        assert!(listener.reload_error().unwrap().contains("does not fit the certificate"));
        write(folder.path(), &second, &second_key);
        listener.poll_files();
        assert_eq!(listener.reload_error(), None);
        assert!(listener.expires_unix_s() > before);
        std::fs::remove_file(folder.path().join("tls.key")).unwrap();
        listener.poll_files();
        listener.poll_files();
        assert!(listener.reload_error().unwrap().contains("cannot read the private key"));
    }

    #[cfg(unix)]
    #[test]
    fn a_symbolic_link_that_points_elsewhere_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, year) in [("first", 2100), ("second", 2200)] {
            std::fs::create_dir(at(name)).unwrap();
            let (certificate, key) = pair((year, 1, 1));
            write(&at(name), &certificate, &key);
        }
        // As Kubernetes mounts a secret: tls.crt -> ..data/tls.crt, ..data -> a folder.
        std::os::unix::fs::symlink("first", at("..data")).unwrap();
        for file in ["tls.crt", "tls.key"] {
            std::os::unix::fs::symlink(format!("..data/{file}"), at(file)).unwrap();
        }
        let listener = listener(folder.path());
        let before = listener.expires_unix_s();
        std::os::unix::fs::symlink("second", at("..data_tmp")).unwrap();
        std::fs::rename(at("..data_tmp"), at("..data")).unwrap();
        listener.poll_files();
        assert!(listener.expires_unix_s() > before && listener.reload_error().is_none());
    }

    #[test]
    fn a_certificate_that_expires_soon_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        for (expires, expected) in [((2020, 1, 1), Some("has expired")), ((2100, 1, 1), None)] {
            let (certificate, key) = pair(expires);
            write(folder.path(), &certificate, &key);
            let listener = listener(folder.path());
            let warning = listener.expiry_warning();
            assert_eq!(warning.is_some(), expected.is_some(), "{warning:?}");
            assert!(warning.unwrap_or_default().contains(expected.unwrap_or_default()));
            assert_eq!(listener.days_left().unwrap() < 0, expected.is_some());
        }
    }
}

//! Messages between nodes, encrypted and authenticated with the secret that the nodes
//! share: ChaCha20-Poly1305 (RFC 8439) of `ring`, the library that TLS uses here.
//!
//! A client of Redis without the secret can neither read nor forge a message; it can
//! replay one. A sealed message is its nonce, the ciphertext and the tag.

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

/// Seals messages and opens them.
#[derive(Debug, Clone)]
pub(super) struct Sealer(LessSafeKey);

impl Sealer {
    /// None without a secret.
    pub(super) fn new(secret: &str) -> Option<Self> {
        let key = blake3::derive_key("checkdam 2026 messages between nodes", secret.as_bytes());
        let key = UnboundKey::new(&CHACHA20_POLY1305, &key).ok().filter(|_| !secret.is_empty())?;
        Some(Self(LessSafeKey::new(key)))
    }

    /// The sealed message; `None` if the system has no random numbers.
    ///
    /// Nonces are random: a thousand nodes that each publish once a second need 100 years
    /// for a chance of one in ten thousand that two are equal.
    pub(super) fn seal(&self, message: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let mut sealed = [nonce.as_slice(), message].concat();
        let nonce_of = Nonce::assume_unique_for_key(nonce);
        let tag = self.0.seal_in_place_separate_tag(nonce_of, Aad::empty(), &mut sealed[NONCE_LEN..]).ok()?;
        sealed.extend_from_slice(tag.as_ref());
        Some(sealed)
    }

    /// The message, if a node with the same secret sealed it.
    pub(super) fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, ciphertext) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut message = ciphertext.to_vec();
        let length = self.0.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::empty(), &mut message).ok()?.len();
        message.truncate(length);
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_opened_and_made_only_with_the_secret() {
        assert!(Sealer::new("").is_none());
        let (ours, theirs) = (Sealer::new("ours").unwrap(), Sealer::new("theirs").unwrap());
        for message in [b"".as_slice(), b"user:42", &[7; 40_000]] {
            let sealed = ours.seal(message).unwrap();
            assert_eq!(ours.open(&sealed).as_deref(), Some(message));
            assert_eq!(theirs.open(&sealed), None);
            assert!(message.len() != 7 || !sealed.windows(4).any(|part| part == b"user"));
            for at in [0, NONCE_LEN - 1, sealed.len() - 1] {
                let mut forged = sealed.clone();
                forged[at] ^= 1;
                assert_eq!(ours.open(&forged), None, "byte {at}");
            }
            assert_eq!(ours.open(&sealed[..sealed.len() - 1]), None);
        }
        assert_eq!(ours.open(b"{}"), None);
        assert_ne!(ours.seal(b"one"), ours.seal(b"one"), "a nonce is never used twice");
    }
}

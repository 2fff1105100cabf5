//! Words between nodes, sealed with what nodes have in common: whoever lacks the
//! secret can neither read nor make one up. He can say an old one again.
//!
//! BLAKE3 is all there is to it: a keyed hash of the word is its seal, and that
//! seal begins the keyed stream that hides the word. Equal words are sealed
//! alike, which is all that a stranger learns besides their length.

/// The length of a seal in bytes.
const SEAL: usize = blake3::OUT_LEN;

/// Seals words and opens them.
#[derive(Debug, Clone)]
pub(super) struct Sealer {
    seal_key: [u8; 32],
    stream_key: [u8; 32],
}

impl Sealer {
    /// None without a secret.
    pub(super) fn new(secret: &str) -> Option<Self> {
        let key = |purpose| blake3::derive_key(purpose, secret.as_bytes());
        (!secret.is_empty()).then(|| Self {
            seal_key: key("checkdam 2026 words between nodes: seal"),
            stream_key: key("checkdam 2026 words between nodes: stream"),
        })
    }

    /// The seal, and behind it the word that nobody can read.
    pub(super) fn seal(&self, word: &[u8]) -> Vec<u8> {
        let seal = blake3::keyed_hash(&self.seal_key, word);
        [seal.as_bytes().as_slice(), &self.hide(seal.as_bytes(), word)].concat()
    }

    /// The word, if one of us sealed it.
    pub(super) fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (seal, hidden) = sealed.split_first_chunk::<SEAL>()?;
        let word = self.hide(seal, hidden);
        // Compared in constant time.
        (blake3::keyed_hash(&self.seal_key, &word) == *seal).then_some(word)
    }

    /// Done twice, it is as before.
    fn hide(&self, seal: &[u8; SEAL], word: &[u8]) -> Vec<u8> {
        let mut stream = vec![0; word.len()];
        blake3::Hasher::new_keyed(&self.stream_key).update(seal).finalize_xof().fill(&mut stream);
        stream.iter_mut().zip(word).for_each(|(hidden, byte)| *hidden ^= byte);
        stream
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_read_by_those_who_have_the_secret_and_made_by_no_other() {
        assert!(Sealer::new("").is_none());
        let (ours, theirs) = (Sealer::new("ours").unwrap(), Sealer::new("theirs").unwrap());
        for word in [b"".as_slice(), b"user:42", &[7; 40_000]] {
            let sealed = ours.seal(word);
            assert_eq!(ours.open(&sealed).as_deref(), Some(word));
            assert_eq!(theirs.open(&sealed), None);
            assert!(word.len() != 7 || !sealed.windows(4).any(|part| part == b"user"));
            for at in [0, SEAL - 1, sealed.len() - 1] {
                let mut forged = sealed.clone();
                forged[at] ^= 1;
                assert_eq!(ours.open(&forged), None, "byte {at}");
            }
            assert_eq!(ours.open(&sealed[..sealed.len() - 1]), None);
        }
        assert_eq!(ours.open(b"{}"), None);
        assert_ne!(ours.seal(b"one")[SEAL..], ours.seal(b"two")[SEAL..]);
    }
}

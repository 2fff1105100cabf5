//! The names of buckets in Redis: `cd:{subject}:rule`, both keyed hashes.
//!
//! No personal data and nothing that a client sent stands in a key, every key
//! has the same length, and all buckets of one subject share a slot.

use crate::store::Tier;

/// 64 characters that need no quoting anywhere.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// 15 characters of 6 bits: 90 bits of a subject's hash. Among a billion
/// subjects two share a key with a probability of 4 in 10^10.
const SUBJECT_LENGTH: usize = 15;
/// 9 characters of 6 bits: 54 bits of a bucket name's hash. A whole key has 30
/// characters, the most that Redis holds in 32 bytes.
const BUCKET_LENGTH: usize = 9;

/// Names buckets; the same on every node that has the same secret.
#[derive(Debug, Clone)]
pub(super) struct KeyMaker {
    secret: [u8; 32],
    readable: bool,
}

/// How much of a subject is readable: keys must not grow with what clients send.
const READABLE_MAX: usize = 1_024;

impl KeyMaker {
    pub(super) fn new(secret: &str, readable: bool) -> Self {
        Self { secret: blake3::derive_key("checkdam 2026 bucket keys", secret.as_bytes()), readable }
    }

    /// The same for all who name buckets alike; tells nothing of the secret.
    pub(super) fn fingerprint(&self) -> String {
        let mut text = Vec::with_capacity(SUBJECT_LENGTH);
        let what: &[u8] = if self.readable { b"readable deployment" } else { b"deployment" };
        self.hash(what, SUBJECT_LENGTH, &mut text);
        text.into_iter().map(char::from).collect()
    }

    pub(super) fn key(&self, tier: &Tier<'_>) -> Vec<u8> {
        let mut key = Vec::with_capacity(6 + SUBJECT_LENGTH + BUCKET_LENGTH);
        key.extend_from_slice(b"cd:{");
        if self.readable {
            let (shown, rest) = tier.subject.split_at(tier.subject.len().min(READABLE_MAX));
            escape(shown, &mut key);
            if !rest.is_empty() {
                key.push(b'~');
                self.hash(tier.subject, SUBJECT_LENGTH, &mut key);
            }
            key.extend_from_slice(b"}:");
            // The last two parts hold no slash, so names with one stay apart.
            escape(tier.bucket.text().replace('\0', "/").as_bytes(), &mut key);
        } else {
            self.hash(tier.subject, SUBJECT_LENGTH, &mut key);
            key.extend_from_slice(b"}:");
            self.hash(tier.bucket.text().as_bytes(), BUCKET_LENGTH, &mut key);
        }
        key
    }

    fn hash(&self, text: &[u8], length: usize, out: &mut Vec<u8>) {
        let hash = blake3::keyed_hash(&self.secret, text);
        out.extend(hash.as_bytes().iter().take(length).map(|byte| ALPHABET[usize::from(byte & 63)]));
    }
}

/// Everything but plain characters as `%XX`: different texts stay different,
/// and nothing that a client sent stands there raw.
fn escape(text: &[u8], out: &mut Vec<u8>) {
    for byte in text {
        if byte.is_ascii_alphanumeric() || b"_.:/-".contains(byte) {
            out.push(*byte);
        } else {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Quota;
    use crate::store::{BucketName, FailurePolicy};

    #[test]
    fn keys_have_one_length_and_one_slot_a_subject() {
        let quota: Quota = "1/s".parse().unwrap();
        let (first, second) = (BucketName::new("a", 0, "x"), BucketName::new("b", 1, "y"));
        let maker = KeyMaker::new("", false);
        let key = |bucket, subject: &'static str| {
            let tier = Tier {
                quota: &quota,
                bucket,
                subject: subject.as_bytes(),
                cost: 1,
                group: 0,
                on_failure: FailurePolicy::Closed,
                lease: None,
            };
            String::from_utf8(maker.key(&tier)).unwrap()
        };
        let tag = |key: &str| key[..key.find('}').unwrap()].to_owned();
        let (one, two) = (key(&first, "user:42"), key(&second, "user:42"));
        assert_ne!(one, two);
        assert_eq!(tag(&one), tag(&two));
        assert_ne!(tag(&one), tag(&key(&first, "user:43")));
        assert_eq!(one.len(), key(&first, &"x".repeat(500).leak()[..]).len());
        assert!(!one.contains("42"));
    }

    #[test]
    fn readable_keys_are_escaped_and_stay_apart() {
        let quota: Quota = "1/s".parse().unwrap();
        let (bucket, maker) = (BucketName::new("a", 0, "x"), KeyMaker::new("", true));
        let key = |subject: &'static [u8]| {
            let (quota, bucket, on_failure) = (&quota, &bucket, FailurePolicy::Closed);
            let tier = Tier { quota, bucket, subject, cost: 1, group: 0, on_failure, lease: None };
            String::from_utf8(maker.key(&tier)).unwrap()
        };
        assert_eq!(key(b"user:42"), "cd:{user:42}:a/0/x");
        assert_eq!(key(b"{b}\r\n|%"), "cd:{%7Bb%7D%0D%0A%7C%25}:a/0/x");
    }
}

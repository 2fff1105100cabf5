//! Keys of buckets in Redis: `cd:{subject}:limit`, both keyed hashes; with a prefix
//! `cd:prefix{subject}:limit`.
//!
//! A key has no personal data and no client input in clear, all keys have the same
//! length, and all buckets of one subject share a slot.

use smallvec::SmallVec;

use crate::store::{BucketName, TIERS_INLINE, Tier};

/// 64 characters that need no quoting anywhere.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// 15 characters of 6 bits: 90 bits of a subject's hash. Among a billion
/// subjects two share a key with a probability of 4 in 10^10.
const SUBJECT_LENGTH: usize = 15;
/// 9 characters of 6 bits: 54 bits of a bucket name's hash. A whole key without a
/// prefix has 30 characters, the most that Redis holds in 32 bytes.
const BUCKET_LENGTH: usize = BucketName::KEYED_LENGTH;

/// What follows the head of a key.
const TAIL_LENGTH: usize = SUBJECT_LENGTH + 2 + BUCKET_LENGTH;

/// Names buckets; the same on every node that has the same secret and prefix.
#[derive(Debug, Clone)]
pub(super) struct KeyMaker {
    secret: [u8; 32],
    /// A part of the secret's hash, which identifies cached hashes of bucket names.
    owner: u64,
    /// What every key begins with: `cd:`, the prefix, and the brace of the hash tag.
    head: Box<[u8]>,
    readable: bool,
}

/// The keys of a request, concatenated in one buffer.
#[derive(Debug, Clone, Default)]
pub(super) struct Keys {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: SmallVec<[u32; TIERS_INLINE]>,
}

impl Keys {
    /// Adds a key that is made of these parts.
    pub(super) fn push(&mut self, parts: &[&[u8]]) {
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.end();
    }

    fn end(&mut self) {
        self.ends.push(self.bytes.len() as u32);
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// How many bytes they have together.
    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The key at that index; empty if there is none.
    pub(super) fn get(&self, place: usize) -> &[u8] {
        let start = place.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |end| *end as usize);
        self.ends.get(place).and_then(|end| self.bytes.get(start..*end as usize)).unwrap_or_default()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|place| self.get(place))
    }
}

/// How much of a subject is readable: keys must not grow with what clients send.
const READABLE_MAX: usize = 1_024;

impl KeyMaker {
    pub(super) fn new(secret: &str, prefix: &str, readable: bool) -> Self {
        let secret = blake3::derive_key("checkdam 2026 bucket keys", secret.as_bytes());
        let [a, b, c, d, e, f, g, h, ..] = *blake3::hash(&secret).as_bytes();
        let head = format!("cd:{prefix}{{").into_bytes().into();
        Self { secret, owner: u64::from_le_bytes([a, b, c, d, e, f, g, h]), head, readable }
    }

    /// Equal for all nodes that name buckets alike; reveals nothing of the secret.
    pub(super) fn fingerprint(&self) -> String {
        let mut text = Vec::with_capacity(SUBJECT_LENGTH);
        let what: &[u8] = if self.readable { b"readable deployment" } else { b"deployment" };
        // Without a prefix as it was before there were any.
        let prefix = &self.head[b"cd:".len()..self.head.len() - 1];
        self.hash(&[what, prefix].concat(), SUBJECT_LENGTH, &mut text);
        text.into_iter().map(char::from).collect()
    }

    pub(super) fn keys(&self, tiers: &[Tier<'_>]) -> Keys {
        let mut keys = Keys {
            bytes: Vec::with_capacity((self.head.len() + TAIL_LENGTH) * tiers.len()),
            ends: SmallVec::with_capacity(tiers.len()),
        };
        // The last subject, and the position of its hash.
        let mut last: Option<(&[u8], usize)> = None;
        for tier in tiers {
            if self.readable {
                self.write_readable(tier, &mut keys.bytes);
            } else {
                keys.bytes.extend_from_slice(&self.head);
                let start = keys.bytes.len();
                match last {
                    // Most tiers of a request are the same subject's.
                    Some((subject, known)) if subject == tier.subject => {
                        keys.bytes.extend_from_within(known..known + SUBJECT_LENGTH);
                    }
                    _ => self.hash(tier.subject, SUBJECT_LENGTH, &mut keys.bytes),
                }
                last = Some((tier.subject, start));
                keys.bytes.extend_from_slice(b"}:");
                keys.bytes.extend_from_slice(&self.bucket_hash(tier));
            }
            keys.end();
        }
        keys
    }

    pub(super) fn key(&self, tier: &Tier<'_>) -> Vec<u8> {
        self.keys(std::slice::from_ref(tier)).bytes
    }

    fn write_readable(&self, tier: &Tier<'_>, key: &mut Vec<u8>) {
        key.extend_from_slice(&self.head);
        let (shown, rest) = tier.subject.split_at(tier.subject.len().min(READABLE_MAX));
        escape(shown, key);
        if !rest.is_empty() {
            key.push(b'~');
            self.hash(tier.subject, SUBJECT_LENGTH, key);
        }
        key.extend_from_slice(b"}:");
        // The last two parts hold no slash, so names with one stay apart.
        escape(bucket_text(tier).replace('\0', "/").as_bytes(), key);
    }

    /// The hash of a bucket's name and arithmetic, computed on first use.
    fn bucket_hash(&self, tier: &Tier<'_>) -> [u8; BUCKET_LENGTH] {
        tier.bucket.keyed(self.owner ^ tier.quota.arithmetic, || {
            let mut text = Vec::with_capacity(BUCKET_LENGTH);
            self.hash(bucket_text(tier).as_bytes(), BUCKET_LENGTH, &mut text);
            let mut hash = [0; BUCKET_LENGTH];
            hash.copy_from_slice(&text);
            hash
        })
    }

    fn hash(&self, text: &[u8], length: usize, out: &mut Vec<u8>) {
        let hash = blake3::keyed_hash(&self.secret, text);
        out.extend(hash.as_bytes().iter().take(length).map(|byte| ALPHABET[usize::from(byte & 63)]));
    }
}

/// The name and the arithmetic of a bucket.
fn bucket_text(tier: &Tier<'_>) -> String {
    format!("{}\0{}", tier.bucket.text(), tier.quota.arithmetic())
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
        let (first, second) = (BucketName::new("a", 0), BucketName::new("b", 1));
        let maker = KeyMaker::new("", "", false);
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
        let (bucket, maker) = (BucketName::new("a", 0), KeyMaker::new("", "", true));
        let key = |subject: &'static [u8]| {
            let (quota, bucket, on_failure) = (&quota, &bucket, FailurePolicy::Closed);
            let tier = Tier { quota, bucket, subject, cost: 1, group: 0, on_failure, lease: None };
            String::from_utf8(maker.key(&tier)).unwrap()
        };
        assert_eq!(key(b"user:42"), "cd:{user:42}:a/0/token_bucket:1x1000000:1:0");
        assert_eq!(key(b"{b}\r\n|%"), "cd:{%7Bb%7D%0D%0A%7C%25}:a/0/token_bucket:1x1000000:1:0");
    }

    #[test]
    fn a_prefix_stands_in_every_key_and_changes_no_slot() {
        let quota: Quota = "1/s".parse().unwrap();
        let bucket = BucketName::new("a", 0);
        let (quota, bucket, on_failure) = (&quota, &bucket, FailurePolicy::Closed);
        let tier = Tier { quota, bucket, subject: b"user:42", cost: 1, group: 0, on_failure, lease: None };
        let plain = KeyMaker::new("", "", false);
        let with = KeyMaker::new("", "prod:", false);
        let key = |maker: &KeyMaker| String::from_utf8(maker.key(&tier)).unwrap();
        assert_eq!(key(&with), key(&plain).replacen("cd:", "cd:prod:", 1));
        assert_ne!(with.fingerprint(), plain.fingerprint());
    }
}

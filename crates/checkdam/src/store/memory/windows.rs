//! Buckets that count in windows: maps behind locks, with a bound.
//!
//! Their states do not fit one word. Each shard is a map of its own with a
//! share of the bound; at the bound it evicts, of eight drawn at random, the
//! bucket that is soonest gone, and remembers its use in fixed space.

use indexmap::IndexMap;
use smallvec::SmallVec;

use crate::algorithm::WindowState;
use crate::decision::Decision;
use crate::hash::{Tag, place};
use crate::quota::Quota;
use crate::store::TIERS_INLINE;
use crate::sync::{Mutex, MutexGuard, lock};

const SHARDS_MAX: usize = 64;
const BUCKETS_PER_SHARD_MIN: usize = 256;
/// How many buckets are compared to find one to evict.
const DRAWN: usize = 8;
/// A log counts as one bucket more for every so many entries.
const LOG_ENTRIES_PER_BUCKET: usize = 4;
/// One place remembers the debts of this many evicted buckets.
const BUCKETS_PER_DEBT: usize = 4;
/// The unit in which the sketch remembers a share of the limit.
const WHOLE_SHARE: u64 = 1 << 16;

#[derive(Debug)]
pub(super) struct Windows {
    shards: Box<[Mutex<Shard>]>,
}

#[derive(Debug)]
pub(super) struct Shard {
    buckets: IndexMap<Tag, Bucket, foldhash::fast::RandomState>,
    /// Made when the first bucket is evicted.
    debts: Vec<Debt>,
    weight: usize,
    weight_max: usize,
    drawn: u64,
    evicted: u64,
}

#[derive(Debug)]
struct Bucket {
    state: Option<WindowState>,
    limit: u64,
    gone_at_us: u64,
}

/// What evicted buckets had used, at most, and until when, at the latest.
#[derive(Debug, Clone, Copy, Default)]
struct Debt {
    gone_at_us: u64,
    share: u64,
}

/// The shards that a request needs, locked in their order.
#[derive(Default)]
pub(super) struct Locked<'a> {
    shards: SmallVec<[(usize, MutexGuard<'a, Shard>); TIERS_INLINE]>,
}

impl Windows {
    pub(super) fn new(buckets_max: usize) -> Self {
        let shards = (buckets_max / BUCKETS_PER_SHARD_MIN).clamp(1, SHARDS_MAX);
        let weight_max = (buckets_max / shards).max(1);
        Self { shards: (0..shards).map(|_| Mutex::new(Shard::new(weight_max))).collect() }
    }

    /// Locks what `tags` need. Every caller locks in the same order.
    pub(super) fn lock(&self, tags: impl Iterator<Item = Tag>) -> Locked<'_> {
        let mut wanted: SmallVec<[usize; TIERS_INLINE]> = tags.map(|tag| self.shard(tag)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        Locked { shards: wanted.into_iter().map(|shard| (shard, lock(&self.shards[shard]))).collect() }
    }

    /// Forgets what no longer counts; a shard at a time.
    pub(super) fn sweep(&self, now_us: u64) {
        for shard in &self.shards {
            lock(shard).sweep(now_us);
        }
    }

    /// How many buckets are held, and how many have been evicted.
    pub(super) fn counts(&self) -> (usize, u64) {
        self.shards.iter().fold((0, 0), |(held, evicted), shard| {
            let shard = lock(shard);
            (held + shard.buckets.len(), evicted + shard.evicted)
        })
    }

    fn shard(&self, tag: Tag) -> usize {
        place(tag, self.shards.len())
    }

    /// The shard of `tag` among the locked ones.
    pub(super) fn of<'a>(&self, locked: &'a mut Locked<'_>, tag: Tag) -> Option<&'a mut Shard> {
        let wanted = self.shard(tag);
        locked.shards.iter_mut().find(|(shard, _)| *shard == wanted).map(|(_, guard)| &mut **guard)
    }
}

impl Shard {
    fn new(weight_max: usize) -> Self {
        Self {
            buckets: IndexMap::default(),
            debts: Vec::new(),
            weight: 0,
            weight_max,
            drawn: 0x9E37_79B9_7F4A_7C15,
            evicted: 0,
        }
    }

    pub(super) fn take(&mut self, tag: Tag, quota: &Quota, now_us: u64, cost: u64) -> Decision {
        self.change(tag, quota, now_us, |slot| WindowState::take(quota, slot, now_us, cost))
    }

    pub(super) fn refund(&mut self, tag: Tag, quota: &Quota, now_us: u64, cost: u64) -> Decision {
        self.change(tag, quota, now_us, |slot| WindowState::refund(quota, slot, now_us, cost))
    }

    pub(super) fn peek(&self, tag: Tag, quota: &Quota, now_us: u64, cost: u64) -> Decision {
        match self.buckets.get(&tag) {
            Some(bucket) => WindowState::peek(quota, bucket.state.as_ref(), now_us, cost),
            None => WindowState::peek(quota, self.inherited(tag, quota, now_us).as_ref(), now_us, cost),
        }
    }

    /// Forgets the bucket. Where the sketch would bring a debt back, an empty
    /// bucket stays in its place until the debt has passed.
    pub(super) fn reset(&mut self, tag: Tag, quota: &Quota, now_us: u64) -> Decision {
        if let Some(bucket) = self.buckets.swap_remove(&tag) {
            self.weight -= bucket.weight();
        }
        let debt = self.debt(tag);
        if debt.gone_at_us > now_us {
            self.insert(tag, Bucket { state: None, limit: quota.limit, gone_at_us: debt.gone_at_us }, now_us);
        }
        WindowState::peek(quota, None, now_us, 0)
    }

    fn change(
        &mut self,
        tag: Tag,
        quota: &Quota,
        now_us: u64,
        decide: impl FnOnce(&mut Option<WindowState>) -> Decision,
    ) -> Decision {
        if let Some(bucket) = self.buckets.get_mut(&tag) {
            let before = bucket.weight();
            let decision = decide(&mut bucket.state);
            bucket.limit = quota.limit;
            if let Some(state) = &bucket.state {
                bucket.gone_at_us = state.gone_at_us(quota);
            }
            self.weight = self.weight + bucket.weight() - before;
            self.keep_bound(tag, now_us);
            return decision;
        }
        let mut state = self.inherited(tag, quota, now_us);
        let decision = decide(&mut state);
        if let Some(state) = state {
            let gone_at_us = state.gone_at_us(quota);
            self.insert(tag, Bucket { state: Some(state), limit: quota.limit, gone_at_us }, now_us);
        }
        decision
    }

    fn insert(&mut self, tag: Tag, bucket: Bucket, now_us: u64) {
        self.weight += bucket.weight();
        self.buckets.insert(tag, bucket);
        self.keep_bound(tag, now_us);
    }

    /// Evicts until the bound holds; never the bucket just used.
    fn keep_bound(&mut self, just_used: Tag, now_us: u64) {
        while self.weight > self.weight_max && self.buckets.len() > 1 {
            let mut victim: Option<(usize, u64, u64)> = None;
            for _ in 0..DRAWN {
                let index = self.draw();
                let Some((tag, bucket)) = self.buckets.get_index(index) else { continue };
                let used = bucket.share();
                if *tag != just_used && victim.is_none_or(|(_, gone, share)| (bucket.gone_at_us, used) < (gone, share))
                {
                    victim = Some((index, bucket.gone_at_us, used));
                }
            }
            let Some((index, ..)) = victim else { continue };
            if let Some((tag, bucket)) = self.buckets.swap_remove_index(index) {
                self.weight -= bucket.weight();
                self.remember(tag, &bucket, now_us);
            }
        }
    }

    fn draw(&mut self) -> usize {
        self.drawn ^= self.drawn << 13;
        self.drawn ^= self.drawn >> 7;
        self.drawn ^= self.drawn << 17;
        place(self.drawn, self.buckets.len())
    }

    fn remember(&mut self, tag: Tag, bucket: &Bucket, now_us: u64) {
        if bucket.state.is_none() || bucket.gone_at_us <= now_us {
            return;
        }
        self.evicted += 1;
        self.debts.resize((self.weight_max / BUCKETS_PER_DEBT).max(16), Debt::default());
        let place = self.debt_place(tag);
        let debt = &mut self.debts[place];
        let share = if debt.gone_at_us > now_us { debt.share.max(bucket.share()) } else { bucket.share() };
        *debt = Debt { gone_at_us: debt.gone_at_us.max(bucket.gone_at_us), share };
    }

    fn inherited(&self, tag: Tag, quota: &Quota, now_us: u64) -> Option<WindowState> {
        let debt = self.debt(tag);
        if debt.gone_at_us <= now_us {
            return None;
        }
        let used = (quota.limit * debt.share).div_ceil(WHOLE_SHARE);
        // Another quota's bucket may have left it: owe no longer than our own would.
        let longest_us = WindowState::longest_us(quota, now_us);
        Some(WindowState::owing(quota, used, debt.gone_at_us.min(now_us + longest_us)))
    }

    fn debt(&self, tag: Tag) -> Debt {
        self.debts.get(self.debt_place(tag)).copied().unwrap_or_default()
    }

    fn debt_place(&self, tag: Tag) -> usize {
        // The upper bits chose the shard.
        place(tag.wrapping_mul(0x9E37_79B9_7F4A_7C15), self.debts.len())
    }

    fn sweep(&mut self, now_us: u64) {
        let mut weight = 0;
        self.buckets.retain(|_, bucket| {
            let stays = bucket.gone_at_us > now_us;
            weight += if stays { bucket.weight() } else { 0 };
            stays
        });
        self.weight = weight;
        if self.buckets.capacity() > 64 && self.buckets.capacity() / 4 > self.buckets.len() {
            self.buckets.shrink_to(self.buckets.len() * 2);
        }
    }
}

impl Bucket {
    fn weight(&self) -> usize {
        match &self.state {
            Some(WindowState::Log(log)) => 1 + log.len() / LOG_ENTRIES_PER_BUCKET,
            _ => 1,
        }
    }

    /// What has been used, as a share of the limit, rounded up.
    fn share(&self) -> u64 {
        let used = self.state.as_ref().map_or(0, WindowState::used).min(self.limit);
        (used * WHOLE_SHARE).div_ceil(self.limit.max(1))
    }
}

//! Window buckets: sharded, bounded maps behind locks.
//!
//! Their states do not fit one word. Each shard is a map with its share of the bound.
//! When full, it draws eight buckets at random and evicts the one that owes the
//! smallest share of its limit for the smallest share of its period, and records its
//! use in fixed space, by the class of its period. A bucket that was used since it
//! was last drawn gets a second chance, because the sketch is coarser than the
//! bucket. Pinned buckets are kept apart and never evicted: there are no more of them
//! than keys without attributes in the rules.

use indexmap::IndexMap;
use smallvec::SmallVec;

use crate::algorithm::WindowState;
use crate::decision::Decision;
use crate::hash::{RandomState, Tag, TagBits, fast_range};
use crate::quota::Quota;
use crate::store::TIERS_INLINE;
use crate::sync::{Mutex, MutexGuard, lock};

const SHARDS_MAX: usize = 64;
const BUCKETS_PER_SHARD_MIN: usize = 256;
/// How many buckets are compared to find one to evict.
const DRAWN: usize = 8;
/// A log counts as one bucket for this many entries of capacity.
const LOG_ENTRIES_PER_BUCKET: usize = 4;
/// Two rows of debts have one cell each for this many buckets.
const BUCKETS_PER_DEBT: usize = 2;
/// How many buckets are looked at for each that is added: more than one, so that those
/// that have expired are removed faster than others are added.
const SWEPT_PER_INSERT: usize = 2;
/// A shard with fewer buckets is not swept: they take little room, and a clock that is set
/// back (the system clock of this library never is) still finds what it counted.
const SWEPT_FROM: usize = 64;
/// The unit in which the sketch remembers a share of the limit.
const WHOLE_SHARE: u64 = 1 << 16;

#[derive(Debug)]
pub(super) struct WindowMap {
    shards: Box<[Mutex<WindowShard>]>,
}

#[derive(Debug)]
pub(super) struct WindowShard {
    buckets: WindowBuckets,
    pinned: WindowBuckets,
    debts: WindowDebts,
    weight: usize,
    weight_max: usize,
    drawn: u64,
    evicted: u64,
    /// The index of the bucket that is looked at next.
    swept: usize,
}

type WindowBuckets = IndexMap<Tag, WindowBucket, RandomState>;

#[derive(Debug)]
struct WindowBucket {
    state: Option<WindowState>,
    /// The smallest limit that was requested: the used share of it is the largest.
    limit: u64,
    expires_at_us: u64,
    /// Whether it was used since it was added, or last drawn.
    is_used: bool,
}

/// Sketch of the use of evicted buckets, by the class of their periods, so that a
/// quota of a second never inherits the debt of a day. As in the other sketch, a
/// bucket raises one cell in each row, and starts from the smaller of the two.
#[derive(Debug)]
struct WindowDebts {
    /// Each is made when the first bucket of its class is evicted.
    classes: Vec<(usize, [Box<[WindowDebt]>; 2])>,
    places: usize,
}

/// What evicted buckets had used, at most, and until when, at the latest.
#[derive(Debug, Clone, Copy, Default)]
struct WindowDebt {
    expires_at_us: u64,
    share: u64,
}

/// The shards that a request needs, locked in their order.
#[derive(Default)]
pub(super) struct LockedShards<'a> {
    shards: SmallVec<[(usize, MutexGuard<'a, WindowShard>); TIERS_INLINE]>,
}

impl WindowMap {
    pub(super) fn new(buckets_max: usize) -> Self {
        let shards = (buckets_max / BUCKETS_PER_SHARD_MIN).clamp(1, SHARDS_MAX);
        let weight_max = (buckets_max / shards).max(1);
        Self { shards: (0..shards).map(|_| Mutex::new(WindowShard::new(weight_max))).collect() }
    }

    /// Locks what `tags` need. Every caller locks in the same order.
    pub(super) fn lock(&self, tags: impl Iterator<Item = Tag>) -> LockedShards<'_> {
        let mut wanted: SmallVec<[usize; TIERS_INLINE]> = tags.map(|tag| self.shard(tag)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        LockedShards { shards: wanted.into_iter().map(|shard| (shard, lock(&self.shards[shard]))).collect() }
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
            (held + shard.buckets.len() + shard.pinned.len(), evicted + shard.evicted)
        })
    }

    fn shard(&self, tag: Tag) -> usize {
        fast_range(tag, self.shards.len())
    }

    /// The shard of `tag` among the locked ones.
    pub(super) fn shard_mut<'a>(&self, locked: &'a mut LockedShards<'_>, tag: Tag) -> Option<&'a mut WindowShard> {
        let wanted = self.shard(tag);
        locked.shards.iter_mut().find(|(shard, _)| *shard == wanted).map(|(_, guard)| &mut **guard)
    }
}

impl WindowShard {
    fn new(weight_max: usize) -> Self {
        Self {
            buckets: IndexMap::default(),
            pinned: IndexMap::default(),
            debts: WindowDebts { classes: Vec::new(), places: (weight_max / BUCKETS_PER_DEBT).max(16) },
            weight: 0,
            weight_max,
            drawn: 0x9E37_79B9_7F4A_7C15,
            evicted: 0,
            swept: 0,
        }
    }

    pub(super) fn take(&mut self, tag: Tag, quota: &Quota, now_us: u64, cost: u64) -> Decision {
        self.change(tag, quota, now_us, |slot| WindowState::take(quota, slot, now_us, cost))
    }

    pub(super) fn refund(&mut self, tag: Tag, quota: &Quota, now_us: u64, cost: u64) -> Decision {
        self.change(tag, quota, now_us, |slot| WindowState::refund(quota, slot, now_us, cost))
    }

    pub(super) fn charge(&mut self, tag: Tag, quota: &Quota, now_us: u64, cost: u64) -> Decision {
        self.change(tag, quota, now_us, |slot| WindowState::charge(quota, slot, now_us, cost))
    }

    /// Returns also what was not counted.
    pub(super) fn record(&mut self, tag: Tag, quota: &Quota, now_us: u64, cost: u64) -> (Decision, u64) {
        let mut cut_off = 0;
        let decision = self.change(tag, quota, now_us, |slot| {
            let (decision, rest) = WindowState::record(quota, slot, now_us, cost);
            cut_off = rest;
            decision
        });
        (decision, cut_off)
    }

    pub(super) fn peek(&self, tag: Tag, quota: &Quota, now_us: u64, cost: u64) -> Decision {
        match self.map_of(tag).get(&tag) {
            Some(bucket) => WindowState::peek(quota, bucket.state.as_ref(), now_us, cost),
            None => WindowState::peek(quota, self.debts.inherited(tag, quota, now_us).as_ref(), now_us, cost),
        }
    }

    /// Resets the bucket. If the sketch would restore a debt, an empty bucket is kept
    /// until that debt has expired.
    pub(super) fn reset(&mut self, tag: Tag, quota: &Quota, now_us: u64) -> Decision {
        if TagBits::of_tag(tag).is_pinned() {
            self.pinned.swap_remove(&tag);
        } else if let Some(bucket) = self.buckets.swap_remove(&tag) {
            self.weight -= bucket.weight();
        }
        let debt = self.debts.of(tag);
        if debt.expires_at_us > now_us {
            self.insert(
                tag,
                WindowBucket { state: None, limit: quota.limit, expires_at_us: debt.expires_at_us, is_used: false },
                now_us,
            );
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
        let is_pinned = TagBits::of_tag(tag).is_pinned();
        let kind = if is_pinned { &mut self.pinned } else { &mut self.buckets };
        if let Some(bucket) = kind.get_mut(&tag) {
            let before = bucket.weight();
            let decision = decide(&mut bucket.state);
            bucket.limit = bucket.limit.min(quota.limit);
            bucket.is_used = true;
            if let Some(state) = &bucket.state {
                bucket.expires_at_us = state.expires_at_us(quota);
            }
            if !is_pinned {
                self.weight = self.weight + bucket.weight() - before;
                self.evict_to_bound(tag, now_us);
            }
            return decision;
        }
        let mut state = self.debts.inherited(tag, quota, now_us);
        let decision = decide(&mut state);
        if let Some(state) = state {
            let expires_at_us = state.expires_at_us(quota);
            // A bucket that was denied for another's debt has promised a `retry_after`.
            let is_used = !decision.is_allowed();
            self.insert(tag, WindowBucket { state: Some(state), limit: quota.limit, expires_at_us, is_used }, now_us);
        }
        decision
    }

    /// The map that contains the bucket of `tag`.
    fn map_of(&self, tag: Tag) -> &WindowBuckets {
        if TagBits::of_tag(tag).is_pinned() { &self.pinned } else { &self.buckets }
    }

    fn insert(&mut self, tag: Tag, bucket: WindowBucket, now_us: u64) {
        if TagBits::of_tag(tag).is_pinned() {
            self.pinned.insert(tag, bucket);
            return;
        }
        self.sweep_some(now_us);
        self.weight += bucket.weight();
        self.buckets.insert(tag, bucket);
        self.evict_to_bound(tag, now_us);
    }

    /// Looks at a few buckets, all in turn, and removes those that have expired. What is
    /// held thus follows what is counted, without a sweep of the whole map.
    fn sweep_some(&mut self, now_us: u64) {
        if self.buckets.len() < SWEPT_FROM {
            return;
        }
        for _ in 0..SWEPT_PER_INSERT {
            if self.swept >= self.buckets.len() {
                self.swept = 0;
            }
            let Some((tag, bucket)) = self.buckets.get_index(self.swept) else { return };
            if bucket.expires_at_us > now_us || self.debts.of(*tag).expires_at_us > now_us {
                self.swept += 1;
            } else if let Some((_, bucket)) = self.buckets.swap_remove_index(self.swept) {
                self.weight -= bucket.weight();
            }
        }
    }

    /// Evicts until the bound holds; never the bucket just used.
    fn evict_to_bound(&mut self, just_used: Tag, now_us: u64) {
        while self.weight > self.weight_max && self.buckets.len() > 1 {
            let mut victim: Option<(usize, (u64, bool))> = None;
            for _ in 0..DRAWN {
                let index = self.random_index();
                let Some((tag, bucket)) = self.buckets.get_index_mut(index).filter(|(tag, _)| **tag != just_used)
                else {
                    continue;
                };
                if std::mem::take(&mut bucket.is_used) && bucket.expires_at_us > now_us {
                    continue;
                }
                // Of expired buckets, those that would start with another's debt are kept.
                let eviction_rank = (bucket.eviction_rank(*tag, now_us), self.debts.of(*tag).expires_at_us > now_us);
                if victim.is_none_or(|(_, least)| eviction_rank < least) {
                    victim = Some((index, eviction_rank));
                }
            }
            let Some((index, ..)) = victim else { continue };
            if let Some((tag, bucket)) = self.buckets.swap_remove_index(index) {
                self.weight -= bucket.weight();
                if bucket.state.is_some() && bucket.expires_at_us > now_us {
                    self.evicted += 1;
                    self.debts.remember(tag, &bucket, now_us);
                }
            }
        }
    }

    fn random_index(&mut self) -> usize {
        self.drawn ^= self.drawn << 13;
        self.drawn ^= self.drawn >> 7;
        self.drawn ^= self.drawn << 17;
        fast_range(self.drawn, self.buckets.len())
    }

    /// Removes expired buckets, except those that would start with another's debt.
    fn sweep(&mut self, now_us: u64) {
        let Self { buckets, pinned, debts, weight, .. } = self;
        *weight = 0;
        buckets.retain(|tag, bucket| {
            let stays = bucket.expires_at_us > now_us || debts.of(*tag).expires_at_us > now_us;
            *weight += if stays { bucket.weight() } else { 0 };
            stays
        });
        pinned.retain(|_, bucket| bucket.expires_at_us > now_us);
        for map in [buckets, pinned] {
            if map.capacity() > 64 && map.capacity() / 4 > map.len() {
                map.shrink_to(map.len() * 2);
            }
        }
    }
}

impl WindowDebts {
    fn remember(&mut self, tag: Tag, bucket: &WindowBucket, now_us: u64) {
        let (class, places) = (TagBits::of_tag(tag).class(), self.places(tag));
        let index = self.classes.iter().position(|(known, _)| *known == class).unwrap_or_else(|| {
            let row = || vec![WindowDebt::default(); self.places].into();
            self.classes.push((class, [row(), row()]));
            self.classes.len() - 1
        });
        for (row, place) in self.classes[index].1.iter_mut().zip(places) {
            let debt = &mut row[place];
            let share = if debt.expires_at_us > now_us { debt.share.max(bucket.share()) } else { bucket.share() };
            *debt = WindowDebt { expires_at_us: debt.expires_at_us.max(bucket.expires_at_us), share };
        }
    }

    fn inherited(&self, tag: Tag, quota: &Quota, now_us: u64) -> Option<WindowState> {
        let debt = self.of(tag);
        if debt.expires_at_us <= now_us {
            return None;
        }
        let used = (quota.limit * debt.share).div_ceil(WHOLE_SHARE);
        // Another quota's bucket may have left it: owe no longer than our own would.
        let lifetime_max_us = WindowState::lifetime_max_us(quota, now_us);
        Some(WindowState::owing(quota, used, debt.expires_at_us.min(now_us + lifetime_max_us)))
    }

    /// What a bucket may owe that is not there; pinned buckets always are.
    fn of(&self, tag: Tag) -> WindowDebt {
        let traits = TagBits::of_tag(tag);
        let rows = self.classes.iter().find(|(known, _)| *known == traits.class() && !traits.is_pinned());
        let Some((_, rows)) = rows else { return WindowDebt::default() };
        let [first, second] = self.places(tag);
        let (first, second) = (rows[0][first], rows[1][second]);
        WindowDebt {
            expires_at_us: first.expires_at_us.min(second.expires_at_us),
            share: first.share.min(second.share),
        }
    }

    fn places(&self, tag: Tag) -> [usize; 2] {
        // The upper bits chose the shard. Constants from the golden ratio and from π.
        [0x9E37_79B9_7F4A_7C15, 0x243F_6A88_85A3_08D3].map(|by: u64| fast_range(tag.wrapping_mul(by), self.places))
    }
}

impl WindowBucket {
    fn weight(&self) -> usize {
        match &self.state {
            Some(WindowState::Log(log)) => (log.room() / LOG_ENTRIES_PER_BUCKET).max(1),
            _ => 1,
        }
    }

    /// The loss if it is evicted: the used share of its limit, times the share of its
    /// period for which that counts. Debts come last: the sketch holds no more than a limit.
    fn eviction_rank(&self, tag: Tag, now_us: u64) -> u64 {
        if self.expires_at_us > now_us && self.state.as_ref().is_some_and(|state| state.used() > self.limit) {
            return u64::MAX;
        }
        let time = TagBits::of_tag(tag).share(self.expires_at_us.saturating_sub(now_us));
        (time / WHOLE_SHARE) * self.share()
    }

    /// What has been used, as a share of the limit, rounded up.
    fn share(&self) -> u64 {
        let used = self.state.as_ref().map_or(0, WindowState::used).min(self.limit);
        (used * WHOLE_SHARE).div_ceil(self.limit.max(1))
    }
}

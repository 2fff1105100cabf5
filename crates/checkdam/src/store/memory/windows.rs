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
use crate::hash::{RandomState, Tag, Traits, place};
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
/// The unit in which the sketch remembers a share of the limit.
const WHOLE_SHARE: u64 = 1 << 16;

#[derive(Debug)]
pub(super) struct Windows {
    shards: Box<[Mutex<Shard>]>,
}

#[derive(Debug)]
pub(super) struct Shard {
    buckets: Buckets,
    pinned: Buckets,
    debts: Debts,
    weight: usize,
    weight_max: usize,
    drawn: u64,
    evicted: u64,
}

type Buckets = IndexMap<Tag, Bucket, RandomState>;

#[derive(Debug)]
struct Bucket {
    state: Option<WindowState>,
    /// The smallest limit that was requested: the used share of it is the largest.
    limit: u64,
    gone_at_us: u64,
    /// Whether it was used since it was added, or last drawn.
    is_used: bool,
}

/// Sketch of the use of evicted buckets, by the class of their periods, so that a
/// quota of a second never inherits the debt of a day. As in the other sketch, a
/// bucket raises one cell in each row, and starts from the smaller of the two.
#[derive(Debug)]
struct Debts {
    /// Each is made when the first bucket of its class is evicted.
    classes: Vec<(usize, [Box<[Debt]>; 2])>,
    places: usize,
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
            (held + shard.buckets.len() + shard.pinned.len(), evicted + shard.evicted)
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
            pinned: IndexMap::default(),
            debts: Debts { classes: Vec::new(), places: (weight_max / BUCKETS_PER_DEBT).max(16) },
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

    pub(super) fn charge(&mut self, tag: Tag, quota: &Quota, now_us: u64, cost: u64) -> Decision {
        self.change(tag, quota, now_us, |slot| WindowState::charge(quota, slot, now_us, cost))
    }

    pub(super) fn peek(&self, tag: Tag, quota: &Quota, now_us: u64, cost: u64) -> Decision {
        match self.of_kind(tag).get(&tag) {
            Some(bucket) => WindowState::peek(quota, bucket.state.as_ref(), now_us, cost),
            None => WindowState::peek(quota, self.debts.inherited(tag, quota, now_us).as_ref(), now_us, cost),
        }
    }

    /// Resets the bucket. If the sketch would restore a debt, an empty bucket is kept
    /// until that debt has expired.
    pub(super) fn reset(&mut self, tag: Tag, quota: &Quota, now_us: u64) -> Decision {
        if Traits::of_tag(tag).is_pinned() {
            self.pinned.swap_remove(&tag);
        } else if let Some(bucket) = self.buckets.swap_remove(&tag) {
            self.weight -= bucket.weight();
        }
        let debt = self.debts.of(tag);
        if debt.gone_at_us > now_us {
            self.insert(
                tag,
                Bucket { state: None, limit: quota.limit, gone_at_us: debt.gone_at_us, is_used: false },
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
        let is_pinned = Traits::of_tag(tag).is_pinned();
        let kind = if is_pinned { &mut self.pinned } else { &mut self.buckets };
        if let Some(bucket) = kind.get_mut(&tag) {
            let before = bucket.weight();
            let decision = decide(&mut bucket.state);
            bucket.limit = bucket.limit.min(quota.limit);
            bucket.is_used = true;
            if let Some(state) = &bucket.state {
                bucket.gone_at_us = state.gone_at_us(quota);
            }
            if !is_pinned {
                self.weight = self.weight + bucket.weight() - before;
                self.keep_bound(tag, now_us);
            }
            return decision;
        }
        let mut state = self.debts.inherited(tag, quota, now_us);
        let decision = decide(&mut state);
        if let Some(state) = state {
            let gone_at_us = state.gone_at_us(quota);
            // A bucket that was denied for another's debt has promised a `retry_after`.
            let is_used = !decision.is_allowed();
            self.insert(tag, Bucket { state: Some(state), limit: quota.limit, gone_at_us, is_used }, now_us);
        }
        decision
    }

    /// The map that contains the bucket of `tag`.
    fn of_kind(&self, tag: Tag) -> &Buckets {
        if Traits::of_tag(tag).is_pinned() { &self.pinned } else { &self.buckets }
    }

    fn insert(&mut self, tag: Tag, bucket: Bucket, now_us: u64) {
        if Traits::of_tag(tag).is_pinned() {
            self.pinned.insert(tag, bucket);
            return;
        }
        self.weight += bucket.weight();
        self.buckets.insert(tag, bucket);
        self.keep_bound(tag, now_us);
    }

    /// Evicts until the bound holds; never the bucket just used.
    fn keep_bound(&mut self, just_used: Tag, now_us: u64) {
        while self.weight > self.weight_max && self.buckets.len() > 1 {
            let mut victim: Option<(usize, (u64, bool))> = None;
            for _ in 0..DRAWN {
                let index = self.draw();
                let Some((tag, bucket)) = self.buckets.get_index_mut(index).filter(|(tag, _)| **tag != just_used)
                else {
                    continue;
                };
                if std::mem::take(&mut bucket.is_used) && bucket.gone_at_us > now_us {
                    continue;
                }
                // Of expired buckets, those that would start with another's debt are kept.
                let worth = (bucket.worth(*tag, now_us), self.debts.of(*tag).gone_at_us > now_us);
                if victim.is_none_or(|(_, least)| worth < least) {
                    victim = Some((index, worth));
                }
            }
            let Some((index, ..)) = victim else { continue };
            if let Some((tag, bucket)) = self.buckets.swap_remove_index(index) {
                self.weight -= bucket.weight();
                if bucket.state.is_some() && bucket.gone_at_us > now_us {
                    self.evicted += 1;
                    self.debts.remember(tag, &bucket, now_us);
                }
            }
        }
    }

    fn draw(&mut self) -> usize {
        self.drawn ^= self.drawn << 13;
        self.drawn ^= self.drawn >> 7;
        self.drawn ^= self.drawn << 17;
        place(self.drawn, self.buckets.len())
    }

    /// Removes expired buckets, except those that would start with another's debt.
    fn sweep(&mut self, now_us: u64) {
        let Self { buckets, pinned, debts, weight, .. } = self;
        *weight = 0;
        buckets.retain(|tag, bucket| {
            let stays = bucket.gone_at_us > now_us || debts.of(*tag).gone_at_us > now_us;
            *weight += if stays { bucket.weight() } else { 0 };
            stays
        });
        pinned.retain(|_, bucket| bucket.gone_at_us > now_us);
        for map in [buckets, pinned] {
            if map.capacity() > 64 && map.capacity() / 4 > map.len() {
                map.shrink_to(map.len() * 2);
            }
        }
    }
}

impl Debts {
    fn remember(&mut self, tag: Tag, bucket: &Bucket, now_us: u64) {
        let (class, places) = (Traits::of_tag(tag).class(), self.places(tag));
        let index = self.classes.iter().position(|(known, _)| *known == class).unwrap_or_else(|| {
            let row = || vec![Debt::default(); self.places].into();
            self.classes.push((class, [row(), row()]));
            self.classes.len() - 1
        });
        for (row, place) in self.classes[index].1.iter_mut().zip(places) {
            let debt = &mut row[place];
            let share = if debt.gone_at_us > now_us { debt.share.max(bucket.share()) } else { bucket.share() };
            *debt = Debt { gone_at_us: debt.gone_at_us.max(bucket.gone_at_us), share };
        }
    }

    fn inherited(&self, tag: Tag, quota: &Quota, now_us: u64) -> Option<WindowState> {
        let debt = self.of(tag);
        if debt.gone_at_us <= now_us {
            return None;
        }
        let used = (quota.limit * debt.share).div_ceil(WHOLE_SHARE);
        // Another quota's bucket may have left it: owe no longer than our own would.
        let longest_us = WindowState::longest_us(quota, now_us);
        Some(WindowState::owing(quota, used, debt.gone_at_us.min(now_us + longest_us)))
    }

    /// What a bucket may owe that is not there; pinned buckets always are.
    fn of(&self, tag: Tag) -> Debt {
        let traits = Traits::of_tag(tag);
        let rows = self.classes.iter().find(|(known, _)| *known == traits.class() && !traits.is_pinned());
        let Some((_, rows)) = rows else { return Debt::default() };
        let [first, second] = self.places(tag);
        let (first, second) = (rows[0][first], rows[1][second]);
        Debt { gone_at_us: first.gone_at_us.min(second.gone_at_us), share: first.share.min(second.share) }
    }

    fn places(&self, tag: Tag) -> [usize; 2] {
        // The upper bits chose the shard. Constants from the golden ratio and from π.
        [0x9E37_79B9_7F4A_7C15, 0x243F_6A88_85A3_08D3].map(|by: u64| place(tag.wrapping_mul(by), self.places))
    }
}

impl Bucket {
    fn weight(&self) -> usize {
        match &self.state {
            Some(WindowState::Log(log)) => (log.room() / LOG_ENTRIES_PER_BUCKET).max(1),
            _ => 1,
        }
    }

    /// The loss if it is evicted: the used share of its limit, times the share of its
    /// period for which that counts.
    fn worth(&self, tag: Tag, now_us: u64) -> u64 {
        let time = Traits::of_tag(tag).share(self.gone_at_us.saturating_sub(now_us));
        (time / WHOLE_SHARE) * self.share()
    }

    /// What has been used, as a share of the limit, rounded up.
    fn share(&self) -> u64 {
        let used = self.state.as_ref().map_or(0, WindowState::used).min(self.limit);
        (used * WHOLE_SHARE).div_ceil(self.limit.max(1))
    }
}

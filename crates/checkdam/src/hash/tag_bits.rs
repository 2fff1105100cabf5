//! Bits of a bucket's tag that describe the bucket, so that the table can rank buckets
//! without their quotas: the class of its capacity (as the time to fill it), whether a full
//! bucket differs from a new one, and whether it is pinned.

use super::Tag;

/// Bits 0 to 4: the scale, a power of 4 of microseconds. Bits 5 to 7: by these
/// most capacities of one scale differ too. Bit 8: remembered. Bit 9: pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TagBits(u64);

/// How many classes there are at most.
pub(crate) const CLASSES: usize = 1 << 8;

const CLASS_MASK: u64 = CLASSES as u64 - 1;
const SCALE_MASK: u64 = (1 << 5) - 1;
const REMEMBERED: u64 = 1 << 8;
/// An odd constant whose multiples are well spread.
const MIX: u64 = 0xD6E8_FEB8_6659_FD93;
/// A share of a capacity is expressed in units of 2 to the power of minus this.
const SHARE_BITS: u32 = 61;

impl TagBits {
    /// The bits of a tag that are traits: those of the bucket's name and of its
    /// quota's arithmetic, as they stand there.
    pub(crate) const MASK: u64 = 0x3FF;
    /// The bit of pinned buckets.
    pub(crate) const PINNED: u64 = 1 << 9;

    /// Of buckets that fill within `window_us`; whether a full one is remembered.
    pub(crate) const fn new(window_us: u64, is_remembered: bool) -> Self {
        // At most 27: capacities are below 2^52 microseconds.
        let scale = 1 + (u64::BITS - window_us.leading_zeros()) as u64 / 2;
        let mixed = (window_us ^ window_us >> 32).wrapping_mul(MIX);
        let within = (mixed ^ mixed >> 32).wrapping_mul(MIX) >> 61;
        Self(within << 5 | scale | if is_remembered { REMEMBERED } else { 0 })
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    pub(crate) const fn of_tag(tag: Tag) -> Self {
        Self(tag & Self::MASK)
    }

    /// Capacities of one class are the same, or differ by less than four times.
    pub(crate) const fn class(self) -> usize {
        (self.0 & CLASS_MASK) as usize
    }

    pub(crate) const fn is_pinned(self) -> bool {
        self.0 & Self::PINNED != 0
    }

    /// For how long a full bucket is not yet as good as a new one, at least.
    pub(crate) const fn remembered_us(self) -> u64 {
        if self.0 & REMEMBERED != 0 { 1 << self.capacity_bits() } else { 0 }
    }

    /// What a debt of `owed_us` is of the bucket's capacity: comparable between
    /// buckets of different quotas, within the width of a scale.
    pub(crate) fn share(self, owed_us: u64) -> u64 {
        let bits = self.capacity_bits();
        let owed_us = if self.0 & REMEMBERED != 0 { owed_us / 2 } else { owed_us };
        owed_us.min(1 << bits) << (SHARE_BITS - bits)
    }

    /// No capacity of the scale reaches 2 to the power of this, in microseconds.
    const fn capacity_bits(self) -> u32 {
        (2 * (self.0 & SCALE_MASK) as u32).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_capacity_reaches_the_end_of_its_scale_and_units_of_time_are_apart() {
        let mut scales = Vec::new();
        for window_us in [1, 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000, (1 << 52) - 1] {
            let traits = TagBits::new(window_us, false);
            assert!(window_us < 1 << traits.capacity_bits() && 4 * window_us >= 1 << traits.capacity_bits());
            assert!(traits.share(window_us) >= 1 << (SHARE_BITS - 2));
            assert_eq!((traits.bits() & !TagBits::MASK, traits.is_pinned(), traits.remembered_us()), (0, false, 0));
            let other = TagBits::of_tag(TagBits::new(window_us, true).bits() ^ TagBits::PINNED);
            assert!(other.is_pinned() && other.remembered_us() > window_us && other.class() == traits.class());
            scales.push(traits.bits() & SCALE_MASK);
        }
        assert!(scales.is_sorted_by(|one, next| one < next), "{scales:?}");
    }
}

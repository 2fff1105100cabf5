//! The decisions of a request's tiers, in recycled heap memory.
//!
//! Outcomes are moved through many functions; inline decisions would copy hundreds of
//! bytes each time. On the heap they stay in place, and a thread reuses the
//! allocation of one request for the next.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use super::{TIERS_INLINE, TIERS_MAX};
use crate::decision::Decision;

/// How many lists a thread keeps for later.
const SPARE_MAX: usize = 64;

thread_local! {
    static SPARE: RefCell<Vec<Vec<Decision>>> = const { RefCell::new(Vec::new()) };
}

/// One decision a tier.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decisions(Vec<Decision>);

impl Decisions {
    /// None yet; takes no memory.
    #[must_use]
    #[inline]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds the next tier's.
    #[inline]
    pub fn push(&mut self, decision: Decision) {
        if self.0.capacity() == 0 {
            self.0 = spare();
        }
        self.0.push(decision);
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

fn spare() -> Vec<Decision> {
    let kept = SPARE.try_with(|spare| spare.try_borrow_mut().ok()?.pop());
    kept.ok().flatten().unwrap_or_else(|| Vec::with_capacity(TIERS_INLINE))
}

impl Drop for Decisions {
    #[inline]
    fn drop(&mut self) {
        if !(1..=TIERS_MAX).contains(&self.0.capacity()) {
            return;
        }
        let mut list = std::mem::take(&mut self.0);
        list.clear();
        // A thread that ends keeps nothing.
        let _ = SPARE.try_with(|spare| match spare.try_borrow_mut() {
            Ok(mut spare) if spare.len() < SPARE_MAX => spare.push(list),
            _ => {}
        });
    }
}

impl Deref for Decisions {
    type Target = [Decision];

    #[inline]
    fn deref(&self) -> &[Decision] {
        &self.0
    }
}

impl DerefMut for Decisions {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Decision] {
        &mut self.0
    }
}

impl<'a> IntoIterator for &'a Decisions {
    type Item = &'a Decision;
    type IntoIter = std::slice::Iter<'a, Decision>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl Extend<Decision> for Decisions {
    fn extend<I: IntoIterator<Item = Decision>>(&mut self, decisions: I) {
        decisions.into_iter().for_each(|decision| self.push(decision));
    }
}

impl FromIterator<Decision> for Decisions {
    fn from_iter<I: IntoIterator<Item = Decision>>(decisions: I) -> Self {
        let mut list = Self::new();
        list.extend(decisions);
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Verdict;

    #[test]
    fn a_list_is_used_again_and_begins_empty() {
        let one = Decision::undecided(7, Verdict::Allowed);
        let first: Decisions = [one; 20].into_iter().collect();
        let place = first.as_ptr();
        drop(first);
        let second: Decisions = std::iter::once(one).collect();
        assert_eq!((second.as_ptr(), &*second), (place, &[one][..]));
        let third: Decisions = second.iter().copied().collect();
        assert!(third.as_ptr() != place && third == second);
    }
}

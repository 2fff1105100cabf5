//! loom models of an account: all interleavings of two or three threads, with up to
//! two or three preemptions: `RUSTFLAGS="--cfg checkdam_loom" cargo test -p checkdam
//! --lib --no-default-features models`.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use super::*;
use crate::algorithm::token_bucket::Grant;
use crate::quota::Quota;

const ONE: u64 = 7;
const OTHER: u64 = 9;
const NOW_US: u64 = 1_000_000_000;
/// So low that a lease of one token suffices: after a smaller grant than requested,
/// an account does not request again soon.
const DEMAND: u64 = 10;

fn model(preemptions: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(run);
}

fn terms() -> (LeaseTerms, Quota) {
    let quota: Quota = "1000/s".parse().unwrap();
    (LeaseTerms { length_us: 100_000, demand_min: 2 }, quota)
}

fn grant(granted: u64) -> Grant {
    Grant { granted, left: 10, retry_after_us: 0, reset_after_us: 0 }
}

/// An account of one subject, with a lease.
fn account(tokens: u64) -> (Arc<Account>, Receipt) {
    let account = Account::new();
    assert!(account.open(ONE, DEMAND, NOW_US));
    let receipt = refill(&account, tokens, NOW_US).unwrap();
    (Arc::new(account), receipt)
}

/// Requests a lease and is granted this many tokens, at that time.
fn refill(account: &Account, tokens: u64, now_us: u64) -> Option<Receipt> {
    let (terms, quota) = terms();
    let BeginRefill::Request(ask) = account.begin_refill(ONE, 1, now_us, (&terms, &quota)) else { return None };
    account.finish_refill(&ask, Some(&grant(tokens)), now_us, &terms)
}

fn spend(account: &Account, tag: u64, now_us: u64) -> u64 {
    u64::from(matches!(account.spend(tag, 1, || now_us), Spend::Paid(_)))
}

fn spender(account: &Arc<Account>, tag: u64, now_us: u64) -> thread::JoinHandle<u64> {
    let account = Arc::clone(account);
    thread::spawn(move || spend(&account, tag, now_us))
}

#[test]
fn the_last_token_is_spent_once() {
    model(3, || {
        let (account, _) = account(1);
        let others = [spender(&account, ONE, NOW_US), spender(&account, ONE, NOW_US)];
        let spent: u64 = others.into_iter().map(|other| other.join().unwrap()).sum();
        assert_eq!(spent, 1);
    });
}

#[test]
fn what_is_spent_and_what_is_withdrawn_is_what_was_granted() {
    model(3, || {
        let (account, receipt) = account(2);
        let other = spender(&account, ONE, NOW_US);
        // Meanwhile it is returned, and another lease is begun in the same cell.
        let (back, _) = account.withdraw(receipt, NOW_US);
        assert!(refill(&account, 1, NOW_US + 10_000).is_some());
        let spent = other.join().unwrap();
        assert_eq!(spent + back + account.held(NOW_US + 10_000), 3);
    });
}

#[test]
fn a_refill_beside_spenders_neither_makes_nor_loses_tokens() {
    model(2, || {
        let (account, _) = account(1);
        let others = [spender(&account, ONE, NOW_US), spender(&account, ONE, NOW_US)];
        assert!(refill(&account, 1, NOW_US).is_some());
        let spent: u64 = others.into_iter().map(|other| other.join().unwrap()).sum();
        assert_eq!(spent + account.held(NOW_US), 2);
    });
}

#[test]
fn nothing_is_spent_after_the_end_whatever_is_put_in_its_place() {
    model(3, || {
        let (account, _) = account(2);
        let clock = Arc::new(AtomicU64::new(NOW_US));
        let end_us = NOW_US + terms().0.life_us();
        let other = {
            let (account, clock) = (Arc::clone(&account), Arc::clone(&clock));
            thread::spawn(move || match account.spend(ONE, 1, || clock.load(Ordering::SeqCst)) {
                Spend::Paid(paid) => Some(paid.at_us),
                _ => None,
            })
        };
        // The lease ends, and the next one has one token.
        clock.store(end_us, Ordering::SeqCst);
        assert!(refill(&account, 1, end_us).is_some());
        let (mut old, mut new) = (0, spend(&account, ONE, end_us));
        match other.join().unwrap() {
            Some(at_us) if at_us >= end_us => new += 1,
            Some(_) => old += 1,
            None => {}
        }
        assert!(old <= 2 && new <= 1, "{new} of 1 spent after the end of the other lease");
    });
}

#[test]
fn who_is_held_up_until_the_lease_has_ended_spends_nothing() {
    model(3, || {
        let (account, _) = account(2);
        let clock = Arc::new(AtomicU64::new(NOW_US));
        let other = {
            let (account, clock) = (Arc::clone(&account), Arc::clone(&clock));
            thread::spawn(move || matches!(account.spend(ONE, 1, || clock.load(Ordering::SeqCst)), Spend::Paid(_)))
        };
        clock.store(NOW_US + terms().0.life_us(), Ordering::SeqCst);
        // Also takes a token, to detect whether the other has: if not, it does so late.
        let Spend::Paid(paid) = account.spend(ONE, 1, || NOW_US) else { return };
        let is_late = paid.left == 1;
        let has_spent = other.join().unwrap();
        assert!(!(is_late && has_spent), "a token was spent after the end");
    });
}

#[test]
fn a_place_that_is_given_away_serves_its_new_subject_alone() {
    model(3, || {
        let (account, receipt) = account(1);
        let other = spender(&account, ONE, NOW_US);
        // The rest is withdrawn; the account is reassigned, and its new subject has a lease
        // of the same size and expiry.
        let (back, _) = account.withdraw(receipt, NOW_US);
        account.close_if_idle(NOW_US + 1, 0);
        assert!(account.open(OTHER, DEMAND, NOW_US));
        let (terms, quota) = terms();
        let BeginRefill::Request(ask) = account.begin_refill(OTHER, 1, NOW_US, (&terms, &quota)) else {
            panic!("nobody else asks")
        };
        assert!(account.finish_refill(&ask, Some(&grant(1)), NOW_US, &terms).is_some());
        let spent = other.join().unwrap();
        assert_eq!(spent + back, 1, "of the first subject's only token");
        assert_eq!(spend(&account, OTHER, NOW_US), 1, "the second subject's is its own");
    });
}

#[test]
fn what_is_put_back_goes_to_its_own_lease_or_is_lost() {
    model(3, || {
        let (account, receipt) = account(1);
        let other = {
            let account = Arc::clone(&account);
            thread::spawn(move || {
                let Spend::Paid(paid) = account.spend(ONE, 1, || NOW_US) else { return false };
                account.put_back(paid.receipt);
                true
            })
        };
        let (back, _) = account.withdraw(receipt, NOW_US);
        let was_put_back = other.join().unwrap();
        let left = account.held(NOW_US);
        assert_eq!(back + left, 1, "put back: {was_put_back}");
    });
}

#[test]
fn only_one_asks_at_a_time() {
    model(3, || {
        let (account, _) = account(1);
        let asks = |account: &Account| {
            let (terms, quota) = terms();
            u64::from(matches!(account.begin_refill(ONE, 1, NOW_US, (&terms, &quota)), BeginRefill::Request(_)))
        };
        let other = {
            let account = Arc::clone(&account);
            thread::spawn(move || asks(&account))
        };
        let here = asks(&account);
        assert_eq!(here + other.join().unwrap(), 1);
    });
}

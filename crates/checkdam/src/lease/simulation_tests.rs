//! Several nodes lease from one bucket in virtual time, over a network that delays
//! and loses messages; the oracle checks what they admit in total.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail loudly")]

use super::*;
use crate::algorithm::token_bucket::{self, LeaseRequest, Ledger, State};
use crate::conformance::oracle::{Take, verify};
use crate::quota::Quota;
use crate::rule::Lease;

const TAG: u64 = 7;

/// What is on its way over the network.
enum Message {
    Request { node: usize, ask: RefillRequest },
    TierDecisions { node: usize, ask: RefillRequest, grant: Option<token_bucket::Grant>, mark: u64 },
    Return { tokens: u64, mark: u64, until_us: u64 },
    Ending { node: usize, receipt: Receipt, mark: u64 },
}

struct Simulation {
    quota: Quota,
    terms: LeaseTerms,
    /// What grants leave of the burst: T, or in a mutant nothing.
    floor_us: u64,
    bucket: State,
    ledger: Ledger,
    nodes: Vec<AccountTable>,
    /// When it arrives.
    sent: Vec<(u64, Message)>,
    now_us: u64,
    random: u64,
    takes: Vec<Take>,
}

impl Simulation {
    fn new(quota: &str, lease: Lease, nodes: usize, seed: u64) -> Self {
        let quota: Quota = quota.parse().unwrap();
        let terms = LeaseTerms::of(lease, &quota).unwrap();
        Self {
            quota,
            terms,
            floor_us: terms.length_us,
            bucket: None,
            ledger: Ledger::new(0),
            nodes: (0..nodes).map(|_| AccountTable::new(4)).collect(),
            sent: Vec::new(),
            now_us: 1_000_000,
            random: seed | 1,
            takes: Vec::new(),
        }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % end.max(1)
    }

    /// Mostly soon, sometimes after the lease has ended; or never.
    fn send(&mut self, what: Message) {
        let delay_us = match self.below(50) {
            0 => self.terms.length_us + self.below(self.terms.length_us),
            1 => {
                return if let Message::Request { node, ask } = what {
                    self.fail(node, &ask)
                };
            }
            _ => self.below(2_000),
        };
        self.sent.push((self.now_us + delay_us, what));
    }

    /// The waiting request times out; the reply, if there is one, comes too late.
    fn fail(&mut self, node: usize, ask: &RefillRequest) {
        self.nodes[node].account(0).finish_refill(ask, None, self.now_us, &self.terms);
    }

    fn arrive(&mut self) {
        let now_us = self.now_us;
        while let Some(at) = self.sent.iter().position(|(at_us, _)| *at_us <= now_us) {
            match self.sent.swap_remove(at).1 {
                Message::Request { node, ask } => {
                    let wish = LeaseRequest { wanted: ask.wanted, least: ask.least, length_us: self.floor_us };
                    let (grant, next) = token_bucket::lease(&self.quota, self.bucket, now_us, wish);
                    self.bucket = next;
                    if grant.granted > 0 {
                        self.ledger = self.ledger.with(grant.granted, wish.length_us, now_us);
                    }
                    let is_lost = self.below(40) == 0;
                    self.send(Message::TierDecisions {
                        node,
                        ask,
                        grant: (!is_lost).then_some(grant),
                        mark: self.ledger.granted,
                    });
                }
                Message::TierDecisions { node, ask, grant, mark } => {
                    let number = self.number(node);
                    let account = self.nodes[node].account(number);
                    if let Some(receipt) = account.finish_refill(&ask, grant.as_ref(), now_us, &self.terms) {
                        let at_us = (ask.asked_us + self.terms.life_us() * 7 / 8).max(now_us);
                        self.sent.push((at_us, Message::Ending { node, receipt, mark }));
                    }
                }
                Message::Ending { node, receipt, mark } => {
                    let number = self.number(node);
                    let (tokens, left_us) = self.nodes[node].account(number).withdraw(receipt, now_us);
                    if tokens > 0 {
                        self.send(Message::Return { tokens, mark, until_us: now_us + left_us });
                    }
                }
                // The script rejects late returns.
                Message::Return { until_us, .. } if until_us < now_us => {}
                Message::Return { tokens, mark, .. } => {
                    let back = (tokens, mark);
                    self.bucket = token_bucket::give_back(&self.quota, self.bucket, now_us, back, &self.ledger).1;
                }
            }
        }
    }

    /// One subject a node, wherever its account is.
    fn number(&self, node: usize) -> usize {
        self.nodes[node].find(TAG).unwrap_or(0)
    }

    fn request(&mut self, node: usize, cost: u64) {
        let now_us = self.now_us;
        let Some(number) = self.nodes[node].find(TAG) else {
            // The last node never leases, as one on other rules would.
            if node + 1 < self.nodes.len() {
                self.nodes[node].note_demand(TAG, cost, now_us, &self.terms);
            }
            let (decision, next) = token_bucket::decide(&self.quota, self.bucket, now_us, cost);
            self.bucket = next;
            self.takes.push(Take { at_us: now_us, cost, admitted: decision.is_allowed() });
            return;
        };
        let account = self.nodes[node].account(number);
        let spend = account.spend(TAG, cost, || now_us);
        let is_paid = matches!(spend, Spend::Paid(_));
        if !is_paid {
            account.note_denied(cost);
        }
        let (needs, least) = match spend {
            Spend::Paid(paid) => (paid.is_low, 0),
            _ => (true, cost),
        };
        let begun = needs.then(|| account.begin_refill(TAG, least, now_us, (&self.terms, &self.quota)));
        if let Some(BeginRefill::Request(ask)) = begun {
            self.send(Message::Request { node, ask });
        }
        self.takes.push(Take { at_us: now_us, cost, admitted: is_paid });
    }

    /// So many requests, each after a random pause; some nodes have more of them
    /// than others, all are silent at times, and in bursts they have equally many.
    fn run(&mut self, requests: usize, pause_us: u64) {
        for number in 0..requests {
            // Bursts, and pauses before them that some leases survive.
            let is_burst = number / 700 % 2 == 1;
            let idle_us = if number % 700 == 0 { self.below(2 * self.terms.length_us) } else { 0 };
            self.now_us += idle_us + if is_burst { self.below(40) } else { self.below(2 * pause_us) };
            self.arrive();
            let (first, second) = (self.below(self.nodes.len() as u64), self.below(self.nodes.len() as u64));
            let cost = if number % 10 == 0 { 1 + self.below(4) } else { 1 };
            self.request(if is_burst { first } else { first.min(second) } as usize, cost);
        }
    }
}

#[test]
fn no_window_sees_more_than_the_burst_and_the_rate() {
    for seed in 1..40 {
        for (quota, lease) in [
            ("1000/s burst 250", Lease::For(100_000)),
            ("1000/s burst 500", Lease::For(100_000)),
            ("10000/s", Lease::For(20_000)),
            ("3000/s burst 1000", Lease::Auto),
            ("100/s burst 50 initial 5", Lease::For(200_000)),
        ] {
            let mut world = Simulation::new(quota, lease, 5, seed * 7_919);
            let pause_us = 300_000 / world.quota.spec().amount + 1;
            world.run(6_000, pause_us);
            let spent: u64 = world.nodes.iter().map(|node| node.stats(world.now_us).spent).sum();
            assert!(spent > 10, "{quota}: only {spent} tokens were prepaid");
            verify(&world.quota, &mut world.takes).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
}

#[test]
fn grants_that_leave_no_burst_are_caught() {
    let caught = (1..40).any(|seed| {
        let mut world = Simulation::new("1000/s burst 250", Lease::For(100_000), 5, seed * 7_919);
        world.floor_us = 0;
        world.run(6_000, 1_500);
        verify(&world.quota, &mut world.takes).is_err()
    });
    assert!(caught, "the oracle did not notice");
}

/// The later lease finds enough owed because of the earlier one: returning all of
/// that would leave too little owed for the later one.
#[test]
fn what_younger_leases_count_on_is_not_given_back() {
    let quota: Quota = "1000/s burst 500".parse().unwrap();
    let lease = |bucket: State, now_us, wanted| {
        let ask = LeaseRequest { wanted, least: 1, length_us: 100_000 };
        let (grant, next) = token_bucket::lease(&quota, bucket, now_us, ask);
        assert_eq!(grant.granted, wanted);
        next
    };
    let first = Ledger::new(1_000_000).with(100, 100_000, 1_000_000);
    let second = first.with(100, 100_000, 1_090_000);
    let bucket = lease(lease(None, 1_000_000, 100), 1_090_000, 100);
    let spent_at_once = |ledger: &Ledger| {
        let bucket = token_bucket::give_back(&quota, bucket, 1_099_000, (100, first.granted), ledger).1;
        // The second still holds all of its tokens, and others take the rest.
        100 + token_bucket::peek(&quota, bucket, 1_189_000, 0).remaining
    };
    let rightly = spent_at_once(&second);
    assert!(rightly <= 500, "{rightly} pass at once");
    assert!(spent_at_once(&first) > 500, "the test sees nothing");
    // The last lease that was granted returns all of its tokens.
    let (back, _) = token_bucket::give_back(&quota, bucket, 1_099_000, (100, second.granted), &second);
    assert_eq!(back, 100);
}

#[test]
fn what_is_too_much_for_one_denies_no_other() {
    let quota: Quota = "1000/s burst 1000".parse().unwrap();
    let (terms, accounts) = (LeaseTerms::of(Lease::For(100_000), &quota).unwrap(), AccountTable::new(4));
    accounts.note_demand(TAG, 100, 1_000_000, &terms);
    let account = accounts.account(accounts.find(TAG).unwrap());
    let BeginRefill::Request(ask) = account.begin_refill(TAG, 900, 1_000_000, (&terms, &quota)) else {
        panic!("nobody else asks")
    };
    let wish = LeaseRequest { wanted: ask.wanted, least: ask.least, length_us: terms.length_us };
    let (grant, _) = token_bucket::lease(&quota, Some(1_950_000), 1_000_000, wish);
    assert_eq!((grant.granted, grant.retry_after_us), (0, 850_000));
    account.finish_refill(&ask, Some(&grant), 1_001_000, &terms);
    assert_eq!(account.denied_for_us(900, 1_001_000), Some(850_000));
    assert_eq!(account.denied_for_us(1, 1_001_000), None);
    assert!(matches!(account.begin_refill(TAG, 1, 1_001_000, (&terms, &quota)), BeginRefill::Request(_)));
}

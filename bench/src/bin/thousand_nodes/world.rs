//! Nodes, the network between them and one bucket, and the order in which things
//! happen.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use checkdam::algorithm::token_bucket::{self, Grant, LeaseRequest, Ledger, State};
use checkdam::lease::{AccountTable, BeginRefill, LeaseTerms, Receipt, RefillRequest, Spend};
use checkdam::{Lease, Quota};

use super::oracle::Ideal;
use super::report::Report;
use super::scenario::Scenario;

/// The one subject.
const TAG: u64 = 7;
/// Timeout of a waiting request.
const DEADLINE_US: u64 = 15_000;
/// One way over the network takes from so long to so long.
const WAY_US: (u64, u64) = (100, 1_000);
/// What is left of a lease is given back if it is at least this share of it.
const RETURN_SHARE: u64 = 16;
/// One message in so many is lost.
const LOST_ONE_IN: u64 = 2_000;
/// The burst that was there at the start is used up by then; what comes before is
/// judged by the oracle but not part of the figures.
const WARM_UP_US: u64 = 2_000_000;

/// What happens at its time.
enum Event {
    AskArrives {
        node: usize,
        ask: RefillRequest,
    },
    TierDecisions {
        node: usize,
        ask: RefillRequest,
        /// And what the ledger said then.
        grant: Option<(Grant, u64)>,
    },
    /// A request of a node that has no account.
    Direct {
        node: usize,
    },
    /// A lease has little time left.
    Ending {
        node: usize,
        receipt: Receipt,
        /// How much, and what the ledger said then.
        granted: (u64, u64),
    },
    ReturnArrives {
        node: usize,
        tokens: u64,
        mark: u64,
        until_us: u64,
    },
}

struct Node {
    accounts: AccountTable,
    /// Requests that wait for an answer.
    waiting: u64,
    demanded: u64,
    admitted: u64,
}

pub struct World<'a> {
    scenario: &'a Scenario,
    quota: Quota,
    terms: LeaseTerms,
    bucket: State,
    ledger: Ledger,
    nodes: Vec<Node>,
    shares: Vec<f64>,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    sent: BTreeMap<u64, Event>,
    sent_count: u64,
    now_us: u64,
    random: u64,
    calls: u64,
    judge: Ideal,
    ideal: Ideal,
    ideal_admitted: u64,
    over: u64,
}

impl<'a> World<'a> {
    pub fn new(scenario: &'a Scenario, nodes: usize, seed: u64) -> Self {
        let quota: Quota = scenario.quota.parse().expect("a scenario's quota");
        let terms = LeaseTerms::of(Lease::For(scenario.lease_us), &quota).expect("a quota that can be leased");
        let node = || Node { accounts: AccountTable::new(4), waiting: 0, demanded: 0, admitted: 0 };
        Self {
            scenario,
            terms,
            bucket: None,
            ledger: Ledger::new(0),
            nodes: (0..nodes).map(|_| node()).collect(),
            shares: scenario.shares(nodes),
            events: BinaryHeap::new(),
            sent: BTreeMap::new(),
            sent_count: 0,
            now_us: 1_000_000,
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            calls: 0,
            judge: Ideal::new(&quota),
            ideal: Ideal::new(&quota),
            ideal_admitted: 0,
            over: 0,
            quota,
        }
    }

    /// So long after the start, of which the figures tell.
    pub fn run(&mut self, length_us: u64) {
        self.go_on(WARM_UP_US);
        for node in &mut self.nodes {
            (node.demanded, node.admitted) = (0, 0);
        }
        (self.calls, self.ideal_admitted) = (0, 0);
        self.go_on(length_us);
    }

    pub fn report(&self, name: &'static str) -> Report {
        let mut report = Report { name, over: self.over, calls: self.calls, ..Report::default() };
        report.ideal = self.ideal_admitted;
        for node in &self.nodes {
            let stats = node.accounts.stats(self.now_us);
            report.granted += stats.granted;
            report.returned += stats.returned;
            report.lost += stats.lost;
            report.nodes.push((node.demanded, node.admitted));
        }
        report
    }

    fn go_on(&mut self, length_us: u64) {
        let end_us = self.now_us + length_us;
        let mut next = self.now_us as f64;
        while self.now_us < end_us {
            next += -(1.0 - self.chance()).ln() / self.scenario.demand_per_us(self.now_us);
            self.happen(next as u64);
            self.now_us = next as u64;
            let chance = self.chance();
            let rank = self.shares.partition_point(|share| *share < chance);
            let node = self.scenario.node(rank.min(self.nodes.len() - 1), self.nodes.len(), self.now_us);
            self.nodes[node].demanded += 1;
            self.ideal_admitted += u64::from(self.ideal.admit(self.now_us));
            self.request(node);
        }
    }

    fn happen(&mut self, until_us: u64) {
        while let Some(Reverse((at_us, number))) = self.events.peek().copied() {
            if at_us > until_us {
                return;
            }
            self.events.pop();
            self.now_us = at_us;
            if let Some(event) = self.sent.remove(&number) {
                self.handle(event);
            }
        }
    }

    fn handle(&mut self, event: Event) {
        let now_us = self.now_us;
        match event {
            Event::Direct { node } => {
                self.calls += 1;
                let (decision, next) = token_bucket::decide(&self.quota, self.bucket, now_us, 1);
                self.bucket = next;
                if decision.is_allowed() {
                    self.admit(node);
                }
            }
            Event::AskArrives { node, ask } => {
                self.calls += 1;
                let wish = LeaseRequest { wanted: ask.wanted, least: ask.least, length_us: self.terms.length_us };
                let (grant, next) = token_bucket::lease(&self.quota, self.bucket, now_us, wish);
                self.bucket = next;
                if grant.granted > 0 {
                    self.ledger = self.ledger.with(grant.granted, wish.length_us, now_us);
                }
                self.send(Event::TierDecisions { node, ask, grant: Some((grant, self.ledger.granted)) });
            }
            Event::TierDecisions { node, ask, grant } => self.answer(node, &ask, grant),
            Event::Ending { node, receipt, granted } => self.give_back(node, receipt, granted),
            Event::ReturnArrives { node, tokens, mark, until_us } => {
                self.calls += 1;
                // The script refuses what comes too late.
                if now_us <= until_us {
                    let (back, next) =
                        token_bucket::give_back(&self.quota, self.bucket, now_us, (tokens, mark), &self.ledger);
                    self.bucket = next;
                    self.nodes[node].accounts.note_returning(tokens);
                    self.nodes[node].accounts.note_returned(tokens, back);
                }
            }
        }
    }

    fn request(&mut self, node: usize) {
        let (now_us, state) = (self.now_us, &mut self.nodes[node]);
        let Some(number) = state.accounts.find(TAG) else {
            state.accounts.note_demand(TAG, 1, now_us, &self.terms);
            return self.send(Event::Direct { node });
        };
        let account = state.accounts.account(number);
        let least = match account.spend(TAG, 1, || now_us) {
            Spend::Paid(paid) => {
                let is_low = paid.is_low;
                self.admit(node);
                if !is_low {
                    return;
                }
                0
            }
            Spend::Insufficient if account.denied_for_us(1, now_us).is_some() => {
                account.note_denied(1);
                return state.accounts.note_cached_denial();
            }
            _ => 1,
        };
        let account = self.nodes[node].accounts.account(number);
        match account.begin_refill(TAG, least, now_us, (&self.terms, &self.quota)) {
            BeginRefill::Request(ask) => {
                self.nodes[node].accounts.note_refill();
                self.nodes[node].waiting += least;
                self.send(Event::AskArrives { node, ask });
            }
            BeginRefill::Busy => self.nodes[node].waiting += least,
            BeginRefill::NotYet => account.note_denied(least),
            BeginRefill::Closed if least > 0 => self.send(Event::Direct { node }),
            BeginRefill::Closed => {}
        }
    }

    fn answer(&mut self, node: usize, ask: &RefillRequest, granted: Option<(Grant, u64)>) {
        let now_us = self.now_us;
        let number = self.nodes[node].accounts.find(TAG).unwrap_or(0);
        let grant = granted.as_ref().map(|(grant, _)| grant);
        let receipt = self.nodes[node].accounts.account(number).finish_refill(ask, grant, now_us, &self.terms);
        if let (Some(receipt), Some((grant, mark))) = (receipt, granted) {
            let at_us = (ask.asked_us + self.terms.life_us() * 7 / 8).max(now_us);
            self.at(at_us, Event::Ending { node, receipt, granted: (grant.granted, mark) });
        }
        // Without an answer they are decided by the failure policy: not here.
        let waiting = std::mem::take(&mut self.nodes[node].waiting);
        for _ in 0..if granted.is_some() { waiting } else { 0 } {
            self.request(node);
        }
    }

    /// Gives back what is left of a lease, if that is worth a call.
    fn give_back(&mut self, node: usize, receipt: Receipt, (granted, mark): (u64, u64)) {
        let now_us = self.now_us;
        let number = self.nodes[node].accounts.find(TAG).unwrap_or(0);
        let account = self.nodes[node].accounts.account(number);
        let (left, _) = account.left_of(receipt, now_us);
        if left == 0 || left * RETURN_SHARE < granted {
            return;
        }
        let (tokens, left_us) = account.withdraw(receipt, now_us);
        let tokens = tokens.min(granted);
        self.send(Event::ReturnArrives { node, tokens, mark, until_us: now_us + left_us });
    }

    fn admit(&mut self, node: usize) {
        self.nodes[node].admitted += 1;
        self.over += u64::from(!self.judge.admit(self.now_us));
    }

    fn send(&mut self, event: Event) {
        if self.below(LOST_ONE_IN) > 0 {
            let at_us = self.now_us + WAY_US.0 + self.below(WAY_US.1 - WAY_US.0);
            return self.at(at_us, event);
        }
        if let Event::AskArrives { node, ask } | Event::TierDecisions { node, ask, .. } = event {
            let at_us = (ask.asked_us + DEADLINE_US).max(self.now_us);
            self.at(at_us, Event::TierDecisions { node, ask, grant: None });
        }
    }

    fn at(&mut self, at_us: u64, event: Event) {
        self.sent_count += 1;
        self.events.push(Reverse((at_us, self.sent_count)));
        self.sent.insert(self.sent_count, event);
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % end
    }

    fn chance(&mut self) -> f64 {
        self.below(1 << 53) as f64 / (1_u64 << 53) as f64
    }
}

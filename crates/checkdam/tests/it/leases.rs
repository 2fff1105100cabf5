//! Model checking of leases on a network that loses, delays and reorders messages:
//! every state that some nodes, their messages and one shared bucket can reach.
//!
//! One tick of time returns one token, and all times are relative to now, so the
//! states are finite and none is omitted. Grants, takes and returns are decided by
//! the functions that the stores follow; the nodes are modelled by their messages
//! under way. A node with two leases counts as two nodes, one that times out or
//! crashes as a message that is lost or a lease that is not spent.

#![allow(clippy::unwrap_used)]

use checkdam::Quota;
use checkdam::algorithm::token_bucket::{self, LeaseRequest, Ledger, State};
use stateright::{Checker, HasDiscoveries, Model, Property};

const TICK_US: u64 = 1_000_000;
/// T.
const LIFE: u8 = 2;
const LIFE_US: u64 = LIFE as u64 * TICK_US;
const BURST: u8 = 6;
const NODES: usize = 3;
const WANTED_MAX: u8 = 2;
/// When everything happens: times are ages, how long ago things were.
const NOW_US: u64 = 1_000 * TICK_US;

const NEVER_OVER: &str = "no window sees more than the burst and the rate";
const WHOLE_BURST: &str = "the whole burst is spent";
const IS_OWED: &str = "whatever is held is owed";

/// The system, or what it must not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Real,
    /// Everybody leases.
    NoDirectTakes,
    /// Grants may use all of the burst.
    BurstNotReduced,
    /// A lease begins when the answer comes.
    CountedFromTheAnswer,
    /// What is given back is taken whenever it comes.
    LateReturnsLand,
    /// What is given back is taken to be owed still.
    WholeReturnsLand,
}

/// What a node has under way, and how many ticks ago it asked for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Node {
    #[default]
    Idle,
    Asked {
        age: u8,
    },
    Answered(Grant),
    Holding(Grant),
    Returning(Grant),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Grant {
    /// Since it was asked for.
    age: u8,
    /// What was granted to others since.
    granted_since: u8,
    tokens: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    /// What the shared bucket owes.
    owed: u8,
    /// What an ideal bucket owes that admitted what was admitted: more than the
    /// burst if, in some window, more passed than the burst and the rate.
    ideal: u8,
    nodes: [Node; NODES],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tick,
    TakeDirectly,
    Ask {
        node: usize,
    },
    AskArrives {
        node: usize,
        wanted: u8,
    },
    AnswerArrives {
        node: usize,
    },
    Spend {
        node: usize,
    },
    Return {
        node: usize,
    },
    ReturnArrives {
        node: usize,
    },
    /// A message is lost, a caller gives up, or a node crashes.
    Vanish {
        node: usize,
    },
}

struct Leases {
    kind: Kind,
    quota: Quota,
}

impl Leases {
    fn new(kind: Kind) -> Self {
        Self { kind, quota: format!("1/s burst {BURST}").parse().unwrap() }
    }

    /// The grant of as many as are wanted, or of none.
    fn grant(&self, world: &mut World, wanted: u8) -> u8 {
        let length_us = if self.kind == Kind::BurstNotReduced { 0 } else { LIFE_US };
        let ask = LeaseRequest { wanted: wanted.into(), least: wanted.into(), length_us };
        let (grant, next) = token_bucket::lease(&self.quota, bucket(world), NOW_US, ask);
        set_bucket(world, next);
        let granted = u8::try_from(grant.granted).unwrap();
        for node in &mut world.nodes {
            if let Node::Answered(older) | Node::Holding(older) | Node::Returning(older) = node {
                // With more than this, nothing is taken back anyway.
                older.granted_since = (older.granted_since + granted).min(BURST - LIFE);
            }
        }
        granted
    }

    fn take_back(&self, world: &mut World, grant: Grant) {
        let (bucket, tokens) = (bucket(world), u64::from(grant.tokens));
        let ledger = Ledger { granted: grant.granted_since.into(), length_us: LIFE_US, until_us: NOW_US + LIFE_US };
        let next = match self.kind {
            Kind::LateReturnsLand | Kind::WholeReturnsLand => {
                token_bucket::refund(&self.quota, bucket, NOW_US, tokens).1
            }
            _ => token_bucket::give_back(&self.quota, bucket, NOW_US, (tokens, 0), &ledger).1,
        };
        set_bucket(world, next);
    }

    fn tick(&self, world: &mut World) {
        world.owed = world.owed.saturating_sub(1);
        world.ideal = world.ideal.saturating_sub(1);
        for node in &mut world.nodes {
            let is_kept = self.kind == Kind::LateReturnsLand && matches!(node, Node::Returning(_));
            let age = match node {
                Node::Idle => continue,
                Node::Asked { age } => age,
                Node::Answered(grant) | Node::Holding(grant) | Node::Returning(grant) => &mut grant.age,
            };
            *age += 1;
            // It ended, and was paid for; the bucket refuses returns that come later.
            // A grant that comes too late to be spent only adds to what is owed, as
            // one whose answer is lost does.
            if *age > LIFE && is_kept {
                *age = LIFE + 1;
            } else if *age > LIFE {
                *node = Node::Idle;
            }
        }
    }
}

impl Model for Leases {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::default()]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        steps.push(Step::Tick);
        if self.kind != Kind::NoDirectTakes {
            steps.push(Step::TakeDirectly);
        }
        for (node, state) in world.nodes.iter().enumerate() {
            match state {
                Node::Idle => steps.push(Step::Ask { node }),
                Node::Asked { .. } => steps.extend((1..=WANTED_MAX).map(|wanted| Step::AskArrives { node, wanted })),
                Node::Answered(_) => steps.push(Step::AnswerArrives { node }),
                Node::Holding(_) => steps.extend([Step::Spend { node }, Step::Return { node }]),
                Node::Returning(_) => steps.push(Step::ReturnArrives { node }),
            }
            if *state != Node::Idle {
                steps.push(Step::Vanish { node });
            }
        }
    }

    fn next_state(&self, last: &World, step: Step) -> Option<World> {
        let mut world = *last;
        match step {
            Step::Tick => self.tick(&mut world),
            Step::TakeDirectly => {
                let (decision, next) = token_bucket::decide(&self.quota, bucket(&world), NOW_US, 1);
                set_bucket(&mut world, next);
                world.ideal += u8::from(decision.is_allowed());
            }
            Step::Ask { node } => world.nodes[node] = Node::Asked { age: 0 },
            Step::Vanish { node } => world.nodes[node] = Node::Idle,
            Step::AskArrives { node, wanted } => {
                let Node::Asked { age } = last.nodes[node] else { return None };
                let tokens = self.grant(&mut world, wanted);
                world.nodes[node] =
                    if tokens > 0 { Node::Answered(Grant { age, granted_since: 0, tokens }) } else { Node::Idle };
            }
            Step::AnswerArrives { node } => {
                let Node::Answered(grant) = last.nodes[node] else { return None };
                let age = if self.kind == Kind::CountedFromTheAnswer { 0 } else { grant.age };
                world.nodes[node] = Node::Holding(Grant { age, ..grant });
            }
            Step::Spend { node } => {
                let Node::Holding(grant) = last.nodes[node] else { return None };
                world.ideal += 1;
                let left = Grant { tokens: grant.tokens - 1, ..grant };
                world.nodes[node] = if left.tokens > 0 { Node::Holding(left) } else { Node::Idle };
            }
            Step::Return { node } => {
                let Node::Holding(grant) = last.nodes[node] else { return None };
                world.nodes[node] = Node::Returning(grant);
            }
            Step::ReturnArrives { node } => {
                let Node::Returning(grant) = last.nodes[node] else { return None };
                self.take_back(&mut world, grant);
                world.nodes[node] = Node::Idle;
            }
        }
        // Nodes are alike, and nothing is to be learnt beyond a violation.
        world.nodes.sort_unstable();
        (world != *last && last.ideal <= BURST).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NEVER_OVER, |_, world: &World| world.ideal <= BURST),
            Property::always(IS_OWED, |_, world: &World| world.nodes.iter().map(held).sum::<u8>() <= world.owed),
            Property::sometimes(WHOLE_BURST, |_, world: &World| world.ideal == BURST),
        ]
    }
}

/// What may still be spent, or given back.
fn held(node: &Node) -> u8 {
    match *node {
        Node::Idle | Node::Asked { .. } => 0,
        Node::Answered(grant) | Node::Holding(grant) | Node::Returning(grant) => grant.tokens,
    }
}

fn bucket(world: &World) -> State {
    (world.owed > 0).then_some(NOW_US + u64::from(world.owed) * TICK_US)
}

fn set_bucket(world: &mut World, state: State) {
    let owed = state.map_or(0, |full_at| full_at.saturating_sub(NOW_US) / TICK_US);
    world.owed = u8::try_from(owed).unwrap();
}

#[test]
fn leases_never_exceed_the_limit() {
    let checker = Leases::new(Kind::Real).checker().spawn_dfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

#[test]
fn leases_alone_can_spend_the_whole_burst() {
    let checker = Leases::new(Kind::NoDirectTakes).checker().finish_when(HasDiscoveries::Any).spawn_bfs().join();
    assert!(checker.discovery(WHOLE_BURST).is_some());
}

#[test]
fn what_leases_must_not_do_is_noticed() {
    for kind in [Kind::BurstNotReduced, Kind::CountedFromTheAnswer, Kind::LateReturnsLand, Kind::WholeReturnsLand] {
        let until = HasDiscoveries::AllOf([NEVER_OVER].into());
        let checker = Leases::new(kind).checker().finish_when(until).spawn_bfs().join();
        assert!(checker.discovery(NEVER_OVER).is_some(), "{kind:?} went unnoticed");
    }
}

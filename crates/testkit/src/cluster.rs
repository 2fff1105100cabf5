//! A cluster on loopback: masters that can be killed, replicas that take over, slots that can be moved.

mod migration;

use std::fmt;
use std::time::Duration;

pub use self::migration::Migration;
use crate::connection::Reply;
use crate::engine::Engine;
use crate::redis::{Redis, field_of};
use crate::wait::{holds_within, wait_until};

/// The number of slots is part of the protocol.
const SLOTS: usize = 16_384;

const FORM_LIMIT: Duration = Duration::from_secs(30);
const FAILOVER_LIMIT: Duration = Duration::from_secs(30);

/// A running cluster. Nodes are known by their index in [`Cluster::nodes`]: the masters it was made with, then the
/// replicas, master by master in turn. A failover changes roles, never indices.
pub struct Cluster {
    nodes: Vec<Redis>,
    ids: Vec<String>,
    masters: usize,
}

/// Options of a cluster; made by [`Cluster::builder`].
#[derive(Clone)]
pub struct ClusterBuilder {
    masters: usize,
    replicas_per_master: usize,
    engine: Engine,
    node_timeout: Duration,
    args: Vec<String>,
    clocks_us: Vec<i64>,
}

impl ClusterBuilder {
    /// How many masters; at least three are needed for a failover. Three by default.
    #[must_use]
    pub fn masters(mut self, masters: usize) -> Self {
        self.masters = masters;
        self
    }

    /// How many replicas each master has. One by default.
    #[must_use]
    pub fn replicas_per_master(mut self, replicas: usize) -> Self {
        self.replicas_per_master = replicas;
        self
    }

    /// Which server to start. Redis by default.
    #[must_use]
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// How long a node may be silent before the others suspect it. One second by default: raise it where the machine
    /// is so busy that a healthy node may not run for so long.
    #[must_use]
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// Further command-line arguments of every node.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// How far each node's clock is ahead, in the order of [`Cluster::nodes`]; negative is behind. The clocks of
    /// further nodes are the machine's.
    #[must_use]
    pub fn clocks_ahead_us(mut self, offsets_us: impl IntoIterator<Item = i64>) -> Self {
        self.clocks_us = offsets_us.into_iter().collect();
        self
    }

    /// Starts the nodes, joins them, and waits until every slot is served and every replica in sync.
    #[must_use]
    pub fn start(self) -> Cluster {
        assert!(self.masters > 0, "a cluster needs a master");
        let count = self.masters * (1 + self.replicas_per_master);
        let node = Redis::builder().engine(self.engine).cluster_node(self.node_timeout).args(self.args);
        let start = |number: usize| match self.clocks_us.get(number) {
            Some(offset_us) => node.clone().clock_ahead_us(*offset_us).start(),
            None => node.clone().start(),
        };
        let nodes: Vec<Redis> = (0..count).map(start).collect();
        let ids = nodes.iter().map(|node| node.command(&["CLUSTER", "MYID"]).text().to_owned()).collect();
        let cluster = Cluster { nodes, ids, masters: self.masters };
        cluster.form();
        cluster
    }
}

impl Cluster {
    /// Starts `masters` masters with `replicas_per_master` replicas each and waits until all is in order.
    #[must_use]
    pub fn start(masters: usize, replicas_per_master: usize, engine: Engine) -> Self {
        Self::builder().masters(masters).replicas_per_master(replicas_per_master).engine(engine).start()
    }

    /// Options, then [`ClusterBuilder::start`].
    #[must_use]
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder {
            masters: 3,
            replicas_per_master: 1,
            engine: Engine::Redis,
            node_timeout: Duration::from_secs(1),
            args: Vec::new(),
            clocks_us: Vec::new(),
        }
    }

    /// All nodes, dead ones included.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// `redis-cluster://host:port,host:port,…` with every node.
    pub fn url(&self) -> String {
        let addrs: Vec<String> = self.nodes.iter().map(|node| node.addr().to_string()).collect();
        format!("redis-cluster://{}", addrs.join(","))
    }

    /// The slot of `key`.
    pub fn slot_of(&self, key: &str) -> u16 {
        let slot = self.any_live().command(&["CLUSTER", "KEYSLOT", key]).int();
        u16::try_from(slot).expect("a slot is below 16384")
    }

    /// The index of the node that serves `slot`, as a node that runs sees it. While a master is dead and not yet
    /// replaced this may be the dead one.
    pub fn master_of_slot(&self, slot: u16) -> usize {
        let owners = self.owners(self.any_live()).expect("cannot read the slots of a node that runs");
        owners[usize::from(slot)].unwrap_or_else(|| panic!("no node serves slot {slot}"))
    }

    /// SIGKILL to the current master of the `shard`-th part of the slots. Gives the index of the node killed, so
    /// that the test can restart it.
    pub fn kill_master(&self, shard: usize) -> usize {
        assert!(shard < self.masters, "the cluster has {} shards, there is no shard {shard}", self.masters);
        self.kill_master_of_slot(u16::try_from(self.first_slot(shard)).expect("a slot is below 16384"))
    }

    /// SIGKILL to the current master of `slot`. Gives the index of the node killed.
    pub fn kill_master_of_slot(&self, slot: u16) -> usize {
        let master = self.master_of_slot(slot);
        self.nodes[master].kill();
        master
    }

    /// Waits until every node that runs reports `cluster_state:ok` and all of them agree that every slot is served
    /// by a node that runs. After a kill this is the end of the failover.
    pub fn wait_ok(&self) {
        let is_ok = holds_within(FAILOVER_LIMIT, || self.is_ok());
        assert!(is_ok, "the cluster is not in order after {FAILOVER_LIMIT:?}:\n{}", self.describe());
    }

    /// Waits until every node that runs and is not a master is in sync with its master.
    pub fn wait_replicated(&self) {
        for node in self.nodes.iter().filter(|node| node.is_running()) {
            if node.info_field("replication", "role") == "slave" {
                node.wait_replica_in_sync(FAILOVER_LIMIT);
            }
        }
    }

    /// Begins to move `slot` from its master to the node `to`, which must be a master: from here on the source
    /// answers ASK for keys it does not hold, and TRYAGAIN to a command of which it holds some keys only.
    #[must_use = "a migration that is neither finished nor aborted leaves the slot between two nodes"]
    pub fn begin_migration(&self, slot: u16, to: usize) -> Migration<'_> {
        Migration::begin(self, slot, self.master_of_slot(slot), to)
    }

    /// Moves `slot` with its keys to the master `to`, all at once.
    pub fn move_slot(&self, slot: u16, to: usize) {
        self.begin_migration(slot, to).finish();
    }

    pub(crate) fn id(&self, node: usize) -> &str {
        &self.ids[node]
    }

    /// The nodes that run and are masters in their own eyes.
    pub(crate) fn live_masters(&self) -> impl Iterator<Item = usize> {
        let is_master = |node: &Redis| node.is_running() && node.info_field("replication", "role") == "master";
        (0..self.nodes.len()).filter(move |index| is_master(&self.nodes[*index]))
    }

    fn form(&self) {
        for (index, node) in self.nodes.iter().enumerate() {
            let epoch = (index + 1).to_string();
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).expect_ok();
            if index < self.masters {
                let first = self.first_slot(index).to_string();
                let last = (self.first_slot(index + 1) - 1).to_string();
                node.command(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]).expect_ok();
            }
        }
        self.meet();
        for index in self.masters..self.nodes.len() {
            let master = self.id((index - self.masters) % self.masters);
            self.nodes[index].command(&["CLUSTER", "REPLICATE", master]).expect_ok();
        }
        for replica in &self.nodes[self.masters..] {
            replica.wait_replica_in_sync(FORM_LIMIT);
        }
        self.wait_ok();
    }

    /// Everyone meets everyone: gossip alone would take longer to spread the word.
    fn meet(&self) {
        for node in &self.nodes {
            for other in self.nodes.iter().filter(|other| other.addr() != node.addr()) {
                let port = other.addr().port().to_string();
                let bus_port = other.command(&["CONFIG", "GET", "cluster-port"]).array()[1].text().to_owned();
                node.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus_port]).expect_ok();
            }
        }
        wait_until("every node to know every other", FORM_LIMIT, || {
            self.nodes.iter().all(|node| {
                let known = node.command(&["CLUSTER", "NODES"]);
                self.ids.iter().all(|id| known.text().contains(id)) && !known.text().contains("handshake")
            })
        });
    }

    fn is_ok(&self) -> bool {
        let live: Vec<bool> = self.nodes.iter().map(Redis::is_running).collect();
        let mut agreed: Option<Vec<Option<usize>>> = None;
        self.nodes.iter().filter(|node| node.is_running()).all(|node| {
            let Some(owners) = self.owners(node) else { return false };
            let is_served = owners.iter().all(|owner| owner.is_some_and(|owner| live[owner]));
            let state = node.try_command(&["CLUSTER", "INFO"]);
            let has_ok = state.is_ok_and(|reply| field_of(reply.text(), "cluster_state") == Some("ok"));
            is_served && has_ok && *agreed.get_or_insert_with(|| owners.clone()) == owners
        })
    }

    /// The owner of each slot as `node` sees it.
    pub(crate) fn owners(&self, node: &Redis) -> Option<Vec<Option<usize>>> {
        let reply = node.try_command(&["CLUSTER", "SLOTS"]).ok()?;
        let mut owners = vec![None; SLOTS];
        for range in reply.array() {
            let [first, last, master, ..] = range.array() else { continue };
            let slots = slot_index(first)..=slot_index(last);
            let id = master.array()[2].text();
            owners[slots].fill(self.ids.iter().position(|known| known == id));
        }
        Some(owners)
    }

    fn any_live(&self) -> &Redis {
        self.nodes.iter().find(|node| node.is_running()).expect("every node of the cluster is dead")
    }

    fn first_slot(&self, shard: usize) -> usize {
        shard * SLOTS / self.masters
    }

    fn describe(&self) -> String {
        let view = |node: &Redis| match node.try_command(&["CLUSTER", "NODES"]) {
            Ok(reply) => reply.text().to_owned(),
            Err(error) => format!("{error}\n"),
        };
        self.nodes.iter().map(|node| format!("{}\n{}", node.url(), view(node))).collect()
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Cluster").field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

fn slot_index(reply: &Reply) -> usize {
    usize::try_from(reply.int()).expect("a slot is not negative")
}

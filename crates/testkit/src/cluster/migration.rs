//! Moves a cluster slot between two masters, one step at a time.

use std::fmt;
use std::time::Duration;

use super::Cluster;
use crate::wait::wait_until;

/// How long the masters may disagree on a slot's owner.
const AGREEMENT_LIMIT: Duration = Duration::from_secs(30);

/// How many keys one MIGRATE carries when the test does not say.
const BATCH: usize = 100;

/// A slot in the MIGRATING state at its source and IMPORTING at its target; made by
/// [`Cluster::begin_migration`]. It stays so until [`Migration::finish`] or [`Migration::abort`].
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: String,
    from: usize,
    to: usize,
}

impl<'a> Migration<'a> {
    pub(crate) fn begin(cluster: &'a Cluster, slot: u16, from: usize, to: usize) -> Self {
        assert_ne!(from, to, "node {to} already serves slot {slot}");
        let migration = Self { cluster, slot: slot.to_string(), from, to };
        // The target first: it must be ready for the clients that the source will send.
        migration.set_slot(to, &["IMPORTING", cluster.id(from)]);
        migration.set_slot(from, &["MIGRATING", cluster.id(to)]);
        migration
    }

    /// The index of the node that gives the slot away.
    pub fn from(&self) -> usize {
        self.from
    }

    /// The index of the node that receives it.
    pub fn to(&self) -> usize {
        self.to
    }

    /// Moves up to `max` keys; gives how many it moved.
    pub fn migrate_keys(&self, max: usize) -> usize {
        let source = &self.cluster.nodes()[self.from];
        let reply = source.command(&["CLUSTER", "GETKEYSINSLOT", &self.slot, &max.to_string()]);
        let keys: Vec<&str> = reply.array().iter().map(|key| key.text()).collect();
        self.migrate(&keys);
        keys.len()
    }

    /// Moves exactly these keys, which must be in the slot.
    pub fn migrate(&self, keys: &[&str]) {
        if keys.is_empty() {
            return;
        }
        let port = self.cluster.nodes()[self.to].addr().port().to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        words.extend(keys);
        // NOKEY means that all of them expired meanwhile.
        let reply = self.cluster.nodes()[self.from].command(&words);
        assert!(reply.error().is_none(), "cannot migrate {keys:?}: {reply:?}");
    }

    /// Moves the keys that are left and gives the slot to the target.
    pub fn finish(self) {
        wait_until("all masters agree on the slot's new owner", AGREEMENT_LIMIT, || {
            while self.migrate_keys(BATCH) > 0 {}
            self.give_to_target();
            let settled =
                |master| self.owner_seen_by(master) == Some(self.to) && self.is_newest_seen_by(master).unwrap_or(false);
            self.cluster.live_masters().all(settled)
        });
    }

    /// Whether a master knows that the target has the highest epoch: then no old gossip can take the slot back there.
    fn is_newest_seen_by(&self, master: usize) -> Option<bool> {
        let nodes = self.cluster.nodes()[master].try_command(&["CLUSTER", "NODES"]).ok()?;
        let lines = nodes.text().lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let epochs: Vec<(bool, u64)> = lines
            .filter(|fields| fields.len() > 7 && fields[2].contains("master"))
            .filter_map(|fields| Some((fields[0] == self.cluster.id(self.to), fields[6].parse().ok()?)))
            .collect();
        let target = epochs.iter().find(|(is_target, _)| *is_target)?.1;
        Some(epochs.iter().all(|(is_target, epoch)| *is_target || *epoch < target))
    }

    /// Announces the new owner to all nodes: the target, then the source, so that the slot always has an owner, then
    /// those who would hear by gossip. Old gossip of a master with a higher epoch would take the slot back, so the
    /// target gets the highest.
    fn give_to_target(&self) {
        let owner = self.cluster.id(self.to);
        self.set_slot(self.to, &["NODE", owner]);
        let bumped = self.cluster.nodes()[self.to].command(&["CLUSTER", "BUMPEPOCH"]);
        assert!(bumped.error().is_none(), "cannot raise the epoch: {bumped:?}");
        self.set_slot(self.from, &["NODE", owner]);
        for master in self.cluster.live_masters().filter(|index| *index != self.to && *index != self.from) {
            self.set_slot(master, &["NODE", owner]);
        }
    }

    fn owner_seen_by(&self, master: usize) -> Option<usize> {
        let slot: usize = self.slot.parse().expect("a slot is a number");
        self.cluster.owners(&self.cluster.nodes()[master]).and_then(|owners| owners[slot])
    }

    /// Leaves the slot with its source. Keys that were moved stay at the target, unreachable, so move none before.
    pub fn abort(self) {
        self.set_slot(self.from, &["STABLE"]);
        self.set_slot(self.to, &["STABLE"]);
    }

    fn set_slot(&self, node: usize, state: &[&str]) {
        let words = [&["CLUSTER", "SETSLOT", &self.slot], state].concat();
        self.cluster.nodes()[node].command(&words).expect_ok();
    }
}

impl fmt::Debug for Migration<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Migration")
            .field("slot", &self.slot)
            .field("from", &self.from)
            .field("to", &self.to)
            .finish_non_exhaustive()
    }
}

//! Connection limits per peer address: bounds how many connections one address may
//! have, and selects the idle and stalled ones to close when the listener is almost full.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::connection_timeouts::RequestProgress;
use super::options::ConnectionOptions;

/// A search for idle connections that finds none is not repeated sooner.
pub(crate) const SEARCH_AGAIN: Duration = Duration::from_millis(100);
/// How often it is logged that a peer has too many.
const LOG_EVERY: Duration = Duration::from_secs(1);
/// The share of all connections that is closed at once, so that one search makes room
/// for many new ones.
const BATCH: usize = 16;

/// The open connections of a listener.
#[derive(Debug)]
pub(crate) struct PeerConnections {
    options: ConnectionOptions,
    table: Mutex<PeerTable>,
}

#[derive(Debug, Default)]
struct PeerTable {
    /// By address, IPv6 by its /64.
    groups: HashMap<IpAddr, PeerGroup>,
    next_id: u64,
    /// Those that are asked to close and are still open, with their peer.
    told: HashMap<u64, (IpAddr, Arc<RequestProgress>)>,
    /// When idle ones may be searched for again.
    search_after: Option<Instant>,
    /// When a peer with too many was last logged.
    logged: Option<Instant>,
}

/// The connections of one peer.
#[derive(Debug, Default)]
struct PeerGroup {
    /// Those that are not asked to close.
    members: HashMap<u64, Arc<RequestProgress>>,
    /// How many are asked to close and still open.
    told: usize,
    search_after: Option<Instant>,
}

/// A connection that may be closed to make room, in the order in which they are chosen.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// How many connections its peer has.
    size: std::cmp::Reverse<usize>,
    is_stalled: bool,
    /// Since when it is idle or stalled.
    since: u64,
    address: IpAddr,
    id: u64,
}

/// A connection among those of its peer, until this is dropped.
#[derive(Debug)]
pub(crate) struct PeerConnection {
    peers: Arc<PeerConnections>,
    address: IpAddr,
    id: u64,
}

impl PeerConnections {
    pub(crate) fn new(options: ConnectionOptions) -> Self {
        Self { options, table: Mutex::default() }
    }

    /// How many connections are kept free by closing idle ones.
    pub(crate) const fn reserve(&self) -> usize {
        self.options.max / BATCH + 1
    }

    /// Adds a connection; none if its peer has as many as it may, and none of them is
    /// idle. Connections that are about to close count until they have closed: a peer has
    /// at most a batch of them beyond its share.
    pub(crate) fn add(self: &Arc<Self>, peer: IpAddr, connection: &Arc<RequestProgress>) -> Option<PeerConnection> {
        let address = checkdam::normalize::client_address(peer.to_canonical());
        let mut table = self.lock();
        let count = table.groups.get(&address).map_or(0, PeerGroup::count);
        if count >= self.options.per_peer && !self.is_exempt(peer) {
            let batch = self.options.per_peer / BATCH + 1;
            let (excess, closing) = (count - self.options.per_peer, table.closing_count(Some(address)));
            let is_full =
                excess >= batch || excess >= closing && table.close_idle_of_peer(address, batch - closing) == 0;
            if is_full {
                table.log_refused(address, count);
                return None;
            }
        }
        let id = table.next_id;
        table.next_id += 1;
        table.groups.entry(address).or_default().members.insert(id, Arc::clone(connection));
        Some(PeerConnection { peers: Arc::clone(self), address, id })
    }

    /// Asks idle connections to close until this many are about to be free.
    pub(crate) fn make_room(&self, wanted: usize) {
        let mut table = self.lock();
        let wanted = wanted.saturating_sub(table.closing_count(None));
        if wanted > 0 {
            table.close_idle(wanted);
        }
    }

    /// A proxy on this machine, or a trusted one, has many clients.
    fn is_exempt(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        peer.is_loopback() || self.options.trusted.iter().any(|network| network.contains(&peer))
    }

    fn lock(&self) -> MutexGuard<'_, PeerTable> {
        // Nothing panics while it holds the lock; if it did, the table would still be whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PeerTable {
    /// How many are about to close, of one peer or of all: those that are asked to and
    /// have no request in flight, which may take any time, or are aborted.
    fn closing_count(&self, of: Option<IpAddr>) -> usize {
        let told = self.told.values().filter(|(address, _)| of.is_none_or(|of| of == *address));
        told.filter(|(_, connection)| connection.is_idle() || connection.is_abort_requested()).count()
    }

    /// Asks at most this many idle connections to close: of the peers with most
    /// connections, those that have been idle for longest. Stalled connections are closed
    /// only of the peer with most, after its idle ones.
    fn close_idle(&mut self, count: usize) {
        let now = Instant::now();
        if self.search_after.is_some_and(|after| now < after) {
            return;
        }
        let largest = self.groups.values().map(PeerGroup::count).max().unwrap_or(0);
        let mut candidates = Vec::new();
        for (address, group) in &self.groups {
            let size = std::cmp::Reverse(group.count());
            let candidate =
                |is_stalled| move |(since, id)| Candidate { size, is_stalled, since, address: *address, id };
            candidates.extend(group.idle().map(candidate(false)));
            if group.count() == largest {
                candidates.extend(group.stalled().map(candidate(true)));
            }
        }
        if self.close_first(count, candidates) == 0 {
            self.search_after = Some(now + SEARCH_AGAIN);
        }
    }

    /// The same for one peer; returns how many were asked.
    fn close_idle_of_peer(&mut self, address: IpAddr, count: usize) -> usize {
        let now = Instant::now();
        let Some(group) = self.groups.get_mut(&address) else { return 0 };
        if group.search_after.is_some_and(|after| now < after) {
            return 0;
        }
        group.search_after = Some(now + SEARCH_AGAIN);
        let size = std::cmp::Reverse(group.count());
        let candidate = |(since, id)| Candidate { size, is_stalled: false, since, address, id };
        let idle = group.idle().map(candidate).collect();
        let told = self.close_first(count, idle);
        if let Some(group) = self.groups.get_mut(&address).filter(|_| told > 0) {
            group.search_after = None;
        }
        told
    }

    /// Asks the first of these, in their order, to close; aborts stalled ones.
    fn close_first(&mut self, count: usize, mut candidates: Vec<Candidate>) -> usize {
        let count = count.min(candidates.len());
        if count == 0 {
            return 0;
        }
        candidates.select_nth_unstable(count - 1);
        for Candidate { is_stalled, address, id, .. } in &candidates[..count] {
            let Some(group) = self.groups.get_mut(address) else { continue };
            if let Some(connection) = group.members.remove(id) {
                if *is_stalled {
                    connection.request_abort();
                } else {
                    connection.request_close();
                }
                group.told += 1;
                self.told.insert(*id, (*address, connection));
            }
        }
        count
    }

    /// Removes a connection that has closed.
    fn remove(&mut self, address: IpAddr, id: u64) {
        let was_told = self.told.remove(&id).is_some();
        let Some(group) = self.groups.get_mut(&address) else { return };
        if was_told {
            group.told = group.told.saturating_sub(1);
        } else {
            group.members.remove(&id);
        }
        if group.count() == 0 {
            self.groups.remove(&address);
        }
    }

    fn log_refused(&mut self, peer: IpAddr, connections: usize) {
        let now = Instant::now();
        if self.logged.is_none_or(|logged| logged + LOG_EVERY <= now) {
            self.logged = Some(now);
            tracing::warn!(%peer, connections, "a peer has too many connections: closing new ones; see --connections-per-peer");
        }
    }
}

impl PeerGroup {
    /// How many are open.
    fn count(&self) -> usize {
        self.members.len() + self.told
    }

    /// Those that are idle and not asked to close: since when, and which.
    fn idle(&self) -> impl Iterator<Item = (u64, u64)> {
        self.members.iter().filter_map(|(id, connection)| Some((connection.idle_since()?, *id)))
    }

    /// Those whose client keeps their requests waiting, likewise.
    fn stalled(&self) -> impl Iterator<Item = (u64, u64)> {
        self.members.iter().filter_map(|(id, connection)| Some((connection.stalled_since()?, *id)))
    }
}

impl Drop for PeerConnection {
    fn drop(&mut self) {
        self.peers.lock().remove(self.address, self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(max: usize, per_peer: usize) -> Arc<PeerConnections> {
        let trusted = vec!["10.0.0.0/8".parse().unwrap()];
        Arc::new(PeerConnections::new(ConnectionOptions { max, per_peer, trusted }))
    }

    /// A connection of this peer that is idle after a request, or has one in flight.
    fn connect(
        peers: &Arc<PeerConnections>,
        peer: &str,
        is_idle: bool,
    ) -> Option<(PeerConnection, Arc<RequestProgress>)> {
        let connection = Arc::new(RequestProgress::default());
        let member = peers.add(peer.parse().unwrap(), &connection)?;
        connection.begin_request(false);
        if is_idle {
            connection.end_request();
        }
        Some((member, connection))
    }

    #[test]
    fn a_peer_beyond_its_share_replaces_its_own_idle_connections() {
        let peers = peers(100, 3);
        let busy: Vec<_> = (0..2).map(|_| connect(&peers, "192.0.2.1", false).unwrap()).collect();
        let idle = connect(&peers, "192.0.2.1", true).unwrap();
        let replacing = connect(&peers, "192.0.2.1", false).unwrap();
        assert!(idle.1.is_close_requested() && !busy[0].1.is_close_requested());
        assert!(connect(&peers, "192.0.2.1", true).is_none(), "none of its others is idle");
        assert!(connect(&peers, "192.0.2.2", true).is_some(), "another peer has a share of its own");
        drop((busy, idle, replacing));
        assert!(connect(&peers, "192.0.2.1", true).is_some());
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_peer_and_proxies_have_no_share() {
        let peers = peers(100, 2);
        let held: Vec<_> = (1..=2).map(|host| connect(&peers, &format!("2001:db8::{host}"), false)).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(connect(&peers, "2001:db8::3", false).is_none());
        assert!(connect(&peers, "2001:db8:0:1::3", false).is_some());
        for proxy in ["127.0.0.1", "::1", "10.1.2.3", "::ffff:10.1.2.3"] {
            let held: Vec<_> = (0..5).map(|_| connect(&peers, proxy, false)).collect();
            assert!(held.iter().all(Option::is_some), "{proxy}");
        }
    }

    #[test]
    fn room_is_made_by_the_longest_idle_of_the_largest_peer() {
        let peers = peers(100, 100);
        let one = connect(&peers, "192.0.2.1", true).unwrap();
        let many: Vec<_> = (0..9).map(|number| connect(&peers, "192.0.2.2", number != 0).unwrap()).collect();
        let told = || many.iter().map(|(_, connection)| connection.is_close_requested()).collect::<Vec<_>>();
        peers.make_room(2);
        assert_eq!(told(), [false, true, true, false, false, false, false, false, false]);
        peers.make_room(2);
        assert_eq!(told().iter().filter(|told| **told).count(), 2, "those two are still about to close");
        drop(many);
        assert!(!one.1.is_close_requested());
        peers.make_room(2);
        assert!(one.1.is_close_requested());
    }

    #[test]
    fn connections_that_do_not_close_when_told_count_against_the_share() {
        let peers = peers(100, 32);
        let held: Vec<_> = (0..1_000).filter_map(|_| connect(&peers, "192.0.2.1", true)).collect();
        assert_eq!(held.len(), 32 + 3, "a batch beyond the share");
        drop(held);
        assert!(peers.lock().groups.is_empty() && peers.lock().told.is_empty());
    }

    #[test]
    fn what_was_told_to_close_and_has_a_request_under_way_makes_no_room() {
        let peers = peers(100, 100);
        let connections: Vec<_> = (0..3).map(|_| connect(&peers, "192.0.2.1", true).unwrap()).collect();
        let told = || connections.iter().map(|(_, connection)| connection.is_close_requested()).collect::<Vec<_>>();
        peers.make_room(1);
        assert_eq!(told(), [true, false, false]);
        connections[0].1.begin_request(false);
        peers.make_room(1);
        assert_eq!(told(), [true, true, false], "another makes room instead");
        peers.make_room(1);
        assert_eq!(told(), [true, true, false]);
    }
}

//! Checks a cluster: which server holds which slots, and whether any slot is
//! unassigned.

use redis::{RedisError, Value};

use super::connect_errors::explain;
use super::finding::Finding;
use super::probe::{Probe, is_denied};
use super::{Role, ServerDiagnosis};
use crate::store::redis::target::Endpoint;
use crate::store::redis::topology::SLOTS;

/// One master of a cluster.
pub(super) struct Master {
    pub(super) endpoint: Endpoint,
    ranges: Vec<(u16, u16)>,
    replicas: usize,
}

impl Master {
    pub(super) fn holds(&self, slot: u16) -> bool {
        self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }
}

/// What the cluster reports.
pub(super) struct ClusterMasters {
    pub(super) masters: Vec<Master>,
    pub(super) findings: Vec<Finding>,
    /// Those of the named servers that could not be reached.
    pub(super) lost: Vec<ServerDiagnosis>,
}

/// Queries every configured server, and uses the first that knows slots.
pub(super) async fn discover(seeds: &[Endpoint]) -> ClusterMasters {
    let mut found = ClusterMasters { masters: Vec::new(), findings: Vec::new(), lost: Vec::new() };
    for seed in seeds {
        let mut probe = match Probe::open(seed).await {
            Ok(probe) => probe,
            Err(error) => {
                let findings = vec![explain(&error, seed)];
                found.lost.push(ServerDiagnosis {
                    address: seed.address(),
                    role: Role::Server,
                    is_reached: false,
                    findings,
                });
                continue;
            }
        };
        if !found.masters.is_empty() {
            continue;
        }
        match masters(&mut probe, seed).await {
            Ok(masters) => {
                found.findings = vec![slots(&masters), replicas(&masters)];
                found.findings.extend(state(&mut probe).await);
                found.masters = masters;
            }
            Err(error) => found.findings = vec![no_slots(&error)],
        }
    }
    if !found.masters.is_empty() {
        found.lost.iter_mut().for_each(ServerDiagnosis::cap_at_warning);
    }
    found
}

async fn masters(probe: &mut Probe, seed: &Endpoint) -> Result<Vec<Master>, RedisError> {
    let ranges: Vec<Vec<Value>> = probe.query(&["CLUSTER", "SLOTS"]).await?;
    let mut masters: Vec<Master> = Vec::new();
    for range in ranges {
        let [first, last, Value::Array(node), others @ ..] = range.as_slice() else { continue };
        let [host, port, ..] = node.as_slice() else { continue };
        let host: Option<String> = redis::from_redis_value(host.clone())?;
        let host = host.filter(|host| !host.is_empty()).unwrap_or_else(|| seed.host());
        let endpoint = seed.at(&host, redis::from_redis_value(port.clone())?);
        let range = (redis::from_redis_value(first.clone())?, redis::from_redis_value(last.clone())?);
        match masters.iter_mut().find(|known| known.endpoint.address() == endpoint.address()) {
            Some(known) => known.ranges.push(range),
            None => masters.push(Master { endpoint, ranges: vec![range], replicas: others.len() }),
        }
    }
    masters.sort_by_key(|master| master.ranges.iter().min().copied());
    Ok(masters)
}

fn slots(masters: &[Master]) -> Finding {
    const LOOK: &str = "slots";
    let ranges = masters.iter().flat_map(|master| &master.ranges);
    let covered: usize = ranges.map(|(first, last)| usize::from(last - first) + 1).sum();
    if covered >= SLOTS {
        return Finding::ok(LOOK, format!("all {SLOTS} are held, by {} masters", masters.len()));
    }
    let remedy = "redis-cli --cluster fix, or bring the lost masters back: subjects in those slots are decided by \
                  on_store_failure";
    Finding::problem(LOOK, format!("{} of {SLOTS} are held by no server", SLOTS - covered), remedy)
}

fn replicas(masters: &[Master]) -> Finding {
    const LOOK: &str = "failover";
    let alone: Vec<String> = masters.iter().filter(|it| it.replicas == 0).map(|it| it.endpoint.address()).collect();
    if alone.is_empty() {
        return Finding::ok(LOOK, "every master has a replica");
    }
    let remedy = "add a replica to each: when such a master dies its slots are lost until it is back";
    Finding::advice(LOOK, format!("without a replica: {}", alone.join(", ")), remedy)
}

/// The cluster's own state; slots and failover suffice where it is not visible.
async fn state(probe: &mut Probe) -> Option<Finding> {
    let lines = probe.lines(&["CLUSTER", "INFO"]).await.ok()?;
    let state = lines.get("cluster_state")?;
    Some(if state == "ok" {
        Finding::ok("cluster", "its state is ok")
    } else {
        Finding::problem("cluster", format!("its state is {state}"), "redis-cli --cluster check, and the servers' logs")
    })
}

fn no_slots(error: &RedisError) -> Finding {
    let text = error.to_string();
    let remedy = if is_denied(error) {
        "grant +cluster|slots; deploy/redis/users.acl holds the least that is needed"
    } else if text.contains("cluster support disabled") {
        "it is no cluster: write redis:// instead of redis-cluster://"
    } else {
        "read the server's log"
    };
    Finding::problem("slots", text, remedy)
}

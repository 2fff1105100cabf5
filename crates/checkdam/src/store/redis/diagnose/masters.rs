//! Finds the masters of a store by its URL, its Sentinels or its cluster. Checks the
//! quorum of the Sentinels, and the slots and replicas of the cluster.

use redis::RedisError;

use super::probe::{Probe, explain, explain_sentinel, is_denied, reached};
use super::{Deployment, Finding, Role, ServerDiagnosis};
use crate::store::redis::cluster::parse_slots;
use crate::store::redis::target::{Endpoint, Target};
use crate::store::redis::topology::SLOTS;

/// With fewer, the loss of one leaves no majority.
const SENTINELS_LEAST: usize = 3;

pub(super) struct Discovery {
    pub(super) deployment: Deployment,
    /// Each once.
    pub(super) masters: Vec<Master>,
    /// Findings that belong to no single server.
    pub(super) findings: Vec<Finding>,
    /// The Sentinels, and the named servers of a cluster that could not be reached.
    pub(super) others: Vec<ServerDiagnosis>,
}

pub(super) struct Master {
    pub(super) endpoint: Endpoint,
    ranges: Vec<(u16, u16)>,
    replicas: usize,
}

impl Master {
    /// The master of all slots.
    fn of_all(endpoint: Endpoint) -> Self {
        Self { endpoint, ranges: vec![(0, u16::MAX)], replicas: 0 }
    }

    pub(super) fn holds(&self, slot: u16) -> bool {
        self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }
}

pub(super) async fn discover(target: Target) -> Discovery {
    let mut found =
        Discovery { deployment: Deployment::Single, masters: Vec::new(), findings: Vec::new(), others: Vec::new() };
    match target {
        Target::Single(endpoint) => found.masters.push(Master::of_all(endpoint)),
        Target::Sentinel { sentinels, endpoint, master } => {
            found.deployment = Deployment::Sentinel;
            found.ask_sentinels(&sentinels, &endpoint, &master).await;
        }
        Target::Cluster { seeds } => {
            found.deployment = Deployment::Cluster;
            found.ask_cluster(&seeds).await;
        }
    }
    found
}

impl Discovery {
    async fn ask_sentinels(&mut self, sentinels: &[Endpoint], endpoint: &Endpoint, name: &str) {
        for sentinel in sentinels {
            let mut examined = ServerDiagnosis::new(sentinel, Role::Sentinel);
            match Probe::open(sentinel).await {
                Ok(mut probe) => {
                    examined.is_reached = true;
                    examined.findings.push(reached(sentinel));
                    match named(&mut probe, name).await {
                        Ok((host, port)) => {
                            let master = endpoint.at(&host, port);
                            let seen = format!("{name} is at {}", master.address());
                            examined.findings.push(Finding::ok("master", seen));
                            examined.findings.push(quorum(&mut probe, name).await);
                            if self.masters.iter().all(|known| known.endpoint.address() != master.address()) {
                                self.masters.push(Master::of_all(master));
                            }
                        }
                        Err(finding) => examined.findings.push(finding),
                    }
                }
                Err(error) => examined.findings.push(explain_sentinel(&error, sentinel)),
            }
            self.others.push(examined);
        }
        if self.others.iter().any(|it| it.is_reached) {
            self.others.iter_mut().filter(|it| !it.is_reached).for_each(ServerDiagnosis::cap_at_warning);
        }
        self.findings = self.assess_sentinels(name);
    }

    /// Queries every configured server, and uses the first that knows slots.
    async fn ask_cluster(&mut self, seeds: &[Endpoint]) {
        for seed in seeds {
            let mut probe = match Probe::open(seed).await {
                Ok(probe) => probe,
                Err(error) => {
                    let mut lost = ServerDiagnosis::new(seed, Role::Server);
                    lost.findings.push(explain(&error, seed));
                    self.others.push(lost);
                    continue;
                }
            };
            if !self.masters.is_empty() {
                continue;
            }
            match masters(&mut probe, seed).await {
                Ok(masters) => {
                    self.findings = vec![slots(&masters), replicas(&masters)];
                    self.findings.extend(state(&mut probe).await);
                    self.masters = masters;
                }
                Err(error) => self.findings = vec![no_slots(&error)],
            }
        }
        if !self.masters.is_empty() {
            self.others.iter_mut().for_each(ServerDiagnosis::cap_at_warning);
        }
    }

    fn assess_sentinels(&self, name: &str) -> Vec<Finding> {
        let reached = self.others.iter().filter(|it| it.is_reached).count();
        let seen = format!("{reached} of {} named in --store answer", self.others.len());
        let sentinels = if reached == 0 {
            Finding::problem("sentinels", seen, "start them, or correct their addresses in --store")
        } else if reached < self.others.len() {
            Finding::warning("sentinels", seen, "bring the others back, or take them out of --store")
        } else if reached < SENTINELS_LEAST {
            Finding::advice("sentinels", seen, "name at least three, so that any one of them may be lost")
        } else {
            Finding::ok("sentinels", seen)
        };
        let mut findings = vec![sentinels];
        if self.masters.len() > 1 {
            let names: Vec<String> = self.masters.iter().map(|master| master.endpoint.address()).collect();
            let seen = format!("they name different masters for {name}: {}", names.join(", "));
            findings.push(Finding::warning("master", seen, "wait for the failover to end, and run doctor again"));
        }
        findings
    }
}

async fn named(probe: &mut Probe, name: &str) -> Result<(String, u16), Finding> {
    let answer: Result<Option<(String, u16)>, RedisError> =
        probe.query(&["SENTINEL", "get-master-addr-by-name", name]).await;
    let problem = |seen: String, remedy: &str| Finding::problem("master", seen, remedy);
    match answer {
        Ok(Some(address)) => Ok(address),
        Ok(None) => {
            Err(problem(format!("it knows no master named {name:?}"), "correct the name at the end of --store"))
        }
        Err(error) => Err(problem(error.to_string(), "name Sentinels in --store: their port is usually 26379")),
    }
}

async fn quorum(probe: &mut Probe, name: &str) -> Finding {
    const LOOK: &str = "quorum";
    match probe.query::<String>(&["SENTINEL", "CKQUORUM", name]).await {
        Ok(answer) => Finding::ok(LOOK, answer.trim_start_matches("OK ").to_owned()),
        Err(error) if error.to_string().contains("NOQUORUM") => {
            Finding::warning(LOOK, error.to_string(), "bring the other Sentinels back: nobody replaces a lost master")
        }
        Err(error) => Finding::advice(LOOK, error.to_string(), "check with SENTINEL CKQUORUM"),
    }
}

async fn masters(probe: &mut Probe, seed: &Endpoint) -> Result<Vec<Master>, RedisError> {
    let mut masters: Vec<Master> = Vec::new();
    for range in parse_slots(probe.command(&["CLUSTER", "SLOTS"]).await?, seed)? {
        let endpoint = seed.at(&range.host, range.port);
        let slots = (range.first, range.last);
        match masters.iter_mut().find(|known| known.endpoint.address() == endpoint.address()) {
            Some(known) => known.ranges.push(slots),
            None => masters.push(Master { endpoint, ranges: vec![slots], replicas: range.replicas }),
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

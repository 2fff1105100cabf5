//! Diagnoses a Redis store for `checkdam doctor`: connectivity, permissions, and
//! whether limits will hold. It writes only keys of its own, `cd:{doctor:…}…`, that
//! expire within seconds. Every wait is bounded.

mod advisories;
mod cluster;
mod durability;
mod facts;
mod finding;
mod login;
mod memory;
mod pace;
mod probe;
mod reach;
mod sentinel;
mod startup_check;
mod trial;
mod version;

pub use finding::{Finding, Level};
pub use startup_check::startup_check;

use self::facts::Facts;
use self::probe::Probe;
use self::trial::Trial;
use super::RedisOptions;
use super::target::{Endpoint, StoreUrlError, Target};
use crate::time::{Clock, SystemClock};

/// What was found out about a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examination {
    /// Its URL, without the password.
    pub store: String,
    /// Findings that belong to no single server.
    pub findings: Vec<Finding>,
    /// The servers that were found.
    pub servers: Vec<Examined>,
}

/// What was found out about one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examined {
    /// `host:port`, or the path of a socket.
    pub address: String,
    /// What it is for.
    pub role: Role,
    /// Whether it could be reached and logged in to.
    pub is_reached: bool,
    /// The findings.
    pub findings: Vec<Finding>,
}

impl Examined {
    /// The store can do without this server: its problems are warnings.
    fn soften(&mut self) {
        for finding in &mut self.findings {
            finding.level = finding.level.min(Level::Warning);
        }
    }
}

/// What a server is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It holds buckets.
    Server,
    /// It knows the servers that do.
    Sentinel,
}

/// How the store is made up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Single,
    Sentinel,
    Cluster,
}

impl Examination {
    /// Everything that was found, store first.
    pub fn all(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().chain(self.servers.iter().flat_map(|server| &server.findings))
    }

    /// Whether any server that holds buckets could be examined.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        self.servers.iter().any(|server| server.is_reached && server.role == Role::Server)
    }
}

/// Diagnoses the store that the options name.
///
/// # Errors
/// If the URL is invalid.
///
/// ```no_run
/// # async fn example() -> Result<(), checkdam::store::redis::StoreUrlError> {
/// use checkdam::store::redis::{RedisOptions, examine};
///
/// let examination = examine(&RedisOptions::new("redis://127.0.0.1:6379")).await?;
/// for finding in examination.all() {
///     println!("{}: {}", finding.look, finding.seen);
/// }
/// # Ok(())
/// # }
/// ```
pub async fn examine(options: &RedisOptions) -> Result<Examination, StoreUrlError> {
    let target = Target::parse(&options.url, options.root_certificate.as_deref())?;
    let mut examination = Examination { store: options.shown_url(), findings: Vec::new(), servers: Vec::new() };
    match target {
        Target::Single(endpoint) => {
            examination.servers.push(server(options, &endpoint, Kind::Single, |_| true).await?.0);
        }
        Target::Sentinel { sentinels, endpoint, master } => {
            let found = sentinel::discover(&sentinels, &endpoint, &master).await;
            examination.findings = found.findings;
            for master in &found.masters {
                examination.servers.push(server(options, master, Kind::Sentinel, |_| true).await?.0);
            }
            examination.servers.extend(found.sentinels);
        }
        Target::Cluster { seeds } => {
            let found = cluster::discover(&seeds).await;
            examination.findings = found.findings;
            let mut offsets_us = Vec::new();
            for master in &found.masters {
                let holds = |slot| master.holds(slot);
                let (examined, offset_us) = server(options, &master.endpoint, Kind::Cluster, holds).await?;
                offsets_us.extend(offset_us);
                examination.servers.push(examined);
            }
            examination.findings.extend(pace::clocks(&offsets_us));
            let is_master = |address: &str| found.masters.iter().any(|it| it.endpoint.address() == address);
            examination.servers.extend(found.lost.into_iter().filter(|lost| !is_master(&lost.address)));
        }
    }
    Ok(examination)
}

/// Looks one server over; also gives its clock less ours.
async fn server(
    options: &RedisOptions,
    endpoint: &Endpoint,
    kind: Kind,
    holds: impl Fn(u16) -> bool,
) -> Result<(Examined, Option<i64>), StoreUrlError> {
    let mut examined =
        Examined { address: endpoint.address(), role: Role::Server, is_reached: false, findings: Vec::new() };
    let mut probe = match Probe::open(endpoint).await {
        Ok(probe) => probe,
        Err(error) => {
            examined.findings.push(reach::explain(&error, endpoint));
            return Ok((examined, None));
        }
    };
    examined.is_reached = true;
    let facts = Facts::gather(&mut probe).await;
    let findings = &mut examined.findings;
    findings.push(reach::reached(endpoint));
    findings.extend(version::version(&facts));
    findings.extend(mode(&facts, kind));
    findings.extend(memory::memory(&facts));
    findings.push(durability::persistence(&facts));
    findings.push(durability::replicas(&facts));
    let pace = pace::pace(&mut probe, options).await;
    findings.extend(pace.findings);
    let trial = Trial::new(options)?;
    let (subject, key) = subject(&trial, holds);
    let permissions = login::permissions(&mut probe, endpoint, kind, &key).await;
    let suffices = permissions.level == Level::Ok;
    findings.extend([permissions, login::login(&mut probe, endpoint, &key).await]);
    findings.extend(login::channels(&mut probe, endpoint).await);
    findings.push(trial::script(&mut probe).await);
    // A script that is stopped halfway could leave a key behind.
    if suffices {
        findings.push(trial.decide(&subject).await);
    }
    Ok((examined, pace.offset_us))
}

/// An unused subject in a slot that the server holds, and a key of it.
fn subject(trial: &Trial, holds: impl Fn(u16) -> bool) -> (String, String) {
    let now_us = SystemClock::new().now_us();
    let mut number = 0_u64;
    loop {
        let subject = format!("doctor:{now_us}:{number}");
        let (key, slot) = trial.place(&subject);
        // A server that holds a single slot is found long before this ends.
        if holds(slot) || number > 1_000_000 {
            return (subject, key);
        }
        number += 1;
    }
}

/// Whether the server is of the kind that the URL names.
fn mode(facts: &Facts, kind: Kind) -> Option<Finding> {
    let mode = facts.hello("mode")?;
    let (seen, remedy) = match (kind, mode) {
        (Kind::Single, "cluster") => ("a node of a cluster: most keys are elsewhere", "write redis-cluster://"),
        (_, "sentinel") => ("a Sentinel, which holds no buckets", "write redis-sentinel://host:port,…/master-name"),
        _ => return None,
    };
    Some(Finding::problem("kind", seen, format!("{remedy} in --store")))
}

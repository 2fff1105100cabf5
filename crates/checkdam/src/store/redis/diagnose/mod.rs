//! Diagnoses a Redis store for `checkdam doctor`: connectivity, permissions, and
//! whether limits will hold. It writes only keys of its own, `cd:{doctor:…}…`, that
//! expire within seconds. Every wait is bounded.

mod acl;
mod advisories;
mod cluster;
mod connect_errors;
mod finding;
mod latency;
mod memory;
mod persistence;
mod probe;
mod script_trial;
mod sentinel;
mod server_info;
mod startup_check;
mod version;

pub use finding::{Finding, Level};
pub use startup_check::startup_check;

use self::probe::Probe;
use self::script_trial::ScriptTrial;
use self::server_info::ServerInfo;
use super::RedisOptions;
use super::target::{Endpoint, StoreUrlError, Target};
use crate::time::{Clock, SystemClock};

/// What was found out about a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// Its URL, without the password.
    pub store: String,
    /// Findings that belong to no single server.
    pub findings: Vec<Finding>,
    /// The servers that were found.
    pub servers: Vec<ServerDiagnosis>,
}

/// What was found out about one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerDiagnosis {
    /// `host:port`, or the path of a socket.
    pub address: String,
    /// What it is for.
    pub role: Role,
    /// Whether it could be reached and logged in to.
    pub is_reached: bool,
    /// The findings.
    pub findings: Vec<Finding>,
}

impl ServerDiagnosis {
    /// The store can do without this server: its problems are warnings.
    fn cap_at_warning(&mut self) {
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
enum Deployment {
    Single,
    Sentinel,
    Cluster,
}

impl Diagnosis {
    /// Everything that was found, store first.
    pub fn all(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().chain(self.servers.iter().flat_map(|server| &server.findings))
    }

    /// Whether any server that holds buckets could be server_diagnosis.
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
/// use checkdam::store::redis::{RedisOptions, diagnose};
///
/// let diagnosis = diagnose(&RedisOptions::new("redis://127.0.0.1:6379")).await?;
/// for finding in diagnosis.all() {
///     println!("{}: {}", finding.look, finding.seen);
/// }
/// # Ok(())
/// # }
/// ```
pub async fn diagnose(options: &RedisOptions) -> Result<Diagnosis, StoreUrlError> {
    let target = Target::parse(&options.url, options.root_certificate.as_deref())?;
    let mut diagnosis = Diagnosis { store: options.shown_url(), findings: Vec::new(), servers: Vec::new() };
    match target {
        Target::Single(endpoint) => {
            diagnosis.servers.push(server(options, &endpoint, Deployment::Single, |_| true).await?.0);
        }
        Target::Sentinel { sentinels, endpoint, master } => {
            let found = sentinel::discover(&sentinels, &endpoint, &master).await;
            diagnosis.findings = found.findings;
            for master in &found.masters {
                diagnosis.servers.push(server(options, master, Deployment::Sentinel, |_| true).await?.0);
            }
            diagnosis.servers.extend(found.sentinels);
        }
        Target::Cluster { seeds } => {
            let found = cluster::discover(&seeds).await;
            diagnosis.findings = found.findings;
            let mut offsets_us = Vec::new();
            for master in &found.masters {
                let holds = |slot| master.holds(slot);
                let (server_diagnosis, offset_us) =
                    server(options, &master.endpoint, Deployment::Cluster, holds).await?;
                offsets_us.extend(offset_us);
                diagnosis.servers.push(server_diagnosis);
            }
            diagnosis.findings.extend(latency::clocks(&offsets_us));
            let is_master = |address: &str| found.masters.iter().any(|it| it.endpoint.address() == address);
            diagnosis.servers.extend(found.lost.into_iter().filter(|lost| !is_master(&lost.address)));
        }
    }
    Ok(diagnosis)
}

/// Looks one server over; also gives its clock less ours.
async fn server(
    options: &RedisOptions,
    endpoint: &Endpoint,
    kind: Deployment,
    holds: impl Fn(u16) -> bool,
) -> Result<(ServerDiagnosis, Option<i64>), StoreUrlError> {
    let mut server_diagnosis =
        ServerDiagnosis { address: endpoint.address(), role: Role::Server, is_reached: false, findings: Vec::new() };
    let mut probe = match Probe::open(endpoint).await {
        Ok(probe) => probe,
        Err(error) => {
            server_diagnosis.findings.push(connect_errors::explain(&error, endpoint));
            return Ok((server_diagnosis, None));
        }
    };
    server_diagnosis.is_reached = true;
    let info = ServerInfo::gather(&mut probe).await;
    let findings = &mut server_diagnosis.findings;
    findings.push(connect_errors::reached(endpoint));
    findings.extend(version::version(&info));
    findings.extend(mode(&info, kind));
    findings.extend(memory::memory(&info));
    findings.push(persistence::persistence(&info));
    findings.push(persistence::replicas(&info));
    let latency = latency::measure(&mut probe, options).await;
    findings.extend(latency.findings);
    let trial = ScriptTrial::new(options)?;
    let (subject, key) = subject(&trial, holds);
    let permissions = acl::permissions(&mut probe, endpoint, kind, &key).await;
    let suffices = permissions.level == Level::Ok;
    findings.extend([permissions, acl::login(&mut probe, endpoint, &key).await]);
    findings.extend(acl::channels(&mut probe, endpoint).await);
    findings.push(script_trial::script(&mut probe).await);
    // A script that is stopped halfway could leave a key behind.
    if suffices {
        findings.push(trial.decide(&subject).await);
    }
    Ok((server_diagnosis, latency.offset_us))
}

/// An unused subject in a slot that the server holds, and a key of it.
fn subject(trial: &ScriptTrial, holds: impl Fn(u16) -> bool) -> (String, String) {
    let now_us = SystemClock::new().now_us();
    let mut number = 0_u64;
    loop {
        let subject = format!("doctor:{now_us}:{number}");
        let (key, slot) = trial.key_and_slot(&subject);
        // A server that holds a single slot is found long before this ends.
        if holds(slot) || number > 1_000_000 {
            return (subject, key);
        }
        number += 1;
    }
}

/// Whether the server is of the kind that the URL names.
fn mode(info: &ServerInfo, kind: Deployment) -> Option<Finding> {
    let mode = info.hello("mode")?;
    let (seen, remedy) = match (kind, mode) {
        (Deployment::Single, "cluster") => ("a node of a cluster: most keys are elsewhere", "write redis-cluster://"),
        (_, "sentinel") => ("a Sentinel, which holds no buckets", "write redis-sentinel://host:port,…/master-name"),
        _ => return None,
    };
    Some(Finding::problem("kind", seen, format!("{remedy} in --store")))
}

//! Diagnoses a Redis store for `checkdam doctor`: connectivity, permissions, and
//! whether limits will hold. It writes only keys of its own, `cd:{doctor:…}…`, that
//! expire within seconds. Every wait is bounded.

mod acl;
mod advisories;
mod latency;
mod masters;
mod probe;
mod script_trial;
mod server_info;
mod version;

use self::masters::{Discovery, Master, discover};
use self::probe::Probe;
use self::script_trial::ScriptTrial;
use self::server_info::ServerInfo;
use super::target::{Endpoint, StoreUrlError, Target};
use super::{RedisOptions, RedisStoreError};
use crate::time::{Clock, SystemClock};

/// How much a finding matters; what matters more is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works; this would be better, or could not be seen.
    Advice,
    /// It works, and may fail or let too many pass one day.
    Warning,
    /// Limits do not work as they should, or not at all.
    Problem,
}

impl Level {
    /// The level as a word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Advice => "advice",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The check, in a word or two.
    pub look: &'static str,
    /// How much it matters.
    pub level: Level,
    /// What was seen.
    pub seen: String,
    /// What to do; there is something unless all is well.
    pub remedy: Option<String>,
}

impl Finding {
    fn ok(look: &'static str, seen: impl Into<String>) -> Self {
        Self { look, level: Level::Ok, seen: seen.into(), remedy: None }
    }

    fn advice(look: &'static str, seen: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(look, Level::Advice, seen.into(), remedy.into())
    }

    fn warning(look: &'static str, seen: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(look, Level::Warning, seen.into(), remedy.into())
    }

    fn problem(look: &'static str, seen: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(look, Level::Problem, seen.into(), remedy.into())
    }

    fn new(look: &'static str, level: Level, seen: String, remedy: String) -> Self {
        Self { look, level, seen, remedy: Some(remedy) }
    }
}

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
    fn new(endpoint: &Endpoint, role: Role) -> Self {
        Self { address: endpoint.address(), role, is_reached: false, findings: Vec::new() }
    }

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

    /// Whether any server that holds buckets was reached.
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
/// # async fn example() -> Result<(), checkdam::store::redis::RedisStoreError> {
/// use checkdam::store::redis::{RedisOptions, diagnose};
///
/// let diagnosis = diagnose(&RedisOptions::new("redis://127.0.0.1:6379")).await?;
/// for finding in diagnosis.all() {
///     println!("{}: {}", finding.look, finding.seen);
/// }
/// # Ok(())
/// # }
/// ```
pub async fn diagnose(options: &RedisOptions) -> Result<Diagnosis, RedisStoreError> {
    let target = Target::of_options(options)?;
    let Discovery { deployment, masters, findings, others } = discover(target).await;
    let mut diagnosis = Diagnosis { store: options.shown_url(), findings, servers: Vec::new() };
    let mut offsets_us = Vec::new();
    for master in &masters {
        let (server_diagnosis, offset_us) = server(options, master, deployment).await?;
        offsets_us.extend(offset_us);
        diagnosis.servers.push(server_diagnosis);
    }
    if deployment == Deployment::Cluster {
        diagnosis.findings.extend(latency::clocks(&offsets_us));
    }
    let is_master = |address: &str| masters.iter().any(|master| master.endpoint.address() == address);
    diagnosis.servers.extend(others.into_iter().filter(|other| !is_master(&other.address)));
    Ok(diagnosis)
}

/// A short diagnosis when a server starts: whether the store can be reached, matches its
/// URL, and evicts buckets when its memory is full. Returns warnings and problems, each
/// with the server that it is of, and writes nothing; [`diagnose`] checks everything.
///
/// # Errors
/// If the URL is invalid.
pub async fn startup_check(options: &RedisOptions) -> Result<Vec<(String, Finding)>, StoreUrlError> {
    let target = Target::of_options(options)?;
    let Discovery { deployment, masters, findings, others } = discover(target).await;
    let whole = options.shown_url();
    let mut all: Vec<_> = findings.into_iter().map(|finding| (whole.clone(), finding)).collect();
    for ServerDiagnosis { address, findings, .. } in others {
        all.extend(findings.into_iter().map(|finding| (address.clone(), finding)));
    }
    for Master { endpoint, .. } in &masters {
        let findings = check_server(endpoint, deployment).await;
        all.extend(findings.into_iter().map(|finding| (endpoint.address(), finding)));
    }
    all.retain(|(_, finding)| finding.level >= Level::Warning);
    Ok(all)
}

async fn check_server(endpoint: &Endpoint, kind: Deployment) -> Vec<Finding> {
    let mut probe = match Probe::open(endpoint).await {
        Ok(probe) => probe,
        Err(error) => return vec![probe::explain(&error, endpoint)],
    };
    let hello = probe.pairs(&["HELLO"]).await.unwrap_or_default();
    let info = probe.lines(&["INFO", "memory"]).await.ok();
    let info = ServerInfo { hello, info, ..ServerInfo::default() };
    mode(&info, kind).into_iter().chain(server_info::role(&info)).chain(server_info::memory(&info)).collect()
}

/// Diagnoses one server; also returns its clock less ours.
async fn server(
    options: &RedisOptions,
    master: &Master,
    kind: Deployment,
) -> Result<(ServerDiagnosis, Option<i64>), RedisStoreError> {
    let endpoint = &master.endpoint;
    let mut server_diagnosis = ServerDiagnosis::new(endpoint, Role::Server);
    let mut probe = match Probe::open(endpoint).await {
        Ok(probe) => probe,
        Err(error) => {
            server_diagnosis.findings.push(probe::explain(&error, endpoint));
            return Ok((server_diagnosis, None));
        }
    };
    server_diagnosis.is_reached = true;
    let info = ServerInfo::gather(&mut probe).await;
    let findings = &mut server_diagnosis.findings;
    findings.push(probe::reached(endpoint));
    findings.extend(version::version(&info));
    findings.extend(mode(&info, kind));
    findings.extend(server_info::memory(&info));
    findings.push(server_info::persistence(&info));
    findings.push(server_info::replicas(&info));
    let (measured, offset_us) = latency::measure(&mut probe, options).await;
    findings.extend(measured);
    let trial = ScriptTrial::new(options)?;
    let (subject, key) = subject(&trial, master);
    let permissions = acl::permissions(&mut probe, endpoint, kind, &key).await;
    let suffices = permissions.level == Level::Ok;
    findings.extend([permissions, acl::login(&mut probe, endpoint, &key).await]);
    findings.extend(acl::channels(&mut probe, endpoint).await);
    findings.push(script_trial::script(&mut probe).await);
    // A script that is stopped halfway could leave a key behind.
    if suffices {
        findings.push(trial.decide(&subject).await);
    }
    Ok((server_diagnosis, offset_us))
}

/// An unused subject in a slot that the server holds, and a key of it.
fn subject(trial: &ScriptTrial, master: &Master) -> (String, String) {
    let now_us = SystemClock::new().now_us();
    let mut number = 0_u64;
    loop {
        let subject = format!("doctor:{now_us}:{number}");
        let (key, slot) = trial.key_and_slot(&subject);
        // A server that holds a single slot is found long before this ends.
        if master.holds(slot) || number > 1_000_000 {
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

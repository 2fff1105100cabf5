//! Short check of a store when a server starts: whether it can be reached, matches
//! its URL, and evicts buckets when its memory is full.

use super::finding::{Finding, Level};
use super::probe::Probe;
use super::server_info::ServerInfo;
use super::{Deployment, ServerDiagnosis, cluster, connect_errors, memory, mode, persistence, sentinel};
use crate::store::redis::RedisOptions;
use crate::store::redis::target::{Endpoint, StoreUrlError, Target};

/// What is wrong with the store, or will be one day: each finding with the server
/// that it is of. Writes nothing; [`examine`](super::diagnose) looks at everything.
///
/// # Errors
/// If the URL is invalid.
pub async fn startup_check(options: &RedisOptions) -> Result<Vec<(String, Finding)>, StoreUrlError> {
    let (kind, masters, found, others) = match Target::parse(&options.url, options.root_certificate.as_deref())? {
        Target::Single(endpoint) => (Deployment::Single, vec![endpoint], Vec::new(), Vec::new()),
        Target::Sentinel { sentinels, endpoint, master } => {
            let found = sentinel::discover(&sentinels, &endpoint, &master).await;
            (Deployment::Sentinel, found.masters, found.findings, found.sentinels)
        }
        Target::Cluster { seeds } => {
            let found = cluster::discover(&seeds).await;
            let masters = found.masters.into_iter().map(|master| master.endpoint).collect();
            (Deployment::Cluster, masters, found.findings, found.lost)
        }
    };
    let whole = options.shown_url();
    let mut all: Vec<_> = found.into_iter().map(|finding| (whole.clone(), finding)).collect();
    for ServerDiagnosis { address, findings, .. } in others {
        all.extend(findings.into_iter().map(|finding| (address.clone(), finding)));
    }
    for master in masters {
        let findings = check_server(&master, kind).await;
        all.extend(findings.into_iter().map(|finding| (master.address(), finding)));
    }
    all.retain(|(_, finding)| finding.level >= Level::Warning);
    Ok(all)
}

async fn check_server(endpoint: &Endpoint, kind: Deployment) -> Vec<Finding> {
    let mut probe = match Probe::open(endpoint).await {
        Ok(probe) => probe,
        Err(error) => return vec![connect_errors::explain(&error, endpoint)],
    };
    let hello = probe.pairs(&["HELLO"]).await.unwrap_or_default();
    let info = probe.lines(&["INFO", "memory"]).await.ok();
    let info = ServerInfo { hello, info, ..ServerInfo::default() };
    mode(&info, kind).into_iter().chain(persistence::role(&info)).chain(memory::memory(&info)).collect()
}

//! Checks Sentinels: the master that they report, and whether they have a quorum to
//! replace it.

use redis::RedisError;

use super::connect_errors::{explain_sentinel, reached};
use super::finding::Finding;
use super::probe::Probe;
use super::{Role, ServerDiagnosis};
use crate::store::redis::target::Endpoint;

/// With fewer, the loss of one leaves no majority.
const SENTINELS_LEAST: usize = 3;

/// What the Sentinels report.
pub(super) struct SentinelMasters {
    /// The masters that they name, each once, the first named first.
    pub(super) masters: Vec<Endpoint>,
    pub(super) sentinels: Vec<ServerDiagnosis>,
    pub(super) findings: Vec<Finding>,
}

/// Asks every Sentinel.
pub(super) async fn discover(sentinels: &[Endpoint], endpoint: &Endpoint, name: &str) -> SentinelMasters {
    let mut found = SentinelMasters { masters: Vec::new(), sentinels: Vec::new(), findings: Vec::new() };
    for sentinel in sentinels {
        let mut examined = ServerDiagnosis {
            address: sentinel.address(),
            role: Role::Sentinel,
            is_reached: false,
            findings: Vec::new(),
        };
        match Probe::open(sentinel).await {
            Ok(mut probe) => {
                examined.is_reached = true;
                examined.findings.push(reached(sentinel));
                match named(&mut probe, name).await {
                    Ok((host, port)) => {
                        let master = endpoint.at(&host, port);
                        examined.findings.push(Finding::ok("master", format!("{name} is at {}", master.address())));
                        examined.findings.push(quorum(&mut probe, name).await);
                        if found.masters.iter().all(|known| known.address() != master.address()) {
                            found.masters.push(master);
                        }
                    }
                    Err(finding) => examined.findings.push(finding),
                }
            }
            Err(error) => examined.findings.push(explain_sentinel(&error, sentinel)),
        }
        found.sentinels.push(examined);
    }
    if found.sentinels.iter().any(|it| it.is_reached) {
        for lost in found.sentinels.iter_mut().filter(|it| !it.is_reached) {
            lost.cap_at_warning();
        }
    }
    found.findings = assess(&found, name);
    found
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

fn assess(found: &SentinelMasters, name: &str) -> Vec<Finding> {
    let reached = found.sentinels.iter().filter(|it| it.is_reached).count();
    let seen = format!("{reached} of {} named in --store answer", found.sentinels.len());
    let sentinels = if reached == 0 {
        Finding::problem("sentinels", seen, "start them, or correct their addresses in --store")
    } else if reached < found.sentinels.len() {
        Finding::warning("sentinels", seen, "bring the others back, or take them out of --store")
    } else if reached < SENTINELS_LEAST {
        Finding::advice("sentinels", seen, "name at least three, so that any one of them may be lost")
    } else {
        Finding::ok("sentinels", seen)
    };
    let mut findings = vec![sentinels];
    if found.masters.len() > 1 {
        let names: Vec<String> = found.masters.iter().map(Endpoint::address).collect();
        let seen = format!("they name different masters for {name}: {}", names.join(", "));
        findings.push(Finding::warning("master", seen, "wait for the failover to end, and run doctor again"));
    }
    findings
}

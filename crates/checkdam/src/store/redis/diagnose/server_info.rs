//! Facts that a server reports (`INFO`, `CONFIG GET`), as far as the login's ACL
//! permits.

use redis::Value;

use super::finding::Finding;
use super::probe::{Pairs, Probe};

/// The settings that are checked.
const SETTINGS: [&str; 4] = ["save", "appendfsync", "stop-writes-on-bgsave-error", "min-replicas-to-write"];

/// What a server reported; nothing where the ACL forbids it.
#[derive(Debug, Clone, Default)]
pub(super) struct ServerInfo {
    /// Name, version, mode and role: every login may see these.
    pub(super) hello: Pairs,
    pub(super) info: Option<Pairs>,
    pub(super) config: Option<Pairs>,
    /// Whether it is a master, and how many replicas follow it.
    pub(super) role: Option<(bool, usize)>,
}

impl ServerInfo {
    pub(super) async fn gather(probe: &mut Probe) -> Self {
        let words: Vec<&str> = ["CONFIG", "GET"].into_iter().chain(SETTINGS).collect();
        Self {
            hello: probe.pairs(&["HELLO"]).await.unwrap_or_default(),
            info: probe.lines(&["INFO"]).await.ok(),
            config: probe.pairs(&words).await.ok().filter(|pairs| !pairs.is_empty()),
            role: probe.query(&["ROLE"]).await.ok().and_then(|parts: Vec<Value>| read_role(&parts)),
        }
    }

    pub(super) fn info(&self, name: &str) -> Option<&str> {
        self.info.as_ref()?.get(name).map(String::as_str)
    }

    pub(super) fn config(&self, name: &str) -> Option<&str> {
        self.config.as_ref()?.get(name).map(String::as_str)
    }

    pub(super) fn hello(&self, name: &str) -> Option<&str> {
        self.hello.get(name).map(String::as_str)
    }
}

/// The finding of a check that the ACL does not permit; `check` is what to do by
/// hand.
pub(super) fn not_visible(look: &'static str, permission: &str, check: &str) -> Finding {
    let remedy = format!("run doctor with a login that also has {permission}, or check by hand: {check}");
    Finding::advice(look, "not visible to this login", remedy)
}

fn read_role(parts: &[Value]) -> Option<(bool, usize)> {
    let name: String = redis::from_redis_value(parts.first()?.clone()).ok()?;
    let replicas = match parts.get(2) {
        Some(Value::Array(replicas)) => replicas.len(),
        _ => 0,
    };
    Some((name == "master", replicas))
}

//! What a server reports of itself (`INFO`, `CONFIG GET`), as far as the login's ACL
//! permits: eviction, memory, persistence and replication.

use redis::Value;

use super::Finding;
use super::probe::{Pairs, Probe};

const SETTINGS: [&str; 4] = ["save", "appendfsync", "stop-writes-on-bgsave-error", "min-replicas-to-write"];

/// From this share of `maxmemory` on, there is little left.
const FULL_PERCENT: u64 = 90;

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

/// Eviction policy and the room that is left.
pub(super) fn memory(info: &ServerInfo) -> Vec<Finding> {
    let Some(policy) = info.info("maxmemory_policy") else {
        let check = "maxmemory is set, and maxmemory-policy is volatile-ttl or noeviction";
        return vec![not_visible("memory", "+info", check)];
    };
    vec![eviction(policy), room(info, policy)]
}

fn eviction(policy: &str) -> Finding {
    match policy {
        "noeviction" => {
            Finding::ok("eviction", "noeviction: a full server refuses, and each rule's on_store_failure answers")
        }
        "volatile-ttl" => Finding::ok("eviction", "volatile-ttl: a full server forgets those who owe least"),
        _ => Finding::warning(
            "eviction",
            format!("{policy}: a full server forgets buckets at random, which resets limits unnoticed"),
            "set maxmemory-policy to volatile-ttl or noeviction",
        ),
    }
}

fn room(info: &ServerInfo, policy: &str) -> Finding {
    let number = |name| info.info(name).and_then(|text| text.parse::<u64>().ok());
    let (used, bound) = (number("used_memory").unwrap_or(0), number("maxmemory").unwrap_or(0));
    if bound == 0 {
        let remedy = "set maxmemory, so that the operating system does not end the server when memory is short; \
                      a bucket takes about 130 bytes";
        return Finding::advice("memory", format!("{} used, without a bound", size(used)), remedy);
    }
    let percent = used.saturating_mul(100) / bound;
    let seen = format!("{} of {} used, {percent} %", size(used), size(bound));
    let remedy = "raise maxmemory, or move other data elsewhere";
    if percent >= 100 && policy == "noeviction" {
        return Finding::problem("memory", format!("{seen}: the server refuses to write"), remedy);
    }
    if percent >= FULL_PERCENT {
        return Finding::warning("memory", seen, remedy);
    }
    Finding::ok("memory", seen)
}

fn size(bytes: u64) -> String {
    if bytes < 10 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) }
}

/// Snapshots, the append-only file, and whether they succeed.
pub(super) fn persistence(info: &ServerInfo) -> Finding {
    const LOOK: &str = "persistence";
    let Some(is_logged) = info.info("aof_enabled").map(|value| value == "1") else {
        return not_visible(LOOK, "+info and +config|get", "appendonly is yes and appendfsync everysec");
    };
    let has_failed = |name| info.info(name) == Some("err");
    let is_saved = info.config("save").map(|value| !value.is_empty());
    if is_logged && has_failed("aof_last_write_status") {
        let remedy = "free disk space or repair the disk; until then the server refuses to write";
        return Finding::problem(LOOK, "the last write to the append-only file failed", remedy);
    }
    if is_saved != Some(false) && has_failed("rdb_last_bgsave_status") {
        let seen = "the last snapshot failed";
        let remedy = "read the server's log: disk space, permissions, or memory for the fork (vm.overcommit_memory=1)";
        return if info.config("stop-writes-on-bgsave-error") == Some("no") {
            Finding::warning(LOOK, seen, remedy)
        } else {
            Finding::problem(LOOK, format!("{seen}: the server refuses to write until one succeeds"), remedy)
        };
    }
    match (is_logged, is_saved, info.config("appendfsync")) {
        (true, _, Some("always")) => Finding::advice(
            LOOK,
            "append-only file, synced at every write: each decision waits for the disk",
            "set appendfsync to everysec; limits can bear the loss of a second",
        ),
        (true, ..) => Finding::ok(LOOK, "append-only file"),
        (false, Some(true), _) => Finding::ok(LOOK, "snapshots"),
        (false, Some(false), _) => Finding::advice(
            LOOK,
            "none: a restart fills every bucket, which admits at most one more burst a key",
            "if that is too much, set appendonly yes with appendfsync everysec",
        ),
        (false, None, _) => not_visible(LOOK, "+config|get", "snapshots are on, or appendonly is yes"),
    }
}

/// The server's role, and the replicas that take over when it is lost.
pub(super) fn replicas(info: &ServerInfo) -> Finding {
    const LOOK: &str = "replicas";
    let from_info = || {
        let count = info.info("connected_slaves").and_then(|text| text.parse().ok()).unwrap_or(0);
        info.info("role").map(|role| (role == "master", count))
    };
    let Some((is_master, count)) = info.role.or_else(from_info) else {
        return not_visible(LOOK, "+role", "it is a master with at least one replica");
    };
    if !is_master {
        return is_replica(LOOK);
    }
    if count == 0 {
        let remedy = "for a limit that outlives the server, add a replica under Sentinel or in a cluster";
        return Finding::advice(LOOK, "a master without a replica", remedy);
    }
    let seen = format!("a master with {count} {}", if count == 1 { "replica" } else { "replicas" });
    match info.config("min-replicas-to-write") {
        Some("0") => {
            let remedy = "set min-replicas-to-write 1 and min-replicas-max-lag 1 if a failover must lose next to \
                          nothing; a master that is cut off then refuses to write";
            Finding::advice(LOOK, format!("{seen}; it writes also when none of them hears it"), remedy)
        }
        Some(least) => Finding::ok(LOOK, format!("{seen}; it writes only while {least} of them hear it")),
        None => Finding::ok(LOOK, seen),
    }
}

/// The same for the startup check: only problems, from what every login may see.
pub(super) fn role(info: &ServerInfo) -> Option<Finding> {
    info.hello("role").filter(|role| *role != "master").map(|_| is_replica("replicas"))
}

fn is_replica(look: &'static str) -> Finding {
    let remedy = "name the master in --store, or use redis-sentinel:// or redis-cluster://, which find it";
    Finding::problem(look, "the server is a replica and refuses to write (READONLY)", remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::diagnose::Level;

    #[test]
    fn what_a_full_server_does_is_judged() {
        use Level::{Advice, Ok, Problem, Warning};
        for (policy, used, bound, eviction, room) in [
            ("noeviction", 1, 0, Ok, Advice),
            ("volatile-ttl", 50, 100, Ok, Ok),
            ("volatile-ttl", 100, 100, Ok, Warning),
            ("noeviction", 100, 100, Ok, Problem),
            ("allkeys-lru", 89, 100, Warning, Ok),
            ("volatile-lru", 90, 100, Warning, Warning),
        ] {
            let lines = [("maxmemory_policy", policy.to_owned()), ("used_memory", used.to_string())];
            let lines = lines.into_iter().chain([("maxmemory", bound.to_string())]);
            let info = lines.map(|(name, value)| (name.to_owned(), value)).collect();
            let found = memory(&ServerInfo { info: Some(info), ..ServerInfo::default() });
            assert_eq!((found[0].level, found[1].level), (eviction, room), "{policy}, {used} of {bound}");
        }
    }

    fn pairs(text: &str) -> Pairs {
        let pair = |pair: &str| pair.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        text.split(' ').filter_map(pair).collect()
    }

    #[test]
    fn what_is_kept_is_judged() {
        for (info, config, level, word) in [
            ("aof_enabled=0", "save=", Level::Advice, "none"),
            ("aof_enabled=0", "save=3600_1", Level::Ok, "snapshots"),
            ("aof_enabled=1", "appendfsync=everysec", Level::Ok, "append-only"),
            ("aof_enabled=1", "appendfsync=always", Level::Advice, "disk"),
            ("aof_enabled=1 aof_last_write_status=err", "save=", Level::Problem, "append-only"),
            ("aof_enabled=0 rdb_last_bgsave_status=err", "save=60_1", Level::Problem, "refuses"),
            (
                "aof_enabled=0 rdb_last_bgsave_status=err",
                "save=60_1 stop-writes-on-bgsave-error=no",
                Level::Warning,
                "snapshot",
            ),
        ] {
            let server = ServerInfo { info: Some(pairs(info)), config: Some(pairs(config)), ..ServerInfo::default() };
            let found = persistence(&server);
            assert!(found.level == level && found.seen.contains(word), "{info}, {config}: {found:?}");
        }
        let found = persistence(&ServerInfo { info: Some(pairs("aof_enabled=0")), ..ServerInfo::default() });
        assert_eq!((found.level, found.seen.as_str()), (Level::Advice, "not visible to this login"));
    }

    #[test]
    fn roles_are_judged() {
        for (role, config, level) in [
            (None, "", Level::Advice),
            (Some((false, 0)), "", Level::Problem),
            (Some((true, 0)), "", Level::Advice),
            (Some((true, 1)), "min-replicas-to-write=0", Level::Advice),
            (Some((true, 1)), "min-replicas-to-write=1", Level::Ok),
        ] {
            let info = ServerInfo { role, config: Some(pairs(config)), ..ServerInfo::default() };
            assert_eq!(replicas(&info).level, level, "{info:?}");
        }
    }
}

//! Checks persistence and replication: what survives a restart or the loss of the
//! server.

use super::finding::Finding;
use super::server_info::{ServerInfo, not_visible};

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
    use crate::store::redis::diagnose::finding::Level;
    use crate::store::redis::diagnose::probe::Pairs;

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

//! Compares settings that must be equal on all nodes: where they differ, limits are
//! multiplied, although each node looks correct by itself.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::announcement::Announcement;

/// The tolerated clock difference, including the latency of messages.
const CLOCKS_MS: u64 = 5_000;

/// A node by its last announcement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnouncedNode {
    pub announcement: Announcement,
    /// Its clock minus the receiver's, when its message arrived.
    pub ahead_ms: i64,
}

/// Something that differs between nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// What it is about, for programs.
    pub topic: &'static str,
    pub seen: String,
    pub remedy: &'static str,
}

/// Topics, and for how many seconds a difference must last before it is reported:
/// edits reach nodes one after the other, and nodes start and stop.
pub(super) const TOPICS: [(&str, u64); 4] = [("key_secret", 0), ("rules", 6), ("nodes", 20), ("clocks", 6)];

/// What differs between a node and the others on its Redis.
pub(super) fn differences(own: &AnnouncedNode, others: &[AnnouncedNode]) -> Vec<Difference> {
    let (alike, strangers): (Vec<_>, Vec<_>) =
        others.iter().partition(|other| other.announcement.deployment == own.announcement.deployment);
    [
        secret_difference(own, &strangers),
        rules_difference(own, &alike),
        node_count_difference(own, &alike),
        clock_difference(own, others),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What differs between nodes, seen from one of those that most name buckets like.
pub fn differences_among(all: &[AnnouncedNode]) -> Vec<Difference> {
    let alike = |one: &AnnouncedNode| {
        all.iter().filter(|other| other.announcement.deployment == one.announcement.deployment).count()
    };
    let Some((place, own)) = all.iter().enumerate().max_by_key(|(_, one)| alike(one)) else { return Vec::new() };
    let others: Vec<_> =
        all.iter().enumerate().filter(|(other, _)| *other != place).map(|(_, one)| one.clone()).collect();
    differences(own, &others)
}

/// Since when settings differ, by topic.
#[derive(Debug, Default)]
pub(super) struct MismatchSince(HashMap<&'static str, Instant>);

impl MismatchSince {
    /// Whether a topic has differed for this long.
    pub(super) fn has_lasted(&mut self, topic: &'static str, differs: bool, patience: Duration, now: Instant) -> bool {
        if !differs {
            self.0.remove(topic);
            return false;
        }
        now.duration_since(*self.0.entry(topic).or_insert(now)) >= patience
    }
}

/// Nodes that name buckets otherwise. Those with a secret of their own and other
/// rules are taken for another deployment that shares the Redis.
fn secret_difference(own: &AnnouncedNode, strangers: &[&AnnouncedNode]) -> Option<Difference> {
    let own = &own.announcement;
    let is_meant = |other: &Announcement| !(own.has_secret && other.has_secret && own.rules != other.rules);
    let strangers: Vec<_> = strangers.iter().map(|other| &other.announcement).filter(|other| is_meant(other)).collect();
    if strangers.is_empty() {
        return None;
    }
    let without = strangers.iter().chain([&own]).filter(|node| !node.has_secret).count();
    Some(Difference {
        topic: "key_secret",
        seen: format!(
            "{} on this Redis another --key-secret or --readable-keys than the others ({}): they have buckets of their \
             own, so that a subject passes once for each secret",
            counted(strangers.len(), "node has", "nodes have"),
            counted(without, "node has no secret", "nodes have no secret")
        ),
        remedy: "give every node the same --key-secret and --readable-keys",
    })
}

fn rules_difference(own: &AnnouncedNode, alike: &[&AnnouncedNode]) -> Option<Difference> {
    let differing = alike.iter().filter(|other| other.announcement.rules != own.announcement.rules).count();
    (differing > 0).then(|| Difference {
        topic: "rules",
        seen: format!(
            "{} other rules, overrides or bans than the others: which limit holds depends on the node that is asked",
            counted(differing, "node has", "nodes have")
        ),
        remedy: "give every node the same rule file, or the same --database",
    })
}

fn node_count_difference(own: &AnnouncedNode, alike: &[&AnnouncedNode]) -> Option<Difference> {
    let seen = alike.len() as u64 + 1;
    let mut said: Vec<u64> = alike.iter().chain([&own]).map(|other| other.announcement.nodes).collect();
    said.sort_unstable();
    said.dedup();
    if said == [seen] {
        return None;
    }
    let said: Vec<String> = said.iter().map(u64::to_string).collect();
    Some(Difference {
        topic: "nodes",
        seen: format!(
            "--nodes is {}, and {} seen: while Redis is unavailable, each admits 1/--nodes of every limit",
            said.join(" and "),
            counted(alike.len() + 1, "node is", "nodes are")
        ),
        remedy: "set --nodes on every node to the number of nodes",
    })
}

fn clock_difference(own: &AnnouncedNode, others: &[AnnouncedNode]) -> Option<Difference> {
    let furthest_ms = others.iter().map(|other| other.ahead_ms.abs_diff(own.ahead_ms)).max().unwrap_or_default();
    (furthest_ms > CLOCKS_MS).then(|| Difference {
        topic: "clocks",
        seen: format!(
            "the clocks of nodes differ by up to {} s: bans, and limits that are not in Redis, end at different times",
            furthest_ms / 1_000
        ),
        remedy: "synchronize the clocks of all machines (NTP)",
    })
}

fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(deployment: &str, rules: &str, nodes: u64, ahead_ms: i64) -> AnnouncedNode {
        let announcement = Announcement {
            id: 0,
            deployment: deployment.to_owned(),
            has_secret: deployment != "none",
            rules: rules.to_owned(),
            nodes,
            unix_ms: 0,
            every_s: 2,
        };
        AnnouncedNode { announcement, ahead_ms }
    }

    #[test]
    fn what_passes_is_not_told() {
        let (mut lasting, start) = (MismatchSince::default(), Instant::now());
        let mut has_lasted = |differs, after_s| {
            let now = start + Duration::from_secs(after_s);
            lasting.has_lasted("rules", differs, Duration::from_secs(6), now)
        };
        assert!(!has_lasted(true, 0) && !has_lasted(true, 5) && has_lasted(true, 6) && has_lasted(true, 60));
        assert!(!has_lasted(false, 61) && !has_lasted(true, 62) && !has_lasted(true, 67) && has_lasted(true, 68));
    }

    #[test]
    fn what_differs_is_named() {
        let table: [(AnnouncedNode, Vec<AnnouncedNode>, &[&str]); 9] = [
            (node("a", "x", 1, 0), vec![], &[]),
            (node("a", "x", 2, 0), vec![node("a", "x", 2, 4_000)], &[]),
            (node("a", "x", 1, 0), vec![node("none", "x", 1, 0)], &["key_secret"]),
            (node("none", "x", 1, 0), vec![node("a", "y", 1, 0)], &["key_secret"]),
            (node("a", "x", 1, 0), vec![node("b", "x", 1, 0)], &["key_secret"]),
            // Another deployment, with rules and a secret of its own.
            (node("a", "x", 1, 0), vec![node("b", "y", 1, 0)], &[]),
            (node("a", "x", 2, 0), vec![node("a", "y", 2, 0)], &["rules"]),
            (node("a", "x", 3, 0), vec![node("a", "x", 1, 0)], &["nodes"]),
            (node("a", "x", 2, 0), vec![node("a", "x", 2, -6_000)], &["clocks"]),
        ];
        for (own, others, expected) in table {
            let topics: Vec<_> = differences(&own, &others).iter().map(|difference| difference.topic).collect();
            assert_eq!(topics, expected, "{own:?} {others:?}");
        }
        let three = [node("a", "x", 1, 0), node("a", "x", 1, 0)];
        let [only] = differences(&node("a", "x", 1, 0), &three).try_into().unwrap();
        assert!(only.seen.starts_with("--nodes is 1, and 3 nodes are seen"), "{}", only.seen);
        assert!(
            differences(&node("a", "x", 1, 0), &[node("none", "x", 1, 0)])[0].seen.contains("1 node has no secret")
        );
        let minority_first = [node("none", "x", 1, 0), node("a", "x", 2, 0), node("a", "y", 2, 0)];
        let topics = differences_among(&minority_first);
        assert_eq!(topics.iter().map(|one| one.topic).collect::<Vec<_>>(), ["key_secret", "rules"]);
        assert!(TOPICS.iter().any(|(topic, _)| *topic == only.topic));
    }
}

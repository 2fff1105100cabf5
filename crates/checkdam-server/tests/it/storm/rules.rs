//! The rules of the storm: one hot rule for each algorithm, and one whose
//! quota, algorithm, name and lease change five times a second.

use std::time::Duration;

use serde_json::{Value, json};

use super::{NODES, Random, StormSetup};
use crate::http_client::Client;

/// How a limit is checked by the oracle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OracleCheck {
    /// At most the burst and the rate in any window.
    Bucket,
    /// At most the limit in a second that begins with the clock's second.
    AlignedSecond,
    /// At most the limit in any second.
    AnySecond,
}

/// One limit, as the oracle knows it.
#[derive(Debug, Clone, Copy)]
pub(super) struct OracleLimit {
    /// The rule's name; versions of the edited rule may have another.
    pub(super) rule: &'static str,
    pub(super) algorithm: &'static str,
    pub(super) text: &'static str,
    /// Tokens at once, or in a window. A multiple of the number of nodes, so
    /// that a local share of it is whole.
    pub(super) limit: u64,
    pub(super) per_second: u64,
    pub(super) kind: OracleCheck,
    pub(super) lease: Option<&'static str>,
    pub(super) policy: &'static str,
}

const fn bucket(
    rule: &'static str,
    algorithm: &'static str,
    text: &'static str,
    limit: u64,
    per_second: u64,
) -> OracleLimit {
    OracleLimit { rule, algorithm, text, limit, per_second, kind: OracleCheck::Bucket, lease: None, policy: "local" }
}

const fn window(
    rule: &'static str,
    algorithm: &'static str,
    text: &'static str,
    limit: u64,
    kind: OracleCheck,
) -> OracleLimit {
    OracleLimit { rule, algorithm, text, limit, per_second: limit, kind, lease: None, policy: "local" }
}

/// The hot rules. Each is asked for by an attribute of its name.
pub(super) const HOT: [OracleLimit; 8] = [
    bucket("token", "token_bucket", "40/s burst 60", 60, 40),
    bucket("leaky", "leaky_bucket", "40/s burst 60", 60, 40),
    OracleLimit { lease: Some("50ms"), ..bucket("leased", "token_bucket", "400/s burst 200", 200, 400) },
    OracleLimit { policy: "closed", ..bucket("closed", "token_bucket", "40/s burst 60", 60, 40) },
    window("fixed", "fixed_window", "40/s", 40, OracleCheck::AlignedSecond),
    window("sliding", "sliding_window", "40/s", 40, OracleCheck::AlignedSecond),
    window("strict", "sliding_window", "40/s", 40, OracleCheck::AnySecond),
    window("log", "sliding_log", "40/s", 40, OracleCheck::AnySecond),
];

/// The versions of the edited rule. No two have the same limit, nor the same
/// share of one, so that an answer tells which version gave it.
pub(super) const EDITED: [OracleLimit; 8] = [
    bucket("edited", "token_bucket", "60/s burst 40", 40, 60),
    bucket("edited", "token_bucket", "20/s burst 56", 56, 20),
    bucket("edited", "leaky_bucket", "60/s burst 72", 72, 60),
    OracleLimit { lease: Some("40ms"), ..bucket("edited", "token_bucket", "300/s burst 104", 104, 300) },
    window("edited", "fixed_window", "88/s", 88, OracleCheck::AlignedSecond),
    window("edited", "sliding_window", "24/s", 24, OracleCheck::AlignedSecond),
    window("edited", "sliding_log", "32/s", 32, OracleCheck::AnySecond),
    bucket("renamed", "token_bucket", "60/s burst 48", 48, 60),
];

/// A rule that honest clients stay well below.
pub(super) const HONEST: OracleLimit = bucket("honest", "token_bucket", "400/s burst 400", 400, 400);
/// The rule that is flooded with keys.
pub(super) const FLOODED: OracleLimit = bucket("flooded", "token_bucket", "5/d", 5, 1);

impl OracleLimit {
    fn document(&self, attribute: &str) -> Value {
        let mut rule = json!({
            "name": self.rule,
            "key": format!("{attribute}:{{{attribute}}}"),
            "limits": [self.text],
            "algorithm": self.algorithm,
            "on_store_failure": self.policy,
        });
        if self.rule == "strict" {
            rule["strict"] = json!(true);
        }
        if let Some(lease) = self.lease {
            rule["lease"] = json!(lease);
        }
        rule
    }

    /// Whether it is a version of the rule that changes.
    pub(super) fn is_edited(&self) -> bool {
        EDITED.iter().any(|version| version.rule == self.rule)
    }

    /// Whether an answer with this limit came from this version, or from a
    /// node's local share of it.
    pub(super) fn is_shown_as(&self, limit: u64) -> bool {
        limit == self.limit || limit == self.limit / NODES as u64
    }
}

/// Puts the first set of rules in place on every node.
pub(super) fn import(world: &StormSetup) {
    let mut rules: Vec<Value> = HOT.iter().map(|limit| limit.document(limit.rule)).collect();
    rules.extend([HONEST, FLOODED].iter().map(|limit| limit.document(limit.rule)));
    rules.push(EDITED[0].document("edited"));
    let document = json!({ "rules": rules }).to_string();
    let mut admin = Client::connect(&world.nodes[0].admin_address());
    let reply = admin.send("POST", "/admin/v1/rules/import?replace=true", &document).expect("an answer");
    assert_eq!(reply.status, 200, "{reply:?}");
    for node in &world.nodes {
        testkit::wait_until("every node has the rules", Duration::from_secs(10), || {
            let mut client = Client::connect(&node.address());
            let reply = client.post("/v1/peek", r#"{"attributes": {"edited": "0", "log": "0"}}"#);
            reply.status == 200 && reply.json()["tiers"].as_array().is_some_and(|tiers| tiers.len() == 2)
        });
    }
}

/// Edits the rule every 200 ms through any node that answers; how many edits
/// were answered as active.
pub(super) fn edit_until_over(world: &StormSetup) -> u64 {
    let mut random = Random::new(world.seed, 1 << 32);
    let (mut active, mut current) = (0, EDITED[0]);
    while !world.is_over() {
        std::thread::sleep(Duration::from_millis(200));
        let next = EDITED[random.below(EDITED.len() as u64) as usize];
        let node = &world.nodes[random.below(NODES as u64) as usize];
        let began_us = world.now_us();
        let result = edit(&node.admin_address(), current, next);
        // Every node has it within a second.
        world.events().edits.push((began_us, world.now_us() + 1_000_000));
        match result {
            Ok(()) => {
                active += 1;
                current = next;
            }
            // A node that is down or stopped; the rule may or may not have changed.
            Err(None) => current = observed(world).unwrap_or(current),
            Err(Some(reply)) => {
                // A conflict with an edit whose answer was lost.
                current = observed(world).unwrap_or(current);
                let is_explained = reply.starts_with("404") || reply.starts_with("409") || reply.starts_with("503");
                assert!(is_explained, "an edit at {began_us}: {reply}");
            }
        }
    }
    active
}

/// Replaces one version by another; a rename removes the old rule first.
fn edit(admin: &str, current: OracleLimit, next: OracleLimit) -> Result<(), Option<String>> {
    let mut admin = Client::try_connect(admin).map_err(|_| None)?;
    let mut send = |method: &str, path: &str, body: &str| {
        let reply = admin.send(method, path, body).map_err(|_| None)?;
        let is_done = [200, 201, 204].contains(&reply.status);
        is_done.then_some(()).ok_or_else(|| Some(format!("{} {method} {path}: {}", reply.status, reply.body)))
    };
    if current.rule != next.rule {
        send("DELETE", &format!("/admin/v1/rules/{}", current.rule), "")?;
    }
    send("PUT", &format!("/admin/v1/rules/{}", next.rule), &next.document("edited").to_string())
}

/// Which version the database has.
fn observed(world: &StormSetup) -> Option<OracleLimit> {
    world.nodes.iter().find_map(|node| {
        let mut admin = Client::try_connect(&node.admin_address()).ok()?;
        let reply = admin.send("GET", "/admin/v1/rules?limit=100", "").ok()?;
        let listed = reply.json();
        let rules = listed["rules"].as_array()?;
        rules.iter().find_map(|rule| {
            EDITED.into_iter().find(|limit| rule["name"] == limit.rule && rule["limits"][0] == limit.text)
        })
    })
}

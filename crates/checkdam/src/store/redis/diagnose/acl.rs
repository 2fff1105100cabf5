//! Checks that the login's ACL permits what the store needs, and nothing more.

use super::probe::{Probe, is_denied};
use super::{Deployment, Finding};
use crate::store::redis::pubsub::NODES_CHANNEL;
use crate::store::redis::script;
use crate::store::redis::target::Endpoint;

/// The script's commands on a key, with harmless arguments to try them.
const ON_KEYS: [(&str, &[&str]); 12] = [
    ("DEL", &[]),
    ("PEXPIRE", &["5000"]),
    ("SET", &["0", "PX", "5000"]),
    ("GET", &[]),
    ("INCRBY", &["1"]),
    ("DECRBY", &["1"]),
    // On a key that holds a number these do nothing, once they are allowed.
    ("LRANGE", &["0", "0"]),
    ("LSET", &["0", "x"]),
    ("LREM", &["0", "x"]),
    ("LPUSH", &["x"]),
    ("RPUSH", &["x"]),
    ("LTRIM", &["0", "0"]),
];

/// With one of these at least, nothing is left behind.
const REMOVING: [&str; 3] = ["DEL", "PEXPIRE", "SET"];
/// What makes a key where there is none.
const MAKING: [&str; 4] = ["INCRBY", "DECRBY", "LPUSH", "RPUSH"];

/// Where the least that is needed is written down.
const USERS: &str = "deploy/redis/users.acl holds the least that is needed";

/// A command that the ACL denied.
#[derive(Default)]
struct Denied {
    commands: Vec<String>,
    is_key: bool,
}

/// Whether the login may do what the store needs, tried on `key`.
pub(super) async fn permissions(probe: &mut Probe, endpoint: &Endpoint, kind: Deployment, key: &str) -> Finding {
    let denied = try_needed(probe, kind, key).await;
    permission_finding(&denied, endpoint.user())
}

/// Whether the login, or an unauthenticated client, may do what checkdam never does.
pub(super) async fn login(probe: &mut Probe, endpoint: &Endpoint, key: &str) -> Finding {
    const LOOK: &str = "login";
    let user = endpoint.user();
    let mut powers = Vec::new();
    if !endpoint.has_password() {
        powers.push("the server asks for no password".to_owned());
    }
    // The same slot, another beginning.
    let foreign = key.trim_start_matches("cd:");
    if probe.command(&["GET", foreign]).await.is_ok() {
        powers.push(format!("{user} may read keys that are not checkdam's"));
    }
    // A dry run: the server only reports whether the command is permitted.
    let dry_run: Result<String, _> = probe.query(&["ACL", "DRYRUN", user, "FLUSHALL"]).await;
    if dry_run.is_ok_and(|answer| answer == "OK") {
        powers.push(format!("{user} may run FLUSHALL and its like"));
    }
    if powers.is_empty() {
        return Finding::ok(LOOK, format!("{user} may do little more than checkdam needs"));
    }
    Finding::warning(LOOK, powers.join("; "), format!("give checkdam a login of its own: {USERS}"))
}

/// Whether nodes may use pub/sub; no finding if they may.
pub(super) async fn channels(probe: &mut Probe, endpoint: &Endpoint) -> Option<Finding> {
    // Nodes take no notice of an empty word.
    let error = probe.command(&["PUBLISH", NODES_CHANNEL, ""]).await.err().filter(is_denied)?;
    let grants = if error.to_string().contains("channel") {
        format!("&{NODES_CHANNEL}")
    } else {
        format!("&{NODES_CHANNEL} +publish")
    };
    let seen =
        format!("the login may not use the channel {NODES_CHANNEL}: limits hold, but nodes do not see each other");
    let remedy = format!("ACL SETUSER {} {grants} +subscribe; {USERS}", endpoint.user());
    Some(Finding::warning("channels", seen, remedy))
}

async fn try_needed(probe: &mut Probe, kind: Deployment, key: &str) -> Denied {
    let mut denied = Denied::default();
    // A deadline of 1970 makes the script return without doing anything.
    let mut plain: Vec<Vec<&str>> =
        vec![vec!["TIME"], vec!["EVALSHA", script::hash(), "0", "1", ""], vec!["EVAL", "return 1", "0"]];
    match kind {
        Deployment::Single => {}
        Deployment::Sentinel => plain.push(vec!["ROLE"]),
        Deployment::Cluster => plain.extend([vec!["CLUSTER", "SLOTS"], vec!["ASKING"]]),
    }
    for words in &plain {
        denied.note(words[0], probe.command(words).await.err());
    }
    for (name, rest) in ON_KEYS {
        // A key that could neither expire nor be removed is not made.
        if MAKING.contains(&name) && REMOVING.iter().all(|leaving| denied.commands.iter().any(|it| it == leaving)) {
            continue;
        }
        let words: Vec<&str> = [name, key].into_iter().chain(rest.iter().copied()).collect();
        denied.note(name, probe.command(&words).await.err());
    }
    for words in [&["PEXPIRE", key, "5000"][..], &["DEL", key]] {
        // What was refused before is refused again.
        let _ = probe.command(words).await;
    }
    denied
}

impl Denied {
    fn note(&mut self, command: &str, error: Option<redis::RedisError>) {
        match error {
            Some(error) if is_denied(&error) && error.to_string().contains(" to access ") => self.is_key = true,
            Some(error) if is_denied(&error) => self.commands.push(command.to_owned()),
            _ => {}
        }
    }
}

fn permission_finding(denied: &Denied, user: &str) -> Finding {
    const LOOK: &str = "permissions";
    let commands = denied.commands.join(", ");
    let seen = match (denied.commands.is_empty(), denied.is_key) {
        (true, false) => return Finding::ok(LOOK, "the login may run every command that checkdam needs"),
        (false, false) => format!("the login may not run {commands}"),
        (true, true) => "the login may not use keys that begin with cd:".to_owned(),
        (false, true) => format!("the login may not run {commands}, nor use keys that begin with cd:"),
    };
    let mut grants: Vec<String> = denied.commands.iter().map(|name| format!("+{}", name.to_lowercase())).collect();
    if denied.is_key {
        grants.insert(0, "~cd:*".to_owned());
    }
    let grants = grants.join(" ").replace("+cluster", "+cluster|slots");
    Finding::problem(LOOK, seen, format!("ACL SETUSER {user} {grants}; {USERS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_script_is_tried() {
        let calls = script::code().split("call('").skip(1).filter_map(|rest| rest.split_once('\''));
        let mut count = 0;
        for (name, _) in calls {
            let is_tried = name == "TIME" || ON_KEYS.iter().any(|(tried, _)| *tried == name);
            assert!(is_tried, "the script calls {name}: add it to ON_KEYS and to deploy/redis/users.acl");
            count += 1;
        }
        assert!(count > 10, "the script's calls were not found");
    }

    #[test]
    fn the_documented_permissions_are_those_that_are_tried() {
        let users = include_str!("../../../../../../deploy/redis/users.acl");
        for (name, _) in ON_KEYS {
            assert!(users.contains(&format!(" +{}", name.to_lowercase())), "{name} is missing in users.acl");
        }
        assert!(users.contains(&format!(" &{NODES_CHANNEL} ")), "{NODES_CHANNEL} is missing in users.acl");
    }
}

//! The top subjects by requests and by denials.

use std::io::{Read, Write};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Redis, RedisBuilder};
use tokio::time::Instant;

use crate::http_client::Client;
use crate::server_process::{PATIENCE, Server, rule_file, run, text};

const RULES: &str = r#"{"rules": [
    {"name": "free", "key": "user:{user}", "limits": ["1/h burst 3", "1/d burst 100"]},
    {"name": "all", "key": "all", "limits": ["1000000/s"]},
    {"name": "tried", "key": "user:{user}", "limits": ["1/h"], "mode": "shadow"}],
  "bans": [{"subject": "user:bad"}]}"#;

fn ask(client: &mut Client, user: &str, times: usize) {
    for _ in 0..times {
        let reply = client.post("/v1/check", &json!({"attributes": {"user": user}}).to_string());
        assert!([200, 403, 429].contains(&reply.status), "{reply:?}");
    }
}

/// Rule, subject and count of each in the list.
fn told(answer: &Value) -> Vec<(&str, &str, u64)> {
    let subjects = answer["subjects"].as_array().unwrap().iter();
    let told = |entry: &Value| entry["count"].as_u64().unwrap();
    subjects.map(|entry| (entry["rule"].as_str().unwrap(), entry["subject"].as_str().unwrap(), told(entry))).collect()
}

fn top(server: &Server, query: &str) -> Value {
    let reply = server.admin().get(&format!("/admin/v1/top{query}"));
    assert_eq!(reply.status, 200, "{query}: {reply:?}");
    reply.json()
}

#[test]
fn subjects_are_counted_by_rule_and_by_what_became_of_them() {
    let server = Server::with_rules(RULES);
    let mut client = server.client();
    for (user, times) in [("loud", 23), ("calm", 5), ("quiet", 1), ("bad", 7)] {
        ask(&mut client, user, times);
    }
    let limited = top(&server, "");
    assert_eq!(told(&limited), [("free", "user:loud", 20), ("ban", "user:bad", 7), ("free", "user:calm", 2)]);
    assert_eq!(limited["subjects"][0]["too_high_by"], 0);
    let head =
        ["kind", "window", "scope", "nodes", "total", "missing_at_most", "hint"].map(|name| limited[name].clone());
    assert_eq!(json!(head), json!(["limited", "minute", "node", 1, 29, 0, null]));
    for window in ["minute", "hour"] {
        let allowed = top(&server, &format!("?kind=allowed&window={window}"));
        let expected = [("free", "user:calm", 3), ("free", "user:loud", 3), ("free", "user:quiet", 1)];
        assert_eq!(told(&allowed), expected, "{window}");
        assert_eq!(allowed["total"], 7, "neither shadow nor who counts all together");
    }
    let first = top(&server, "?limit=1");
    assert_eq!(told(&first), [("free", "user:loud", 20)]);
    assert_eq!(first["missing_at_most"], 7, "the number that is cut off is reported");
    assert_eq!(told(&top(&server, "?rule=ban")), [("ban", "user:bad", 7)]);
    assert!(told(&top(&server, "?rule=all")).is_empty());
}

#[test]
fn what_cannot_be_asked_is_said() {
    let server = Server::with_rules(RULES);
    let table = [
        ("/admin/v1/top?kind=denied", 422, "use limited or allowed"),
        ("/admin/v1/top?window=day", 422, "use minute or hour"),
        ("/admin/v1/top?limit=101", 422, "use 1 to 100"),
        ("/admin/v1/top?rule=", 422, "rule is empty"),
        ("/admin/v1/top?rule=nobody", 404, "nobody"),
        ("/admin/v1/top?who=me", 422, "who"),
        ("/admin/v1/traffic?window=hour", 422, "use minute or quarter or day"),
        ("/admin/v1/traffic?rule=nobody", 404, "nobody"),
    ];
    for (path, status, reason) in table {
        let reply = server.admin().get(path);
        assert_eq!(reply.status, status, "{path}: {reply:?}");
        assert!(reply.json()["detail"].as_str().unwrap().contains(reason), "{path}: {reply:?}");
    }
}

#[test]
fn a_node_alone_sees_itself_and_says_why() {
    let server = Server::with_rules(RULES);
    let answer = server.admin().get("/admin/v1/nodes").json();
    assert_eq!((&answer["shared"], answer["nodes"].as_array().unwrap().len()), (&json!(false), 1), "{answer}");
    assert!(answer["hint"].as_str().unwrap().contains("--store redis://"), "{answer}");
    let node = &answer["nodes"][0];
    let port = server.address().rsplit(':').next().unwrap();
    assert!(node["node"].as_str().unwrap().ends_with(&format!(":{port}")), "{answer}");
    assert_eq!(
        json!([node["is_self"], node["store"], node["ready"], node["rules_version"]]),
        json!([true, "memory", true, 0])
    );
}

/// Asks until the answer is right; what it was last if it never is.
fn until(what: &str, mut ask: impl FnMut() -> Result<(), String>) {
    let start = Instant::now();
    loop {
        match ask() {
            Ok(()) => return,
            Err(last) => assert!(start.elapsed() < 2 * PATIENCE, "{what}: {last}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// How many nodes a node sees, and whether it can see others.
fn seen(server: &Server) -> (usize, bool, Value) {
    let answer = server.admin().get("/admin/v1/nodes").json();
    (answer["nodes"].as_array().unwrap().len(), answer["shared"] == true, answer)
}

fn wait_for_nodes(server: &Server, count: usize) {
    until(&format!("{count} nodes"), || match seen(server) {
        (nodes, true, _) if nodes == count => Ok(()),
        (.., answer) => Err(answer.to_string()),
    });
}

#[test]
fn nodes_that_share_a_redis_see_each_other_and_add_up() {
    let redis = Redis::start();
    let (store, rules) = (redis.url(), rule_file(RULES));
    let start = |secret: &str| {
        let rules = rules.to_str().unwrap();
        Server::with(&["--rules", rules, "--store", &store, "--store-deadline", "2s", "--key-secret", secret])
    };
    let (one, two, stranger) = (start("ours, 16 or more"), start("ours, 16 or more"), start("theirs, 16 or more"));
    ask(&mut one.client(), "loud", 10);
    ask(&mut two.client(), "loud", 5);
    ask(&mut two.client(), "calm", 4);
    ask(&mut stranger.client(), "loud", 9);
    for node in [&one, &two] {
        wait_for_nodes(node, 2);
        // The limit is shared: of fifteen three pass, whichever node decides.
        until("the sum of both", || {
            let answer = top(node, "");
            let expected = [("free", "user:loud", 12), ("free", "user:calm", 1)];
            let is_right = told(&answer) == expected && answer["nodes"] == 2 && answer["scope"] == "cluster";
            if is_right { Ok(()) } else { Err(answer.to_string()) }
        });
        let allowed = [("free", "user:calm", 3), ("free", "user:loud", 3)];
        assert_eq!(told(&top(node, "?kind=allowed&window=hour&rule=free")), allowed);
    }
    let (count, _, answer) = seen(&stranger);
    assert_eq!(count, 1, "another secret is another deployment: {answer}");
    // Whatever others say on the channel, nobody minds.
    for word in ["", "{}", "[1]", &"x".repeat(100_000)] {
        redis.command(&["PUBLISH", "cd:nodes", word]);
    }
    drop(two);
    wait_for_nodes(&one, 1);
    assert_eq!(top(&one, "")["nodes"], 1);
}

/// Redis, and what is said in it on the channel of the nodes.
struct NodeChannel {
    redis: Redis,
    stream: std::net::TcpStream,
}

impl NodeChannel {
    fn start() -> Self {
        let redis = Redis::start();
        let address = redis.url().trim_start_matches("redis://").trim_end_matches('/').to_owned();
        let mut stream = std::net::TcpStream::connect(&address).expect(&address);
        stream.write_all(b"SUBSCRIBE cd:nodes\r\n").unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        Self { redis, stream }
    }

    /// Whether the next word names somebody.
    fn names(&mut self, subject: &str) -> bool {
        self.heard();
        let (start, mut word) = (Instant::now(), String::new());
        while word.is_empty() {
            assert!(start.elapsed() < PATIENCE, "nothing is said");
            word = self.heard();
        }
        word.contains(subject)
    }

    /// What was said until it is quiet.
    fn heard(&mut self) -> String {
        let (mut heard, mut part) = (Vec::new(), [0; 4_096]);
        while let Ok(length) = self.stream.read(&mut part) {
            assert_ne!(length, 0, "Redis is gone");
            heard.extend_from_slice(&part[..length]);
        }
        String::from_utf8_lossy(&heard).into_owned()
    }
}

#[test]
fn nobody_is_named_in_redis_unless_that_is_wanted() {
    let mut overheard = NodeChannel::start();
    let (store, rules) = (overheard.redis.url(), rule_file(RULES));
    let start = |more: &[&str]| {
        let rules = rules.to_str().unwrap();
        Server::with(&[&["--rules", rules, "--store", &store, "--store-deadline", "2s"], more].concat())
    };
    let table: [(&[&str], bool, &str); 3] = [
        (&[], false, "node"),
        (&["--key-secret", "ours, 16 or more"], false, "cluster"),
        (&["--share-subjects"], true, "cluster"),
    ];
    for (more, is_named, scope) in table {
        let server = start(more);
        ask(&mut server.client(), "loud", 5);
        wait_for_nodes(&server, 1);
        let answer = top(&server, "");
        assert_eq!(answer["scope"], scope, "{more:?}: {answer}");
        let is_told = answer["hint"].as_str().is_some_and(|hint| hint.contains("--share-subjects"));
        assert_eq!(is_told, scope == "node", "{more:?}: {answer}");
        assert_eq!(overheard.names("user:loud"), is_named, "{more:?}");
    }
}

#[test]
fn a_login_without_the_channel_is_told_what_to_do() {
    let users = "user checkdam on >secret resetchannels &cd:rules ~cd:* +@all";
    let redis = RedisBuilder::default().acl([users]).start();
    let store = redis.url_for("checkdam", "secret");
    let server = Server::with(&["--rules", rule_file(RULES).to_str().unwrap(), "--store", &store]);
    until("the reason", || {
        let (count, is_shared, answer) = seen(&server);
        let is_told = answer["hint"].as_str().is_some_and(|hint| hint.contains("&cd:nodes"));
        if is_told && count == 1 && !is_shared { Ok(()) } else { Err(answer.to_string()) }
    });
    assert_eq!(top(&server, "")["scope"], "node");
    let report = text(&run(&["doctor", "--store", &store]).stdout);
    assert!(report.contains("cd:nodes") && report.contains("ACL SETUSER checkdam &cd:nodes"), "{report}");
}

//! Several nodes on one Redis Cluster: tiers whose buckets are on different
//! servers are charged together or not at all.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::time::Duration;

use testkit::{Cluster, Engine};
use tokio::time::Instant;

use crate::http_client::Client;
use crate::server_process::{PATIENCE, Server, rule_file};

/// A token comes back every minute and a half: what was admitted is still owed
/// when the test ends, and what is owed beyond that should have been given back.
const RULES: &str = r#"
rules:
  - { name: per-user, key: "user:{user}", limits: ["1000/d burst 12"], on_store_failure: closed }
  - { name: per-endpoint, key: "endpoint:{endpoint}", limits: ["1000/d burst 50"], on_store_failure: closed }
  - { name: everyone, key: all, limits: ["1000/d burst 120"], on_store_failure: closed }
"#;
const LIMITS: [u64; 3] = [12, 50, 120];

const NODES: usize = 3;
const CLIENTS: usize = 60;
const REQUESTS: usize = 40;
const USERS: usize = 15;
const ENDPOINTS: usize = 3;

/// The body of the request for a user and an endpoint.
fn body(user: usize, endpoint: usize) -> String {
    format!(r#"{{"attributes": {{"user": "{user}", "endpoint": "/{endpoint}"}}}}"#)
}

/// The users and endpoints that one client was admitted with.
fn ask(client: &mut Client, number: usize) -> Vec<(usize, usize)> {
    let mut admitted = Vec::new();
    for round in 0..REQUESTS {
        let (user, endpoint) = ((number * 7 + round) % USERS, (number + round / 5) % ENDPOINTS);
        let reply = client.post("/v1/check", &body(user, endpoint));
        assert!([200, 429].contains(&reply.status), "{reply:?}");
        assert_eq!(reply.json()["decided_by"], "redis", "{reply:?}");
        if reply.status == 200 {
            admitted.push((user, endpoint));
        }
    }
    admitted
}

/// What is left of every tier's limit, by its subject.
fn standing(client: &mut Client) -> BTreeMap<String, u64> {
    let mut left = BTreeMap::new();
    for user in 0..USERS {
        for endpoint in 0..ENDPOINTS {
            let answer = client.ok("/v1/peek", &body(user, endpoint));
            assert_eq!(answer["decided_by"], "redis", "{answer}");
            for tier in answer["tiers"].as_array().unwrap() {
                left.insert(tier["subject"].as_str().unwrap().to_owned(), tier["remaining"].as_u64().unwrap());
            }
        }
    }
    left
}

#[test]
fn three_nodes_charge_tiers_on_three_servers_together_or_not_at_all() {
    let cluster = Cluster::start(3, 0, Engine::Redis);
    let (file, url) = (rule_file(RULES), cluster.url());
    let arguments = ["--rules", file.to_str().unwrap(), "--store", &url, "--store-deadline", "2s", "--nodes", "3"];
    let nodes: Vec<Server> = (0..NODES).map(|_| Server::with(&arguments)).collect();
    let ready = Barrier::new(CLIENTS);
    let admitted: Vec<(usize, usize)> = std::thread::scope(|scope| {
        let client = |number: usize| {
            let (nodes, ready) = (&nodes, &ready);
            scope.spawn(move || {
                let mut client = nodes[number % NODES].client();
                ready.wait();
                ask(&mut client, number)
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    for node in cluster.nodes() {
        assert!(node.command(&["DBSIZE"]).int() > 0, "a server holds no tier");
    }

    let count = |is_mine: &dyn Fn(&(usize, usize)) -> bool| admitted.iter().filter(|it| is_mine(it)).count() as u64;
    let users = (0..USERS).map(|user| (format!("user:{user}"), 0, count(&|it| it.0 == user)));
    let endpoints = (0..ENDPOINTS).map(|number| (format!("endpoint:/{number}"), 1, count(&|it| it.1 == number)));
    let everyone = [("all".to_owned(), 2, admitted.len() as u64)];
    let mut owed = BTreeMap::new();
    for (subject, tier, count) in users.chain(endpoints).chain(everyone) {
        assert!(count <= LIMITS[tier], "{subject} was admitted {count} times, {} at most", LIMITS[tier]);
        owed.insert(subject, LIMITS[tier] - count);
    }
    // What a denied request had reserved is given back within half a second,
    // though its answer may come earlier; to look at all of it takes time too.
    let (mut client, start) = (nodes[0].client(), Instant::now());
    let mut left = standing(&mut client);
    while left != owed && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
        left = standing(&mut client);
    }
    println!("{} of {} admitted; settled after {:?}", admitted.len(), CLIENTS * REQUESTS, start.elapsed());
    assert_eq!(left, owed, "left, and what should be: a denied request stayed charged, or one that passed did not");
    assert!(start.elapsed() < Duration::from_secs(2), "it took {:?} to give back", start.elapsed());
    assert_eq!(admitted.len() as u64 + take_the_rest(&mut client), LIMITS[2], "what is left can be taken");
}

/// Asks for everybody in turn until nobody passes; how many did.
fn take_the_rest(client: &mut Client) -> u64 {
    let mut admitted = 0;
    loop {
        let before = admitted;
        for number in 0..USERS * ENDPOINTS {
            let reply = client.post("/v1/check", &body(number / ENDPOINTS, number % ENDPOINTS));
            admitted += u64::from(reply.status == 200);
        }
        if admitted == before {
            return admitted;
        }
    }
}

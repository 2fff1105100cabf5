//! Every kind of server, every way to connect to it, and the minimum of permissions.

use std::fs;
use std::path::Path;
use std::time::Duration;

use checkdam::conformance::TestBucket;
use checkdam::store::redis::{CallError, ClientCertificate, RedisOptions, RedisStore};
use checkdam::store::{Operation, Store};
use checkdam::{Algorithm, DecidedBy, Quota};
use testkit::{Cluster, Connection, Engine, Redis, RedisBuilder, Sentinel};

use crate::setup::{patient, quota, store};

/// Every algorithm takes, peeks, refunds and resets.
async fn works(options: RedisOptions) {
    let store = store(options);
    for algorithm in Algorithm::ALL {
        let quota = Quota::new("5/h".parse().unwrap(), algorithm).unwrap();
        let buckets = ["a", "b"].map(|name| TestBucket::new("kinds", &format!("{} {name}", algorithm.name())));
        let tiers = [buckets[0].tier(&quota, 2), buckets[1].tier(&quota, 1)];
        for (operation, left) in [
            (Operation::Take, [3, 4]),
            (Operation::Take, [1, 3]),
            (Operation::Take, [1, 3]),
            (Operation::Peek, [1, 3]),
            (Operation::Refund, [3, 4]),
            (Operation::Reset, [5, 5]),
        ] {
            let answer = store.try_apply(operation, &tiers).await.unwrap();
            let remaining: Vec<u64> = answer.decisions.iter().map(|decision| decision.remaining).collect();
            assert_eq!(remaining, left, "{operation:?} by {}", algorithm.name());
        }
    }
}

async fn refusal(options: RedisOptions) -> CallError {
    let (quota, bucket) = (quota("1/s"), TestBucket::new("kinds", "refused"));
    let options = RedisOptions { deadline: Some(Duration::from_secs(3)), ..options };
    let store = RedisStore::new(options).unwrap();
    assert_eq!(store.apply(Operation::Take, &[bucket.tier(&quota, 1)]).await.by, DecidedBy::Policy);
    store.try_apply(Operation::Take, &[bucket.tier(&quota, 1)]).await.unwrap_err()
}

#[tokio::test]
async fn one_server_by_tcp_and_by_its_socket_redis_and_valkey() {
    for engine in [Engine::Redis, Engine::Valkey] {
        let server = Redis::builder().engine(engine).start();
        works(patient(server.url())).await;
        works(patient(server.unix_url())).await;
    }
}

#[tokio::test]
async fn a_cluster_and_a_master_behind_sentinels() {
    works(patient(Cluster::start(3, 0, Engine::Redis).url())).await;
    works(patient(Sentinel::start().url())).await;
}

#[tokio::test]
async fn tls_with_an_authority_of_ones_own() {
    // The library installs no cryptography: the program chooses it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = Redis::builder().tls(true).start();
    let trusting =
        |path: &Path| RedisOptions { root_certificate: Some(fs::read(path).unwrap()), ..patient(server.url()) };
    works(trusting(&server.tls().ca_path())).await;
    let by_name = server.url().replace("127.0.0.1", "localhost");
    works(RedisOptions { url: by_name, ..trusting(&server.tls().ca_path()) }).await;
    let error = refusal(trusting(&server.tls().unrelated_ca_path())).await;
    assert!(matches!(error, CallError::Unreachable { .. }), "{error}");
    let error = refusal(patient(server.url())).await;
    assert!(matches!(error, CallError::Unreachable { .. }), "the system does not know this authority: {error}");
    let elsewhere = Redis::builder().tls_wrong_host().start();
    let certificate = fs::read(elsewhere.tls().ca_path()).unwrap();
    let error = refusal(RedisOptions { root_certificate: Some(certificate), ..patient(elsewhere.url()) }).await;
    println!("a certificate for another host: {error}");
    assert!(matches!(error, CallError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn a_server_that_requires_a_client_certificate() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = Redis::builder().tls(true).args(["--tls-auth-clients", "yes"]).start();
    let root_certificate = Some(fs::read(server.tls().ca_path()).unwrap());
    let (chain, key) = server.tls().client_paths();
    let client_certificate = Some(ClientCertificate { chain: fs::read(chain).unwrap(), key: fs::read(key).unwrap() });
    let bare = RedisOptions { root_certificate, ..patient(server.url()) };
    works(RedisOptions { client_certificate, ..bare.clone() }).await;
    let error = refusal(bare).await;
    assert!(matches!(error, CallError::Unreachable { .. }), "{error}");
}

/// The users of `deploy/redis/users.acl`, with the password given there.
fn users() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/redis/users.acl");
    let text = fs::read_to_string(path).unwrap();
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

const USER: &str = "checkdam";
const PASSWORD: &str = "change-me";

#[tokio::test]
async fn the_documented_permissions_are_enough_and_nothing_more_is_allowed() {
    for engine in [Engine::Redis, Engine::Valkey] {
        let server: Redis = RedisBuilder::default().engine(engine).acl(users()).start();
        works(patient(server.url_for(USER, PASSWORD))).await;
        let error = refusal(patient(server.url_for(USER, "wrong"))).await;
        assert!(matches!(error, CallError::Unreachable { .. }), "{error}");
        let error = refusal(patient(server.url())).await;
        assert!(error.to_string().contains("NOAUTH") || error.to_string().contains("uthentication"), "{error}");

        let mut connection = Connection::tcp(server.addr()).unwrap();
        connection.command(&["AUTH", USER, PASSWORD]).unwrap().expect_ok();
        // Commands, keys, channels; by name and from within a script.
        let says_no = |error: &str| {
            let words = ["NOPERM", "can't run this command", "can't access", "No permissions", "ACL failure"];
            words.iter().any(|word| error.contains(word))
        };
        for words in [
            &["KEYS", "*"][..],
            &["SCAN", "0"],
            &["FLUSHALL"],
            &["CONFIG", "GET", "*"],
            &["CONFIG", "SET", "maxmemory", "1"],
            &["SCRIPT", "FLUSH"],
            &["SCRIPT", "KILL"],
            &["ACL", "LIST"],
            &["CLIENT", "LIST"],
            &["DEBUG", "SLEEP", "0"],
            &["INFO"],
            &["SHUTDOWN"],
            &["SUBSCRIBE", "cd:x"],
            &["PUBLISH", "cd:x", "y"],
            &["HSET", "cd:x", "a", "b"],
            &["SET", "other", "1"],
            &["GET", "other"],
            &["EVAL", "return redis.call('GET', KEYS[1])", "1", "other"],
            &["EVAL", "return redis.call('GET', 'other')", "0"],
            &["EVAL", "return redis.call('FLUSHALL')", "0"],
            &["FUNCTION", "LIST"],
            &["CLUSTER", "RESET"],
            &["CLUSTER", "FAILOVER"],
        ] {
            let reply = connection.command(words).unwrap();
            assert!(reply.error().is_some_and(says_no), "{words:?}: {reply:?}");
        }
    }
}

#[tokio::test]
async fn the_documented_permissions_are_enough_for_a_cluster_and_behind_sentinels() {
    let line = users().into_iter().find(|line| line.starts_with(&format!("user {USER} "))).unwrap();
    let words: Vec<&str> = ["ACL", "SETUSER"].into_iter().chain(line.split(' ').skip(1)).collect();
    let login = |url: String| url.replace("://", &format!("://{USER}:{PASSWORD}@"));
    let cluster = Cluster::start(3, 0, Engine::Redis);
    for node in cluster.nodes() {
        node.command(&words).expect_ok();
    }
    works(patient(login(cluster.url()))).await;
    let slot = cluster.slot_of("cd:{x}:y");
    let migration = cluster.begin_migration(slot, (cluster.master_of_slot(slot) + 1) % 3);
    let (quota, bucket) = (quota("1/h burst 5"), TestBucket::new("asked", "x"));
    let readable = RedisOptions { readable_keys: true, ..patient(login(cluster.url())) };
    let answer = store(readable).try_apply(Operation::Take, &[bucket.tier(&quota, 1)]).await.unwrap();
    assert_eq!(answer.decisions[0].remaining, 4, "ASKING must be permitted");
    migration.finish();
    let sentinel = Sentinel::start();
    for server in sentinel.servers() {
        server.command(&words).expect_ok();
    }
    works(patient(login(sentinel.url()))).await;
}

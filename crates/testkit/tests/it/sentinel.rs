//! Sentinels promote a replica when the master is killed.

use testkit::{Engine, Sentinel};

fn replica_is_promoted(engine: Engine) {
    let sentinel = Sentinel::start_engine(engine);
    assert!(sentinel.url().starts_with("redis-sentinel://127.0.0.1:") && sentinel.url().ends_with("/mymaster"));
    assert_eq!((sentinel.servers().len(), sentinel.sentinels().len()), (3, 3));
    assert_eq!(sentinel.current_master(), 0);
    let old = &sentinel.servers()[0];
    old.command(&["SET", "key", "value"]).expect_ok();
    // WAIT counts for the connection that wrote; another's write is waited for by reading the replicas.
    for replica in &sentinel.servers()[1..] {
        testkit::wait_until("the write to be replicated", std::time::Duration::from_secs(5), || {
            replica.command(&["EXISTS", "key"]).int() == 1
        });
    }

    assert_eq!(sentinel.kill_master(), 0);
    let new = sentinel.wait_failover();
    assert_ne!(new, 0);
    assert_eq!(sentinel.current_master(), new);
    assert_eq!(sentinel.servers()[new].command(&["GET", "key"]).text(), "value");
    sentinel.servers()[new].command(&["SET", "key", "other"]).expect_ok();
    sentinel.wait_replicated();
}

#[test]
fn a_redis_replica_is_promoted() {
    replica_is_promoted(Engine::Redis);
}

#[test]
fn a_valkey_replica_is_promoted() {
    replica_is_promoted(Engine::Valkey);
}

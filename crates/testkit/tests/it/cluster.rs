//! Clusters: failover, and a slot stopped half-way between two masters.

use testkit::{Cluster, Connection, Engine, Reply};

/// Two keys of one slot.
const KEYS: [&str; 2] = ["{slot}:a", "{slot}:b"];

fn tcp(cluster: &Cluster, node: usize) -> Connection {
    Connection::tcp(cluster.nodes()[node].addr()).unwrap()
}

fn error_of(reply: &Reply) -> &str {
    reply.error().unwrap_or_else(|| panic!("expected an error, got {reply:?}"))
}

fn replica_takes_over(engine: Engine) {
    let cluster = Cluster::start(3, 1, engine);
    assert_eq!(cluster.nodes().len(), 6);
    assert_eq!(cluster.url().matches("127.0.0.1:").count(), 6);
    let slot = cluster.slot_of(KEYS[0]);
    let master = cluster.master_of_slot(slot);
    tcp(&cluster, master).command(&["SET", KEYS[0], "value"]).unwrap().expect_ok();
    assert_eq!(tcp(&cluster, master).command(&["WAIT", "1", "5000"]).unwrap(), Reply::Int(1));

    assert_eq!(cluster.kill_master_of_slot(slot), master);
    cluster.wait_ok();
    let successor = cluster.master_of_slot(slot);
    assert_ne!(successor, master);
    assert_eq!(tcp(&cluster, successor).command(&["GET", KEYS[0]]).unwrap().text(), "value");

    cluster.nodes()[master].restart();
    cluster.wait_ok();
    cluster.wait_replicated();
    assert_eq!(cluster.master_of_slot(slot), successor);
}

fn slot_moves_in_steps(engine: Engine) {
    let cluster = Cluster::start(3, 0, engine);
    let slot = cluster.slot_of(KEYS[0]);
    let from = cluster.master_of_slot(slot);
    let to = (from + 1) % 3;
    let (mut source, mut target) = (tcp(&cluster, from), tcp(&cluster, to));
    for key in KEYS {
        source.command(&["SET", key, "value"]).unwrap().expect_ok();
    }
    assert!(error_of(&target.command(&["GET", KEYS[0]]).unwrap()).starts_with("MOVED"));

    let migration = cluster.begin_migration(slot, to);
    assert_eq!((migration.from(), migration.to()), (from, to));
    assert_eq!(source.command(&["GET", KEYS[0]]).unwrap().text(), "value", "keys at the source are served there");
    assert!(error_of(&source.command(&["GET", "{slot}:new"]).unwrap()).starts_with("ASK"));

    migration.migrate(&KEYS[..1]);
    assert!(error_of(&source.command(&["GET", KEYS[0]]).unwrap()).starts_with("ASK"));
    assert!(error_of(&source.command(&["MGET", KEYS[0], KEYS[1]]).unwrap()).starts_with("TRYAGAIN"));
    target.command(&["ASKING"]).unwrap().expect_ok();
    assert_eq!(target.command(&["GET", KEYS[0]]).unwrap().text(), "value");

    assert_eq!(migration.migrate_keys(10), 1);
    migration.finish();
    assert_eq!(cluster.master_of_slot(slot), to);
    assert_eq!(target.command(&["MGET", KEYS[0], KEYS[1]]).unwrap().array().len(), 2);
    assert!(error_of(&source.command(&["GET", KEYS[0]]).unwrap()).starts_with("MOVED"));
    cluster.wait_ok();

    cluster.move_slot(slot, from);
    assert_eq!(cluster.master_of_slot(slot), from);
    cluster.begin_migration(slot, to).abort();
    cluster.wait_ok();
    assert_eq!(source.command(&["GET", KEYS[1]]).unwrap().text(), "value");
}

#[test]
fn a_replica_takes_over_from_a_killed_redis_master() {
    replica_takes_over(Engine::Redis);
}

#[test]
fn a_replica_takes_over_from_a_killed_valkey_master() {
    replica_takes_over(Engine::Valkey);
}

#[test]
fn a_slot_moves_in_steps_on_redis() {
    slot_moves_in_steps(Engine::Redis);
}

#[test]
fn a_slot_moves_in_steps_on_valkey() {
    slot_moves_in_steps(Engine::Valkey);
}

#[test]
fn options_reach_every_node_and_shards_can_be_killed_by_number() {
    let cluster = Cluster::builder().replicas_per_master(0).args(["--cluster-require-full-coverage", "no"]).start();
    for node in cluster.nodes() {
        let setting = node.command(&["CONFIG", "GET", "cluster-require-full-coverage"]);
        assert_eq!(setting.array()[1].text(), "no");
    }
    assert_eq!(cluster.kill_master(2), 2);
    assert!(!cluster.nodes()[2].is_running());
}

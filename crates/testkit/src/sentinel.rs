//! A master and two replicas under three sentinels.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::connection::Reply;
use crate::engine::Engine;
use crate::redis::Redis;
use crate::wait::wait_until;

/// The name that the sentinels know the master by.
const MASTER_NAME: &str = "mymaster";

const REPLICAS: usize = 2;
const SENTINELS: usize = 3;
const LIMIT: Duration = Duration::from_secs(30);

/// A running set of servers and sentinels. Servers are known by their index in [`Sentinel::servers`]: the first
/// master, then its replicas. A failover changes roles, never indices.
pub struct Sentinel {
    servers: Vec<Redis>,
    sentinels: Vec<Redis>,
}

impl Sentinel {
    /// Starts one master, two replicas and three sentinels of Redis.
    #[must_use]
    pub fn start() -> Self {
        Self::start_engine(Engine::Redis)
    }

    /// As [`Sentinel::start`], of the given engine.
    #[must_use]
    pub fn start_engine(engine: Engine) -> Self {
        let server = Redis::builder().engine(engine);
        let mut servers = vec![server.clone().start()];
        let port = servers[0].addr().port().to_string();
        for _ in 0..REPLICAS {
            servers.push(server.clone().args(["--replicaof", "127.0.0.1", &port]).start());
        }
        for replica in &servers[1..] {
            replica.wait_replica_in_sync(LIMIT);
        }
        let sentinels = (0..SENTINELS).map(|_| start_sentinel(engine, &port)).collect();
        let sentinel = Self { servers, sentinels };
        sentinel.wait_known();
        sentinel
    }

    /// The data servers, dead ones included.
    pub fn servers(&self) -> &[Redis] {
        &self.servers
    }

    /// The sentinels, dead ones included.
    pub fn sentinels(&self) -> &[Redis] {
        &self.sentinels
    }

    /// `redis-sentinel://host:port,host:port,host:port/mymaster`.
    pub fn url(&self) -> String {
        let addrs: Vec<String> = self.sentinels.iter().map(|sentinel| sentinel.addr().to_string()).collect();
        format!("redis-sentinel://{}/{MASTER_NAME}", addrs.join(","))
    }

    /// The index of the server that a sentinel that runs names as the master.
    pub fn current_master(&self) -> usize {
        let sentinel = self.sentinels.iter().find(|sentinel| sentinel.is_running());
        self.master_by(sentinel.expect("every sentinel is dead")).expect("the sentinel does not know its master")
    }

    /// SIGKILL to the current master. Gives its index, so that the test can restart it.
    pub fn kill_master(&self) -> usize {
        let master = self.current_master();
        self.servers[master].kill();
        master
    }

    /// Waits until all sentinels that run name the same master, and it runs and knows that it is the master. After a
    /// kill this is the end of the failover. Gives the index of the master.
    pub fn wait_failover(&self) -> usize {
        let mut found = None;
        wait_until("the sentinels to agree on a master that runs", LIMIT, || {
            found = self.agreed_master().filter(|master| self.servers[*master].is_running());
            found.is_some_and(|master| has_role(&self.servers[master], "master"))
        });
        found.expect("wait_until returned without a master")
    }

    /// Waits until every other server that runs is in sync with the master.
    pub fn wait_replicated(&self) {
        let master = self.wait_failover();
        let port = self.servers[master].addr().port().to_string();
        for (index, server) in self.servers.iter().enumerate() {
            if index != master && server.is_running() {
                wait_until("a replica to follow the new master", LIMIT, || {
                    has_role(server, "slave") && server.info_field("replication", "master_port") == port
                });
                server.wait_replica_in_sync(LIMIT);
            }
        }
    }

    /// A sentinel that does not know its peers and the replicas cannot fail over.
    fn wait_known(&self) {
        wait_until("the sentinels to know the replicas and each other", LIMIT, || {
            self.sentinels.iter().all(|sentinel| {
                let known = |what| sentinel.command(&["SENTINEL", what, MASTER_NAME]).array().len();
                known("REPLICAS") == REPLICAS
                    && known("SENTINELS") == SENTINELS - 1
                    && sentinel.command(&["SENTINEL", "CKQUORUM", MASTER_NAME]).error().is_none()
            })
        });
    }

    fn agreed_master(&self) -> Option<usize> {
        let mut named = self.sentinels.iter().filter(|sentinel| sentinel.is_running()).map(|it| self.master_by(it));
        let first = named.next()??;
        named.all(|master| master == Some(first)).then_some(first)
    }

    fn master_by(&self, sentinel: &Redis) -> Option<usize> {
        let reply = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME]);
        let Reply::Array(parts) = &reply else { return None };
        let addr: SocketAddr = format!("{}:{}", parts[0].text(), parts[1].text()).parse().ok()?;
        self.servers.iter().position(|server| server.addr() == addr)
    }
}

impl fmt::Debug for Sentinel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sentinel").field("servers", &self.servers).field("sentinels", &self.sentinels).finish()
    }
}

fn start_sentinel(engine: Engine, master_port: &str) -> Redis {
    let config = format!(
        "sentinel monitor {MASTER_NAME} 127.0.0.1 {master_port} 2\n\
         sentinel down-after-milliseconds {MASTER_NAME} 1000\n\
         sentinel failover-timeout {MASTER_NAME} 5000\n\
         sentinel parallel-syncs {MASTER_NAME} {REPLICAS}\n"
    );
    let sentinel = Redis::builder().engine(engine).sentinel(config).start();
    // Sentinels introduce themselves every two seconds and look at their servers every ten unless told otherwise.
    let faster = ["SENTINEL", "DEBUG", "PUBLISH-PERIOD", "200", "INFO-PERIOD", "500"];
    sentinel.command(&faster).expect_ok();
    sentinel
}

fn has_role(server: &Redis, role: &str) -> bool {
    server.try_command(&["ROLE"]).is_ok_and(|reply| reply.array()[0].text() == role)
}

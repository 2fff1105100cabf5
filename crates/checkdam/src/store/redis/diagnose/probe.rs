//! A connection to one server with a timeout on every wait, and the diagnosis of
//! failed connections.

use std::collections::HashMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, FromRedisValue, RedisError, Value};
use tokio::time::timeout;

use super::Finding;
use crate::store::redis::target::Endpoint;

const CONNECTION: &str = "connection";
/// Timeout of any single reply.
pub(super) const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) struct Probe {
    link: MultiplexedConnection,
    /// Whether a reply timed out: no other is waited for then.
    is_silent: bool,
}

/// Names and values, as in replies to INFO, CONFIG GET and HELLO.
pub(super) type Pairs = HashMap<String, String>;

impl Probe {
    /// Connects, logs in, and waits for a reply.
    pub(super) async fn open(endpoint: &Endpoint) -> Result<Self, RedisError> {
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(REPLY_TIMEOUT)).set_response_timeout(None);
        let client = endpoint.client()?;
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let link = timeout(REPLY_TIMEOUT, connecting).await.map_err(|_| too_late())??;
        let mut probe = Self { link, is_silent: false };
        match probe.command(&["PING"]).await {
            // The login is accepted, which is all that is tested.
            Err(error) if !is_denied(&error) => Err(error),
            _ => Ok(probe),
        }
    }

    pub(super) async fn command(&mut self, words: &[&str]) -> Result<Value, RedisError> {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(*word);
        }
        if self.is_silent {
            return Err(too_late());
        }
        let Ok(answer) = timeout(REPLY_TIMEOUT, self.link.send_packed_command(&command)).await else {
            self.is_silent = true;
            return Err(too_late());
        };
        answer?.extract_error()
    }

    pub(super) async fn query<T: FromRedisValue>(&mut self, words: &[&str]) -> Result<T, RedisError> {
        Ok(redis::from_redis_value(self.command(words).await?)?)
    }

    /// The `name:value` lines of INFO and CLUSTER INFO.
    pub(super) async fn lines(&mut self, words: &[&str]) -> Result<Pairs, RedisError> {
        let text: String = self.query(words).await?;
        let pair = |line: &str| line.trim().split_once(':').map(|(name, value)| (name.to_owned(), value.to_owned()));
        Ok(text.lines().filter_map(pair).collect())
    }

    /// An array of names and values in turn; values that are no text are left
    /// out.
    pub(super) async fn pairs(&mut self, words: &[&str]) -> Result<Pairs, RedisError> {
        let values: Vec<Value> = self.query(words).await?;
        let text = |value: &Value| redis::from_redis_value::<String>(value.clone()).ok();
        Ok(values.chunks_exact(2).filter_map(|pair| Some((text(&pair[0])?, text(&pair[1])?))).collect())
    }
}

/// Whether the ACL denied the command.
pub(super) fn is_denied(error: &RedisError) -> bool {
    error.code() == Some("NOPERM")
}

fn too_late() -> RedisError {
    RedisError::from((ErrorKind::Io, "no answer within 2 s"))
}

/// The finding of a successful connection.
pub(super) fn reached(endpoint: &Endpoint) -> Finding {
    let how = if endpoint.is_tls() { "over TLS, certificate verified" } else { "without TLS" };
    Finding::ok(CONNECTION, format!("connected as {} {how}", endpoint.user()))
}

/// The finding of a Sentinel that did not reply: it is queried without a login.
pub(super) fn explain_sentinel(error: &RedisError, endpoint: &Endpoint) -> Finding {
    if error.to_string().contains("NOAUTH") {
        let remedy = "Sentinels are asked without a login: let them answer without, and guard them by the network";
        return Finding::problem(CONNECTION, "the Sentinel asks for a login", remedy);
    }
    explain(error, endpoint)
}

/// The finding of a connection that failed.
pub(super) fn explain(error: &RedisError, endpoint: &Endpoint) -> Finding {
    let text = error.to_string();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let user = endpoint.user();
    let (seen, remedy) = if says(&["WRONGPASS", "invalid username-password", "Password authentication failed"]) {
        ("the login was refused", format!("correct the user or password in --store; the user is {user:?}"))
    } else if says(&["NOAUTH"]) {
        let remedy = "write the login into --store: redis://user:password@host:port (%-escape what URLs reserve)";
        ("the server asks for a login and --store has none", remedy.to_owned())
    } else if says(&["DB index is out of range", "invalid DB index", "SELECT is not allowed in cluster mode"]) {
        let remedy = "write a number below the server's `databases` (16 unless set) after the port in --store, or none; \
                      a cluster has none";
        ("the server has no database of that number", remedy.to_owned())
    } else if says(&["NotValidForName", "not valid for name"]) {
        let remedy = "name the server in --store as its certificate does, or have one issued for this name";
        ("the server's certificate is for another host name", remedy.to_owned())
    } else if says(&["UnknownIssuer", "CaUsedAsEndEntity", "BadSignature"]) {
        let remedy = "give the CA that signed it with --store-ca FILE (PEM)";
        ("the server's certificate is not trusted", remedy.to_owned())
    } else if says(&["Expired", "NotValidYet"]) {
        let remedy = "renew the certificate; if it is valid, correct this machine's clock";
        ("the server's certificate is not valid at this time", remedy.to_owned())
    } else if says(&["CertificateRequired", "certificate required"]) {
        ("the server wants a client certificate", "set tls-auth-clients to no or optional and use a login".to_owned())
    } else if endpoint.is_tls() && says(&["InvalidContentType", "corrupt message", "UnexpectedEof", "unexpected end"]) {
        let remedy = "write redis:// instead of rediss://, or name the server's TLS port";
        ("the server does not speak TLS on this port", remedy.to_owned())
    } else if error.is_connection_refusal() || says(&["Connection refused"]) {
        ("nothing listens there", "start the server, or correct the address in --store".to_owned())
    } else if says(&["failed to lookup", "Name or service", "nodename nor servname"]) {
        ("the host name is not known", "correct the host in --store, or the name service".to_owned())
    } else if error.is_timeout() || says(&["no answer within"]) {
        let mut remedy =
            "check the address, the network and firewalls, and whether the server is busy or stopped".to_owned();
        if endpoint.is_tls() {
            remedy.push_str("; if it does not speak TLS on this port, write redis:// instead of rediss://");
        }
        ("no answer", remedy)
    } else if says(&["LOADING", "BusyLoading"]) {
        ("the server is loading its data", "wait until it has, and run doctor again".to_owned())
    } else if says(&["BUSY"]) {
        ("a script of somebody else blocks the server", "end it with SCRIPT KILL, and find who runs it".to_owned())
    } else if !endpoint.is_tls() && (error.is_connection_dropped() || error.is_io_error()) {
        let remedy = "if the server speaks TLS on this port, write rediss://; else read its log";
        ("the server closed the connection", remedy.to_owned())
    } else {
        ("the connection failed", "read the server's log".to_owned())
    };
    Finding::problem(CONNECTION, format!("{seen}: {text}"), remedy)
}

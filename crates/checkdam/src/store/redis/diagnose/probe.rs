//! A connection to one server, on which every wait is bounded.

use std::collections::HashMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, FromRedisValue, RedisError, Value};
use tokio::time::timeout;

use crate::store::redis::target::Endpoint;

/// Timeout of any single reply.
pub(super) const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection that was made and may be used.
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

//! A connection to one server, and the script run over it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::time::{Instant, timeout};

use super::script;
use super::shard::{CallError, Job};
use super::target::Endpoint;
use crate::time::{Clock, ManualClock};

/// How long a new connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// How a server is found, each time a connection is made.
#[derive(Debug, Clone)]
pub(super) enum Connector {
    /// Always the same one.
    Direct(Endpoint),
    /// The master that the Sentinels name.
    Sentinel { sentinels: Vec<Endpoint>, endpoint: Endpoint, master: String },
}

/// One server, as the task that talks to it sees it.
#[derive(Debug)]
pub(super) struct Server {
    connector: Connector,
    clock: Option<Arc<ManualClock>>,
    started: Instant,
    /// The server's clock (since 1970) less ours (since `started`), never more
    /// than it really is; `MIN` while unknown.
    offset_us: AtomicI64,
}

type CallResult = Result<Vec<Value>, RedisError>;

impl Server {
    pub(super) fn new(connector: Connector, clock: Option<Arc<ManualClock>>) -> Self {
        Self { connector, clock, started: Instant::now(), offset_us: AtomicI64::new(i64::MIN) }
    }

    pub(super) async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let mut link = match &self.connector {
            Connector::Direct(endpoint) => open(endpoint).await?,
            Connector::Sentinel { sentinels, endpoint, master } => open_master(sentinels, endpoint, master).await?,
        };
        let reply = ask(&mut link, &redis::cmd("TIME")).await?;
        let (seconds, micros): (i64, i64) = redis::from_redis_value(reply)?;
        self.offset_us.store(i64::MIN, Ordering::Relaxed);
        self.learn_offset(seconds * 1_000_000 + micros);
        Ok(link)
    }

    fn ours_us(&self) -> i64 {
        self.started.elapsed().as_micros() as i64
    }

    /// The server's time was read before now: the true offset is no less.
    fn learn_offset(&self, server_unix_us: i64) {
        let sample = server_unix_us - self.ours_us();
        // The best sample wins; it fades, so that a clock that steps back is
        // followed within some hundred answers.
        let fade = |known: i64| known - known.abs_diff(sample).min(1 << 50) as i64 / 100;
        let learned = |known: i64| if known == i64::MIN { sample } else { fade(known).max(sample) };
        let known = self.offset_us.load(Ordering::Relaxed);
        self.offset_us.store(learned(known), Ordering::Relaxed);
    }

    /// Runs the script once a call; one result a call.
    pub(super) async fn evaluate(
        &self,
        link: &mut MultiplexedConnection,
        calls: &[Vec<Job>],
        deadline: Instant,
    ) -> Vec<Result<Vec<Value>, CallError>> {
        let all: Vec<&Vec<Job>> = calls.iter().collect();
        let mut results = self.evaluate_as(link, "EVALSHA", script::hash(), &all, deadline).await;
        // Where the script was not known nothing was done: send it whole.
        let is_unknown = |result: &CallResult| {
            result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Server(ServerErrorKind::NoScript))
        };
        let unknown: Vec<usize> = (0..calls.len()).filter(|index| is_unknown(&results[*index])).collect();
        if !unknown.is_empty() {
            let whole: Vec<&Vec<Job>> = unknown.iter().map(|index| &calls[*index]).collect();
            let again = self.evaluate_as(link, "EVAL", script::code(), &whole, deadline).await;
            for (index, result) in unknown.into_iter().zip(again) {
                results[index] = result;
            }
        }
        let checked =
            |(call, result): (&Vec<Job>, CallResult)| self.check(call, result.map_err(|error| call_error(&error))?);
        calls.iter().zip(results).map(checked).collect()
    }

    /// An answer must hold the time and one value a tier; the time alone says
    /// that the deadline had passed and nothing was done.
    fn check(&self, call: &[Job], values: Vec<Value>) -> Result<Vec<Value>, CallError> {
        let wanted = 1 + call.iter().map(|job| job.tiers).sum::<usize>();
        let Some(Value::Int(now_us)) = values.first() else {
            return Err(CallError::Refused { reason: format!("an answer that is not understood: {values:?}") });
        };
        if self.clock.is_none() {
            self.learn_offset(script::unix_us(*now_us as u64) as i64);
        }
        if values.len() == wanted { Ok(values) } else { Err(CallError::Late) }
    }

    async fn evaluate_as(
        &self,
        link: &mut MultiplexedConnection,
        name: &str,
        script: &str,
        calls: &[&Vec<Job>],
        deadline: Instant,
    ) -> Vec<CallResult> {
        let mut pipeline = redis::Pipeline::new();
        let mut is_answer = Vec::new();
        for call in calls {
            if call.iter().any(|job| job.is_asking) {
                pipeline.cmd("ASKING");
                is_answer.push(false);
            }
            pipeline.add_command(self.command(name, script, call, deadline));
            is_answer.push(true);
        }
        let values = match link.send_packed_commands(&pipeline, 0, is_answer.len()).await {
            Ok(values) => values,
            Err(error) => return calls.iter().map(|_| Err(error.clone())).collect(),
        };
        let answers = values.into_iter().zip(is_answer).filter(|(_, is_answer)| *is_answer);
        let read = |(value, _)| match value {
            Value::Array(values) => Ok(values),
            Value::ServerError(error) => Err(error.into()),
            other => Ok(vec![other]),
        };
        answers.map(read).collect()
    }

    fn command(&self, name: &str, script: &str, call: &[Job], deadline: Instant) -> Cmd {
        let left_us = deadline.saturating_duration_since(Instant::now()).as_micros() as i64;
        let deadline_us = self.ours_us() + left_us + self.offset_us.load(Ordering::Relaxed);
        let keys: usize = call.iter().map(|job| job.packed.keys.len()).sum();
        let mut command = Cmd::new();
        command.arg(name).arg(script).arg(keys);
        for key in call.iter().flat_map(|job| &job.packed.keys) {
            command.arg(key.as_slice());
        }
        match &self.clock {
            Some(clock) => command.arg(0).arg(clock.now_us()),
            None => command.arg(deadline_us).arg(""),
        };
        for job in call {
            job.packed.write(&mut command);
        }
        command
    }
}

fn call_error(error: &RedisError) -> CallError {
    let reason = error.to_string();
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => CallError::Moved {
            to: error.redirect_node().map(|(address, _)| address.to_owned()),
            is_ask: error.kind() == ErrorKind::Server(ServerErrorKind::Ask),
            reason,
        },
        ErrorKind::Server(ServerErrorKind::TryAgain | ServerErrorKind::ClusterDown) => {
            CallError::Moved { reason, to: None, is_ask: false }
        }
        ErrorKind::Server(_) => CallError::Refused { reason },
        _ if error.is_timeout() => CallError::Late,
        _ if error.is_io_error() || error.is_connection_dropped() => CallError::Disconnected { reason },
        _ => CallError::Refused { reason },
    }
}

/// Connects, within the time that a connection may take.
pub(super) async fn open(endpoint: &Endpoint) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_TIMEOUT)).set_response_timeout(None);
    let client = endpoint.client()?;
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    timeout(CONNECT_TIMEOUT, connecting).await.map_err(|_| took_too_long())?
}

/// Asks one thing, within the time that a connection may take.
pub(super) async fn ask(link: &mut MultiplexedConnection, command: &Cmd) -> Result<Value, RedisError> {
    let value = timeout(CONNECT_TIMEOUT, link.send_packed_command(command)).await.map_err(|_| took_too_long())??;
    value.extract_error()
}

fn took_too_long() -> RedisError {
    RedisError::from((ErrorKind::Io, "the connection took too long"))
}

/// Asks the Sentinels in turn where the master is, and believes the one whose
/// server says itself that it is the master.
async fn open_master(
    sentinels: &[Endpoint],
    endpoint: &Endpoint,
    master: &str,
) -> Result<MultiplexedConnection, RedisError> {
    let mut last = RedisError::from((ErrorKind::Io, "no Sentinel answered"));
    for sentinel in sentinels {
        let found = async {
            let mut link = open(sentinel).await?;
            let mut command = redis::cmd("SENTINEL");
            command.arg("get-master-addr-by-name").arg(master);
            let (host, port): (String, u16) = redis::from_redis_value(ask(&mut link, &command).await?)?;
            let mut link = open(&endpoint.at(&host, port)).await?;
            let role: Vec<Value> = redis::from_redis_value(ask(&mut link, &redis::cmd("ROLE")).await?)?;
            match role.first() {
                Some(Value::BulkString(name)) if name == b"master" => Ok(link),
                _ => Err(RedisError::from((ErrorKind::Io, "the server that Sentinel named is no master"))),
            }
        };
        match found.await {
            Ok(link) => return Ok(link),
            Err(error) => last = error,
        }
    }
    Err(last)
}

//! A connection to one Redis server, on which the Lua script runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::time::{Instant, timeout};

use super::call_error::CallError;
use super::reply::ScriptReply;
use super::script;
use super::server_queue::Job;
use super::target::Endpoint;
use crate::time::{Clock, ManualClock};

/// How long a new connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// As many digits as any number of a call has.
const NUMBER_LENGTH: usize = 20;

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
    /// than it really is.
    offset_us: AtomicI64,
}

/// The reply to a call; an error text if it cannot be decoded.
type CallResult = Result<Result<ScriptReply, String>, RedisError>;

impl Server {
    pub(super) fn new(connector: Connector, clock: Option<Arc<ManualClock>>) -> Self {
        Self { connector, clock, started: Instant::now(), offset_us: AtomicI64::new(i64::MIN) }
    }

    /// A new connection, and its round trip.
    pub(super) async fn connect(&self) -> Result<(MultiplexedConnection, Duration), RedisError> {
        let mut link = match &self.connector {
            Connector::Direct(endpoint) => connect(endpoint).await?,
            Connector::Sentinel { sentinels, endpoint, master } => find_master(sentinels, endpoint, master).await?.1,
        };
        let (asked, asked_us) = (Instant::now(), self.elapsed_us());
        let reply = send_command(&mut link, &redis::cmd("TIME")).await?;
        let round_trip = asked.elapsed();
        let (seconds, micros): (i64, i64) = redis::from_redis_value(reply)?;
        self.learn_offset(seconds * 1_000_000 + micros, asked_us);
        Ok((link, round_trip))
    }

    fn elapsed_us(&self) -> i64 {
        self.started.elapsed().as_micros() as i64
    }

    /// The server's time was read between our call and now, so the true offset lies
    /// between two bounds. The best known offset is kept while it is within them: a clock
    /// that was stepped is followed at once.
    fn learn_offset(&self, server_unix_us: i64, asked_us: i64) {
        let (least, most) = (server_unix_us - self.elapsed_us(), server_unix_us - asked_us);
        let known = self.offset_us.load(Ordering::Relaxed);
        if !(least..=most).contains(&known) {
            self.offset_us.store(least, Ordering::Relaxed);
        }
    }

    /// Runs the script once per call; one result per call. What was certainly not
    /// executed is retried once: if the script was not cached, or if the server's clock
    /// had been stepped forward, so that the call seemed late.
    pub(super) async fn evaluate(
        &self,
        link: &mut MultiplexedConnection,
        calls: &[Vec<Job>],
    ) -> Vec<Result<ScriptReply, CallError>> {
        let all: Vec<&Vec<Job>> = calls.iter().collect();
        let mut results = self.evaluate_as(link, "EVALSHA", script::hash(), &all).await;
        self.retry(link, calls, &mut results, |_, result| {
            result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Server(ServerErrorKind::NoScript))
        })
        .await;
        let now = Instant::now();
        self.retry(link, calls, &mut results, |call, result| {
            matches!(result, Ok(Ok(reply)) if is_expired(call, reply)) && deadline(call) > now
        })
        .await;
        let checked = |(call, result): (&Vec<Job>, CallResult)| {
            let unread = |answer| CallError::Failed { reason: format!("an answer that is not understood: {answer}") };
            let reply = result.map_err(|error| CallError::of(&error))?.map_err(unread)?;
            match reply.tiers() {
                count if count == tier_count(call) => Ok(reply),
                0 => Err(CallError::Expired),
                _ => Err(unread(format!("{reply:?}"))),
            }
        };
        calls.iter().zip(results).map(checked).collect()
    }

    /// Asks again, with the script whole, where that is due.
    async fn retry(
        &self,
        link: &mut MultiplexedConnection,
        calls: &[Vec<Job>],
        results: &mut [CallResult],
        is_due: impl Fn(&[Job], &CallResult) -> bool,
    ) {
        let due: Vec<usize> = (0..calls.len()).filter(|index| is_due(&calls[*index], &results[*index])).collect();
        if due.is_empty() {
            return;
        }
        let whole: Vec<&Vec<Job>> = due.iter().map(|index| &calls[*index]).collect();
        let retried = self.evaluate_as(link, "EVAL", script::code(), &whole).await;
        for (index, result) in due.into_iter().zip(retried) {
            results[index] = result;
        }
    }

    async fn evaluate_as(
        &self,
        link: &mut MultiplexedConnection,
        name: &str,
        script: &str,
        calls: &[&Vec<Job>],
    ) -> Vec<CallResult> {
        let mut pipeline = redis::Pipeline::new();
        let mut is_answer = Vec::new();
        for call in calls {
            if call.iter().any(|job| job.is_asking) {
                pipeline.cmd("ASKING");
                is_answer.push(false);
            }
            pipeline.add_command(self.command(name, script, call));
            is_answer.push(true);
        }
        let asked_us = self.elapsed_us();
        let values = match link.send_packed_commands(&pipeline, 0, is_answer.len()).await {
            Ok(values) => values,
            Err(error) => return calls.iter().map(|_| Err(error.clone())).collect(),
        };
        let answers = values.into_iter().zip(is_answer).filter(|(_, is_answer)| *is_answer);
        let read = |(value, _)| match value {
            Value::ServerError(error) => Err(error.into()),
            value => {
                // Only replies that are not the script's are worth logging.
                let is_known = matches!(value, Value::BulkString(_) | Value::Array(_));
                let text = if is_known { String::new() } else { format!("{value:?}") };
                let reply = ScriptReply::read(value).ok_or(text);
                if let (Ok(reply), None) = (&reply, &self.clock) {
                    self.learn_offset(script::unix_us(reply.at_us) as i64, asked_us);
                }
                Ok(reply)
            }
        };
        answers.map(read).collect()
    }

    fn command(&self, name: &str, script: &str, call: &[Job]) -> Cmd {
        // Counted from the start and not from now: a process that is stopped here
        // must not find that its time has been prolonged.
        let elapsed_us = deadline(call).saturating_duration_since(self.started).as_micros() as i64;
        let deadline_us = elapsed_us.saturating_add(self.offset_us.load(Ordering::Relaxed));
        let sum = |count: fn(&Job) -> usize| call.iter().map(count).sum::<usize>();
        let (keys, arguments) = (sum(|job| job.packed.keys.len()), sum(|job| job.packed.arguments()));
        // Room for all, so that nothing is copied while it grows.
        let size = script.len() + sum(|job| job.packed.keys.size()) + NUMBER_LENGTH * (arguments + call.len());
        let mut command = Cmd::with_capacity(5 + keys + arguments + call.len(), size + 4 * NUMBER_LENGTH);
        command.arg(name).arg(script).arg(keys);
        for key in call.iter().flat_map(|job| job.packed.keys.iter()) {
            command.arg(key);
        }
        match &self.clock {
            Some(clock) => command.arg(-(clock.now_us() as i64)),
            None => command.arg(deadline_us),
        };
        if let [job] = call
            && job.packed.is_single_tier()
        {
            job.packed.write(&mut command);
            return command;
        }
        let plain = call.partition_point(|job| job.packed.is_fast_path);
        for run in call[..plain].chunk_by(|one, other| one.packed.shares_run_with(&other.packed)) {
            command.arg(run.len());
            run[0].packed.write(&mut command);
        }
        if plain < call.len() {
            command.arg("G");
        }
        for job in &call[plain..] {
            job.packed.write(&mut command);
        }
        command
    }
}

/// A call is as late as the first of its requests.
fn deadline(call: &[Job]) -> Instant {
    call.iter().map(|job| job.deadline).min().unwrap_or_else(Instant::now)
}

/// The number of tiers that a reply must have.
fn tier_count(call: &[Job]) -> usize {
    call.iter().map(|job| job.tiers).sum()
}

/// A reply with only the time means that the deadline had passed and nothing was
/// done.
fn is_expired(call: &[Job], reply: &ScriptReply) -> bool {
    reply.tiers() == 0 && tier_count(call) > 0
}

/// Connects, within the time that a connection may take.
pub(super) async fn connect(endpoint: &Endpoint) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_TIMEOUT)).set_response_timeout(None);
    let client = endpoint.client()?;
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    timeout(CONNECT_TIMEOUT, connecting).await.map_err(|_| took_too_long())?
}

/// Asks one thing, within the time that a connection may take.
pub(super) async fn send_command(link: &mut MultiplexedConnection, command: &Cmd) -> Result<Value, RedisError> {
    let value = timeout(CONNECT_TIMEOUT, link.send_packed_command(command)).await.map_err(|_| took_too_long())??;
    value.extract_error()
}

fn took_too_long() -> RedisError {
    RedisError::from((ErrorKind::Io, "the connection took too long"))
}

/// Asks the Sentinels in turn for the master, and accepts the first whose server
/// confirms that role; returns a connection to it.
pub(super) async fn find_master(
    sentinels: &[Endpoint],
    endpoint: &Endpoint,
    master: &str,
) -> Result<(Endpoint, MultiplexedConnection), RedisError> {
    let mut last = RedisError::from((ErrorKind::Io, "no Sentinel answered"));
    for sentinel in sentinels {
        let found = async {
            let mut link = connect(sentinel).await?;
            let mut command = redis::cmd("SENTINEL");
            command.arg("get-master-addr-by-name").arg(master);
            let (host, port): (String, u16) = redis::from_redis_value(send_command(&mut link, &command).await?)?;
            let found = endpoint.at(&host, port);
            let mut link = connect(&found).await?;
            let role: Vec<Value> = redis::from_redis_value(send_command(&mut link, &redis::cmd("ROLE")).await?)?;
            match role.first() {
                Some(Value::BulkString(name)) if name == b"master" => Ok((found, link)),
                _ => Err(RedisError::from((ErrorKind::Io, "the server that Sentinel named is no master"))),
            }
        };
        match found.await {
            Ok(found) => return Ok(found),
            Err(error) => last = error,
        }
    }
    Err(last)
}

//! The clients of the storm, and what they observe.

use std::collections::BTreeMap;
use std::io::Error;
use std::time::Duration;

use super::rules::{EDITED, FLOODED, HONEST, HOT};
use super::{NODES, Random, StormSetup};
use crate::http_client::{Client, Reply};

/// Who decided, as an answer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DecidedBy {
    /// Redis, or tokens leased from it.
    Shared,
    /// The node by itself.
    Local,
    /// The failure policy.
    Policy,
}

/// One answer about one subject of one limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct CheckAnswer {
    /// When the request was sent and when its answer was read, in microseconds.
    pub(super) start_us: u64,
    pub(super) end_us: u64,
    pub(super) node: usize,
    pub(super) by: DecidedBy,
    pub(super) is_admitted: bool,
}

/// A limit of [`HOT`] or [`EDITED`] (behind them), and a subject.
pub(super) type LimitAndSubject = (usize, u64);

/// A request that was not answered.
#[derive(Debug, Clone)]
pub(super) struct FailedRequest {
    pub(super) start_us: u64,
    pub(super) end_us: u64,
    pub(super) node: usize,
    pub(super) what: String,
}

/// What one client, or all of them, saw.
#[derive(Debug, Default)]
pub(super) struct Observations {
    pub(super) answers: BTreeMap<LimitAndSubject, Vec<CheckAnswer>>,
    pub(super) failures: Vec<FailedRequest>,
    /// What must never be: an honest client denied, an answer of no known kind.
    pub(super) faults: Vec<String>,
    counts: BTreeMap<String, u64>,
}

impl Observations {
    pub(super) fn add(&mut self, other: Self) {
        for (group, answers) in other.answers {
            self.answers.entry(group).or_default().extend(answers);
        }
        self.failures.extend(other.failures);
        self.faults.extend(other.faults);
        for (name, count) in other.counts {
            *self.counts.entry(name).or_default() += count;
        }
    }

    pub(super) fn summary(&self) -> String {
        let counts: Vec<String> = self.counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
        format!("{}; {} requests without an answer", counts.join(", "), self.failures.len())
    }

    fn count(&mut self, name: &str) {
        *self.counts.entry(name.to_owned()).or_default() += 1;
    }
}

/// A connection that is opened anew, to any node, after it failed.
struct ReconnectingClient<'a> {
    world: &'a StormSetup,
    random: Random,
    connection: Option<(usize, Client)>,
    observed: Observations,
}

impl<'a> ReconnectingClient<'a> {
    fn new(world: &'a StormSetup, stream: u64) -> Self {
        let random = Random::new(world.seed, stream);
        Self { world, random, connection: None, observed: Observations::default() }
    }

    /// Sends a check; `None` if it was not answered, which is written down.
    fn check(&mut self, attributes: &str) -> Option<(CheckAnswer, Reply)> {
        let body = format!("{{\"attributes\": {{{attributes}}}}}");
        let start_us = self.world.now_us();
        let (node, result) = match self.connect() {
            (node, Ok(mut client)) => {
                let result = client.send("POST", "/v1/check", &body);
                if result.is_ok() {
                    self.connection = Some((node, client));
                }
                (node, result)
            }
            (node, Err(error)) => (node, Err(error)),
        };
        let end_us = self.world.now_us();
        // A node that has just started listens before it has its rules.
        let result = result.and_then(|reply| match reply.body.contains("has no rules yet") {
            true => Err(Error::other("the node is starting")),
            false => Ok(reply),
        });
        match result {
            Ok(reply) => {
                let by = match reply.json()["decided_by"].as_str() {
                    Some("redis" | "lease") => DecidedBy::Shared,
                    Some("local") => DecidedBy::Local,
                    _ => DecidedBy::Policy,
                };
                self.observed.count(&format!("{} by {by:?}", reply.status));
                Some((CheckAnswer { start_us, end_us, node, by, is_admitted: reply.status == 200 }, reply))
            }
            Err(error) => {
                self.connection = None;
                let what = format!("{attributes}: {error}");
                self.observed.failures.push(FailedRequest { start_us, end_us, node, what });
                std::thread::sleep(Duration::from_millis(20));
                None
            }
        }
    }

    /// Sends a check and leaves without its answer.
    fn abandon(&mut self, attributes: &str) {
        let body = format!("{{\"attributes\": {{{attributes}}}}}");
        let request =
            format!("POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        if let (_, Ok(mut client)) = self.connect() {
            let _ = client.write(request);
            if self.random.below(2) == 0 {
                std::thread::sleep(Duration::from_micros(self.random.below(2_000)));
            }
        }
        self.observed.count("abandoned");
    }

    fn connect(&mut self) -> (usize, Result<Client, Error>) {
        if let Some((node, client)) = self.connection.take() {
            return (node, Ok(client));
        }
        let node = self.random.below(NODES as u64) as usize;
        (node, Client::try_connect(&self.world.nodes[node].address()))
    }
}

/// Checks hot subjects, sometimes of two rules at once, as fast as it is answered.
pub(super) fn hot(world: &StormSetup, number: usize) -> Observations {
    let mut caller = ReconnectingClient::new(world, number as u64);
    while !world.is_over() {
        let subject = caller.random.below(2);
        let attribute = |random: &mut Random| match random.below(HOT.len() as u64 + 3) as usize {
            rule if rule < HOT.len() => HOT[rule].rule,
            _ => "edited",
        };
        let first = attribute(&mut caller.random);
        let second = attribute(&mut caller.random);
        let attributes = if first != second && caller.random.below(4) == 0 {
            format!("\"{first}\": \"{subject}\", \"{second}\": \"{subject}\"")
        } else {
            format!("\"{first}\": \"{subject}\"")
        };
        if caller.random.below(50) == 0 {
            caller.abandon(&attributes);
            continue;
        }
        let Some((answer, reply)) = caller.check(&attributes) else { continue };
        if !is_expected(&reply) {
            caller.observed.faults.push(format!("{attributes}: {reply:?}"));
        }
        for group in groups(&reply, subject) {
            caller.observed.answers.entry(group).or_default().push(answer);
        }
        std::thread::sleep(Duration::from_millis(caller.random.below(8)));
    }
    caller.observed
}

/// Admitted, denied, or refused because the store is away and the rule is closed.
fn is_expected(reply: &Reply) -> bool {
    match reply.status {
        200 | 429 => true,
        503 => reply.body.contains("rule \\\"closed\\\""),
        _ => false,
    }
}

/// The limits that decided. An answer about a rule that was being renamed has
/// no tier of it.
fn groups(reply: &Reply, subject: u64) -> Vec<LimitAndSubject> {
    let body = reply.json();
    let tiers = body["tiers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let known: Vec<_> = HOT.iter().chain(&EDITED).enumerate().collect();
    let group = |tier: &serde_json::Value| {
        let (rule, limit) = (tier["rule"].as_str()?, tier["limit"].as_u64()?);
        let (place, _) = known.iter().find(|(_, known)| known.rule == rule && known.is_shown_as(limit))?;
        Some((*place, subject))
    };
    tiers.iter().filter_map(group).collect()
}

/// Checks a new subject of one rule each time.
pub(super) fn flood(world: &StormSetup, number: usize) -> Observations {
    let mut caller = ReconnectingClient::new(world, 1_000 + number as u64);
    for key in 0_u64.. {
        if world.is_over() {
            break;
        }
        let attributes = format!("\"{}\": \"{number}-{key}\"", FLOODED.rule);
        if let Some((_, reply)) = caller.check(&attributes)
            && !is_expected(&reply)
        {
            caller.observed.faults.push(format!("a flooding client: {reply:?}"));
        }
    }
    caller.observed
}

/// Checks a subject of its own well below its limit, and new subjects: neither
/// is denied, unless it passes when it was told to come back, within a period.
pub(super) fn honest(world: &StormSetup, number: usize) -> Observations {
    let mut caller = ReconnectingClient::new(world, 2_000 + number as u64);
    for round in 0_u64.. {
        if world.is_over() {
            break;
        }
        let subject = if round % 2 == 0 { format!("own-{number}") } else { format!("new-{number}-{round}") };
        let attributes = format!("\"{}\": \"{subject}\"", HONEST.rule);
        if let Some((answer, reply)) = caller.check(&attributes)
            && !answer.is_admitted
        {
            let wait_ms = reply.json()["retry_after_ms"].as_u64();
            if wait_ms.is_none_or(|wait_ms| wait_ms > 1_000) {
                caller.observed.faults.push(format!("an honest client was denied for long: {reply:?}"));
            }
            std::thread::sleep(Duration::from_millis(wait_ms.unwrap_or(0)));
            if let Some((again, second)) = caller.check(&attributes)
                && again.node == answer.node
                && !again.is_admitted
            {
                caller.observed.faults.push(format!("an honest client was denied twice: {reply:?} then {second:?}"));
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    caller.observed
}

//! Access logs through rule files, in virtual time: what would have been denied,
//! to whom, and when.
//!
//! Each log is read on a thread of its own; one thread puts the requests in order
//! and decides them. Memory is bounded: by what is held back to be put in order, by
//! the buckets, and by the subjects that are counted.

mod block;
mod combined;
mod csv;
mod descriptors;
mod instant;
mod json;
mod merge;
mod report;
mod source;
mod subjects;
mod suggest;
mod summary;
mod tally;
mod timeline;
mod wanted;

pub(crate) use self::descriptors::DescriptorPattern;
pub(crate) use self::report::{grouped, page, picture, share};
pub(crate) use self::source::Format;
pub(crate) use self::summary::{Comparison, Minute, SideSummary, Summary};
pub(crate) use self::wanted::Wanted;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use checkdam::time::{EPOCH_UNIX_US, HORIZON_US, SECOND_US};
use checkdam::{KeyPattern, LIMIT_MAX, Outcome, Request, RuleSet};

use self::block::{Block, Record};
use self::merge::{Counts, Merge};
use self::source::{Shared, is_stdin};
use self::subjects::Subjects;
use self::suggest::Peaks;
use self::summary::{Fates, FaultAt};
use self::tally::Tally;
use self::timeline::Busiest;
use crate::replay::Replay;

/// Four years, of which one is a leap year: a log that is moved by them keeps its
/// days and months.
const MOVE_US: u64 = 1_461 * 86_400 * SECOND_US;

/// What is simulated.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) logs: Vec<PathBuf>,
    pub(crate) format: Format,
    pub(crate) wanted: Wanted,
    /// For how long lines are held back to be put in order.
    pub(crate) reorder_us: u64,
    /// The domain of the requests.
    pub(crate) domain: String,
    /// What Envoy would send; none: attributes.
    pub(crate) descriptors: Vec<DescriptorPattern>,
    /// Keys for which limits are suggested.
    pub(crate) suggest: Vec<KeyPattern>,
    pub(crate) buckets_max: usize,
    /// How many subjects are told.
    pub(crate) top: usize,
    /// Whether a line that cannot be read is an error.
    pub(crate) is_strict: bool,
}

/// How far it is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    /// Bytes that were read, packed as they are.
    pub(crate) read: Arc<AtomicU64>,
    /// Set to end it early.
    pub(crate) is_stopped: Arc<AtomicBool>,
}

/// Sends the logs through the rule files, one or two or none.
///
/// # Errors
/// Says which log cannot be read, and why.
pub(crate) fn run(
    options: &Options,
    sides: Vec<(String, RuleSet)>,
    progress: &Progress,
    mut seen: impl FnMut(u64),
) -> Result<Summary, String> {
    let mut sources = Vec::new();
    for path in &options.logs {
        let shared = Shared {
            format: options.format,
            wanted: options.wanted.clone(),
            read: Arc::clone(&progress.read),
            is_stopped: Arc::clone(&progress.is_stopped),
        };
        let started = source::start(path, shared);
        sources
            .push((path.clone(), started.map_err(|error| format!("{}: it cannot be read: {error}", path.display()))?));
    }
    let mut merge = Merge::new(sources, options.reorder_us);
    let mut deciding = Deciding::new(options, sides);
    let after_block = |counts: &Counts| {
        seen(counts.lines);
        match counts.faults.first().filter(|_| options.is_strict) {
            Some((path, fault)) => Err(format!("{}:{}: {}", path.display(), fault.line, fault.reason)),
            None => Ok(()),
        }
    };
    let is_whole =
        merge.run(&progress.is_stopped, |at_us, block, record| deciding.decide(at_us, block, record), after_block)?;
    Ok(deciding.summary(&merge.counts, !is_whole))
}

/// Reads a cost.
fn cost(text: &str) -> Result<u64, String> {
    let cost = text.parse().ok().filter(|cost| (1..=LIMIT_MAX).contains(cost));
    cost.ok_or_else(|| format!("{text:?} is no cost: it must be a whole number from 1 to {LIMIT_MAX}"))
}

/// How a log is called.
fn shown(path: &std::path::Path) -> String {
    if is_stdin(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// One rule file and what it decided.
struct Side {
    name: String,
    replay: Replay,
    tally: Tally,
}

struct Deciding<'o> {
    options: &'o Options,
    sides: Vec<Side>,
    peaks: Vec<Peaks>,
    differing: (Fates, Subjects<Fates>),
    /// How often each attribute was there.
    present: Vec<u64>,
    busiest: Busiest,
    requests: u64,
    /// Beyond what our time can say.
    beyond: u64,
    /// Since 1970.
    first_us: u64,
    last_us: u64,
    moved_us: u64,
    /// The latest in our time.
    at_us: u64,
}

impl<'o> Deciding<'o> {
    fn new(options: &'o Options, sides: Vec<(String, RuleSet)>) -> Self {
        let side = |(name, rules): (String, RuleSet)| {
            let tally = Tally::new(&rules);
            Side { name, replay: Replay::new(rules, options.buckets_max), tally }
        };
        Self {
            options,
            sides: sides.into_iter().map(side).collect(),
            peaks: options.suggest.iter().cloned().map(Peaks::new).collect(),
            differing: Default::default(),
            present: vec![0; options.wanted.attributes.len()],
            busiest: Busiest::default(),
            requests: 0,
            beyond: 0,
            first_us: 0,
            last_us: 0,
            moved_us: 0,
            at_us: 0,
        }
    }

    /// Decides one request; times never go back.
    fn decide(&mut self, unix_us: u64, block: &Block, record: &Record) {
        let Some(at_us) = self.moved(unix_us) else {
            self.beyond += 1;
            return;
        };
        if self.requests == 0 {
            self.first_us = unix_us;
        }
        self.at_us = at_us;
        let (options, unix_s) = (self.options, unix_us / SECOND_US);
        self.requests += 1;
        self.last_us = unix_us;
        self.busiest.note(unix_s);
        let mut request = Request::new().in_domain(options.domain.as_str()).costing(record.cost);
        for (number, value) in block.values(record) {
            self.present[usize::from(number)] += 1;
            // Names are different and few; a value may be of any length.
            let _ = request.insert_whole(options.wanted.name(number), value);
        }
        for peaks in &mut self.peaks {
            peaks.note(unix_s, &request);
        }
        if options.descriptors.is_empty() {
            self.decide_all(at_us, unix_s, &[request], false);
        } else {
            let described = options.descriptors.iter().filter_map(|pattern| pattern.of(&options.domain, &request));
            self.decide_all(at_us, unix_s, &described.collect::<Vec<_>>(), true);
        }
    }

    /// The time in ours, later by whole moves where it is before ours begins. A
    /// request that is years older than all others decides for itself only: what
    /// would then lie beyond our time is moved by less, and still later than it.
    fn moved(&mut self, unix_us: u64) -> Option<u64> {
        let ours = |moved_us: u64| unix_us.checked_add(moved_us)?.checked_sub(EPOCH_UNIX_US);
        let is_told = |at_us: &u64| *at_us <= HORIZON_US;
        if let Some(at_us) = ours(self.moved_us).filter(|at_us| self.requests > 0 && is_told(at_us)) {
            return Some(at_us);
        }
        let short_us = (EPOCH_UNIX_US + self.at_us).saturating_sub(unix_us);
        let moved_us = short_us.div_ceil(MOVE_US) * MOVE_US;
        let at_us = ours(moved_us).filter(is_told)?;
        self.moved_us = moved_us;
        Some(at_us)
    }

    fn decide_all(&mut self, at_us: u64, unix_s: u64, requests: &[Request<'_>], is_together: bool) {
        match &mut self.sides[..] {
            [one, other] => {
                let was = one.decide(at_us, unix_s, requests, is_together);
                let is = other.decide(at_us, unix_s, requests, is_together);
                if let Some(subject) = was.as_ref().or(is.as_ref()).filter(|_| was.is_some() != is.is_some()) {
                    let of_subject = self.differing.1.of(0, subject.clone());
                    for fates in [&mut self.differing.0, of_subject] {
                        fates.newly_limited += u64::from(is.is_some());
                        fates.newly_allowed += u64::from(was.is_some());
                    }
                }
            }
            sides => sides.iter_mut().for_each(|side| drop(side.decide(at_us, unix_s, requests, is_together))),
        }
    }

    fn summary(self, counts: &Counts, is_interrupted: bool) -> Summary {
        let Self { options, sides, .. } = self;
        let faults = counts.faults.iter().map(|(path, fault)| FaultAt {
            log: shown(path),
            line: fault.line,
            reason: fault.reason.clone(),
        });
        let attributes = options.wanted.attributes.iter().zip(&self.present);
        let absent = attributes.filter(|(_, count)| **count == 0).map(|(attribute, _)| attribute.name.clone());
        let result = |side: &Side| {
            let Side { name, replay, tally } = side;
            SideSummary::new(name, &replay.rules(), tally, replay.evicted(), options.top)
        };
        Summary {
            logs: options.logs.iter().map(|path| shown(path)).collect(),
            lines: counts.lines,
            requests: self.requests,
            unreadable: counts.unreadable + self.beyond,
            faults: faults.collect(),
            late: counts.late,
            first: self.first_us / SECOND_US,
            last: self.last_us / SECOND_US,
            moved_s: self.moved_us / SECOND_US,
            busiest_minute: self.busiest.minute().map(Minute::new),
            is_interrupted,
            absent_attributes: absent.collect(),
            results: sides.iter().map(result).collect(),
            comparison: (sides.len() == 2).then(|| Comparison::new(self.differing.0, &self.differing.1, options.top)),
            suggestions: self.peaks.iter().map(Peaks::suggestion).collect(),
        }
    }
}

impl Side {
    /// Whose limit does not let them pass; none if they pass.
    fn decide(&mut self, at_us: u64, unix_s: u64, requests: &[Request<'_>], is_together: bool) -> Option<String> {
        match requests {
            [request] if !is_together => {
                let outcome = self.replay.check(at_us, request);
                let is_allowed = outcome.is_allowed();
                let outcomes = std::slice::from_ref(&outcome);
                self.tally.note(unix_s, is_allowed, requests, outcomes);
                (!is_allowed).then(|| denied(requests, outcomes))
            }
            _ => {
                let together = self.replay.check_together(at_us, requests);
                self.tally.note(unix_s, together.is_allowed(), requests, together.outcomes());
                (!together.is_allowed()).then(|| denied(requests, together.outcomes()))
            }
        }
    }
}

/// Whose limit denies the requests.
fn denied(requests: &[Request<'_>], outcomes: &[Outcome]) -> String {
    let denying = requests.iter().zip(outcomes).find(|(_, outcome)| !outcome.is_allowed());
    let subject = denying.and_then(|(request, outcome)| match outcome.ban() {
        Some(ban) => Some(ban.subject()),
        None => outcome.violated().map(|tier| tier.rule.key.render(request)),
    });
    subject.unwrap_or_default()
}

//! Simulates rule files on access logs, in virtual time: which requests would have
//! been denied, for which subjects, and when.
//!
//! Each log is read on its own thread; one thread orders the requests and decides
//! them, and a second decides them by the second rule file. Memory is bounded: by the
//! lines that are held back for ordering, by the buckets, and by the subjects that
//! are counted.

mod candidate;
mod combined_log_format;
mod csv;
mod descriptor_pattern;
mod field_mapping;
mod html_report;
mod json_lines;
mod log_chunk;
mod log_reader;
mod merge_logs;
mod subject_counts;
mod suggested_limits;
mod summary;
mod tally;
mod timeline;
mod timestamps;

pub(crate) use self::descriptor_pattern::DescriptorPattern;
pub(crate) use self::field_mapping::FieldMapping;
pub(crate) use self::html_report::{html, percent, svg, with_thousands_separators};
pub(crate) use self::log_reader::LogFormat;
pub(crate) use self::suggested_limits::{SUBJECTS_MIN, Suggestion};
pub(crate) use self::summary::{CandidateSummary, Comparison, MinuteCount, Summary};

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use checkdam::time::{EPOCH_UNIX_US, HORIZON_US, SECOND_US};
use checkdam::{KeyPattern, LIMIT_MAX, Request, RuleSet};

use self::candidate::{Candidate, LogRequest, LogRequests, decide_both};
use self::log_chunk::{LogChunk, LogRecord};
use self::log_reader::{ReaderContext, is_stdin};
use self::merge_logs::{LineCounts, LogMerge};
use self::subject_counts::SubjectCounts;
use self::suggested_limits::Peaks;
use self::summary::{DifferenceCounts, FaultAt};
use self::timeline::Busiest;

/// Four years, of which one is a leap year: a log that is moved by them keeps its
/// days and months.
const MOVE_US: u64 = 1_461 * 86_400 * SECOND_US;

/// Requests that are decided at once.
const PENDING_MAX: usize = 4_096;

/// What is simulated.
#[derive(Debug)]
pub(crate) struct SimulateOptions {
    pub(crate) logs: Vec<PathBuf>,
    pub(crate) format: LogFormat,
    pub(crate) mapping: FieldMapping,
    /// For how long lines are held back to be put in order.
    pub(crate) reorder_us: u64,
    /// The domain of the requests.
    pub(crate) domain: String,
    /// What Envoy would send; none: attributes.
    pub(crate) descriptors: Vec<DescriptorPattern>,
    /// Keys for which limits are suggested.
    pub(crate) suggest: Vec<KeyPattern>,
    pub(crate) buckets_max: usize,
    /// How many subjects are reported.
    pub(crate) top: usize,
    /// Whether a line that cannot be read is an error.
    pub(crate) is_strict: bool,
}

/// How far it is.
#[derive(Debug, Clone, Default)]
pub(crate) struct SimulateProgress {
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
    options: &SimulateOptions,
    sides: Vec<(String, RuleSet)>,
    progress: &SimulateProgress,
    mut seen: impl FnMut(u64),
) -> Result<Summary, String> {
    let mut sources = Vec::new();
    for path in &options.logs {
        let shared = ReaderContext {
            format: options.format,
            mapping: options.mapping.clone(),
            read: Arc::clone(&progress.read),
            is_stopped: Arc::clone(&progress.is_stopped),
        };
        let started = log_reader::start(path, shared);
        sources
            .push((path.clone(), started.map_err(|error| format!("{}: it cannot be read: {error}", path.display()))?));
    }
    let mut merge = LogMerge::new(sources, options.reorder_us);
    let mut deciding = Simulation::new(options, sides);
    let after_block = |counts: &LineCounts| {
        seen(counts.lines);
        match counts.faults.first().filter(|_| options.is_strict) {
            Some((path, fault)) => Err(format!("{}:{}: {}", path.display(), fault.line, fault.reason)),
            None => Ok(()),
        }
    };
    let is_whole =
        merge.run(&progress.is_stopped, |at_us, chunk, record| deciding.push(at_us, chunk, *record), after_block)?;
    deciding.decide_pending();
    Ok(deciding.summary(&merge.counts, !is_whole))
}

/// Reads a cost.
fn parse_cost(text: &str) -> Result<u64, String> {
    let cost = text.parse().ok().filter(|cost| (1..=LIMIT_MAX).contains(cost));
    cost.ok_or_else(|| format!("{text:?} is no cost: it must be a whole number from 1 to {LIMIT_MAX}"))
}

/// How a log is called.
fn log_name(path: &std::path::Path) -> String {
    if is_stdin(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// A request that is to be decided.
struct PendingRequest {
    at_us: u64,
    unix_s: u64,
    chunk: Arc<LogChunk>,
    record: LogRecord,
}

struct Simulation<'o> {
    options: &'o SimulateOptions,
    sides: Vec<Candidate>,
    /// Decided together once there are [`PENDING_MAX`], which keeps two threads busy.
    pending: Vec<PendingRequest>,
    peaks: Vec<Peaks>,
    differing: (DifferenceCounts, SubjectCounts<DifferenceCounts>),
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

impl<'o> Simulation<'o> {
    fn new(options: &'o SimulateOptions, sides: Vec<(String, RuleSet)>) -> Self {
        let side = |(name, rules)| Candidate::new(name, rules, options.buckets_max);
        Self {
            options,
            sides: sides.into_iter().map(side).collect(),
            pending: Vec::with_capacity(PENDING_MAX),
            peaks: options.suggest.iter().cloned().map(Peaks::new).collect(),
            differing: Default::default(),
            present: vec![0; options.mapping.attributes.len()],
            busiest: Busiest::default(),
            requests: 0,
            beyond: 0,
            first_us: 0,
            last_us: 0,
            moved_us: 0,
            at_us: 0,
        }
    }

    /// Takes one request; times never go back.
    fn push(&mut self, unix_us: u64, chunk: &Arc<LogChunk>, record: LogRecord) {
        let Some(at_us) = self.virtual_time(unix_us) else {
            self.beyond += 1;
            return;
        };
        if self.requests == 0 {
            self.first_us = unix_us;
        }
        let unix_s = unix_us / SECOND_US;
        (self.at_us, self.last_us) = (at_us, unix_us);
        self.requests += 1;
        self.busiest.note(unix_s);
        self.pending.push(PendingRequest { at_us, unix_s, chunk: Arc::clone(chunk), record });
        if self.pending.len() == PENDING_MAX {
            self.decide_pending();
        }
    }

    /// Decides what is pending.
    fn decide_pending(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        let asked: Vec<LogRequest<'_>> = pending.iter().map(|pending| self.log_request(pending)).collect();
        match &mut self.sides[..] {
            [one, other] => {
                let (was, is) = decide_both(one, other, &asked);
                was.iter().zip(&is).for_each(|(was, is)| self.compare(was.as_ref(), is.as_ref()));
            }
            sides => sides.iter_mut().for_each(|side| drop(side.decide_all(&asked))),
        }
        drop(asked);
        self.pending = pending;
        self.pending.clear();
    }

    fn log_request<'b>(&mut self, pending: &'b PendingRequest) -> LogRequest<'b>
    where
        'o: 'b,
    {
        let PendingRequest { at_us, unix_s, chunk, record } = pending;
        let options = self.options;
        let mut request = Request::new().in_domain(options.domain.as_str()).costing(record.cost);
        for (number, value) in chunk.values(record) {
            self.present[usize::from(number)] += 1;
            // Names are different and few; a value may be of any length.
            let _ = request.insert_unbounded(options.mapping.name(number), value);
        }
        for peaks in &mut self.peaks {
            peaks.note(*unix_s, &request);
        }
        let requests = if options.descriptors.is_empty() {
            LogRequests::One(request)
        } else {
            let described =
                options.descriptors.iter().filter_map(|pattern| pattern.descriptor_for(&options.domain, &request));
            LogRequests::Together(described.collect())
        };
        LogRequest { at_us: *at_us, unix_s: *unix_s, requests }
    }

    /// The rules that deny a request by the first rule file, and by the second.
    fn compare(&mut self, was: Option<&String>, is: Option<&String>) {
        if let Some(subject) = was.or(is).filter(|_| was.is_some() != is.is_some()) {
            let of_subject = self.differing.1.entry(0, subject.clone());
            for fates in [&mut self.differing.0, of_subject] {
                fates.newly_limited += u64::from(is.is_some());
                fates.newly_allowed += u64::from(was.is_some());
            }
        }
    }

    /// The time in ours, later by whole moves where it is before ours begins. A
    /// request that is years older than all others decides for itself only: what
    /// would then lie beyond our time is moved by less, and still later than it.
    fn virtual_time(&mut self, unix_us: u64) -> Option<u64> {
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

    fn summary(self, counts: &LineCounts, is_interrupted: bool) -> Summary {
        let Self { options, sides, .. } = self;
        let faults = counts.faults.iter().map(|(path, fault)| FaultAt {
            log: log_name(path),
            line: fault.line,
            reason: fault.reason.clone(),
        });
        let attributes = options.mapping.attributes.iter().zip(&self.present);
        let absent = attributes.filter(|(_, count)| **count == 0).map(|(attribute, _)| attribute.name.clone());
        let result = |side: &Candidate| {
            let Candidate { name, replay, tally } = side;
            CandidateSummary::new(name, &replay.rules(), tally, replay.evicted(), options.top)
        };
        Summary {
            logs: options.logs.iter().map(|path| log_name(path)).collect(),
            lines: counts.lines,
            requests: self.requests,
            unreadable: counts.unreadable + self.beyond,
            faults: faults.collect(),
            late: counts.late,
            first: self.first_us / SECOND_US,
            last: self.last_us / SECOND_US,
            moved_s: self.moved_us / SECOND_US,
            busiest_minute: self.busiest.minute().map(MinuteCount::new),
            is_interrupted,
            absent_attributes: absent.collect(),
            results: sides.iter().map(result).collect(),
            comparison: (sides.len() == 2).then(|| Comparison::new(self.differing.0, &self.differing.1, options.top)),
            suggestions: self.peaks.iter().map(Peaks::suggestion).collect(),
        }
    }
}

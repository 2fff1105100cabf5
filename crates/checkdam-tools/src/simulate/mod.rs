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
mod field_mapping;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod html_report;
mod json_lines;
mod log_chunk;
mod log_reader;
mod merge_logs;
mod suggested_limits;
mod summary;
mod tally;
mod timestamps;

use self::field_mapping::FieldMapping;
pub use self::field_mapping::{DescriptorPattern, attribute};
pub use self::html_report::{html, percent, svg, with_thousands_separators};
pub use self::log_reader::LogFormat;
pub use self::suggested_limits::{SUBJECTS_MIN, Suggestion};
pub use self::summary::{CandidateSummary, Comparison, Summary};
pub use self::tally::MinuteCount;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use checkdam::time::{EPOCH_UNIX_US, HORIZON_US, SECOND_US};
use checkdam::{KeyPattern, LIMIT_MAX, Request, RuleSet};
use checkdam_service::config::DurationText;

use self::candidate::{Candidate, LogRequest, LogRequests, decide_both};
use self::log_chunk::{LogChunk, LogRecord};
use self::log_reader::{ReaderContext, is_stdin};
use self::merge_logs::{LineCounts, LogMerge};
use self::suggested_limits::Peaks;
use self::summary::{DifferenceCounts, FaultAt};
use self::tally::{Busiest, SubjectCounts};

/// Four years, of which one is a leap year: a log that is moved by them keeps its
/// days and months.
const MOVE_US: u64 = 1_461 * 86_400 * SECOND_US;

/// Requests that are decided at once.
const PENDING_MAX: usize = 4_096;

/// What is simulated, as the command line gives it.
#[derive(Debug, clap::Args)]
pub struct SimulateOptions {
    /// Log files, plain or gzip; - is standard input. Several are merged by time
    #[arg(value_name = "LOG", required = true)]
    pub logs: Vec<PathBuf>,

    /// Log format
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    pub format: LogFormat,

    /// Read an attribute from this field of the log; dots select fields of nested objects
    #[arg(long, value_name = "ATTR=FIELD", value_parser = attribute)]
    pub map: Vec<(String, String)>,

    /// Value of an attribute that a log line lacks
    #[arg(long, value_name = "ATTR=VALUE", value_parser = attribute)]
    pub set: Vec<(String, String)>,

    /// Field with the time: RFC 3339, combined log format, or Unix time in s, ms, µs or ns
    #[arg(long, value_name = "FIELD")]
    pub time_field: Option<String>,

    /// Field with the cost of a request; without it every request costs 1
    #[arg(long, value_name = "FIELD")]
    pub cost_field: Option<String>,

    /// Maximum time by which lines are out of order; servers log a request when it ends
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub reorder: DurationText,

    /// Domain of the requests
    #[arg(long, value_name = "DOMAIN")]
    pub domain: Option<String>,

    /// Descriptor that Envoy would send for each line, such as remote_address={ip}; several are decided together
    #[arg(long, value_name = "NAME=VALUE,…")]
    pub descriptor: Vec<DescriptorPattern>,

    /// Print a rule file with limits for this key, such as user:{user}, above the peaks of nearly all subjects;
    /// outliers are ignored; needs at least 20 subjects
    #[arg(long, value_name = "KEY")]
    pub suggest: Vec<KeyPattern>,

    /// Number of subjects to list
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,

    /// Maximum number of non-full buckets; each takes 18 bytes per rule file, more for windows
    #[arg(long, value_name = "N", default_value_t = 4_000_000, value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    pub max_buckets: u64,

    /// Fail on a line that cannot be parsed
    #[arg(long)]
    pub strict: bool,
}

impl SimulateOptions {
    /// The attributes that rules, bans, descriptors and suggestions need, and their fields.
    fn mapping(&self, sides: &[(String, RuleSet)]) -> FieldMapping {
        let of_rules = sides.iter().flat_map(|(_, rules)| rules.rules()).filter(|_| self.descriptor.is_empty());
        let of_rules =
            of_rules.flat_map(|rule| rule.key.attributes().chain(rule.when.iter().map(|(name, _)| name.as_str())));
        let of_bans = sides.iter().flat_map(|(_, rules)| rules.bans()).map(|ban| ban.attribute.as_str());
        let of_descriptors = self.descriptor.iter().flat_map(DescriptorPattern::attributes);
        let of_suggestions = self.suggest.iter().flat_map(KeyPattern::attributes);
        let names = of_rules.chain(of_bans).chain(of_descriptors).chain(of_suggestions);
        FieldMapping {
            time_field: self.time_field.clone(),
            cost_field: self.cost_field.clone(),
            ..FieldMapping::new(names.map(ToOwned::to_owned), &self.map, &self.set)
        }
    }
}

/// How far it is.
#[derive(Debug, Clone, Default)]
pub struct SimulateProgress {
    /// Bytes that were read, packed as they are.
    pub read: Arc<AtomicU64>,
    /// Set to end it early.
    pub is_stopped: Arc<AtomicBool>,
}

/// Sends the logs through the rule files, one or two or none.
///
/// # Errors
/// Says which log cannot be read, and why.
pub fn run(
    options: &SimulateOptions,
    sides: Vec<(String, RuleSet)>,
    progress: &SimulateProgress,
    mut seen: impl FnMut(u64),
) -> Result<Summary, String> {
    let mapping = options.mapping(&sides);
    let mut sources = Vec::new();
    for path in &options.logs {
        let shared = ReaderContext {
            format: options.format,
            mapping: mapping.clone(),
            read: Arc::clone(&progress.read),
            is_stopped: Arc::clone(&progress.is_stopped),
        };
        let started = log_reader::start(path, shared);
        sources
            .push((path.clone(), started.map_err(|error| format!("{}: it cannot be read: {error}", path.display()))?));
    }
    let reorder_us = u64::try_from(Duration::from(options.reorder).as_micros()).unwrap_or(u64::MAX);
    let mut merge = LogMerge::new(sources, reorder_us);
    let mut deciding = Simulation::new(options, &mapping, sides);
    let after_block = |counts: &LineCounts| {
        seen(counts.lines);
        match counts.faults.first().filter(|_| options.strict) {
            Some((path, fault)) => Err(format!("{}:{}: {}", path.display(), fault.line, fault.reason)),
            None => Ok(()),
        }
    };
    let is_whole =
        merge.run(&progress.is_stopped, |at_us, chunk, record| deciding.push(at_us, chunk, *record), after_block)?;
    deciding.decide_pending();
    Ok(deciding.summary(&merge.counts, !is_whole))
}

fn parse_cost(text: &str) -> Result<u64, String> {
    let cost = text.parse().ok().filter(|cost| (1..=LIMIT_MAX).contains(cost));
    cost.ok_or_else(|| format!("{text:?} is no cost: it must be a whole number from 1 to {LIMIT_MAX}"))
}

fn log_name(path: &std::path::Path) -> String {
    if is_stdin(path) { "standard input".to_owned() } else { path.display().to_string() }
}

struct PendingRequest {
    at_us: u64,
    unix_s: u64,
    chunk: Arc<LogChunk>,
    record: LogRecord,
}

struct Simulation<'o> {
    options: &'o SimulateOptions,
    mapping: &'o FieldMapping,
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
    fn new(options: &'o SimulateOptions, mapping: &'o FieldMapping, sides: Vec<(String, RuleSet)>) -> Self {
        let buckets_max = usize::try_from(options.max_buckets).unwrap_or(usize::MAX);
        let side = |(name, rules)| Candidate::new(name, rules, buckets_max);
        Self {
            options,
            mapping,
            sides: sides.into_iter().map(side).collect(),
            pending: Vec::with_capacity(PENDING_MAX),
            peaks: options.suggest.iter().cloned().map(Peaks::new).collect(),
            differing: Default::default(),
            present: vec![0; mapping.attributes.len()],
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
        let (options, mapping) = (self.options, self.mapping);
        let domain = options.domain.as_deref().unwrap_or_default();
        let mut request = Request::new().in_domain(domain).costing(record.cost);
        for (number, value) in chunk.values(record) {
            self.present[usize::from(number)] += 1;
            // Names are different and few; a value may be of any length.
            let _ = request.insert_unbounded(mapping.name(number), value);
        }
        for peaks in &mut self.peaks {
            peaks.note(*unix_s, &request);
        }
        let requests = if options.descriptor.is_empty() {
            LogRequests::One(request)
        } else {
            let described = options.descriptor.iter().filter_map(|pattern| pattern.descriptor_for(domain, &request));
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
        let attributes = self.mapping.attributes.iter().zip(&self.present);
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
            busiest_minute: self.busiest.minute(),
            is_interrupted,
            absent_attributes: absent.collect(),
            results: sides.iter().map(result).collect(),
            comparison: (sides.len() == 2).then(|| Comparison::new(self.differing.0, &self.differing.1, options.top)),
            suggestions: self.peaks.iter().map(Peaks::suggestion).collect(),
        }
    }
}

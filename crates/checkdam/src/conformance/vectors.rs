//! Conformance tests from the vectors: the specification as data.

use serde::Deserialize;

use super::{Harness, TestBucket, apply};
use crate::decision::{Decision, Verdict};
use crate::quota::{Algorithm, Align, CalendarOptions, Quota, QuotaSpec};
use crate::store::Operation;

const FILES: [(&str, &str); 5] = [
    ("token_bucket", include_str!("../../vectors/token_bucket.json")),
    ("leaky_bucket", include_str!("../../vectors/leaky_bucket.json")),
    ("fixed_window", include_str!("../../vectors/fixed_window.json")),
    ("sliding_window", include_str!("../../vectors/sliding_window.json")),
    ("sliding_log", include_str!("../../vectors/sliding_log.json")),
];

/// One bucket's story.
#[derive(Debug)]
pub struct VectorCase {
    /// What it shows, with the algorithm before it.
    pub name: String,
    /// What happens, in order.
    pub steps: Vec<VectorStep>,
}

/// One operation and the expected decision.
#[derive(Debug, Clone, Copy)]
pub struct VectorStep {
    /// When, in our time.
    pub at_us: u64,
    /// The quota at that time.
    pub quota: Quota,
    /// The operation.
    pub operation: Operation,
    /// For how much.
    pub cost: u64,
    /// The expected decision.
    pub expected: Decision,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileJson {
    algorithm: String,
    cases: Vec<CaseJson>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseJson {
    name: String,
    quota: QuotaJson,
    steps: Vec<StepJson>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuotaJson {
    limit: u64,
    period_us: u64,
    burst: Option<u64>,
    initial: Option<u64>,
    align: Option<String>,
    strict: Option<bool>,
    zone: Option<String>,
    anchor: Option<u64>,
    week_starts: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepJson {
    at_us: u64,
    op: String,
    cost: Option<u64>,
    quota: Option<QuotaJson>,
    expect: ExpectJson,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectJson {
    allowed: bool,
    remaining: u64,
    retry_after_us: Option<u64>,
    reset_after_us: u64,
    delay_us: u64,
    #[serde(default)]
    cost_exceeds_burst: bool,
}

/// Every case of every algorithm.
///
/// # Errors
/// Says which file or case is not well formed.
pub fn load() -> Result<Vec<VectorCase>, String> {
    let mut cases = Vec::new();
    for (name, text) in FILES {
        let file: FileJson = serde_json::from_str(text).map_err(|error| format!("{name}.json: {error}"))?;
        let algorithm = Algorithm::by_name(&file.algorithm).ok_or_else(|| format!("{name}.json: unknown algorithm"))?;
        for json in file.cases {
            let named = format!("{name}: {}", json.name);
            cases.push(case(algorithm, json).map_err(|error| format!("{named}: {error}"))?);
        }
    }
    Ok(cases)
}

/// Runs every case through the harness's store; returns the number of steps.
///
/// # Errors
/// Names the case and the step with an unexpected decision.
pub async fn run<H: Harness>(harness: &H) -> Result<usize, String> {
    let mut steps = 0;
    for case in load()? {
        let bucket = TestBucket::new("vectors", &case.name);
        for (number, step) in case.steps.iter().enumerate() {
            harness.set_now_us(step.at_us);
            let answer = apply(harness, step.operation, &[bucket.tier(&step.quota, step.cost)]).await;
            match &*answer.decisions {
                [decision] if *decision == step.expected => steps += 1,
                other => {
                    let VectorCase { name, .. } = &case;
                    return Err(format!("{name}\n step {number}: {step:?}\n answered: {other:?}"));
                }
            }
        }
    }
    Ok(steps)
}

fn case(algorithm: Algorithm, json: CaseJson) -> Result<VectorCase, String> {
    let mut quota = quota(algorithm, &json.quota)?;
    let mut steps = Vec::with_capacity(json.steps.len());
    for step in json.steps {
        if let Some(changed) = &step.quota {
            quota = self::quota(algorithm, changed)?;
        }
        let operation = match step.op.as_str() {
            "take" => Operation::Take,
            "peek" => Operation::Peek,
            "refund" => Operation::Refund,
            "charge" => Operation::Charge,
            "reset" => Operation::Reset,
            other => return Err(format!("unknown op {other:?}")),
        };
        let verdict = match (step.expect.allowed, step.expect.cost_exceeds_burst) {
            (true, _) => Verdict::Allowed,
            (false, true) => Verdict::CostExceedsBurst,
            (false, false) => Verdict::Denied,
        };
        steps.push(VectorStep {
            at_us: step.at_us,
            quota,
            operation,
            cost: step.cost.unwrap_or(0),
            expected: Decision {
                verdict,
                limit: quota.limit(),
                remaining: step.expect.remaining,
                retry_after_us: step.expect.retry_after_us.unwrap_or(0),
                reset_after_us: step.expect.reset_after_us,
                delay_us: step.expect.delay_us,
            },
        });
    }
    Ok(VectorCase { name: format!("{}: {}", algorithm.name(), json.name), steps })
}

fn quota(algorithm: Algorithm, json: &QuotaJson) -> Result<Quota, String> {
    let align = match json.align.as_deref() {
        None | Some("epoch") => Align::Epoch,
        Some(name) => Align::by_calendar_name(name).ok_or_else(|| format!("unknown align {name:?}"))?.0,
    };
    let calendar = CalendarOptions::parse(json.zone.as_deref(), json.anchor, json.week_starts.as_deref())
        .map_err(|(_, error)| error.to_string())?;
    let algorithm = match algorithm {
        Algorithm::SlidingWindow { .. } => Algorithm::SlidingWindow { strict: json.strict.unwrap_or(false) },
        other => other,
    };
    let spec = QuotaSpec {
        burst: json.burst,
        initial: json.initial,
        align,
        calendar,
        ..QuotaSpec::new(json.limit, json.period_us)
    };
    Quota::new(spec, algorithm).map_err(|error| error.to_string())
}

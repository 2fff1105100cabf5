//! Admin API: previews an edit of a rule on the requests of the last minutes. Nothing
//! is changed, so it also works when rules come from a file.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use checkdam::{Mode, Rule, RuleSpec};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::Admin;
use super::edit_requests::{read_text, rulebook_problem};
use super::import_export::blocking;
use super::rules::{AdminErrorResponses, AdminResult, check_name, json_response};
use crate::http::problem::{Problem, truncated};
use crate::http::wire;
use crate::replay::{self, Preview, PreviewCounts, PreviewRules, SubjectChange};
use crate::rulebook::{self, RulebookError, WithoutRow};
use crate::telemetry::{DecidedTotals, RequestSample};

/// An edit that is to be tried.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only its description is used")]
pub(super) struct PreviewBody {
    /// The rule that is edited; null: a new one.
    name: Option<String>,
    /// What it becomes; null: it is removed.
    rule: Option<RuleSpec>,
}

/// What an edit would have done.
#[derive(Serialize, ToSchema)]
pub(super) struct PreviewAnswer {
    /// How far the requests that were kept reach back, in seconds.
    seconds: f64,
    /// How many there were.
    requests: u64,
    /// One client in so many was kept, and represents the others; the busiest clients are all kept.
    sampled_one_in: u64,
    /// What was decided in that time.
    live: DecidedTotals,
    /// Whether the replay of the active rules denies another number of requests than were denied.
    disagrees: bool,
    /// Through the active rules.
    before: DecidedTotals,
    /// Through the rules with the edit.
    after: DecidedTotals,
    /// Requests that passed before and do not after.
    newly_limited: u64,
    /// Requests that did not pass before and do after.
    newly_allowed: u64,
    /// The rule itself.
    rule: RuleChange,
    /// Whose requests the rule would treat otherwise, the largest change first; at most 20.
    subjects: Vec<SubjectChange>,
    /// What must be known to read the numbers.
    note: Option<String>,
}

/// What the rule did before and after.
#[derive(Serialize, ToSchema)]
struct RuleChange {
    /// As it is active.
    before: PreviewCounts,
    /// With the edit.
    after: PreviewCounts,
}

/// Says what an edit of a rule would have done to the last minutes' requests; changes nothing.
///
/// The most recent requests of this node are replayed through the active rules and through
/// the edited ones, both beginning with full buckets.
#[utoipa::path(post, path = "/admin/v1/rules/preview", tag = "rules", request_body = PreviewBody,
    responses((status = 200, description = "What it would have done", body = PreviewAnswer),
        (status = 400, description = "The body does not have the expected form", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "There is no such rule", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The new name is taken", body = Problem, content_type = "application/problem+json"),
        AdminErrorResponses))]
pub(super) async fn preview(State(admin): State<Arc<Admin>>, body: Body) -> AdminResult {
    let (name, rule) = read(&read_text(body, wire::BODY_MAX).await?)?;
    let Ok(permit) = Arc::clone(&admin.previews).try_acquire_owned() else {
        return Err(Problem::busy("two previews are being made already: try again in a moment"));
    };
    let (snapshot, app) = (admin.app.rule_snapshot(), Arc::clone(&admin.app));
    let is_shadow = rule.as_ref().is_some_and(|rule| rule.mode == Mode::Shadow);
    let done = blocking(move || {
        let _permit = permit;
        let after_name = rule.as_ref().map(|rule| rule.name.clone());
        let candidate = snapshot.definitions_after_edit(name.as_deref(), rule).map_err(rulebook_problem)?;
        // Validated as an edit is, before anything is made smaller for a sample.
        rulebook::compile(candidate.clone()).map_err(rulebook_problem)?;
        let sample = app.telemetry().sample();
        let (before, after) =
            (PreviewRules::new(snapshot.definitions(), name), PreviewRules::new(candidate, after_name));
        let preview = replay::preview(&sample, before, after);
        let preview =
            preview.map_err(|error| rulebook_problem(RulebookError::Invalid { reason: error.to_string() }))?;
        Ok(PreviewAnswer::new(preview, &sample, is_shadow))
    });
    Ok(json_response(&done.await?))
}

/// Reads the edit: the name of the rule there is, and what it becomes.
fn read(text: &str) -> Result<(Option<String>, Option<Rule>), Problem> {
    let fields: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| Problem::malformed("body", error.to_string()))?;
    if let Some(unknown) = fields.keys().find(|name| !["name", "rule"].contains(&name.as_str())) {
        let detail = format!("{:?} is not known here: send name and rule", truncated(unknown));
        return Err(Problem::malformed(truncated(unknown), detail));
    }
    let name = match fields.get("name") {
        None | Some(Value::Null) => None,
        Some(Value::String(name)) => Some(name.clone()),
        Some(_) => {
            return Err(Problem::malformed("name", "name must be a rule's name, or null for a new one"));
        }
    };
    let rule = match fields.get("rule") {
        Some(Value::Null) if name.is_some() => None,
        Some(rule @ Value::Object(_)) => {
            let invalid = |reason| Problem::invalid("rule", reason);
            let WithoutRow::<RuleSpec>(spec) =
                WithoutRow::deserialize(rule).map_err(|error| invalid(error.to_string()))?;
            Some(Rule::try_from(spec).map_err(|error| invalid(error.to_string()))?)
        }
        Some(Value::Null) => {
            let detail = "name and rule are both null: name the rule to remove, or give a rule to add";
            return Err(Problem::invalid("rule", detail));
        }
        None | Some(_) => {
            let detail = "rule must be an object as PUT takes it, or null to remove the rule";
            return Err(Problem::malformed("rule", detail));
        }
    };
    if let Some(rule) = &rule {
        check_name(&rule.name)?;
    }
    Ok((name, rule))
}

impl PreviewAnswer {
    fn new(preview: Preview, sample: &RequestSample, is_shadow: bool) -> Self {
        let note = note(&preview, sample, is_shadow);
        Self {
            seconds: sample.seconds as f64,
            requests: preview.requests,
            sampled_one_in: sample.sampling_ratio(),
            live: preview.live,
            disagrees: preview.disagrees(),
            before: preview.before,
            after: preview.after,
            newly_limited: preview.newly_limited,
            newly_allowed: preview.newly_allowed,
            rule: RuleChange { before: preview.rule_before, after: preview.rule_after },
            subjects: preview.subjects,
            note,
        }
    }
}

/// What must be known to read the numbers.
fn note(preview: &Preview, sample: &RequestSample, is_shadow: bool) -> Option<String> {
    if preview.requests == 0 {
        let text = "This node has kept no requests of the last minutes: there were none, or --recent-requests is 0.";
        return Some(text.to_owned());
    }
    let mut parts = vec!["The replay has the requests of this node only, and every bucket starts full.".to_owned()];
    if preview.is_estimate {
        parts.push(format!(
            "The busiest clients are all included, and one in {} of the others: counts are estimates.",
            sample.sampling_ratio()
        ));
    }
    if preview.disagrees() {
        parts.push(format!(
            "The replay differs from the live decisions: the active rules denied {} of {} requests, and deny {} in \
             the replay. Buckets were not full when it began, other nodes share them, or rules were changed since: \
             treat the numbers as an estimate.",
            preview.live.limited,
            preview.live.sum(),
            preview.before.limited
        ));
    }
    if is_shadow {
        parts.push("The rule is in shadow mode: requests that it would deny are counted and allowed.".to_owned());
    }
    Some(parts.join(" "))
}

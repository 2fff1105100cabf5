//! Admin API: import, export and dry runs of whole documents.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::Uri;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::IntoResponse;
use checkdam::{Definitions, rule_file};
use serde::Serialize;
use utoipa::ToSchema;

use super::Admin;
use super::edit_requests::{Pending, editable, parse_error, read_text, respond_when_active, rulebook_problem};
use super::query_parameters::QueryParameters;
use super::rules::{AdminErrorResponses, AdminResult, check_name, json_response};
use crate::access::Caller;
use crate::http::problem::Problem;
use crate::rulebook::{ImportCounts, RulebookError, Snapshot, flatten_trees, unsupported_trees_error};

/// The largest document that is imported.
const DOCUMENT_MAX: usize = 64 << 20;

/// What a document holds.
#[derive(Serialize, ToSchema)]
pub(super) struct Valid {
    /// Always true: what is not valid is answered as a problem.
    ok: bool,
    /// How many rules it holds.
    rules: usize,
    /// How many overrides.
    overrides: usize,
    /// How many bans.
    bans: usize,
}

/// Validates a rule, or a whole document, together with the existing rules; changes nothing.
#[utoipa::path(post, path = "/admin/v1/rules/validate", tag = "rules",
    request_body(content = String, description = "One rule, or a document with rules, overrides and bans: JSON or YAML"),
    responses((status = 200, description = "It is valid", body = Valid), AdminErrorResponses))]
pub(super) async fn validate(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> AdminResult {
    let text = read_text(body, DOCUMENT_MAX).await?;
    let read = move || match rule_file::parse_rule(&text) {
        Ok(rule) => Ok(Definitions::from(vec![rule])),
        Err(error) if is_rule(&text) => Err(parse_error(&error)),
        Err(_) => rule_file::parse_definitions_within(&text, DOCUMENT_MAX).map_err(|error| parse_error(&error)),
    };
    let definitions = blocking(read).await?;
    let (rules, overrides, bans) = (definitions.rules.len(), definitions.overrides.len(), definitions.bans.len());
    check_names(&definitions)?;
    match editable(&admin, &caller) {
        Ok(rulebook) => {
            rulebook.dry_run_import(flatten_trees(definitions).0, false).await.map(drop).map_err(rulebook_problem)?
        }
        // Rules from a file are replaced as a whole.
        Err(_) => {
            blocking(move || Snapshot::from_definitions(definitions).compile().map(drop).map_err(rulebook_problem))
                .await?
        }
    }
    Ok(json_response(&Valid { ok: true, rules, overrides, bans }))
}

/// Imports a whole document, all or nothing.
#[utoipa::path(post, path = "/admin/v1/rules/import", tag = "rules",
    params(("replace" = Option<bool>, Query, description = "Remove whatever the document does not name"),
        ("dry_run" = Option<bool>, Query, description = "Say what would be done, and do nothing"),
        ("partly" = Option<bool>, Query, description = "Leave out limits of descriptors that no rule can say")),
    request_body(content = String, description = "A document with rules, overrides and bans: YAML or JSON"),
    responses((status = 200, description = "It is active", body = ImportCounts),
        (status = 202, description = "It is stored, and not yet active on this node", body = Pending),
        (status = 409, description = "The rules come from a file", body = Problem,
            content_type = "application/problem+json"),
        AdminErrorResponses))]
pub(super) async fn import(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    body: Body,
) -> AdminResult {
    let query = QueryParameters::read(&uri, &["replace", "dry_run", "partly"])?;
    let (replace, dry_run, partly) = (query.flag("replace")?, query.flag("dry_run")?, query.flag("partly")?);
    let rulebook = editable(&admin, &caller)?;
    let text = read_text(body, DOCUMENT_MAX).await?;
    let read = move || rule_file::parse_definitions_within(&text, DOCUMENT_MAX).map_err(|error| parse_error(&error));
    let (definitions, left_out) = flatten_trees(blocking(read).await?);
    if !left_out.is_empty() && !partly {
        let detail = unsupported_trees_error(&left_out, "import the rest with partly=true");
        return Err(Problem::invalid("descriptors", detail));
    }
    check_names(&definitions)?;
    if dry_run {
        let counts = rulebook.dry_run_import(definitions, replace).await.map_err(rulebook_problem)?;
        return Ok(json_response(&counts));
    }
    let counts = rulebook.import(definitions, replace).await.map_err(rulebook_problem)?;
    Ok(respond_when_active(&admin, || json_response(&counts)).await)
}

/// Exports everything that is active as one document, as import takes it.
#[utoipa::path(get, path = "/admin/v1/rules/export", tag = "rules",
    responses((status = 200, description = "Rules, overrides and bans", body = String, content_type = "application/yaml"),
        AdminErrorResponses))]
pub(super) async fn export(State(admin): State<Arc<Admin>>) -> AdminResult {
    let snapshot = admin.app.rule_snapshot();
    let text = blocking(move || {
        let (definitions, left_out) = flatten_trees(snapshot.definitions());
        let comments = left_out.iter().map(|text| format!("# left out: {}\n", text.replace('\n', " ")));
        Ok(comments.chain([rule_file::write(&definitions)]).collect::<String>())
    })
    .await?;
    Ok(([(CONTENT_TYPE, "application/yaml"), (CACHE_CONTROL, "no-store")], text).into_response())
}

/// Whether the text means one rule: then its fault is to be named, not that it
/// is no document.
fn is_rule(text: &str) -> bool {
    let has = |key: &str| {
        let (quoted, plain) = (format!("\"{key}\""), format!("{key}:"));
        text.contains(&quoted) || text.lines().any(|line| line.starts_with(&plain))
    };
    !["rules", "overrides", "bans"].iter().any(|key| has(key))
}

fn check_names(definitions: &Definitions) -> Result<(), Problem> {
    definitions.rules.iter().try_for_each(|rule| check_name(&rule.name))
}

/// Does long work where it holds up no request.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(rulebook_problem(RulebookError::Unavailable { reason: error.to_string() })))
}

//! Admin API: rules, and the effects of rules in shadow mode.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, LOCATION};
use axum::http::{HeaderMap, Response, StatusCode, Uri};
use axum::response::IntoResponse;
use checkdam::{Mode, Rule, RuleSpec};
use serde::Serialize;
use utoipa::{IntoResponses, ToSchema};

use super::Admin;
use super::edit_requests::{
    ExpectedVersion, Pending, editable, etag, read_item, respond_when_active, rulebook_problem,
};
use super::query_parameters::{PathName, QueryParameters};
use crate::access::Caller;
use crate::audit::Effect;
use crate::http::problem::{Problem, ProblemKind, truncated};
use crate::http::wire::json;
use crate::rulebook::{RulebookError, Stored, StoredSpec, is_found};

pub(super) type AdminResult = Result<Response<Body>, Problem>;

/// Paths that are no rules.
const RESERVED: [&str; 6] = [".", "..", "validate", "import", "export", "preview"];

/// A page of a list.
pub(super) struct Page<T> {
    /// How many there are in all, as far as they are searched for.
    pub(super) total: usize,
    pub(super) rows: Vec<StoredSpec<T>>,
    /// What to give as `after` for the next page.
    pub(super) next: Option<String>,
}

/// A page of rules.
#[derive(Serialize, ToSchema)]
pub(super) struct RulesAnswer {
    /// The version of the rulebook that is active here.
    version: u64,
    /// How many there are in all, as far as they are searched for.
    total: usize,
    #[schema(value_type = Vec<RuleSpec>)]
    rules: Vec<StoredSpec<RuleSpec>>,
    /// What to give as `after` for the next page; null at the end.
    next: Option<String>,
}

/// The requested page of a list. `name` identifies entries.
pub(super) fn page<'b, S: 'b, T: for<'a> From<&'a S>>(
    query: &QueryParameters,
    entries: impl IntoIterator<Item = &'b Arc<Stored<S>>>,
    name: impl Fn(&S) -> String,
    is_wanted: impl Fn(&S) -> bool,
) -> Result<Page<T>, Problem> {
    let limit = query.limit()?;
    let wanted: Vec<&Arc<Stored<S>>> = entries.into_iter().filter(|stored| is_wanted(&stored.item)).collect();
    let start = match query.text("after") {
        None => 0,
        Some(after) => match wanted.iter().position(|stored| name(&stored.item) == after) {
            Some(place) => place + 1,
            None => {
                let detail = format!("after is {after:?}, which is not in the list any more: begin anew");
                return Err(Problem::invalid("after", detail));
            }
        },
    };
    let shown = &wanted[start..wanted.len().min(start + limit)];
    let is_end = start + shown.len() >= wanted.len();
    let next = shown.last().filter(|_| !is_end).map(|stored| name(&stored.item));
    Ok(Page { total: wanted.len(), rows: shown.iter().map(|stored| StoredSpec::from(&***stored)).collect(), next })
}

/// JSON that must not be cached.
pub(super) fn json_response(value: &impl Serialize) -> Response<Body> {
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], json(value)).into_response()
}

/// Lists the active rules, page by page.
#[utoipa::path(get, path = "/admin/v1/rules", operation_id = "list_rules", tag = "rules",
    params(("search" = Option<String>, Query, description = "Part of a name, key, scope or description"),
        ("limit" = Option<usize>, Query, description = "How many, at most 1000"),
        ("after" = Option<String>, Query, description = "The name where the last page ended")),
    responses((status = 200, description = "A page of rules", body = RulesAnswer), AdminErrorResponses))]
pub(super) async fn list(State(admin): State<Arc<Admin>>, uri: Uri) -> AdminResult {
    let query = QueryParameters::read(&uri, &["search", "limit", "after"])?;
    let snapshot = admin.app.rule_snapshot();
    let search = query.text("search").unwrap_or_default().to_lowercase();
    let is_wanted = |rule: &Rule| is_found(rule, &search);
    let Page { total, rows, next } = page(&query, snapshot.listed_rules(), |rule| rule.name.clone(), is_wanted)?;
    Ok(json_response(&RulesAnswer { version: snapshot.revision.version, total, rules: rows, next }))
}

/// Shows one rule, with its version as ETag.
#[utoipa::path(get, path = "/admin/v1/rules/{name}", operation_id = "show_rule", tag = "rules",
    params(("name" = String, Path, description = "The rule's name")),
    responses((status = 200, description = "The rule", body = RuleSpec),
        (status = 404, description = "There is no such rule", body = Problem, content_type = "application/problem+json"),
        AdminErrorResponses))]
pub(super) async fn show(State(admin): State<Arc<Admin>>, PathName(name): PathName) -> AdminResult {
    let snapshot = admin.app.rule_snapshot();
    let stored =
        snapshot.listed_rules().find(|stored| stored.item.name == name).ok_or_else(|| rule_not_found(&name))?;
    Ok(rule_response(StatusCode::OK, stored))
}

/// Adds a rule.
#[utoipa::path(post, path = "/admin/v1/rules", tag = "rules", request_body = RuleSpec,
    responses((status = 201, description = "It is active", body = RuleSpec),
        (status = 202, description = "It is stored, and not yet active on this node", body = Pending),
        (status = 409, description = "The name is taken, or the rules come from a file", body = Problem,
            content_type = "application/problem+json"),
        AdminErrorResponses))]
pub(super) async fn add(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> AdminResult {
    let rulebook = editable(&admin, &caller)?;
    let rule = read_item::<RuleSpec, Rule>(body).await?;
    check_name(&rule.name)?;
    let stored = rulebook.add_rule(rule).await.map_err(rulebook_problem)?;
    Ok(respond_when_active(&admin, || created_response(&stored)).await)
}

/// Replaces a rule, or adds it.
#[utoipa::path(put, path = "/admin/v1/rules/{name}", operation_id = "put_rule", tag = "rules", request_body = RuleSpec,
    params(("name" = String, Path, description = "The rule's name; the body may rename it"),
        ("If-Match" = Option<String>, Header, description = "The ETag of the rule that was read"),
        ("If-None-Match" = Option<String>, Header, description = "`*` to add only")),
    responses((status = 200, description = "It is active", body = RuleSpec),
        (status = 201, description = "It is new, and active", body = RuleSpec),
        (status = 202, description = "It is stored, and not yet active on this node", body = Pending),
        (status = 412, description = "Somebody has changed it meanwhile", body = Problem,
            content_type = "application/problem+json"),
        AdminErrorResponses))]
pub(super) async fn put(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    PathName(name): PathName,
    headers: HeaderMap,
    body: Body,
) -> AdminResult {
    let rulebook = editable(&admin, &caller)?;
    let expected = ExpectedVersion::read(&headers)?;
    let rule = read_item::<RuleSpec, Rule>(body).await?;
    check_name(&rule.name)?;
    let done = if expected == ExpectedVersion::Nothing {
        Err(RulebookError::NotFound { what: String::new() })
    } else {
        rulebook.set_rule(&name, rule.clone(), expected.version()).await
    };
    match done {
        Ok(stored) => Ok(respond_when_active(&admin, || rule_response(StatusCode::OK, &stored)).await),
        // What must be the version that was read cannot be new.
        Err(error @ RulebookError::NotFound { .. })
            if matches!(expected, ExpectedVersion::Version(_) | ExpectedVersion::Something) =>
        {
            Err(Problem::precondition_failed(&error.to_string()))
        }
        Err(RulebookError::NotFound { .. }) => {
            if rule.name != name {
                let detail =
                    format!("there is no rule {name:?} to rename to {:?}: use the same name in both", rule.name);
                return Err(Problem::invalid("name", detail));
            }
            let stored = rulebook.add_rule(rule).await.map_err(|error| match error {
                RulebookError::Exists { .. } => Problem::precondition_failed(&error.to_string()),
                other => rulebook_problem(other),
            })?;
            Ok(respond_when_active(&admin, || created_response(&stored)).await)
        }
        Err(error) => Err(rulebook_problem(error)),
    }
}

/// Removes a rule.
#[utoipa::path(delete, path = "/admin/v1/rules/{name}", operation_id = "remove_rule", tag = "rules",
    params(("name" = String, Path, description = "The rule's name"),
        ("If-Match" = Option<String>, Header, description = "The ETag of the rule that was read")),
    responses((status = 204, description = "It is no longer active"),
        (status = 202, description = "It is stored, and not yet active on this node", body = Pending),
        (status = 404, description = "There is no such rule", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "Somebody has changed it meanwhile", body = Problem,
            content_type = "application/problem+json"),
        AdminErrorResponses))]
pub(super) async fn remove(
    State(admin): State<Arc<Admin>>,
    Extension(caller): Extension<Caller>,
    PathName(name): PathName,
    headers: HeaderMap,
) -> AdminResult {
    let rulebook = editable(&admin, &caller)?;
    let exists = admin.app.rule_snapshot().rules.iter().any(|stored| stored.item.name == name);
    let expected = ExpectedVersion::read(&headers)?.check(exists)?;
    rulebook.remove_rule(&name, expected).await.map_err(rulebook_problem)?;
    Ok(respond_when_active(&admin, || StatusCode::NO_CONTENT.into_response()).await)
}

/// Says what a rule in shadow would have denied on this node since it is as it is.
#[utoipa::path(get, path = "/admin/v1/rules/{name}/effect", tag = "rules",
    params(("name" = String, Path, description = "The rule's name")),
    responses((status = 200, description = "What it would have done", body = Effect),
        (status = 404, description = "There is no such rule", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The rule is not in shadow", body = Problem,
            content_type = "application/problem+json"),
        AdminErrorResponses))]
pub(super) async fn effect(State(admin): State<Arc<Admin>>, PathName(name): PathName) -> AdminResult {
    if let Some(effect) = admin.app.shadow_effects().effect_of(&name) {
        return Ok(json_response(&effect));
    }
    let snapshot = admin.app.rule_snapshot();
    match snapshot.rules.iter().find(|stored| stored.item.name == name) {
        Some(stored) => {
            let mode = if stored.item.mode == Mode::Off { "off" } else { "enforced" };
            let detail = format!("rule {name:?} is {mode}: its effect is seen while its mode is shadow");
            Err(ProblemKind::NotInShadow.problem(detail))
        }
        None => Err(rule_not_found(&name)),
    }
}

fn rule_response(status: StatusCode, stored: &Stored<Rule>) -> Response<Body> {
    (status, [etag(stored.version)], json_response(&StoredSpec::<RuleSpec>::from(stored))).into_response()
}

fn created_response(stored: &Stored<Rule>) -> Response<Body> {
    let mut response = rule_response(StatusCode::CREATED, stored);
    let name: String = form_urlencoded::byte_serialize(stored.item.name.as_bytes()).collect();
    if let Ok(place) = HeaderValue::from_str(&format!("/admin/v1/rules/{}", name.replace('+', "%20"))) {
        response.headers_mut().insert(LOCATION, place);
    }
    response
}

pub(super) fn rule_not_found(name: &str) -> Problem {
    ProblemKind::NotFound.problem(format!("there is no rule {:?}", truncated(name)))
}

pub(super) fn check_name(name: &str) -> Result<(), Problem> {
    if RESERVED.contains(&name) {
        let detail = format!(
            "a rule cannot be called {name:?}, which names a path of this API or of browsers: use another name"
        );
        return Err(Problem::invalid("name", detail));
    }
    Ok(())
}

/// Error responses that every path of the admin API may have, for OpenAPI.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only its description is used")]
pub(super) enum AdminErrorResponses {
    /// The token is missing or wrong
    #[response(status = 401, content_type = "application/problem+json")]
    Unauthorized(Problem),
    /// The role is read, or the call comes from a page of another origin, or by a name that is not this machine's
    #[response(status = 403, content_type = "application/problem+json")]
    Forbidden(Problem),
    /// A value is not acceptable; nothing was changed
    #[response(status = 422, content_type = "application/problem+json")]
    Invalid(Problem),
    /// The database does not answer; nothing was changed
    #[response(status = 503, content_type = "application/problem+json")]
    Unavailable(Problem),
}

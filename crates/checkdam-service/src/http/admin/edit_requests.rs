//! Shared parts of edit requests: preconditions (`If-Match`, `If-None-Match`),
//! whether edits are possible, and error responses.

use axum::body::Body;
use axum::http::header::{ETAG, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use checkdam::SpecError;
use checkdam::rule_file::{self, RuleFileError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use utoipa::ToSchema;

use super::rules::json_response;
use super::{Admin, RuleSource};
use crate::access::Caller;
use crate::http::problem::{Problem, ProblemKind, truncated};
use crate::http::wire;
use crate::rulebook::{Rulebook, RulebookError, WithoutRow};

/// What an edit takes for granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpectedVersion {
    /// Nothing.
    Anything,
    /// That it exists.
    Something,
    /// That nobody has changed it since.
    Version(u64),
    /// That it does not exist.
    Nothing,
}

impl ExpectedVersion {
    /// Reads `If-Match` and `If-None-Match`.
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, Problem> {
        let header = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?").trim());
        if let Some(value) = header(IF_NONE_MATCH) {
            let refused = || Problem::invalid("If-None-Match", format!("use *, not {:?}", truncated(value)));
            return if value == "*" { Ok(Self::Nothing) } else { Err(refused()) };
        }
        let Some(value) = header(IF_MATCH) else { return Ok(Self::Anything) };
        if value == "*" {
            return Ok(Self::Something);
        }
        let version = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        version.and_then(|version| version.parse().ok()).map(Self::Version).ok_or_else(|| {
            let detail = format!("If-Match is {:?}: send the ETag of the answer that was read", truncated(value));
            Problem::invalid("If-Match", detail)
        })
    }

    /// The version that is expected, for edits of what exists.
    pub(super) const fn version(self) -> Option<u64> {
        match self {
            Self::Version(version) => Some(version),
            Self::Anything | Self::Something | Self::Nothing => None,
        }
    }

    /// Refuses an edit that expects something else than whether it `exists`;
    /// gives the version that is expected.
    pub(super) fn check(self, exists: bool) -> Result<Option<u64>, Problem> {
        match self {
            Self::Nothing if exists => Err(Problem::precondition_failed("it exists already")),
            Self::Something if !exists => Err(Problem::precondition_failed("it does not exist")),
            _ => Ok(self.version()),
        }
    }
}

pub(super) fn etag(version: u64) -> (HeaderName, HeaderValue) {
    let tag = HeaderValue::from_str(&format!("\"{version}\""));
    (ETAG, tag.unwrap_or_else(|_| HeaderValue::from_static("\"0\"")))
}

/// Where edits of this caller go, if there may be any.
pub(super) fn editable(admin: &Admin, caller: &Caller) -> Result<Rulebook, Problem> {
    match (&*admin.rules, &admin.rulebook) {
        (RuleSource::Database(_), Some(rulebook)) => Ok(rulebook.edited_by(&caller.name)),
        (RuleSource::File(path), _) => {
            let detail = format!("the rules are those of {path:?}: edit the file, or start without --rules");
            Err(ProblemKind::RulesFromFile.problem(detail))
        }
        (RuleSource::Database(_), None) => Err(ProblemKind::DatabaseUnavailable.problem("there is no database")),
    }
}

pub(super) async fn read_text(body: Body, bytes_max: usize) -> Result<String, Problem> {
    let bytes = wire::read_within(body, bytes_max).await?;
    String::from_utf8(bytes.into())
        .map_err(|_| Problem::malformed("body", "the body is not UTF-8: send JSON or YAML as UTF-8"))
}

/// What the parser did not understand.
pub(super) fn parse_error(error: &RuleFileError) -> Problem {
    Problem::invalid("body", error.to_string())
}

/// What the rulebook did not do.
#[expect(clippy::needless_pass_by_value, reason = "it is what becomes of an error")]
pub(super) fn rulebook_problem(error: RulebookError) -> Problem {
    let detail = error.to_string();
    match error {
        RulebookError::NotFound { .. } => ProblemKind::NotFound.problem(detail),
        RulebookError::Exists { .. } => ProblemKind::Exists.in_field("name", detail),
        RulebookError::Changed { .. } => Problem::precondition_failed(&detail),
        RulebookError::Invalid { .. } => Problem::invalid("body", detail),
        RulebookError::Unavailable { .. } => ProblemKind::DatabaseUnavailable.problem(detail),
    }
}

/// An edit that is stored and not yet active on this node.
#[derive(Serialize, ToSchema)]
pub(super) struct Pending {
    /// Why not, and where to look.
    pending: String,
}

/// The answer to an edit that was committed: `response` once it is active here, and
/// 202 with what is known if that takes too long.
pub(super) async fn respond_when_active(admin: &Admin, response: impl FnOnce() -> Response<Body>) -> Response<Body> {
    match admin.wait_until_active().await {
        None => response(),
        Some(pending) => (StatusCode::ACCEPTED, json_response(&Pending { pending })).into_response(),
    }
}

/// Reads one item, also as it is answered: what only a row knows is left out.
pub(super) async fn read_item<S, T>(body: Body) -> Result<T, Problem>
where
    S: DeserializeOwned,
    T: TryFrom<S, Error = SpecError>,
{
    let text = read_text(body, wire::BODY_MAX).await?;
    rule_file::parse_item(&text, |WithoutRow::<S>(spec)| T::try_from(spec)).map_err(|error| parse_error(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_edit_expects_is_read_from_its_headers() {
        let read = |name: HeaderName, value: &'static str| {
            ExpectedVersion::read(&HeaderMap::from_iter([(name, HeaderValue::from_static(value))])).ok()
        };
        assert_eq!(read(IF_MATCH, "\"3\""), Some(ExpectedVersion::Version(3)));
        assert_eq!(read(IF_MATCH, "*"), Some(ExpectedVersion::Something));
        assert_eq!(read(IF_NONE_MATCH, "*"), Some(ExpectedVersion::Nothing));
        for (name, value) in [(IF_MATCH, "3"), (IF_MATCH, "\"x\""), (IF_MATCH, "W/\"3\""), (IF_NONE_MATCH, "\"3\"")] {
            assert_eq!(read(name, value), None, "{value}");
        }
        assert_eq!(ExpectedVersion::read(&HeaderMap::new()).ok(), Some(ExpectedVersion::Anything));
    }
}

//! Query parameters of the admin API: pages, filters, times.

use std::collections::HashMap;

use axum::extract::{FromRequestParts, Path};
use axum::http::Uri;
use axum::http::request::Parts;
use checkdam::time::{UNIX_S_MAX, parse_rfc3339};

use crate::http::problem::{Problem, truncated};

/// The default page size.
const PAGE_DEFAULT: usize = 100;
/// The most entries of a page.
pub(super) const PAGE_MAX: usize = 1_000;

/// The name in a path.
pub(super) struct PathName(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for PathName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Self(name)),
            Err(_) => Err(Problem::invalid("name", "the name in the path is not UTF-8")),
        }
    }
}

/// The parameters of a request, each given once.
pub(super) struct QueryParameters {
    given: HashMap<String, String>,
}

impl QueryParameters {
    /// Parses the parameters; those that are not `known` are rejected, because a misspelt
    /// filter would show too much.
    pub(super) fn read(uri: &Uri, known: &[&str]) -> Result<Self, Problem> {
        let mut given = HashMap::new();
        for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            if !known.contains(&name.as_ref()) {
                let detail = format!("there is no parameter {:?}: use {}", truncated(&name), known.join(", "));
                return Err(Problem::invalid(truncated(&name), detail));
            }
            if given.insert(name.to_string(), value.to_string()).is_some() {
                return Err(Problem::invalid(truncated(&name), format!("{name} is given twice: give it once")));
            }
        }
        Ok(Self { given })
    }

    /// A text; none if it is empty.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.given.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }

    /// A text to filter by: an empty one would show too much.
    pub(super) fn filter(&self, name: &str) -> Result<Option<String>, Problem> {
        match self.given.get(name) {
            Some(text) if text.is_empty() => {
                Err(Problem::invalid(name, format!("{name} is empty: give a value, or leave it out")))
            }
            given => Ok(given.cloned()),
        }
    }

    /// A text that must be there.
    pub(super) fn required(&self, name: &str) -> Result<&str, Problem> {
        let missing = || Problem::invalid(name, format!("{name} is missing: say which one is meant"));
        self.text(name).ok_or_else(missing)
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.given.get(name).map(String::as_str) {
            None | Some("false" | "0") => Ok(false),
            Some("" | "true" | "1") => Ok(true),
            Some(other) => Err(Problem::invalid(name, format!("{name} is {:?}: use true or false", truncated(other)))),
        }
    }

    /// One of several values, with its name; the first if it is omitted.
    pub(super) fn choice<T: Copy>(
        &self,
        name: &str,
        choices: &[(&'static str, T)],
    ) -> Result<(T, &'static str), Problem> {
        let given = self.given.get(name).map(String::as_str);
        let chosen = choices.iter().find(|(choice, _)| given.is_none_or(|given| given == *choice));
        chosen.map(|(choice, value)| (*value, *choice)).ok_or_else(|| {
            let known: Vec<&str> = choices.iter().map(|(choice, _)| *choice).collect();
            let detail = format!("{name} is {:?}: use {}", truncated(given.unwrap_or_default()), known.join(" or "));
            Problem::invalid(name, detail)
        })
    }

    /// Where the last page of a log ended.
    pub(super) fn before_id(&self) -> Result<Option<i64>, Problem> {
        let parse = |text: &str| {
            text.parse().map_err(|_| {
                let detail = format!("before is {:?}: give what the last page called next", truncated(text));
                Problem::invalid("before", detail)
            })
        };
        self.text("before").map(parse).transpose()
    }

    /// How many entries a page shall have.
    pub(super) fn limit(&self) -> Result<usize, Problem> {
        self.limit_within(PAGE_DEFAULT, PAGE_MAX)
    }

    /// The requested number of entries, at most `max`.
    pub(super) fn limit_within(&self, default: usize, max: usize) -> Result<usize, Problem> {
        let Some(text) = self.text("limit") else { return Ok(default) };
        match text.parse::<usize>() {
            Ok(limit) if (1..=max).contains(&limit) => Ok(limit),
            _ => {
                let detail = format!("limit is {:?}: use 1 to {max}", truncated(text));
                Err(Problem::invalid("limit", detail))
            }
        }
    }

    /// A time in milliseconds since 1970: RFC 3339, or Unix seconds.
    pub(super) fn time_ms(&self, name: &str) -> Result<Option<i64>, Problem> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let seconds = text.parse::<i64>().ok().or_else(|| parse_rfc3339(text).and_then(|at| i64::try_from(at).ok()));
        // Databases know years of four digits.
        let known = seconds.filter(|seconds| (0..=UNIX_S_MAX as i64).contains(seconds));
        match known.map(|seconds| seconds * 1_000) {
            Some(ms) => Ok(Some(ms)),
            None => {
                let detail =
                    format!("{name} is {:?}: write 2026-12-01T00:00:00Z, or seconds since 1970", truncated(text));
                Err(Problem::invalid(name, detail))
            }
        }
    }
}

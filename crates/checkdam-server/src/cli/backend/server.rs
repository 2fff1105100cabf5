//! A running server as backend, through its admin API.

use std::cell::RefCell;
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, IF_MATCH};
use axum::http::{Method, StatusCode};
use checkdam::{Ban, BanSpec, Override, OverrideSpec, Rule, RuleSpec};
use checkdam_service::rulebook::{ChangeFilter, ViolationFilter};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Backend, ImportRequest};
use crate::cli::command_error::{CommandError, ErrorKind};
use crate::cli::http_client::{ApiRequest, ApiResponse, ClientTlsArguments};
use crate::cli::table::printable;

/// An edit is validated together with everything that exists, and answered when it is
/// active.
const EDIT_LIMIT: Duration = Duration::from_secs(30);
/// A hundred thousand overrides take seconds, and much longer on a slow disk.
const IMPORT_LIMIT: Duration = Duration::from_secs(120);
/// The largest export: twice what an import takes.
const EXPORT_MAX: usize = 128 << 20;
/// The number of entries per request.
const PAGE: usize = 1_000;
const YAML: &str = "application/yaml";

pub(crate) struct ServerBackend {
    url: String,
    token: Option<String>,
    tls: ClientTlsArguments,
    /// Why the last edit is not active yet, if it is not.
    pending: RefCell<Option<String>>,
}

#[derive(Deserialize)]
struct Page {
    version: u64,
    #[serde(alias = "rules", alias = "overrides", alias = "bans")]
    items: Vec<Value>,
    next: Option<String>,
}

impl ServerBackend {
    pub(super) fn new(url: String, token: Option<String>, tls: ClientTlsArguments) -> Self {
        Self { url, token, tls, pending: RefCell::default() }
    }

    /// The response at a path of the admin API.
    pub(crate) fn get(&self, path: &str) -> Result<Value, CommandError> {
        self.send_and_parse(ApiRequest::new(Method::GET, path))
    }

    /// Sends a request; a status other than success is an error.
    fn send(&self, mut call: ApiRequest) -> Result<ApiResponse, CommandError> {
        if let Some(token) = &self.token {
            call = call.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if call.method != Method::GET {
            call.timeout = call.timeout.max(EDIT_LIMIT);
        }
        let answer = call
            .send(&self.url, &self.tls)
            .map_err(|error| CommandError::new(ErrorKind::Unavailable, format!("{error:#}")))?;
        if answer.status == StatusCode::ACCEPTED {
            let accepted: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            self.pending.replace(accepted["pending"].as_str().map(printable));
        }
        if answer.status.is_success() { Ok(answer) } else { Err(self.failure(&answer)) }
    }

    fn send_item(&self, call: ApiRequest, item: &impl serde::Serialize) -> Result<Value, CommandError> {
        // Specs have nothing that JSON cannot express.
        self.send_and_parse(call.body("application/json", serde_json::to_string(item).unwrap_or_default()))
    }

    fn send_and_parse<T: DeserializeOwned>(&self, call: ApiRequest) -> Result<T, CommandError> {
        let answer = self.send(call)?;
        serde_json::from_slice(&answer.body).map_err(|_| self.not_an_admin_api())
    }

    fn all_pages(&self, path: &str, list: &str, filters: &[(&str, Option<&str>)]) -> Result<Value, CommandError> {
        let mut whole = Vec::new();
        let mut next: Option<String> = None;
        loop {
            let limit = PAGE.to_string();
            let page = [("limit", Some(limit.as_str())), ("after", next.as_deref())];
            let given: Vec<_> = filters.iter().copied().chain(page).collect();
            let answer: Page = self.send_and_parse(ApiRequest::new(Method::GET, query(path, &given)))?;
            next = answer.next.filter(|_| !answer.items.is_empty());
            whole.extend(answer.items);
            if next.is_none() {
                return Ok(json!({"version": answer.version, "total": whole.len(), list: whole}));
            }
        }
    }

    /// The first `limit` entries of a list that is newest first.
    fn newest(
        &self,
        path: &str,
        list: &str,
        filters: &[(&str, Option<&str>)],
        limit: usize,
    ) -> Result<Value, CommandError> {
        let mut found = Vec::new();
        let mut before: Option<String> = None;
        loop {
            let page = (limit - found.len()).min(PAGE).to_string();
            let place = [("limit", Some(page.as_str())), ("before", before.as_deref())];
            let given: Vec<_> = filters.iter().copied().chain(place).collect();
            let mut answer = self.get(&query(path, &given))?;
            let Value::Array(page) = answer[list].take() else { return Err(self.not_an_admin_api()) };
            found.extend(page);
            before = match &answer["next"] {
                Value::Null => None,
                Value::String(place) => Some(place.clone()),
                place => Some(place.to_string()),
            };
            if before.is_none() || found.len() >= limit {
                return Ok(json!({ list: found }));
            }
        }
    }

    fn failure(&self, answer: &ApiResponse) -> CommandError {
        let problem: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let Some(detail) = problem["detail"].as_str().map(printable) else { return self.not_an_admin_api() };
        let kind = problem["type"].as_str().unwrap_or_default();
        match answer.status {
            // Another checkdam listener answers so on unknown paths; the admin API never does
            // for rules.
            StatusCode::NOT_FOUND if kind == "about:blank" => self.not_an_admin_api(),
            StatusCode::METHOD_NOT_ALLOWED => self.not_an_admin_api(),
            StatusCode::UNAUTHORIZED => {
                let what = if self.token.is_some() { "rejected this token" } else { "needs the admin token" };
                let advice = "give the right one with --token-file, or in CHECKDAM_ADMIN_TOKEN";
                CommandError::new(ErrorKind::Unavailable, format!("the server at {} {what}: {advice}", self.url))
            }
            StatusCode::NOT_FOUND => CommandError::new(ErrorKind::NotFound, detail),
            StatusCode::CONFLICT if kind.ends_with(":exists") => CommandError::new(ErrorKind::Exists, detail),
            StatusCode::PRECONDITION_FAILED => CommandError::new(ErrorKind::Changed, detail),
            StatusCode::UNPROCESSABLE_ENTITY => CommandError::new(ErrorKind::Invalid, detail),
            StatusCode::FORBIDDEN => CommandError::new(ErrorKind::Unavailable, detail),
            status if status.is_server_error() => CommandError::new(ErrorKind::Unavailable, detail),
            _ => CommandError::invalid(detail),
        }
    }

    fn not_an_admin_api(&self) -> CommandError {
        let reason = format!(
            "what answers at {} is no admin API of checkdam: it listens where `checkdam serve --admin-listen` says, \
             127.0.0.1:8082 by default",
            self.url
        );
        CommandError::new(ErrorKind::Unavailable, reason)
    }
}

impl Backend for ServerBackend {
    fn rules(&self, search: Option<&str>) -> Result<Value, CommandError> {
        self.all_pages("/admin/v1/rules", "rules", &[("search", search)])
    }

    fn rule(&self, name: &str) -> Result<Value, CommandError> {
        self.get(&rule_path(name))
    }

    fn add_rule(&self, rule: &Rule) -> Result<Value, CommandError> {
        self.send_item(ApiRequest::new(Method::POST, "/admin/v1/rules"), &RuleSpec::from(rule))
    }

    fn set_rule(&self, rule: &Rule, version: u64) -> Result<Value, CommandError> {
        let call = ApiRequest::new(Method::PUT, rule_path(&rule.name)).header(IF_MATCH, format!("\"{version}\""));
        self.send_item(call, &RuleSpec::from(rule))
    }

    fn remove_rule(&self, name: &str) -> Result<(), CommandError> {
        self.send(ApiRequest::new(Method::DELETE, rule_path(name))).map(drop)
    }

    fn import(&self, import: ImportRequest) -> Result<Value, CommandError> {
        let flag = |given: bool| Some(if given { "true" } else { "false" });
        let given = [("replace", flag(import.replace)), ("dry_run", flag(import.dry_run))];
        let call = ApiRequest::new(Method::POST, query("/admin/v1/rules/import", &given)).body(YAML, import.text);
        self.send_and_parse(ApiRequest { timeout: IMPORT_LIMIT, ..call })
    }

    fn export(&self) -> Result<String, CommandError> {
        let call = ApiRequest::new(Method::GET, "/admin/v1/rules/export");
        let answer = self.send(ApiRequest { timeout: EDIT_LIMIT, answer_max: EXPORT_MAX, ..call })?;
        String::from_utf8(answer.body).map_err(|_| self.not_an_admin_api())
    }

    fn overrides(&self, rule: Option<&str>) -> Result<Value, CommandError> {
        self.all_pages("/admin/v1/overrides", "overrides", &[("rule", rule)])
    }

    fn put_override(&self, one: &Override) -> Result<Value, CommandError> {
        self.send_item(ApiRequest::new(Method::PUT, "/admin/v1/overrides"), &OverrideSpec::from(one))
    }

    fn remove_override(&self, rule: &str, subject: &str) -> Result<(), CommandError> {
        let path = query("/admin/v1/overrides", &[("rule", Some(rule)), ("subject", Some(subject))]);
        self.send(ApiRequest::new(Method::DELETE, path)).map(drop)
    }

    fn bans(&self) -> Result<Value, CommandError> {
        self.all_pages("/admin/v1/bans", "bans", &[])
    }

    fn put_ban(&self, ban: &Ban) -> Result<Value, CommandError> {
        self.send_item(ApiRequest::new(Method::PUT, "/admin/v1/bans"), &BanSpec::from(ban))
    }

    fn remove_ban(&self, subject: &str) -> Result<(), CommandError> {
        self.send(ApiRequest::new(Method::DELETE, query("/admin/v1/bans", &[("subject", Some(subject))]))).map(drop)
    }

    fn violations(&self, filter: ViolationFilter) -> Result<Value, CommandError> {
        let (since, until) = (seconds_text(filter.since_unix_ms), seconds_text(filter.until_unix_ms));
        let given = [
            ("user", filter.user.as_deref()),
            ("ip", filter.ip.as_deref()),
            ("rule", filter.rule.as_deref()),
            ("since", since.as_deref()),
            ("until", until.as_deref()),
        ];
        self.newest("/admin/v1/violations", "violations", &given, filter.limit as usize)
    }

    fn changes(&self, filter: ChangeFilter) -> Result<Value, CommandError> {
        let (since, until) = (seconds_text(filter.since_unix_ms), seconds_text(filter.until_unix_ms));
        let given = [
            ("actor", filter.actor.as_deref()),
            ("kind", filter.kind.as_deref()),
            ("name", filter.name.as_deref()),
            ("subject", filter.subject.as_deref()),
            ("since", since.as_deref()),
            ("until", until.as_deref()),
        ];
        self.newest("/admin/v1/changes", "changes", &given, filter.limit as usize)
    }

    fn activation_notice(&self) -> String {
        let pending = self.pending.borrow().clone();
        pending.unwrap_or_else(|| "active; other nodes follow within a second".to_owned())
    }
}

/// The path of a rule in the admin API.
pub(crate) fn rule_path(name: &str) -> String {
    // `+` for a space is valid only in queries.
    let encoded: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
    format!("/admin/v1/rules/{}", encoded.replace('+', "%20"))
}

fn query(path: &str, given: &[(&str, Option<&str>)]) -> String {
    let mut pairs = form_urlencoded::Serializer::new(String::new());
    for (name, value) in given {
        if let Some(value) = value {
            pairs.append_pair(name, value);
        }
    }
    format!("{path}?{}", pairs.finish())
}

/// A time as the admin API takes it.
fn seconds_text(unix_ms: Option<i64>) -> Option<String> {
    unix_ms.map(|unix_ms| (unix_ms / 1_000).to_string())
}

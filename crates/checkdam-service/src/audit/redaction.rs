//! Redacts attributes for the audit log and the log: values are truncated, and
//! secrets hashed.

use std::borrow::Cow;
use std::collections::HashSet;

use checkdam::{Ban, KeyPattern, Request, hashed, shortened_to};

use crate::rulebook::{ATTRIBUTE_MAX, SUBJECT_MAX};

/// How attributes are recorded.
#[derive(Debug, Clone, Default)]
pub struct Redaction {
    secret: HashSet<String>,
    /// What hashes of secrets are keyed with.
    key: String,
}

impl Redaction {
    /// Hashes these attributes, keyed with a secret that may be empty.
    pub fn new(secret: &[String], key: &str) -> Self {
        let secret = secret.iter().map(|name| name.to_ascii_lowercase()).collect();
        Self { secret, key: key.to_owned() }
    }

    pub fn attribute(&self, request: &Request<'_>, name: &str) -> Option<String> {
        request.get(name).map(|value| self.redact(name, value).into_owned())
    }

    pub fn subject(&self, key: &KeyPattern, request: &Request<'_>) -> String {
        let subject = key.render_with(|name| self.redact(name, request.get(name).unwrap_or_default()));
        shortened_to(&subject, SUBJECT_MAX).into_owned()
    }

    /// The subject of a ban: an attribute's name, a colon and its value.
    pub fn ban_subject(&self, ban: &Ban) -> String {
        let subject = ban.subject();
        let subject = match subject.split_once(':') {
            Some((name, value)) => format!("{name}:{}", self.redact(name, value)),
            None => subject,
        };
        shortened_to(&subject, SUBJECT_MAX).into_owned()
    }

    fn redact<'a>(&self, name: &str, value: &'a str) -> Cow<'a, str> {
        // Names are written in many ways: X-API-Key, api_key.
        match !self.secret.is_empty() && self.secret.contains(&name.to_ascii_lowercase()) {
            true => Cow::Owned(hashed(value, &self.key)),
            false => shortened_to(value, ATTRIBUTE_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hashed_and_long_values_cut() {
        let recorded = Redaction::new(&["api_key".to_owned()], "");
        let long = "x".repeat(500);
        let request = Request::new().with("API_Key", "sk_live").unwrap().with("user", long.as_str()).unwrap();
        let subject = recorded.subject(&"{API_Key}/{user}".parse().unwrap(), &request);
        assert!(subject.len() <= SUBJECT_MAX && !subject.contains("sk_live"), "{subject}");
        assert!(subject.starts_with(&format!("{}/xxx", hashed("sk_live", ""))), "{subject}");
        assert_eq!(recorded.attribute(&request, "user").unwrap().len(), ATTRIBUTE_MAX);
        assert_eq!(recorded.attribute(&request, "ip"), None);
        assert_eq!(Redaction::default().subject(&"{API_Key}".parse().unwrap(), &request), "sk_live");
    }
}

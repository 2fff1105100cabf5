//! Operators: tokens with names and roles.

use std::sync::Arc;

use super::token::TokenSet;

/// The caller of an admin listener without tokens, which only this machine can reach.
const ANONYMOUS: &str = "anonymous";
/// The caller of one whose clients have certificates of a CA for operators, and no tokens.
const CERTIFICATE: &str = "certificate";

/// What an operator may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// See everything, validate and preview edits
    Read,
    /// Also edit rules, overrides and bans, refund and reset
    Edit,
}

impl Role {
    /// As settings call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Edit => "edit",
        }
    }
}

/// An operator, or a program of one.
#[derive(Debug, Clone)]
pub struct NamedToken {
    pub name: Arc<str>,
    pub role: Role,
    pub tokens: Arc<TokenSet>,
}

/// The tokens of the admin API; without one every client on this machine is permitted.
#[derive(Debug, Clone, Default)]
pub struct AdminTokens(Vec<NamedToken>);

/// The operator that a request comes from.
#[derive(Debug, Clone)]
pub struct Caller {
    pub name: Arc<str>,
    pub role: Role,
}

impl AdminTokens {
    /// These tokens, each with a name of its own.
    pub const fn new(tokens: Vec<NamedToken>) -> Self {
        Self(tokens)
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names and roles.
    pub fn names(&self) -> impl Iterator<Item = (&str, Role)> {
        self.0.iter().map(|token| (&*token.name, token.role))
    }

    /// The sets of tokens.
    pub fn sets(&self) -> impl Iterator<Item = &Arc<TokenSet>> {
        self.0.iter().map(|token| &token.tokens)
    }

    /// The operator of this token. Compares all tokens, so that timing reveals nothing.
    pub fn caller(&self, given: &[u8]) -> Option<Caller> {
        let mut found = None;
        for token in &self.0 {
            if token.tokens.contains(given) && found.is_none() {
                found = Some(token);
            }
        }
        found.map(|token| Caller { name: Arc::clone(&token.name), role: token.role })
    }
}

impl Caller {
    /// The caller where there are no tokens.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.into(), role: Role::Edit }
    }

    /// The caller that a certificate authenticates, where there are no tokens.
    pub fn with_certificate() -> Self {
        Self { name: CERTIFICATE.into(), role: Role::Edit }
    }
}

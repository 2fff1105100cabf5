//! Warnings for operators, shown by the status and the dashboard while they last.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use utoipa::ToSchema;

/// Warnings for operators, one per topic.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<BTreeMap<&'static str, String>>);

/// Something that an operator should look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Warning {
    /// What it is about, for programs.
    pub(crate) topic: &'static str,
    /// What was seen, and what to do.
    pub(crate) detail: String,
}

impl Warnings {
    /// What is to be said of a topic from now on, if anything; whether that is new.
    pub(crate) fn set(&self, topic: &'static str, detail: Option<String>) -> bool {
        let mut active = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if active.get(topic) == detail.as_ref() {
            return false;
        }
        match detail {
            Some(detail) => active.insert(topic, detail),
            None => active.remove(topic),
        };
        true
    }

    /// All of them, by topic.
    pub(crate) fn all(&self) -> Vec<Warning> {
        let active = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        active.iter().map(|(topic, detail)| Warning { topic, detail: detail.clone() }).collect()
    }
}

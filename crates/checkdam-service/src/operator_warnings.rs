//! Current warnings for operators, shown in the status and the dashboard until they are
//! resolved.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::lock;
use serde::Serialize;
use utoipa::ToSchema;

/// Warnings for operators, one per topic.
#[derive(Debug, Default)]
pub struct Warnings(Mutex<BTreeMap<&'static str, String>>);

/// Something that an operator should look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Warning {
    /// What it is about, for programs.
    pub topic: &'static str,
    /// What was seen, and what to do.
    pub detail: String,
}

impl Warnings {
    /// What is to be said of a topic from now on, if anything; whether that is new.
    pub fn set(&self, topic: &'static str, detail: Option<String>) -> bool {
        let mut active = lock(&self.0);
        if active.get(topic) == detail.as_ref() {
            return false;
        }
        match detail {
            Some(detail) => active.insert(topic, detail),
            None => active.remove(topic),
        };
        true
    }

    pub(crate) fn all(&self) -> Vec<Warning> {
        let active = lock(&self.0);
        active.iter().map(|(topic, detail)| Warning { topic, detail: detail.clone() }).collect()
    }
}

//! Parts of the IETF rate-limit headers that depend only on a rule and its quota,
//! rendered once when the rules are compiled.

use sfv::{ItemSerializer, KeyRef, StringRef};

use crate::quota::{Quota, period_text};
use crate::time::SECOND_US;

/// The largest integer a structured field may hold.
pub(crate) const FIELD_MAX: u64 = 999_999_999_999_999;

/// The parts of the IETF headers that depend on the rule only.
#[derive(Debug)]
pub(crate) struct PolicyText {
    /// `name`
    pub(crate) plain: String,
    /// `"name"`
    pub(crate) name: String,
    /// `"name";q=50;w=5`
    pub(crate) policy: String,
    /// `;w=5`
    pub(crate) window: String,
    /// `10/s burst 50`
    pub(crate) limit: String,
}

impl PolicyText {
    /// `quotas`: all that the subject has of the rule, so that each has a name of its own.
    pub(crate) fn new(rule: &str, quota: &Quota, quotas: &[Quota]) -> Self {
        let limit = quota.to_string();
        let rate = |quota: &Quota| (quota.spec().amount, quota.period_us());
        let plain = match quotas.iter().filter(|other| rate(other) == rate(quota)).count() {
            _ if quotas.len() == 1 => rule.to_owned(),
            1 => format!("{rule} {}/{}", quota.spec().amount, period_text(quota.period_us())),
            _ => format!("{rule} {limit}"),
        };
        // Rule names are printable ASCII, so they are structured strings.
        let Ok(text) = StringRef::from_str(&plain) else {
            return Self { plain, name: "\"\"".to_owned(), policy: "\"\"".to_owned(), window: String::new(), limit };
        };
        let window_s = integer(quota.window_us().div_ceil(SECOND_US));
        let policy = ItemSerializer::new()
            .bare_item(text)
            .parameter(key("q"), integer(quota.limit()))
            .parameter(key("w"), window_s)
            .finish();
        let name = ItemSerializer::new().bare_item(text).finish();
        Self { plain, name, policy, window: format!(";w={window_s}"), limit }
    }
}

fn key(name: &'static str) -> &'static KeyRef {
    KeyRef::constant(name)
}

fn integer(value: u64) -> sfv::Integer {
    sfv::Integer::try_from(value.min(FIELD_MAX)).unwrap_or(sfv::Integer::MAX)
}

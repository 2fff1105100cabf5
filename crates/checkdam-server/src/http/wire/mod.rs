//! What goes over the wire: requests as they arrive, answers as they leave.
//! These types know JSON; the library's types do not.

mod answer;
mod body;
mod explain;
mod rate_limit;
mod refusal;
mod request;

pub(super) use answer::{Answer, BatchAnswer, Denied, answer, batch, state};
pub(crate) use answer::{STANDING, standing};
pub(super) use explain::ExplainAnswer;
pub(crate) use explain::{explain, mode_name};
pub(super) use rate_limit::{parse_rate_limit, rate_limit};
pub(super) use refusal::Refusal;
pub(crate) use refusal::refuse;
pub(super) use request::{BatchBody, CheckBody, parse, parse_batch};

/// A value as JSON. Our own types cannot fail to be written into memory.
pub(super) fn json<T: serde::Serialize + ?Sized>(value: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(1_024);
    if let Err(error) = serde_json::to_writer(&mut out, value) {
        tracing::error!(%error, "an answer could not be written");
    }
    out
}

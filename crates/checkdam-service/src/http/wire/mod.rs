//! Wire types: requests and responses of the HTTP API. The library's request and outcome
//! types do not implement serde.

mod envoy_rate_limit;
mod explain;
mod requests;
mod responses;

pub(super) use envoy_rate_limit::{parse_rate_limit, write_rate_limit};
pub(super) use explain::ExplainAnswer;
pub use explain::{explain, mode_name};
pub(super) use requests::{
    BODY_MAX, BatchBody, CheckBody, RecordBody, parse, parse_batch, parse_record, read, read_within,
};
pub(super) use responses::{Answer, BatchAnswer, Denied, Refusal, batch_response, decision_response, state_response};
pub use responses::{STANDING, denial_response, rate_limit_headers};

/// A value as JSON. Our own types cannot fail to be written into memory.
pub(super) fn json<T: serde::Serialize + ?Sized>(value: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(1_024);
    if let Err(error) = serde_json::to_writer(&mut out, value) {
        tracing::error!(%error, "cannot serialize a response");
    }
    out
}

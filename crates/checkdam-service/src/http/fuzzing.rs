//! Entry points of the fuzz targets: bodies of requests.

use checkdam::Request;
use checkdam_envoy_proto::RateLimitRequest;

use super::wire;

/// Reads the body of a check, or the problem as JSON.
pub fn read_check(body: &[u8]) -> Result<Request<'_>, String> {
    wire::parse(body).map_err(|problem| problem.to_json())
}

/// Reads the body of a record, or the problem as JSON.
pub fn read_record(body: &[u8]) -> Result<Request<'_>, String> {
    wire::parse_record(body).map_err(|problem| problem.to_json())
}

/// Reads the body of a batch, or the problem as JSON.
pub fn read_batch(body: &[u8]) -> Result<Vec<Request<'_>>, String> {
    wire::parse_batch(body).map_err(|problem| problem.to_json())
}

/// Reads Envoy's rate limit request in JSON, or the problem as JSON.
pub fn read_rate_limit(body: &[u8]) -> Result<RateLimitRequest, String> {
    wire::parse_rate_limit(body).map_err(|problem| problem.to_json())
}

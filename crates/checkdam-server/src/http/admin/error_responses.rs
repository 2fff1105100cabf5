//! Error responses that every path of the admin API may have, for OpenAPI.

use utoipa::IntoResponses;

use crate::http::problem::Problem;

#[derive(IntoResponses)]
#[expect(dead_code, reason = "only its description is used")]
pub(super) enum AdminErrorResponses {
    /// The token is missing or wrong
    #[response(status = 401, content_type = "application/problem+json")]
    Unauthorized(Problem),
    /// The call comes from a page of another origin, or by a name that is not this machine's
    #[response(status = 403, content_type = "application/problem+json")]
    Forbidden(Problem),
    /// A value is not acceptable; nothing was changed
    #[response(status = 422, content_type = "application/problem+json")]
    Invalid(Problem),
    /// The database does not answer; nothing was changed
    #[response(status = 503, content_type = "application/problem+json")]
    Unavailable(Problem),
}

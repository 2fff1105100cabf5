//! The request target (RFC 9112, section 3.2): host and path as the request line has
//! them.

use std::borrow::Cow;

use axum::http::{Method, Uri};
use checkdam::normalize::{PathError, PathNormalization};

/// The target of a request, as its first line has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestTarget<'a> {
    /// Host and port, if the target names them.
    pub(crate) authority: Option<&'a str>,
    /// The path, without what follows it.
    path: &'a str,
}

impl<'a> RequestTarget<'a> {
    /// Reads `/path?query`, `http://host/path?query` or `*`.
    pub(crate) fn parse(text: &'a str) -> Self {
        let text = &text[..text.find(['?', '#']).unwrap_or(text.len())];
        let scheme = ["http://", "https://"]
            .into_iter()
            .find(|scheme| text.get(..scheme.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(scheme)));
        let Some(scheme) = scheme else { return Self { authority: None, path: text } };
        let rest = &text[scheme.len()..];
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // Before an @ stands a user, which is no part of the host.
        let host = authority.rsplit('@').next().unwrap_or(authority);
        Self { authority: Some(host), path }
    }

    /// Whether it has dot segments, which servers read in two ways.
    pub(crate) fn has_dot_segments(&self, forms: &PathNormalization) -> bool {
        forms.has_dot_segments(self.path)
    }

    /// The path in its normal form.
    pub(crate) fn endpoint(&self, forms: &PathNormalization) -> Result<Cow<'a, str>, PathError> {
        forms.endpoint(self.path)
    }
}

/// Whether a request target is in authority-form, a host alone, without being that of CONNECT
/// ([RFC 9112](https://www.rfc-editor.org/rfc/rfc9112#section-3.2.3)).
pub(crate) fn is_misplaced_authority(method: &Method, target: &Uri) -> bool {
    target.scheme().is_none() && target.authority().is_some() && method != Method::CONNECT
}

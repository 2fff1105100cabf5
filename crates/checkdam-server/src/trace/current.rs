//! The caller's span, known to everything that answers a request without being
//! handed from one to the next.

use super::parent::TraceParent;

tokio::task_local! {
    static PARENT: TraceParent;
}

/// Answers a request of this caller.
pub(crate) async fn within<T>(parent: Option<TraceParent>, answering: impl Future<Output = T>) -> T {
    match parent {
        // Boxed, so that requests that nobody traces do not carry the room for it.
        Some(parent) => PARENT.scope(parent, Box::pin(answering)).await,
        None => answering.await,
    }
}

/// The span of whoever asked, if it said so.
pub(crate) fn parent() -> Option<TraceParent> {
    PARENT.try_with(|parent| *parent).ok()
}

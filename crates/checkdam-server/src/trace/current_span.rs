//! The caller's span as a task-local value, available to everything that handles a
//! request.

use crate::traceparent::TraceParent;

tokio::task_local! {
    static PARENT: TraceParent;
}

/// Answers a request of this caller.
pub(super) fn with_parent<T>(parent: TraceParent, answering: impl Future<Output = T>) -> impl Future<Output = T> {
    PARENT.scope(parent, answering)
}

/// The caller's span, if it sent one.
pub(super) fn parent() -> Option<TraceParent> {
    PARENT.try_with(|parent| *parent).ok()
}

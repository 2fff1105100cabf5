//! Admin API: the nodes that share a store.

use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::Admin;
use super::rules::{AdminErrorResponses, AdminResult, json_response};
use crate::nodes::NodeView;

/// Every node that can be seen.
#[derive(Serialize, ToSchema)]
pub(super) struct NodesAnswer {
    /// This one first, then by name.
    nodes: Vec<NodeAnswer>,
    /// Whether other nodes can be seen.
    shared: bool,
    /// Why not, and what to do about it.
    hint: Option<String>,
}

/// A node.
#[derive(Serialize, ToSchema)]
struct NodeAnswer {
    /// Its machine and port.
    node: String,
    /// Whether it is the one that answers.
    is_self: bool,
    /// The program's version.
    version: String,
    /// For how long it has run.
    uptime_s: u64,
    /// When it was last heard of.
    seen_s_ago: u64,
    /// `memory` or `redis`.
    store: String,
    /// The version of its rules; 0 for a file.
    rules_version: u64,
    /// Requests a second, over the last ten.
    requests_per_s: f64,
    /// Of these, requests that did not pass.
    limited_per_s: f64,
    /// Whether it wants requests.
    ready: bool,
}

impl From<NodeView> for NodeAnswer {
    fn from(NodeView { summary, is_self, seen_s_ago }: NodeView) -> Self {
        Self {
            node: summary.node,
            is_self,
            version: summary.version,
            uptime_s: summary.uptime_s,
            seen_s_ago,
            store: summary.store,
            rules_version: summary.rules_version,
            requests_per_s: summary.requests_per_s,
            limited_per_s: summary.limited_per_s,
            ready: summary.ready,
        }
    }
}

/// Lists the nodes that share a store.
#[utoipa::path(get, path = "/admin/v1/nodes", operation_id = "list_nodes", tag = "status",
    responses((status = 200, description = "The nodes", body = NodesAnswer), AdminErrorResponses))]
pub(super) async fn list(State(admin): State<Arc<Admin>>) -> AdminResult {
    let nodes = admin.nodes.all().into_iter().map(Into::into).collect();
    Ok(json_response(&NodesAnswer { nodes, shared: admin.nodes.is_shared(), hint: admin.nodes.hint() }))
}

//! The admin API, on a listener of its own: rules, violations, traffic and status. It
//! also serves the dashboard, which is a client of this API like any other.
//!
//! Handlers read the active state from the app and edit through the rulebook. The
//! response to an edit is sent once it is active on this node, or after five seconds
//! as 202.

mod authentication;
mod bans;
mod buckets;
mod changes;
mod edit_requests;
mod import_export;
mod live_events;
mod overrides;
mod preview;
mod query_parameters;
mod rules;
mod status;
mod top;
mod traffic;
mod violations;

pub(super) use self::documented::AdminPaths;
pub use self::live_events::LiveEvents;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use tokio::sync::Semaphore;

use super::same_origin::{AllowedHosts, same_origin_middleware};
use super::{dashboard, health, metrics, openapi, problem};
use crate::access::{AdminTokens, TokenSet};
use crate::app::App;
use crate::audit::BAN;
use crate::nodes::Nodes;
use crate::rulebook::{DatabasePoller, Rulebook};
use crate::store::ConfiguredStore;

/// How long an edit waits to be active here: others see it within a second.
const ACTIVE_LIMIT: Duration = Duration::from_secs(5);

/// What the admin API works with.
pub struct Admin {
    pub app: Arc<App>,
    /// The admin tokens; without one every client on this machine is permitted.
    pub tokens: AdminTokens,
    /// The tokens of the HTTP API, which `/metrics` needs too.
    pub api_tokens: Option<Arc<TokenSet>>,
    /// The database of violations, and of rules unless they come from a file.
    pub rulebook: Option<Rulebook>,
    pub rules: Arc<RuleSource>,
    /// This node, and those that it sees.
    pub nodes: Arc<Nodes>,
    /// The subscribers of live traffic.
    pub live: Arc<LiveEvents>,
    /// Where rules and violations are kept, for people.
    pub database: String,
    /// Where the buckets are kept, for people.
    pub store: String,
    /// Whether its clients have a certificate of a CA for operators, so that they need no
    /// token. A page cannot use DNS rebinding then: the certificate has another name.
    pub has_operator_ca: bool,
    /// How many previews may still begin.
    pub previews: Arc<Semaphore>,
}

/// The source of the rules.
pub enum RuleSource {
    /// A file, which is read-only here.
    File(String),
    /// The rulebook.
    Database(DatabasePoller),
}

impl Admin {
    /// Whether callers need a token or a certificate.
    pub(super) const fn authenticates(&self) -> bool {
        !self.tokens.is_empty() || self.has_operator_ca
    }

    fn has_rule(&self, name: &str) -> bool {
        name == BAN || self.app.limiter().rules().numbered().any(|rule| rule.name == name)
    }

    /// Waits until what was committed is active here, and notifies the other nodes;
    /// returns what is known if that takes too long.
    async fn wait_until_active(&self) -> Option<String> {
        let RuleSource::Database(follower) = &*self.rules else { return None };
        let announced = async {
            if let ConfiguredStore::Redis(watched) = self.app.limiter().store() {
                // It is a hint: the others poll anyway.
                let _ = tokio::time::timeout(ACTIVE_LIMIT, watched.publish_change()).await;
            }
        };
        let mut looks = follower.poll_requests();
        let active = tokio::time::timeout(ACTIVE_LIMIT, looks.poll_until_read());
        let (_, is_active) = tokio::join!(announced, active);
        if is_active == Ok(true) {
            return None;
        }
        let reason = follower.status().error;
        let reason = reason.unwrap_or_else(|| "it is still being loaded".to_owned());
        Some(format!(
            "the edit is stored, and not active on this node yet: {reason}; /admin/v1/status says when there is no \
             error any more"
        ))
    }
}

pub(super) fn router(admin: Arc<Admin>, hosts: Arc<AllowedHosts>) -> Router {
    let app = Arc::clone(&admin.app);
    let guarded = Router::new()
        .route("/admin/v1/rules", get(rules::list).post(rules::add))
        .route("/admin/v1/rules/validate", post(import_export::validate))
        .route("/admin/v1/rules/import", post(import_export::import))
        .route("/admin/v1/rules/preview", post(preview::preview))
        .route("/admin/v1/rules/export", get(import_export::export))
        .route("/admin/v1/rules/{name}", get(rules::show).put(rules::put).delete(rules::remove))
        .route("/admin/v1/rules/{name}/effect", get(rules::effect))
        .route("/admin/v1/overrides", get(overrides::list).put(overrides::put).delete(overrides::remove))
        .route("/admin/v1/bans", get(bans::list).put(bans::put).delete(bans::remove))
        .route("/admin/v1/violations", get(violations::list))
        .route("/admin/v1/changes", get(changes::list))
        .route("/admin/v1/inspect", post(buckets::inspect))
        .route("/admin/v1/reset", post(buckets::reset_bucket))
        .route("/admin/v1/refund", post(buckets::refund_bucket))
        .route("/admin/v1/status", get(status::status))
        .route("/admin/v1/nodes", get(status::nodes))
        .route("/admin/v1/top", get(top::list))
        .route("/admin/v1/traffic", get(traffic::show))
        .route("/admin/v1/live", get(live_events::listen))
        .layer(from_fn_with_state(Arc::clone(&admin), authentication::require_token))
        .layer(from_fn_with_state(Arc::clone(&hosts), same_origin_middleware))
        .with_state(Arc::clone(&admin));
    // Prometheus needs no admin token; a web page that calls this machine by its own name gets nothing.
    let scraped = Router::new()
        .route("/metrics", get(metrics::metrics))
        .layer(from_fn_with_state((admin, hosts), authentication::require_scrape_token))
        .with_state(Arc::new(metrics::Scraper::new(Arc::clone(&app))));
    Router::new()
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/openapi.json", get(openapi::document))
        .with_state(app)
        .merge(guarded)
        .merge(scraped)
        .merge(dashboard::router())
        .fallback(problem::not_found_by_admin)
        .method_not_allowed_fallback(problem::wrong_method)
}

/// The OpenAPI description of this listener.
mod documented {
    use utoipa::OpenApi;

    use super::{
        bans, buckets, changes, import_export, live_events, overrides, preview, rules, status, top, traffic, violations,
    };

    #[derive(OpenApi)]
    #[openapi(paths(
        rules::list,
        rules::add,
        rules::show,
        rules::put,
        rules::remove,
        rules::effect,
        import_export::validate,
        import_export::import,
        preview::preview,
        import_export::export,
        overrides::list,
        overrides::put,
        overrides::remove,
        bans::list,
        bans::put,
        bans::remove,
        violations::list,
        changes::list,
        buckets::inspect,
        buckets::reset_bucket,
        buckets::refund_bucket,
        status::status,
        status::nodes,
        top::list,
        traffic::show,
        live_events::listen
    ))]
    pub(in crate::http) struct AdminPaths;
}
